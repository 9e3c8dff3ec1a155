"""Carries a decision out: claims, verification, Binding; and takes back what was written when it fails.

Order (design, "The way of one Pod"; kube-scheduler 1.37, binding cycle, spec 7.1): PreBind instructions in order,
verify by watch order, look at Pod and node once more, bind. Everything ends as one CommitOutcome; nothing is raised
except cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from scheduler.api.core import Pod
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.cycle.decision import Placed
from scheduler.dra.verify import Lost, Verdict, WonPair
from scheduler.edge.binder import BindUnknownError, BoundElsewhereError, PodGoneError
from scheduler.edge.claim_errors import ClaimInUseError
from scheduler.errors import InternalError, SchedulerError
from scheduler.framework.events import ClusterEvent
from scheduler.framework.instructions import (
    BindPod,
    DeallocateClaim,
    Instruction,
    UnreserveClaim,
    WaitUntil,
    WriteClaim,
)
from scheduler.framework.runner import call
from scheduler.state.cluster import ClusterState
from scheduler.state.overcommit import overcommitted


class ClaimWrites(Protocol):
    """What the committer needs of the claim writer; every call answers with the stored object."""

    async def allocate(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ConsumerReference
    ) -> ResourceClaim: ...
    async def reserve(self, claim: ResourceClaim, consumer: ConsumerReference) -> ResourceClaim: ...
    async def unreserve(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | None: ...
    async def deallocate(
        self, claim: ResourceClaim, pod_uid: str = "", expected: AllocationResult | None = None
    ) -> ResourceClaim | None: ...


class Binds(Protocol):
    """What the committer needs of the binder: returns on success, raises SchedulerError otherwise."""

    async def bind(self, pod: Pod, node: str) -> None: ...


class Revisions(Protocol):
    """The claim watch: resolves once it has reached a revision."""

    async def wait_revision(self, revision: int, timeout_s: float) -> bool: ...


@dataclass(slots=True)
class CommitOutcome:
    """``bound``; or ``gone`` (the Pod is being deleted or has been); or ``text`` says why not.

    ``lost`` marks a race lost to another scheduler; ``overlaps`` lists foreign claims that took our devices later
    (we keep ours, but somebody must know).
    """

    bound: bool = False
    gone: bool = False
    lost: bool = False
    text: str = ""
    overlaps: list[str] = field(default_factory=list)


class _LostError(SchedulerError):
    """Another scheduler was first; the text names what was lost to whom."""


class _GoneError(SchedulerError):
    """The Pod no longer wants a node."""


class Committer:
    """Performs instructions against the API server and feeds what it learns back into the state.

    ``on_events`` receives the cluster events of our own claim writes (they wake Pods like anybody's).
    """

    def __init__(
        self,
        state: ClusterState,
        claims: ClaimWrites,
        binder: Binds,
        revisions: Revisions,
        on_events: Callable[[Iterable[ClusterEvent]], None],
        *,
        verify_timeout_s: float = 10.0,
        sleep: Callable[[float], object] = asyncio.sleep,
    ) -> None:
        self.state, self.claims, self.binder, self.revisions = state, claims, binder, revisions
        self.on_events = on_events
        self.verify_timeout_s = verify_timeout_s
        self._sleep = sleep
        self.on_wait: Callable[[Pod, WaitUntil], None] = lambda pod, wait: None

    async def commit(self, placed: Placed) -> CommitOutcome:
        """Carry out ``placed``; on any failure undo what can be undone and say why."""
        outcome = CommitOutcome()
        written: list[ResourceClaim] = []
        try:
            await self._pre_bind(placed, written)
            await self._verify(placed, written, outcome)
            for plugin in placed.profile.pre_bind:
                bound = getattr(plugin, "bound", None)
                if bound is not None:
                    call(plugin, "PreBind", bound, placed.cycle, placed.node)
            self._look_again(placed)
            await self._bind(placed)
            outcome.bound = True
            return outcome
        except _LostError as error:
            outcome.lost, outcome.text = True, str(error)
        except _GoneError:
            outcome.gone = True
        except PodGoneError:
            outcome.gone = True
        except BoundElsewhereError as error:
            outcome.lost, outcome.text = True, str(error)
        except BindUnknownError as error:
            # It may be bound: nothing is undone at the API server. The watch tells, or the next attempt repeats it.
            outcome.text = str(error)
            return outcome
        except SchedulerError as error:
            outcome.text = str(error)
        await self.undo(placed)
        return outcome

    async def perform(self, pod: Pod, instruction: Instruction) -> str | None:
        """One instruction in mid-cycle (PostFilter); None when done, else why not."""
        try:
            await self._perform(pod, instruction)
        except SchedulerError as error:
            return str(error)
        return None

    async def _pre_bind(self, placed: Placed, written: list[ResourceClaim]) -> None:
        for plugin in placed.profile.pre_bind:
            instructions: Sequence[Instruction] = call(plugin, "PreBind", plugin.pre_bind, placed.cycle, placed.node)
            for instruction in instructions:
                with _prefixed(f'running PreBind plugin "{plugin.name}": '):
                    claim = await self._perform(placed.pod, instruction)
                if claim is not None and isinstance(instruction, WriteClaim) and instruction.allocation is not None:
                    written.append(claim)

    async def _perform(self, pod: Pod, instruction: Instruction) -> ResourceClaim | None:
        if isinstance(instruction, WriteClaim):
            return self._learn(await self._write(instruction))
        if isinstance(instruction, DeallocateClaim):
            return self._learn(await self.claims.deallocate(instruction.claim, pod.uid))
        if isinstance(instruction, UnreserveClaim):
            return self._learn(await self.claims.unreserve(instruction.claim, instruction.pod_uid))
        if isinstance(instruction, WaitUntil):
            await self._wait(pod, instruction)
            return None
        if isinstance(instruction, BindPod):
            await self.binder.bind(instruction.pod, instruction.node)
            return None
        raise InternalError(f"unknown instruction {instruction!r}")

    async def _write(self, write: WriteClaim) -> ResourceClaim:
        if write.allocation is not None:
            return await self.claims.allocate(write.claim, write.allocation, write.consumer)
        return await self.claims.reserve(write.claim, write.consumer)

    def _learn(self, claim: ResourceClaim | None) -> ResourceClaim | None:
        """What the server confirmed is known at once, and is never un-assumed (spec dra 25, no. 16)."""
        if claim is not None:
            self.on_events(self.state.devices.learn_claim(claim))
        return claim

    async def _wait(self, pod: Pod, wait: WaitUntil) -> None:
        self.on_wait(pod, wait)
        waited_s = 0.0
        while True:
            failure = wait.ready()
            if failure == "":
                return
            if failure is not None:
                raise SchedulerError(failure)
            if waited_s >= wait.timeout_s:
                raise SchedulerError(wait.timeout_text)
            pause_s = min(wait.interval_s, wait.timeout_s - waited_s)
            await self._sleep(pause_s)  # type: ignore[misc]  # injected; asyncio.sleep in production
            waited_s += pause_s
            self._still_wanted(pod)

    async def _verify(self, placed: Placed, written: list[ResourceClaim], outcome: CommitOutcome) -> None:
        """Wait until the claim watch has passed our writes, then look who else holds our devices."""
        if not written:
            return
        revision = max(int(claim.metadata.resourceVersion) for claim in written)
        if not await self.revisions.wait_revision(revision, self.verify_timeout_s):
            text = f"the claim watch did not reach revision {revision} within {self.verify_timeout_s:g} s"
            await self._give_back(written, placed.pod)
            raise _LostError(text)
        lost: list[ResourceClaim] = []
        texts: list[str] = []
        for claim in written:
            verdict = self._verdict(placed, claim)
            if isinstance(verdict, Lost):
                other = verdict.conflict
                lost.append(claim)
                texts.append(f"{other.what} of claim {claim.key} is held by claim {other.claim}, which was first")
            elif isinstance(verdict, WonPair):
                outcome.overlaps += [f"{c.what} of claim {claim.key}: also {c.claim}" for c in verdict.conflicts]
        if lost:
            await self._give_back(lost, placed.pod)
            raise _LostError("; ".join(texts))

    def _verdict(self, placed: Placed, claim: ResourceClaim) -> Verdict:
        """Raises _LostError when claim or node are no longer what our write left."""
        newest = self.state.devices.claims.get(claim.key)
        if newest is None or newest.uid != claim.uid or not newest.reserved_for(placed.pod.uid):
            raise _LostError(f"claim {claim.key} was taken away again before the pod was bound")
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None:
            raise _LostError(f"node {placed.node} is gone")
        return self.state.devices.verify_write(claim, nodes.node(row))

    async def _give_back(self, claims: Iterable[ResourceClaim], pod: Pod) -> None:
        """Clear allocations that lost, unless another consumer has meanwhile reserved the claim."""
        for claim in claims:
            try:
                self._learn(await self.claims.deallocate(claim, pod.uid))
            except ClaimInUseError:
                continue  # another consumer counts on it now: it keeps the claim, this Pod tries again
            except SchedulerError as error:
                raise _LostError(f"claim {claim.key} could not be given back: {error}") from error

    def _still_wanted(self, pod: Pod) -> None:
        newest = self.state.pods.get(pod.uid)
        if newest is None or newest.metadata.deletionTimestamp is not None:
            raise _GoneError(f"pod {pod.key} is gone or going")

    def _look_again(self, placed: Placed) -> None:
        """The last look before the Binding: Pod still wanted, node still there, still room for it."""
        self._still_wanted(placed.pod)
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None or nodes.node(row).metadata.uid != placed.node_uid:
            raise _LostError(f"node {placed.node} is gone")
        short = overcommitted(nodes, row, placed.cycle.info)
        if short:
            raise _LostError(f"node {placed.node} was filled by others meanwhile: {short}")

    async def _bind(self, placed: Placed) -> None:
        for plugin in placed.profile.bind:
            instruction: Instruction | None = call(plugin, "Bind", plugin.bind, placed.cycle, placed.node)
            if instruction is not None:
                with _prefixed(f'running Bind plugin "{plugin.name}": '):
                    await self._perform(placed.pod, instruction)
                return
        raise SchedulerError("no Bind plugin took the pod")

    async def undo(self, placed: Placed) -> None:
        """Unreserve in reverse order; errors of the undo are the reconcile's to heal, they never hide the cause."""
        for plugin in reversed(placed.profile.reserve):
            try:
                for instruction in call(plugin, "Unreserve", plugin.unreserve, placed.cycle, placed.node):
                    await self._perform(placed.pod, instruction)
            except SchedulerError:
                continue


@contextmanager
def _prefixed(prefix: str) -> Iterator[None]:
    """Put upstream's prefix before the text of whatever is raised; the error itself stays what it is."""
    try:
        yield
    except SchedulerError as error:
        error.args = (prefix + str(error),)
        raise
