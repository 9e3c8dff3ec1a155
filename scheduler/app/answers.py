"""The answers of a running scheduler: explain, inventory, lint, the map and the Pods that wait, on a state of its own.

Nothing here writes to the cluster, and nothing it tries touches the state that decides.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Generic, TypeVar

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
from scheduler.explain.kept import KeptReports
from scheduler.explain.lint import lint
from scheduler.explain.pods import explain_steps
from scheduler.explain.redaction import (
    mentioned,
    redact_explanation,
    redact_findings,
    redact_inventory,
    redact_map,
)
from scheduler.explain.sight import Names, Own, Sight, Told, names_steps, own_of, spaces_of
from scheduler.explain.text import explanation_reply
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Kind(Generic[T]):
    """How a question is answered.

    ``reply``: what is sent of the answer, its ``answer`` and perhaps more. ``redact``: the answer without the names
    that somebody may not see.
    """

    steps: Callable[..., Steps[T]]
    redact: Callable[[T, Sight, Names], T]
    reply: Callable[[T], dict[str, Any]] = lambda answer: {"answer": answer}


HINT_STEPS_MAX = 4_000
"""Steps of a few milliseconds that hints may take; as time, some seconds."""


RECENT_MAX, RECENT_S = 16, 20.0
"""Answers at hand for who may not see everything of them, each with all names there were; and for how long."""


def _redacted_explanation(answer: tuple[Explanation, Own], sight: Sight, names: Names) -> tuple[Explanation, Own]:
    found, own = answer
    return redact_explanation(found, sight, names, own), own


class Answers:
    """Built beside a Service. ``clock``: wall-clock seconds, by which ages are told.

    What is told is for who may see everything; with ``keep`` the answer stays at hand for ``redacted``.
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
        self._reports = KeptReports()
        self._recent: OrderedDict[tuple[Any, ...], tuple[float, Any, Names]] = OrderedDict()
        self._asking = Asking(self._knowledge, self._answer_steps, self._busy, on_slice=on_slice, forking=forking)
        self._kinds: dict[str, _Kind[Any]] = {
            "explain": _Kind(self._explain, _redacted_explanation, self._with_text),
            "inventory": _Kind(self._inventory, redact_inventory),
            "lint": _Kind(self._lint, redact_findings),
            "map": _Kind(self._cluster_map, redact_map),
        }
        self._plain: dict[str, Callable[..., Steps[Any]]] = {
            "names": self._all_names,
            "waiting": self._waiting,
            "kept": self._kept,
            "redacted": self._redacted,
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

    def _answer_steps(self, question: tuple[Any, ...]) -> Steps[Any]:
        """The answer to a question (its name and parts), on the state of this process."""
        name, *parts = question
        return self._told(question) if name in self._kinds else self._plain[name](*parts)

    def _told(self, question: tuple[Any, ...]) -> Steps[Told]:
        """An answer as it is sent to who may see everything."""
        answer = yield from self._answered(question)
        return Told(question, frozenset(), msgspec.json.encode(self._kinds[question[0]].reply(answer)))

    def _kept(self, question: tuple[Any, ...]) -> Steps[Told]:
        """One for who has to see less of it: it stays at hand here, with every name there was."""
        answer = yield from self._answered(question)
        self._recent[question] = self.clock(), answer, (yield from self._all_names())
        self._recent.move_to_end(question)
        while len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)
        spaces = mentioned(self._kinds[question[0]].reply(answer)["answer"], spaces_of(self.state))
        return Told(question, frozenset(spaces), b"")

    def _answered(self, question: tuple[Any, ...]) -> Steps[Any]:
        name, *parts = question
        return self._kinds[name].steps(*parts)

    def _redacted(self, question: tuple[Any, ...], sight: Sight) -> Steps[bytes]:
        """The reply without the names there were with the answer; one that is not at hand, or old, is made anew."""
        if question not in self._recent or self.clock() - self._recent[question][0] > RECENT_S:
            yield from self._kept(question)
        _, answer, names = self._recent[question]
        kind = self._kinds[question[0]]
        yield
        return msgspec.json.encode(kind.reply(kind.redact(answer, sight, names)))

    def _all_names(self) -> Steps[Names]:
        version = self._knowledge.mirror.version
        if self._names is None or self._names[0] != version:
            self._names = version, (yield from names_steps(self.state))
        return self._names[1]

    async def _ask(self, *question: Any) -> Any:
        if not self._service.synced:
            raise ClusterError("not every kind has been listed yet")
        return await self._asking.ask(question)

    async def _tell(self, keep: bool, *question: Any) -> Told:
        told: Told = await (self._ask("kept", question) if keep else self._ask(*question))
        return told

    async def redacted(self, told: Told, sight: Sight) -> bytes:
        """The reply to the question of ``told``, as a JSON object, without the names that ``sight`` excludes."""
        reply: bytes = await self._ask("redacted", told.question, sight)
        return reply

    async def explain(self, namespace: str, name: str, hints: bool = True, keep: bool = False) -> Told:
        """One Pod, hints included. Raises UserError when there is no such Pod (ended ones are not watched)."""
        return await self._tell(keep, "explain", namespace, name, hints)

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
        found = yield from explain_steps(profile, pod, self.state, now, self._reports)
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

    async def inventory(self, by: str, keep: bool = False) -> Told:
        """As ``dra-scheduler inventory --by``."""
        return await self._tell(keep, "inventory", by)

    def _inventory(self, by: str) -> Steps[Inventory]:
        found = yield from inventory_steps(self.state, by, self.clock())
        found.caveats.extend(self.problems())
        return found

    async def names(self) -> Names:
        """Every name there is now."""
        names: Names = await self._ask("names")
        return names

    async def live_inventory(self) -> Inventory:
        """Devices by model, counted on the state that decides, in slices; for metrics. Costs no second state."""
        return await self._asking.run(inventory_steps(self._service.state, "model", self.clock()))

    async def lint(self, keep: bool = False) -> Told:
        """As ``dra-scheduler lint``, without what the scheduler does not watch (templates, applied manifests)."""
        return await self._tell(keep, "lint")

    def _lint(self) -> Steps[Findings]:
        yield
        found = lint(self.state, {}, self.state.devices.slices.rules(), {}, self.profiles)
        found.caveats.append(
            "a running scheduler watches no templates and no applied manifests: lint them with --kubeconfig or -f"
        )
        found.caveats.extend(self.problems())
        return found

    async def cluster_map(self, match: str, limit: int, keep: bool = False) -> Told:
        """Nodes and devices, see ``explain.cluster_map``."""
        return await self._tell(keep, "map", match, limit)

    def _cluster_map(self, match: str, limit: int) -> Steps[ClusterMap]:
        return map_steps(self.state, self.clock(), match, limit)

    async def waiting(self, limit: int) -> WaitingPods:
        """Pods that wait, see ``explain.cluster_map``."""
        found: WaitingPods = await self._ask("waiting", limit)
        return found

    def _waiting(self, limit: int) -> Steps[WaitingPods]:
        yield
        return waiting_pods(self.state, self.profiles, limit)

    def problems(self) -> list[str]:
        """Objects that the answers leave out."""
        return [f"left out: {text}" for text in self._knowledge.mirror.problems.values()]
