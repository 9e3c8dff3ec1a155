"""A SchedulingLoop on a hand-fed state: a clock that stands still, a committer and reports that remember."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD
from scheduler.cycle.decision import Placed
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.edge.loop import SchedulingLoop
from scheduler.explain.outcome import FailureReport
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status
from scheduler.queue.hooks import ProfileHooks, QueueObserver
from scheduler.queue.pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise
from tests.cycle.attempt_world import make_node


class FakeCommitter:
    """Answers each commit with ``answer(placed)``, after ``hold`` was set if there is one."""

    def __init__(self) -> None:
        self.answer: Callable[[Placed], CommitOutcome] = lambda placed: CommitOutcome(bound=True)
        self.hold: asyncio.Event | None = None
        self.committed: list[Placed] = []
        self.undone: list[Placed] = []
        self.undo_error: Exception | None = None
        self.performed: list[object] = []
        self.stopped = False

    async def commit(self, placed: Placed, promised: Sequence[Promise]) -> CommitOutcome:
        self.committed.append(placed)
        if self.hold is not None:
            await self.hold.wait()
        return self.answer(placed)

    def stop(self) -> None:
        self.stopped = True

    async def undo(self, placed: Placed, promised: Sequence[Promise]) -> None:
        self.undone.append(placed)
        if self.undo_error is not None:
            raise self.undo_error

    async def perform(self, pod: Pod, instruction: object) -> str | None:
        self.performed.append(instruction)
        return None


class FakeReports:
    """Everything the loop said, as (what, Pod name or place, text)."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str, str]] = []
        self.raise_on: set[str] = set()

    def _say(self, what: str, name: str, text: str = "") -> None:
        self.said.append((what, name, text))
        if what in self.raise_on:
            raise ValueError(f"{what} is broken")

    def what(self, *kinds: str) -> list[tuple[str, str, str]]:
        return [entry for entry in self.said if entry[0] in kinds]

    def popped(self, queued: QueuedPod) -> None:
        self._say("popped", queued.pod.metadata.name)

    def decided(self, queued: QueuedPod, decision: object, started: float, finished: float) -> None:
        self._say("decided", queued.pod.metadata.name, type(decision).__name__)

    def bound(self, queued: QueuedPod, placed: Placed, outcome: CommitOutcome, started: float, finished: float) -> None:
        self._say("bound", placed.pod.metadata.name, placed.node)

    def failed(self, queued: QueuedPod, pod: Pod, report: FailureReport, started: float, finished: float) -> None:
        self._say("failed", pod.metadata.name, report.message)

    def lost_race(self, placed: Placed, outcome: CommitOutcome) -> None:
        self._say("lost", placed.pod.metadata.name, outcome.text)

    def given_again(self, pod: Pod, text: str) -> None:
        self._say("given again", pod.metadata.name, text)

    def waits_no_more(self, pod: Pod) -> None:
        self._say("waits no more", pod.metadata.name)

    def deleting(self, pod: Pod) -> None:
        self._say("deleting", pod.metadata.name)

    def gated(self, pod: Pod, status: Status) -> None:
        self._say("gated", pod.metadata.name, status.message)

    def broken(self, where: str, error: BaseException) -> None:
        self._say("broken", where, f"{type(error).__name__}: {error}")


class Gates(QueueObserver):
    """Passes the queue's word about held-back Pods on to the loop."""

    def __init__(self) -> None:
        self.loop: SchedulingLoop | None = None

    def gated(self, queued: QueuedPod, status: Status) -> None:
        if self.loop is not None:
            self.loop.note_gated(queued, status)


class LoopWorld:
    """Nodes n1 and n2, one profile, everything at hand."""

    def __init__(
        self,
        profile: Profile,
        *,
        pre_enqueue: Callable[[Pod, str | None], Status | None] = lambda pod, first: None,
        sort_key: Callable[[Pod, float], Any] = lambda pod, timestamp: timestamp,
        nodes: Sequence[str] = ("n1", "n2"),
        **options: Any,
    ) -> None:
        self.now = 1000.0
        self.state = ClusterState()
        for name in nodes:
            self.state.apply(Change(NODE, None, make_node(name)))
        gates = Gates()
        hooks = {profile.name: ProfileHooks(pre_enqueue, profile.registrations)}
        self.queue = SchedulingQueue(hooks, sort_key, observer=gates)
        self.committer, self.reports = FakeCommitter(), FakeReports()
        self.loop = SchedulingLoop(
            self.state,
            self.queue,
            {profile.name: profile},
            self.committer,  # type: ignore[arg-type]  # stands for a Committer
            self.reports,
            clock=lambda: self.now,
            verify_caches=True,
            **options,
        )
        gates.loop = self.loop

    def show(self, old: Pod | None, new: Pod | None) -> None:
        """The watch shows a Pod's change."""
        self.loop.deliver([Change(POD, old, new)], 1)

    async def turns(self, count: int = 1) -> int:
        """So many turns, each followed by whatever it set going; how many found a Pod."""
        busy = 0
        for _ in range(count):
            busy += await self.loop._turn()
            for _ in range(5):
                await asyncio.sleep(0)
        return busy

    def places(self) -> dict[str, str]:
        """Pod name → place in the queue."""
        return {str(record["pod"]).partition("/")[2]: str(record["place"]) for record in self.queue.dump()}
