"""Carries a decision out: claims, verification, Binding; and takes back what was written when it fails.

Order (design, "The way of one Pod"; kube-scheduler 1.37, binding cycle, spec 7.1): PreBind instructions in order,
verify by watch order, look at Pod, node and devices once more, bind. Everything ends as one CommitOutcome; nothing is
raised except cancellation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from typing import Any, NamedTuple

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.cycle.decision import Placed
from scheduler.edge.binder import BindUnknownError, BoundElsewhereError, PodGoneError
from scheduler.edge.claim_errors import ClaimError, ClaimUnknownError
from scheduler.edge.commit_ports import (
    Binds,
    ClaimWrites,
    CommitOutcome,
    GoneError,
    LostError,
    PodClaimWrites,
    PreemptedError,
    Revisions,
    VolumeWrites,
)
from scheduler.edge.errors import AnswerLost, ApiError, ApiUnavailable, NotLeading, ServerError, TooManyRequests
from scheduler.edge.perform import Performer
from scheduler.edge.side_by_side import SharedAside, groups, run_together
from scheduler.edge.verification import Verification
from scheduler.errors import SchedulerError
from scheduler.framework.events import ClusterEvent
from scheduler.framework.instructions import CreateClaim, Instruction, UnreserveClaim, WaitUntil, WriteClaim
from scheduler.framework.runner import call
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise

UNKNOWN_PAUSE_S = 5.0
"""Between two rounds of finding out what became of a write."""
UNKNOWN_ROUNDS = 720
"""An hour of that: an answer that nobody can read must not keep devices for ever."""


class _Doubt(NamedTuple):
    """A claim whose write has failed; ``unknown``: perhaps it took effect."""

    claim: ResourceClaim
    unknown: bool


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
        self.state, self.on_events = state, on_events
        self.performer = Performer(state, claims, pod_claims, volumes, binder, on_events, self._wait)
        self.verification = Verification(state, revisions, self.performer.deallocate, verify_timeout_s)
        self._sleep = sleep
        self.on_wait: Callable[[Pod, WaitUntil], None] = lambda pod, wait: None
        self.on_kept_waiting: Callable[[Pod], None] = lambda pod: None
        self.aside: Callable[[], AbstractAsyncContextManager[object]] = nullcontext
        self._stopping = False
        self._withdrawable: set[str] = set()
        self._withdrawn: set[str] = set()
        self._broken: set[str] = set()
        self._doubtful: dict[str, list[_Doubt]] = {}

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
            await self.verification.verify(placed, written, outcome)
            await self.verification.keep_published(placed, written)
            for plugin in placed.profile.pre_bind:
                bound = getattr(plugin, "bound", None)
                if bound is not None:
                    call(plugin, "PreBind", bound, placed.cycle, placed.node)
            self._still_wanted(placed.pod)
            self.verification.look_again(placed)
            self._withdrawable.discard(placed.pod.uid)
            began = timings.clock()
            await self._bind(placed)
            timings.point("Bind", "Success", began)
            outcome.bound = True
            return outcome
        except LostError as error:
            outcome.lost, outcome.text = True, str(error)
        except GoneError:
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
        await self.verification.give_back_last(placed.pod)
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
            await self.performer.perform(pod, instruction)
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
                self.verification.devices_there(placed, instruction.claim.key, instruction.allocation)
            with _prefixed(f'running PreBind plugin "{plugin.name}": '), self._doubts(placed.pod, instruction):
                if isinstance(instruction, WaitUntil):
                    await self._wait_counted(placed, instruction, aside)
                    continue
                claim = await self.performer.perform(placed.pod, instruction)
            if claim is not None and gives:
                written.append(claim)

    @contextmanager
    def _doubts(self, pod: Pod, instruction: Instruction) -> Iterator[None]:
        """Note a claim that may carry what we wrote although the write has failed: the state cannot know."""
        try:
            yield
        except ClaimError as error:
            unknown = isinstance(error, ClaimUnknownError)
            if isinstance(instruction, WriteClaim):
                found = error.found or instruction.claim
                if unknown or (found.uid == instruction.claim.uid and found.reserved_for(pod.uid)):
                    self._doubtful.setdefault(pod.uid, []).append(_Doubt(found, unknown))
            elif unknown and isinstance(instruction, CreateClaim) and error.found is not None:
                self._doubtful.setdefault(pod.uid, []).append(_Doubt(error.found, unknown))
            raise

    async def _wait_counted(self, placed: Placed, wait: WaitUntil, aside: SharedAside) -> None:
        """``_wait_aside``, and how it ended."""
        timings = placed.profile.timings
        began, status = timings.clock(), "error"
        try:
            await self._wait_aside(placed.pod, wait, aside)
            status = "success"
        except (GoneError, PreemptedError):
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

    def _still_wanted(self, pod: Pod) -> None:
        newest = self.state.pods.get(pod.uid)
        if newest is None or newest.metadata.deletionTimestamp is not None:
            raise GoneError(f"pod {pod.key} is gone or going")
        if pod.uid in self._withdrawn:
            raise PreemptedError("preempted by DefaultPreemption")

    async def _bind(self, placed: Placed) -> None:
        if await self.performer.extenders.bind(placed.profile.extenders, placed.pod, placed.node):
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
                await self.performer.perform(pod, instruction)
                return
            except BindUnknownError:
                await self._sleep(UNKNOWN_PAUSE_S)  # type: ignore[misc]  # as in _wait
                self._still_wanted(pod)

    async def undo(self, placed: Placed, promised: Sequence[Promise]) -> None:
        """Unreserve in reverse order; errors of the undo never hide the cause.

        A reservation that could not be taken out stays for the Pod's next attempt, or for the claim controller once
        the Pod is gone.
        """
        # First: what has been stored unseen must be known before its devices look free.
        for doubt in self._doubtful.pop(placed.pod.uid, ()):
            await self._take_out(placed.pod, doubt)
        for plugin in reversed(placed.profile.reserve):
            with suppress(SchedulerError):
                for instruction in unreserved(plugin, placed):
                    with suppress(SchedulerError):
                        await self.performer.perform(placed.pod, instruction)
        self.on_events(self.state.devices.released(promised))

    async def _take_out(self, pod: Pod, doubt: _Doubt) -> None:
        """Take the Pod's name out of a claim whose write has failed; what is read on the way is learned.

        While nobody knows whether the write took effect, its devices stay promised: it is asked again until the server
        speaks, forbids to write, or has not said anything readable for UNKNOWN_ROUNDS. Waiting holds no slot.
        """
        if await self._taken_out(pod, doubt):
            return
        async with self.aside():
            for _ in range(UNKNOWN_ROUNDS):
                if self._stopping:
                    return
                await self._sleep(UNKNOWN_PAUSE_S)  # type: ignore[misc]  # as in _wait
                if await self._taken_out(pod, doubt):
                    return

    async def _taken_out(self, pod: Pod, doubt: _Doubt) -> bool:
        """True when nothing is left to be found out."""
        try:
            await self.performer.perform(pod, UnreserveClaim(doubt.claim, pod.uid))
        except (ClaimUnknownError, ServerError, ApiUnavailable, AnswerLost, TooManyRequests, NotLeading):
            return not doubt.unknown  # a lease that is late may be renewed yet; one that is lost ends the process
        except ApiError as error:
            return not doubt.unknown or error.status != 401  # the token is read again
        except SchedulerError:
            return True
        return True


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
