"""The answers of a running scheduler: explain, inventory, lint, the map and the Pods that wait, on a state of its own.

Nothing here writes to the cluster, and nothing it tries touches the state that decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any, TypeVar

import msgspec

from scheduler.api.core import Pod
from scheduler.app.knowledge import ClusterKnowledge
from scheduler.app.profiles import build_profiles
from scheduler.app.service import Service
from scheduler.edge.asking import Asking, Steps
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
        self._service, features = service, service.state.features
        self._knowledge = ClusterKnowledge(service, clock, verify)
        ids = count(1)
        self.profiles: dict[str, Profile] = build_profiles(
            replace(service.config, extenders=()),  # a question must not bother anybody outside
            self.state,
            lambda: f"00000000-0000-4000-8000-{next(ids):012d}",
            features,
        )
        self._names: tuple[int, Names] | None = None
        self._asking = Asking(self._knowledge, self._answer_steps, self._busy, on_slice=on_slice, forking=forking)
        self._kinds: dict[str, tuple[Callable[..., Steps[Any]], Reply[Any]]] = {
            "explain": (self._explain, self._with_text),
            "inventory": (self._inventory, _alone),
            "names": (self._nothing, _alone),
            "lint": (self._lint, _alone),
            "map": (self._cluster_map, _alone),
            "waiting": (self._waiting, _nothing),
        }

    async def close(self) -> None:
        """End what answers; whoever waits is refused."""
        await self._asking.close()

    def clock(self) -> float:
        """Wall-clock seconds, by which ages are told."""
        return self._knowledge.clock()

    @property
    def state(self) -> ClusterState:
        """The state that answers are about; it changes between questions only."""
        return self._knowledge.mirror.state

    def _busy(self) -> bool:
        return self._service.queue.counts()["active"] > 0 or self._service.loop.commit_count > 0

    def _answer_steps(self, question: tuple[Any, ...]) -> Steps[Told[Any]]:
        """The answer to a question (its name and parts), on the state of this process."""
        name, *parts = question
        steps, reply = self._kinds[name]
        return self._told(steps(*parts), reply)

    def _told(self, steps: Steps[T], reply: Reply[T]) -> Steps[Told[T]]:
        """The answer with every name there was when it was given, for who has to hide some of them."""
        answer = yield from steps
        version = self._knowledge.mirror.version
        if self._names is None or self._names[0] != version:
            self._names = version, (yield from names_steps(self.state))
        names, told = self._names[1], reply(answer)
        yield
        spaces = frozenset(mentioned(told["answer"], names))
        yield
        return Told.of(answer, names, spaces, msgspec.json.encode(told))

    async def _ask(self, *question: Any) -> Told[Any]:
        if not self._service.synced:
            raise ClusterError("not every kind has been listed yet")
        told: Told[Any] = await self._asking.ask(question)
        return told

    async def explain(self, namespace: str, name: str, hints: bool = True) -> Told[tuple[Explanation, Own]]:
        """One Pod, hints included. Raises UserError when there is no such Pod (ended ones are not watched)."""
        return await self._ask("explain", namespace, name, hints)

    def _with_text(self, answer: tuple[Explanation, Own]) -> dict[str, Any]:
        return explanation_reply(answer[0], self.clock())

    def _explain(self, namespace: str, name: str, hints: bool) -> Steps[tuple[Explanation, Own]]:
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

    def _hints(self, profile: Profile, pod: Pod, now: float, found: Explanation) -> Steps[None]:
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
        return await self._ask("inventory", by)

    def _inventory(self, by: str) -> Steps[Inventory]:
        found = yield from inventory_steps(self.state, by, self.clock())
        found.caveats.extend(self.problems())
        return found

    async def names(self) -> Names:
        """Every name there is now."""
        return (await self._ask("names")).names

    def _nothing(self) -> Steps[None]:
        yield

    async def live_inventory(self) -> Inventory:
        """Devices by model, counted on the state that decides, in slices; for metrics. Costs no second state."""
        return await self._asking.run(inventory_steps(self._service.state, "model", self.clock()))

    async def lint(self) -> Told[Findings]:
        """As ``dra-scheduler lint``, without what the scheduler does not watch (templates, applied manifests)."""
        return await self._ask("lint")

    def _lint(self) -> Steps[Findings]:
        yield
        found = lint(self.state, {}, self.state.devices.slices.rules(), {}, self.profiles)
        found.caveats.append(
            "a running scheduler watches no templates and no applied manifests: lint them with --kubeconfig or -f"
        )
        found.caveats.extend(self.problems())
        return found

    async def cluster_map(self, match: str, limit: int) -> Told[ClusterMap]:
        """Nodes and devices, see ``explain.cluster_map``."""
        return await self._ask("map", match, limit)

    def _cluster_map(self, match: str, limit: int) -> Steps[ClusterMap]:
        return map_steps(self.state, self.clock(), match, limit)

    async def waiting(self, limit: int) -> Told[WaitingPods]:
        """Pods that wait, see ``explain.cluster_map``."""
        return await self._ask("waiting", limit)

    def _waiting(self, limit: int) -> Steps[WaitingPods]:
        yield
        return waiting_pods(self.state, self.profiles, limit)

    def problems(self) -> list[str]:
        """Objects that the answers leave out."""
        return [f"left out: {text}" for text in self._knowledge.mirror.problems.values()]
