"""Where the trail listens: the reports of attempts, the writes of claims, the changes that watches deliver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.audit.trail import Trail
from scheduler.cycle.decision import Decision, Placed
from scheduler.edge.commit_ports import ClaimWrites, CommitOutcome
from scheduler.edge.reports import AttemptReports
from scheduler.errors import SchedulerError
from scheduler.explain.outcome import FailureReport
from scheduler.framework.status import Status
from scheduler.queue.pod import QueuedPod
from scheduler.state.devices import Promise


class AuditedReports(AttemptReports):
    """AttemptReports that tell the trail, too. A trail that breaks is told as an internal error, nothing else."""

    def __init__(self, *arguments: Any, trail: Trail) -> None:
        super().__init__(*arguments)
        self._trail = trail

    def _tell(self, tell: Callable[..., None], *arguments: Any) -> None:
        try:
            tell(*arguments)
        except Exception as error:  # the trail is a bystander: it must not cost a Pod its attempt
            self.broken("the audit trail", error)

    def changed(self, change: Change) -> None:
        """A watch shows a change; the state does not know of it yet."""
        self._tell(self._trail.changed, change)

    def reserved(self, queued: QueuedPod, placed: Placed, promised: Sequence[Promise]) -> None:
        """A decision is counted; nothing has been written yet."""
        self._tell(self._trail.reserved, placed, promised, queued.attempts)

    def decided(self, queued: QueuedPod, decision: Decision, started: float, finished: float) -> None:
        """As inherited."""
        super().decided(queued, decision, started, finished)
        self._tell(self._trail.decided, decision)

    def bound(self, queued: QueuedPod, placed: Placed, outcome: CommitOutcome, started: float, finished: float) -> None:
        """As inherited."""
        super().bound(queued, placed, outcome, started, finished)
        self._tell(self._trail.bound, placed)

    def failed(self, queued: QueuedPod, pod: Pod, report: FailureReport, started: float, finished: float) -> None:
        """As inherited."""
        super().failed(queued, pod, report, started, finished)
        self._tell(self._trail.failed, pod, report.message, queued.attempts)

    def gated(self, pod: Pod, status: Status) -> None:
        """As inherited."""
        super().gated(pod, status)
        self._tell(self._trail.failed, pod, status.message, 0)

    def lost_race(self, placed: Placed, outcome: CommitOutcome) -> None:
        """As inherited."""
        super().lost_race(placed, outcome)
        if outcome.lost:
            self._tell(self._trail.lost, placed.pod, outcome.text)

    def given_again(self, pod: Pod, text: str) -> None:
        """As inherited."""
        super().given_again(pod, text)
        self._tell(self._trail.given_twice, pod, text)

    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None:
        """As inherited."""
        super().preempted(victim, preemptor, node, in_memory)
        self._tell(self._trail.preempted, victim, preemptor, node, in_memory)


class AuditedClaims:
    """A claim writer that tells the trail what is ours before it is sent: the watch may show it before the answer."""

    def __init__(self, writer: ClaimWrites, trail: Trail) -> None:
        self._writer, self._trail = writer, trail

    async def allocate(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ConsumerReference
    ) -> ResourceClaim:
        """As the writer."""
        self._trail.allocating(claim.uid)
        return await self._writer.allocate(claim, allocation, consumer)

    async def reserve(self, claim: ResourceClaim, consumer: ConsumerReference) -> ResourceClaim:
        """As the writer."""
        return await self._writer.reserve(claim, consumer)

    async def unreserve(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | None:
        """As the writer."""
        return await self._writer.unreserve(claim, pod_uid)

    async def deallocate(
        self, claim: ResourceClaim, pod_uid: str = "", expected: AllocationResult | None = None
    ) -> ResourceClaim | None:
        """As the writer."""
        self._trail.deallocating(claim.uid, pod_uid)
        try:
            return await self._writer.deallocate(claim, pod_uid, expected)
        except SchedulerError:
            self._trail.not_deallocated(claim.uid)
            raise
