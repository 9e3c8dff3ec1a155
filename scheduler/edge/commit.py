"""Carries a decision out: claims, verification, Binding; and takes back what was written when it fails.

Order (design, "The way of one Pod"; kube-scheduler 1.37, binding cycle, spec 7.1): PreBind instructions in order,
verify by watch order, look at Pod, node and devices once more, bind. Everything ends as one CommitOutcome; nothing is
raised except cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from scheduler.api.core import Pod
from scheduler.api.meta import revision_of
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.config.model import Extender
from scheduler.cycle.decision import Placed
from scheduler.dra.podgroups import reservation
from scheduler.dra.verify import Lost, Verdict, WonPair
from scheduler.edge.binder import BindUnknownError, BoundElsewhereError, PodGoneError
from scheduler.edge.claim_errors import ClaimError, ClaimInUseError, ClaimUnknownError
from scheduler.edge.side_by_side import SharedAside, groups, run_together
from scheduler.errors import InternalError, SchedulerError
from scheduler.framework.events import ClusterEvent
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import (
    BindPod,
    BindVolume,
    CreateClaim,
    DeallocateClaim,
    DeleteClaim,
    Instruction,
    PatchPodStatus,
    PreemptPods,
    SelectNode,
    UnreserveClaim,
    WaitUntil,
    WriteClaim,
)
from scheduler.framework.runner import call
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise
from scheduler.state.overcommit import overcommitted

UNKNOWN_PAUSE_S = 5.0
"""Between two rounds of finding out what became of a Binding; each round reads for two minutes already."""
_LAST = 1 << 62
"""Stands for an unknown revision of our own allocation: whoever else is known was there before."""


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


class PodClaimWrites(Protocol):
    """What the committer needs for claims that we make ourselves."""

    async def create(self, claim: ResourceClaim) -> ResourceClaim: ...
    async def delete(self, claim: ResourceClaim) -> None: ...
    async def patch_status(self, instruction: PatchPodStatus) -> None: ...


class VolumeWrites(Protocol):
    """What the committer needs for volumes; every call answers with the stored object."""

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume: ...
    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim: ...


class Binds(Protocol):
    """What the committer needs of the binder: returns on success, raises SchedulerError otherwise."""

    async def bind(self, pod: Pod, node: str) -> None: ...


class Revisions(Protocol):
    """The claim watch: resolves once it has reached a revision."""

    async def wait_revision(self, revision: int, timeout_s: float) -> bool: ...


class Extends(Protocol):
    """What the committer needs of HTTP extenders."""

    async def make(self, calls: CallExtenders) -> None: ...
    async def bind(self, extenders: Sequence[Extender], pod: Pod, node: str) -> bool: ...


class NoExtenders:
    """Where none are configured."""

    async def make(self, calls: CallExtenders) -> None:
        """Every call fails."""
        for call_ in calls.calls:
            call_.failure = "there are no extenders here"

    async def bind(self, extenders: Sequence[Extender], pod: Pod, node: str) -> bool:
        """The Bind plugins bind."""
        return False


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


class _DeviceGoneError(SchedulerError):
    """A device of the new allocation is not published any more."""


class _GoneError(SchedulerError):
    """The Pod no longer wants a node."""


class _PreemptedError(SchedulerError):
    """The Pod gives way to a more important one before it is bound."""


class Committer:
    """Performs instructions against the API server and feeds what it learns back into the state.

    ``on_events`` receives the cluster events of our own claim writes (they wake Pods like anybody's).
    """

    def __init__(
        self,
        state: ClusterState,
        claims: ClaimWrites,
        pod_claims: PodClaimWrites,
        volumes: VolumeWrites,
        binder: Binds,
        revisions: Revisions,
        on_events: Callable[[Iterable[ClusterEvent]], None],
        *,
        verify_timeout_s: float = 10.0,
        sleep: Callable[[float], object] = asyncio.sleep,
    ) -> None:
        self.state, self.claims, self.pod_claims = state, claims, pod_claims
        self.volumes, self.binder, self.revisions = volumes, binder, revisions
        self.on_events = on_events
        self.verify_timeout_s = verify_timeout_s
        self._sleep = sleep
        self.on_wait: Callable[[Pod, WaitUntil], None] = lambda pod, wait: None
        self.on_kept_waiting: Callable[[Pod], None] = lambda pod: None
        self.on_preempt: Callable[[PreemptPods], None] = lambda preemption: None
        # How each verification ended (won, pair, lost, late) and how many seconds the Binding waited for it.
        self.on_verified: Callable[[str, float], None] = lambda result, waited_s: None
        # Each write of a claim (allocate, reserve, unreserve, deallocate) and its result (success, conflict, error).
        self.on_claim_write: Callable[[str, str], None] = lambda operation, result: None
        self.aside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
        self.extenders: Extends = NoExtenders()
        self._stopping = False
        self._withdrawable: set[str] = set()
        self._withdrawn: set[str] = set()
        self._broken: set[str] = set()
        self._doubtful: dict[str, list[ResourceClaim]] = {}

    async def commit(self, placed: Placed, promised: Sequence[Promise]) -> CommitOutcome:
        """Carry out ``placed``; on any failure undo what can be undone and say why.

        ``promised``: what Reserve put in flight; whoever waits for it is woken when it comes free.
        """
        outcome = CommitOutcome()
        written: list[ResourceClaim] = []
        self._withdrawable.add(placed.pod.uid)
        try:
            timings = placed.profile.timings
            began = timings.clock()
            await self._pre_bind(placed, written)
            timings.point("PreBind", "Success", began)
            await self._verify(placed, written, outcome)
            await self._keep_published(placed, written)
            for plugin in placed.profile.pre_bind:
                bound = getattr(plugin, "bound", None)
                if bound is not None:
                    call(plugin, "PreBind", bound, placed.cycle, placed.node)
            self._look_again(placed)
            self._withdrawable.discard(placed.pod.uid)
            began = timings.clock()
            await self._bind(placed)
            timings.point("Bind", "Success", began)
            outcome.bound = True
            return outcome
        except _LostError as error:
            outcome.lost, outcome.text = True, str(error)
        except _GoneError:
            outcome.gone = True
        except PodGoneError:
            outcome.gone = True
        except BoundElsewhereError as error:
            # Lost, but the Pod has its node: a condition that says otherwise would be a lie (B108).
            outcome.lost, outcome.gone, outcome.text = True, True, str(error)
        except SchedulerError as error:
            outcome.text = str(error)
            outcome.lost = isinstance(error, ClaimError) and error.lost_race
        finally:
            self._withdrawable.discard(placed.pod.uid)
            self._withdrawn.discard(placed.pod.uid)
        await self.undo(placed, promised)
        return outcome

    def withdraw(self, uid: str) -> bool:
        """Let the Pod's binding end before the Binding is sent; False when it is too late or not ours.

        The commit notices at its next step: a write under way is never cut off.
        """
        if uid not in self._withdrawable:
            return False
        self._withdrawn.add(uid)
        return True

    def stop(self) -> None:
        """Waits end now, in failure: they could take minutes. What is being written is finished."""
        self._stopping = True

    async def perform(self, pod: Pod, instruction: Instruction) -> str | None:
        """One instruction in mid-cycle (PostFilter); None when done, else why not."""
        try:
            await self._perform(pod, instruction)
        except SchedulerError as error:
            return str(error)
        return None

    async def _pre_bind(self, placed: Placed, written: list[ResourceClaim]) -> None:
        """PreBind plugins in order; consecutive ones that allow it side by side (spec 7.1)."""
        aside = SharedAside(self.aside)
        uid = placed.pod.uid
        for members in groups(placed.profile.pre_bind):
            # Each plugin is asked before any of the group writes: it answers on one and the same state.
            asked = [
                (plugin, call(plugin, "PreBind", plugin.pre_bind, placed.cycle, placed.node) or ())
                for plugin in members
            ]
            works = [
                self._instructions(placed, plugin, instructions, written, aside)
                for plugin, instructions in asked
                if instructions
            ]
            if works:
                try:
                    await run_together(works, lambda: self._broken.add(uid))
                finally:
                    self._broken.discard(uid)

    async def _instructions(
        self,
        placed: Placed,
        plugin: Any,
        instructions: Sequence[Instruction],
        written: list[ResourceClaim],
        aside: SharedAside,
    ) -> None:
        """One plugin's instructions in order; the first failure ends them."""
        for instruction in instructions:
            self._still_wanted(placed.pod)
            gives = isinstance(instruction, WriteClaim | CreateClaim) and instruction.allocation is not None
            if isinstance(instruction, WriteClaim | CreateClaim) and instruction.allocation is not None:
                self._devices_there(placed, instruction.claim.key, instruction.allocation)
            with _prefixed(f'running PreBind plugin "{plugin.name}": '), self._doubts(placed.pod, instruction):
                if isinstance(instruction, WaitUntil):
                    await self._wait_counted(placed, instruction, aside)
                    continue
                claim = await self._perform(placed.pod, instruction)
            if claim is not None and gives:
                written.append(claim)

    @contextmanager
    def _doubts(self, pod: Pod, instruction: Instruction) -> Iterator[None]:
        """Note a claim that may carry the Pod's reservation although its write has failed: the state cannot know."""
        try:
            yield
        except ClaimError as error:
            if isinstance(instruction, WriteClaim):
                found = error.found or instruction.claim
                if isinstance(error, ClaimUnknownError) or (
                    found.uid == instruction.claim.uid and found.reserved_for(pod.uid)
                ):
                    self._doubtful.setdefault(pod.uid, []).append(found)
            raise

    async def _perform(self, pod: Pod, instruction: Instruction) -> ResourceClaim | None:
        if isinstance(instruction, WriteClaim):
            return self._learn(await self._write(instruction))
        if isinstance(instruction, DeallocateClaim):
            with self._counted("deallocate"):
                consumer = instruction.consumer_uid or pod.uid
                return self._learn(await self.claims.deallocate(instruction.claim, consumer))
        if isinstance(instruction, UnreserveClaim):
            with self._counted("unreserve"):
                return self._learn(await self.claims.unreserve(instruction.claim, instruction.pod_uid))
        if isinstance(instruction, CreateClaim):
            stored = await self.pod_claims.create(instruction.claim)
            instruction.created(stored)
            with self._counted("allocate"):
                return self._learn(await self.claims.allocate(stored, instruction.allocation, instruction.consumer))
        if isinstance(instruction, DeleteClaim):
            await self.pod_claims.delete(instruction.claim)
            return None
        if isinstance(instruction, PatchPodStatus):
            await self.pod_claims.patch_status(instruction)
            return None
        if isinstance(instruction, BindVolume):
            self.on_events(self.state.learn_volume(await self.volumes.bind_volume(instruction.volume)))
            return None
        if isinstance(instruction, SelectNode):
            chosen = await self.volumes.select_node(instruction.claim, instruction.node)
            self.on_events(self.state.learn_volume_claim(chosen))
            return None
        if isinstance(instruction, WaitUntil):
            await self._wait(pod, instruction)
            return None
        if isinstance(instruction, PreemptPods):
            self.on_preempt(instruction)
            return None
        if isinstance(instruction, CallExtenders):
            await self.extenders.make(instruction)
            return None
        if isinstance(instruction, BindPod):
            await self.binder.bind(instruction.pod, instruction.node)
            return None
        raise InternalError(f"unknown instruction {instruction!r}")

    async def _write(self, write: WriteClaim) -> ResourceClaim:
        if write.allocation is not None:
            with self._counted("allocate"):
                return await self.claims.allocate(write.claim, write.allocation, write.consumer)
        with self._counted("reserve"):
            return await self.claims.reserve(write.claim, write.consumer)

    @contextmanager
    def _counted(self, operation: str) -> Iterator[None]:
        """Tell how a write of a claim ended: ``conflict`` when somebody else's write was in its way."""
        result = "error"
        try:
            yield
            result = "success"
        except ClaimError as error:
            result = "conflict" if error.lost_race else "error"
            raise
        finally:
            self.on_claim_write(operation, result)

    def _learn(self, claim: ResourceClaim | None) -> ResourceClaim | None:
        """What the server confirmed is known at once, and is never un-assumed (spec dra 25, no. 16)."""
        if claim is not None:
            self.on_events(self.state.learn_claim(claim))
        return claim

    async def _wait_counted(self, placed: Placed, wait: WaitUntil, aside: SharedAside) -> None:
        """``_wait_aside``, and how it ended."""
        timings = placed.profile.timings
        began, status = timings.clock(), "error"
        try:
            await self._wait_aside(placed.pod, wait, aside)
            status = "success"
        except (_GoneError, _PreemptedError):
            raise
        except SchedulerError as error:
            status = "timeout" if str(error).startswith("device binding timeout") else "failure"
            raise
        finally:
            timings.waited(wait.drivers, status, began)

    async def _wait_aside(self, pod: Pod, wait: WaitUntil, aside: SharedAside) -> None:
        """Wait without a place among the commits, which others need; what is ready at once keeps it."""
        self.on_wait(pod, wait)
        if not _is_ready(wait):
            async with aside():
                await self._poll(pod, wait)

    async def _wait(self, pod: Pod, wait: WaitUntil) -> None:
        self.on_wait(pod, wait)
        if not _is_ready(wait):
            await self._poll(pod, wait)

    async def _poll(self, pod: Pod, wait: WaitUntil) -> None:
        self.on_kept_waiting(pod)
        waited_s = 0.0
        while waited_s < wait.timeout_s:
            if self._stopping:
                raise SchedulerError("the scheduler stops")
            if pod.uid in self._broken:
                raise SchedulerError("another PreBind plugin has failed")
            pause_s = min(wait.interval_s, wait.timeout_s - waited_s)
            await self._sleep(pause_s)  # type: ignore[misc]  # injected; asyncio.sleep in production
            waited_s += pause_s
            self._still_wanted(pod)
            if _is_ready(wait):
                return
        raise SchedulerError(wait.timeout_text)

    async def _verify(self, placed: Placed, written: list[ResourceClaim], outcome: CommitOutcome) -> None:
        """Wait until the claim watch has passed our writes, then look who else holds our devices.

        Claims that had their allocation before are looked at too, as long as no other Pod counts on them: a process
        that died between write and verification left them unchecked.
        """
        began_s = asyncio.get_running_loop().time()
        if written:
            revision = max(revision_of(claim.metadata.resourceVersion) or 0 for claim in written)
            if not await self.revisions.wait_revision(revision, self.verify_timeout_s):
                self.on_verified("late", asyncio.get_running_loop().time() - began_s)
                text = f"the claim watch did not reach revision {revision} within {self.verify_timeout_s:g} s"
                raise _LostError(text + await self._give_back(written, placed.pod))
        ours = {claim.uid: claim for claim in written}
        lost: list[ResourceClaim] = []
        texts: list[str] = []
        judged = [*written, *self._unchecked(placed.pod, ours)]
        for claim in judged:
            verdict = self._verdict(placed, claim, None if claim.uid in ours else _LAST)
            if isinstance(verdict, str):
                texts.append(verdict)
                if claim.uid in ours:
                    lost.append(claim)
            elif isinstance(verdict, Lost):
                other = verdict.conflict
                lost.append(claim)
                texts.append(f"{other.what} of claim {claim.key} is held by claim {other.claim}, which was first")
            elif isinstance(verdict, WonPair):
                outcome.overlaps += [f"{c.what} of claim {claim.key}: also {c.claim}" for c in verdict.conflicts]
        if judged:
            result = "lost" if texts else "pair" if outcome.overlaps else "won"
            self.on_verified(result, asyncio.get_running_loop().time() - began_s)
        if texts:
            outcome.overlaps.clear()
            raise _LostError("; ".join(texts) + await self._give_back(lost, placed.pod))

    def _unchecked(self, pod: Pod, ours: Container[str]) -> list[ResourceClaim]:
        """Allocated claims of the Pod that this commit did not write and nobody else uses."""
        return [
            claim
            for claim in self.state.devices.claims_of(pod)
            if claim.uid not in ours
            and claim.status.allocation is not None
            and all(consumer.uid == pod.uid for consumer in claim.consumers)
        ]

    def _verdict(self, placed: Placed, claim: ResourceClaim, revision: int | None) -> Verdict | str:
        """Who else holds the claim's devices; a text when claim or node are no longer what the decision left."""
        newest = self.state.devices.claims.get(claim.key)
        if newest is None or newest.uid != claim.uid or reservation(newest, placed.pod) is None:
            return f"claim {claim.key} was taken away again before the pod was bound"
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None:
            return f"node {placed.node} is gone"
        return self.state.devices.verify_write(claim, nodes.node(row), revision)

    def _devices_there(self, placed: Placed, key: str, allocation: AllocationResult) -> None:
        """Before a new allocation is written, and once more before the Binding: its devices are still published.

        Stricter than upstream, which binds Pods to devices whose driver has just gone. Raises SchedulerError.
        """
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None:
            raise _LostError(f"node {placed.node} is gone")
        missing = self.state.devices.missing_device(allocation, nodes.node(row))
        if missing is not None:
            raise _DeviceGoneError(f"device {missing} for claim {key} is no longer published for node {placed.node}")

    async def _give_back(self, claims: Iterable[ResourceClaim], pod: Pod) -> str:
        """Clear allocations that lost, unless another consumer has meanwhile reserved the claim.

        Answers with what went wrong, to be added to the reason, "" when nothing did.
        """
        trouble = ""
        for claim in claims:
            try:
                mine = reservation(claim, pod)
                with self._counted("deallocate"):
                    self._learn(await self.claims.deallocate(claim, pod.uid if mine is None else mine.uid))
            except ClaimInUseError:
                continue  # another consumer counts on it now: it keeps the claim, this Pod tries again
            except SchedulerError as error:
                trouble += f"; claim {claim.key} could not be given back: {error}"
        return trouble

    def _still_wanted(self, pod: Pod) -> None:
        newest = self.state.pods.get(pod.uid)
        if newest is None or newest.metadata.deletionTimestamp is not None:
            raise _GoneError(f"pod {pod.key} is gone or going")
        if pod.uid in self._withdrawn:
            raise _PreemptedError("preempted by DefaultPreemption")

    async def _keep_published(self, placed: Placed, written: list[ResourceClaim]) -> None:
        """Give back what vanished between our write and now; raises what _devices_there raises."""
        for claim in written:
            assert claim.status.allocation is not None
            try:
                self._devices_there(placed, claim.key, claim.status.allocation)
            except _DeviceGoneError as error:
                raise _DeviceGoneError(str(error) + await self._give_back([claim], placed.pod)) from error

    def _look_again(self, placed: Placed) -> None:
        """The last look before the Binding: Pod still wanted, node still there, still room for it."""
        self._still_wanted(placed.pod)
        for claim in self.state.devices.claims_of(placed.pod):
            if claim.status.allocation is None or reservation(claim, placed.pod) is None:
                # Perhaps another Pod of the group has lost its devices and given the claim back.
                raise _LostError(f"claim {claim.key} was taken away again before the pod was bound")
        nodes = self.state.nodes
        row = nodes.row_of(placed.node)
        if row is None or nodes.node(row).metadata.uid != placed.node_uid:
            raise _LostError(f"node {placed.node} is gone")
        placement = self.state.placements.get(placed.pod.uid)
        short = overcommitted(nodes, row, placed.cycle.info if placement is None else placement.info)
        if short:
            raise _LostError(f"node {placed.node} was filled by others meanwhile: {short}")

    async def _bind(self, placed: Placed) -> None:
        if await self.extenders.bind(placed.profile.extenders, placed.pod, placed.node):
            return
        for plugin in placed.profile.bind:
            instruction: Instruction | None = call(plugin, "Bind", plugin.bind, placed.cycle, placed.node)
            if instruction is not None:
                with _prefixed(f'running Bind plugin "{plugin.name}": '):
                    await self._perform_until_known(placed.pod, instruction)
                return
        raise SchedulerError("no Bind plugin took the pod")

    async def _perform_until_known(self, pod: Pod, instruction: Instruction) -> None:
        """A Binding whose fate is unknown is asked for again: it answers for one that took effect, too.

        Until the server speaks, the Pod keeps its room: it may be on the node.
        """
        while True:
            try:
                await self._perform(pod, instruction)
                return
            except BindUnknownError:
                await self._sleep(UNKNOWN_PAUSE_S)  # type: ignore[misc]  # as in _wait
                self._still_wanted(pod)

    async def undo(self, placed: Placed, promised: Sequence[Promise]) -> None:
        """Unreserve in reverse order; errors of the undo never hide the cause.

        A reservation that could not be taken out stays for the Pod's next attempt, or for the claim controller once
        the Pod is gone.
        """
        for plugin in reversed(placed.profile.reserve):
            with suppress(SchedulerError):
                for instruction in unreserved(plugin, placed):
                    with suppress(SchedulerError):
                        await self._perform(placed.pod, instruction)
        for claim in self._doubtful.pop(placed.pod.uid, ()):
            with suppress(SchedulerError):
                await self._perform(placed.pod, UnreserveClaim(claim, placed.pod.uid))
        self.on_events(self.state.devices.released(promised))


def _is_ready(wait: WaitUntil) -> bool:
    """False while it is to be waited for; raises what went wrong."""
    failure = wait.ready()
    if failure:
        raise SchedulerError(failure)
    return failure is not None


def unreserved(plugin: Any, placed: Placed) -> Sequence[Instruction]:
    """What a plugin's Unreserve asks for; nothing when it has none. Raises PluginError."""
    unreserve = getattr(plugin, "unreserve", None)
    if unreserve is None:
        return ()
    instructions: Sequence[Instruction] | None = call(plugin, "Unreserve", unreserve, placed.cycle, placed.node)
    return instructions or ()


@contextmanager
def _prefixed(prefix: str) -> Iterator[None]:
    """Put upstream's prefix before the text of whatever is raised; the error itself stays what it is."""
    try:
        yield
    except SchedulerError as error:
        error.args = (prefix + str(error),)
        raise
