"""The answers of a running scheduler: explain, inventory, lint, the map and the Pods that wait, on a state of its own.

Nothing here writes to the cluster, and nothing it tries touches the state that decides.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Hashable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import msgspec

from scheduler.api.core import Pod
from scheduler.app.profiles import build_profiles
from scheduler.app.service import Service
from scheduler.edge.asking import Asking
from scheduler.edge.mirror import Mirror
from scheduler.errors import ClusterError, UserError
from scheduler.explain.cluster_map import ClusterMap, WaitingPods, map_steps, waiting_pods
from scheduler.explain.facts import Explanation
from scheduler.explain.findings import Findings
from scheduler.explain.hints import hint_steps
from scheduler.explain.inventory import inventory_steps
from scheduler.explain.inventory_facts import Inventory
from scheduler.explain.lint import lint
from scheduler.explain.pods import explain_steps
from scheduler.explain.redaction import mentioned
from scheduler.explain.sight import Names, Own, Told, names_steps, own_of
from scheduler.explain.text import explanation_reply
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

T = TypeVar("T")
Reply = Callable[[T], dict[str, Any]]
"""What is told of an answer to who may see everything: its ``answer`` and perhaps more."""
HINT_STEPS_MAX = 4_000
"""Steps of a few milliseconds that hints may take; as time, some seconds."""


def _alone(answer: Any) -> dict[str, Any]:
    return {"answer": answer}


def _nothing(answer: Any) -> dict[str, Any]:
    """What is sent depends on more than the answer."""
    return {"answer": None}


class Answers:
    """Built beside a Service. ``clock``: wall-clock seconds, by which ages are told.

    Every question raises ClusterError before the kinds have been listed, and ``edge.asking.TooBusyError``.
    """

    def __init__(
        self,
        service: Service,
        clock: Callable[[], float] = time.time,
        *,
        on_slice: Callable[[float], None] = lambda seconds: None,
        verify: bool = False,
        forking: bool = True,
    ) -> None:
        self._service, self.clock, self._verify = service, clock, verify
        features = service.state.features
        mirror = Mirror(features)
        ids = count(1)
        self.profiles: dict[str, Profile] = build_profiles(
            replace(service.config, extenders=()),  # a question must not bother anybody outside
            mirror.state,
            lambda: f"00000000-0000-4000-8000-{next(ids):012d}",
            features,
        )
        self._names: tuple[int, Names] | None = None
        self._asking = Asking(mirror, self._refresh, self._busy, on_slice=on_slice, forking=forking)

    @property
    def state(self) -> ClusterState:
        """The state that answers are about; it changes between questions only."""
        return self._asking.mirror.state

    def _busy(self) -> bool:
        return self._service.queue.counts()["active"] > 0 or self._service.loop.commit_count > 0

    def _refresh(self, mirror: Mirror) -> Generator[None, None, None]:
        copies = {name: (reflector.kind, reflector.store) for name, reflector in self._service.reflectors.items()}
        first = mirror.version == 0
        yield from mirror.refresh_steps(copies, self._service.state)
        if first:
            # As after the first LISTs: the collector shall not walk through all of this again and again.
            gc.freeze()
        if self._verify:
            mirror.state.verify()

    def _told(self, steps: Generator[None, None, T], reply: Reply[T]) -> Generator[None, None, Told[T]]:
        """The answer with every name there was when it was given, for who has to hide some of them."""
        answer = yield from steps
        version = self._asking.mirror.version
        if self._names is None or self._names[0] != version:
            self._names = version, (yield from names_steps(self.state))
        names, told = self._names[1], reply(answer)
        yield
        spaces = frozenset(mentioned(told["answer"], names))
        yield
        return Told(answer, names, spaces, msgspec.json.encode(told))

    async def _ask(
        self, question: Hashable, steps: Callable[[], Generator[None, None, T]], reply: Reply[T] = _alone
    ) -> Told[T]:
        if not self._service.synced:
            raise ClusterError("not every kind has been listed yet")
        return await self._asking.ask(question, lambda: self._told(steps(), reply))

    async def explain(self, namespace: str, name: str, hints: bool = True) -> Told[tuple[Explanation, Own]]:
        """One Pod, hints included. Raises UserError when there is no such Pod (ended ones are not watched)."""
        question = ("explain", namespace, name, hints)
        return await self._ask(question, lambda: self._explain(namespace, name, hints), self._with_text)

    def _with_text(self, answer: tuple[Explanation, Own]) -> dict[str, Any]:
        return explanation_reply(answer[0], self.clock())

    def _explain(self, namespace: str, name: str, hints: bool) -> Generator[None, None, tuple[Explanation, Own]]:
        store = self._service.reflectors["Pod"].store
        pod: Pod | None = store.get(f"{namespace}/{name}")
        pod = None if pod is None else self.state.pods.get(pod.uid)
        if pod is None:
            raise UserError(f"pod {namespace}/{name}", "", "not found among the Pods that have not ended")
        own = self.profiles.get(pod.spec.schedulerName)
        profile = own or next(iter(self.profiles.values()))
        now = self.clock()
        placement = self.state.placements.get(pod.uid)
        if placement is not None and placement.assumed:
            return self._on_its_way(pod, placement.node), own_of(self.state, pod)
        found = yield from explain_steps(profile, pod, self.state, now)
        if hints and found.phase in ("waiting", "held back"):
            yield from self._hints(profile, pod, now, found)
        if own is None:
            text = f"schedulerName {pod.spec.schedulerName} has no profile here: judged by profile {profile.name}"
            found.caveats.append(text)
        found.caveats.extend(self.problems())
        return found, own_of(self.state, pod)

    def _hints(self, profile: Profile, pod: Pod, now: float, found: Explanation) -> Generator[None, None, None]:
        steps = hint_steps(profile, pod, self.state, now, found)
        try:
            for _ in range(HINT_STEPS_MAX):
                try:
                    next(steps)
                except StopIteration as stop:
                    if not stop.value:
                        found.caveats.append("not every change that might help was tried")
                    return
                yield
            found.caveats.append("not every change that might help was tried")
        finally:
            steps.close()

    @staticmethod
    def _on_its_way(pod: Pod, node: str) -> Explanation:
        text = "it has been decided and is being written: claims, volumes, Permit plugins or binding conditions may "
        return Explanation(pod.key, "fits", pod.spec.schedulerName, text + "take a while", node=node)

    async def inventory(self, by: str) -> Told[Inventory]:
        """As ``dra-scheduler inventory --by``."""
        return await self._ask(("inventory", by), lambda: self._inventory(by))

    def _inventory(self, by: str) -> Generator[None, None, Inventory]:
        found = yield from inventory_steps(self.state, by, self.clock())
        found.caveats.extend(self.problems())
        return found

    async def names(self) -> Names:
        """Every name there is now."""

        def nothing() -> Generator[None, None, None]:
            yield

        return (await self._ask(("names",), nothing)).names

    async def live_inventory(self) -> Inventory:
        """Devices by model, counted on the state that decides, in slices; for metrics. Costs no second state."""
        return await self._asking.run(inventory_steps(self._service.state, "model", self.clock()))

    async def lint(self) -> Told[Findings]:
        """As ``dra-scheduler lint``, without what the scheduler does not watch (templates, applied manifests)."""
        return await self._ask(("lint",), self._lint)

    def _lint(self) -> Generator[None, None, Findings]:
        yield
        found = lint(self.state, {}, self.state.devices.slices.rules(), {}, self.profiles)
        found.caveats.append(
            "a running scheduler watches no templates and no applied manifests: lint them with --kubeconfig or -f"
        )
        found.caveats.extend(self.problems())
        return found

    async def cluster_map(self, match: str, limit: int) -> Told[ClusterMap]:
        """Nodes and devices, see ``explain.cluster_map``."""
        return await self._ask(("map", match, limit), lambda: map_steps(self.state, self.clock(), match, limit))

    async def waiting(self, limit: int) -> Told[WaitingPods]:
        """Pods that wait, see ``explain.cluster_map``."""
        return await self._ask(("waiting", limit), lambda: self._waiting(limit), _nothing)

    def _waiting(self, limit: int) -> Generator[None, None, WaitingPods]:
        yield
        return waiting_pods(self.state, self.profiles, limit)

    def problems(self) -> list[str]:
        """Objects that the answers leave out."""
        return [f"left out: {text}" for text in self._asking.mirror.problems.values()]
