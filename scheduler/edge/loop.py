"""The scheduling loop: changes in, attempts in slices, commits side by side, failures reported.

One asyncio task decides, strictly one Pod after the other, in batches between which the event loop serves everybody
else; commits run beside it, bounded. ``deliver`` is called by the
reflectors in the same loop, so state and queue are always as new as the watch. The loop itself never dies: whatever an
attempt raises costs that Pod its attempt.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import Kind
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Failed, Need, Placed, Running
from scheduler.edge.commit import Committer, unreserved
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.edge.intake import GATE_LOOK_S, GatedPods, Intake
from scheduler.edge.leftovers import Leftovers
from scheduler.edge.loop_ports import Groups, Reports
from scheduler.edge.slots import Slots
from scheduler.edge.timeslices import TimeSlices
from scheduler.errors import PluginError
from scheduler.explain.outcome import FailureReport, bind_failure, report_failure, reserve_rejection
from scheduler.framework.events import ClusterEvent
from scheduler.framework.permit import WaitingPod, WaitingPods, run_permit
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call, run_reserve
from scheduler.framework.status import Code, Status
from scheduler.queue.pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise

STEP_BUDGET = 2000
"""Rows and search steps between two looks at the event loop: a few milliseconds."""
LET_IN_AT_ONCE = 16
"""Pods that are queued between two looks at the clock after the first LISTs."""
COMMITS_MAX = 32
"""Decisions being written at the same time; more would only queue at the API server."""
DECISIONS_AT_ONCE = 4
"""Attempts of one batch, while time is left in it. What the first of several equal Pods has found is still at hand for
the others, down to the processor's caches: measured, a sixth less CPU for the whole of a Pod.
"""
IDLE_WAIT_S = 1.0
TROUBLE_WAIT_S = 0.1
"""Shortest pause after a turn that could not decide, so that neither a fault nor standing by becomes a hot loop."""


class SchedulingLoop:
    """Wires state, queue and profiles to a committer.

    ``clock``: steady seconds since the epoch, for waits. ``wall``: the clock by which Pods and claims are dated, for
    decisions; the same until somebody sets it. ``may_decide``: False while not leading. ``beat``: called once per turn,
    proof that the loop is alive. ``why_gated``: asks a Pod's PreEnqueue plugins again. ``verify_caches``: recompute
    every derived number after each turn (tests). ``attempts`` makes an Attempt, or a recorder's kind of one;
    ``on_reserved`` is told of every decision once it is counted, before anything is written.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        committer: Committer,
        reports: Reports,
        *,
        clock: Callable[[], float],
        may_decide: Callable[[], bool] = lambda: True,
        beat: Callable[[], None] = lambda: None,
        why_gated: Callable[[Pod], Status | None] = lambda pod: None,
        waiting_pods: WaitingPods | None = None,
        verify_caches: bool = False,
        step_budget: int = STEP_BUDGET,
        commits_max: int = COMMITS_MAX,
        decisions_at_once: int = DECISIONS_AT_ONCE,
    ) -> None:
        self.state, self.queue, self.profiles = state, queue, profiles
        self.committer, self.reports = committer, reports
        self.clock, self.wall, self.may_decide, self.beat = clock, clock, may_decide, beat
        self.waiting_pods = waiting_pods or WaitingPods()
        self.verify_caches, self.step_budget = verify_caches, step_budget
        self.decisions_at_once = decisions_at_once
        self._wake = asyncio.Event()
        self._slots = Slots(commits_max)
        committer.aside = self._aside
        self._commits: set[asyncio.Task[None]] = set()
        self._commit_of: dict[str, asyncio.Task[None]] = {}
        self._rotations = {name: Rotation() for name in profiles}
        self.leftovers = Leftovers(state, committer.perform)
        self.groups: Groups | None = None
        self.attempts: Callable[..., Attempt] = Attempt
        self.on_reserved: Callable[[QueuedPod, Placed, Sequence[Promise]], None] = lambda queued, placed, promised: None
        self._running = self._stopping = False
        self.intake = Intake(
            state,
            queue,
            profiles,
            reports,
            self.waiting_pods,
            clock=clock,
            wake=self._wake.set,
            deciding=lambda: self._running and self.may_decide(),
        )
        self.gated = GatedPods(queue, reports, clock, why_gated, self.leftovers.let_go)

    # changes in

    def deliver(self, batch: list[Change], revision: int) -> None:
        """Take in one batch of changes of one kind (a reflector's sink)."""
        self.intake.deliver(batch, revision)

    async def let_in(self) -> None:
        """Queue what ``intake.hold`` kept out, in slices of time; nothing is decided before the last one is in."""
        slices = TimeSlices()
        while self.intake.holding:
            self.intake.let_in(LET_IN_AT_ONCE)
            if slices.over:
                await slices.rest()

    def catch_up(self, kind: Kind, copy: Mapping[str, Any]) -> int:
        """Apply what the state lacks of a reflector's copy (an event whose handling broke); how much that was."""
        return self.intake.catch_up(kind, copy)

    def move(self, events: Iterable[ClusterEvent]) -> None:
        """Cluster events that did not come from the watch: our own writes, forgotten Pods."""
        self.intake.move(events)

    def note_gated(self, queued: QueuedPod, status: Status) -> None:
        """A PreEnqueue plugin holds the Pod back (the queue's observer calls this)."""
        self.gated.note(queued, status)

    # the loop

    async def run(self) -> None:
        """Decide until ``stop``; returns when stopping and every commit has ended."""
        self._running = True
        looking = asyncio.get_running_loop().create_task(self._keep_looking())
        try:
            await self._decide_until_stopped()
        finally:
            looking.cancel()
        await self.finish_commits()

    async def _keep_looking(self) -> None:
        """Held-back Pods are told why, also while deciding waits for room or for an answer of the API server."""
        while True:
            await asyncio.sleep(GATE_LOOK_S)
            try:
                if self.may_decide():
                    self.gated.look(self.clock())
            except Exception as error:  # as in a turn
                self.reports.broken("the look at Pods that are held back", error)

    async def _decide_until_stopped(self) -> None:
        while not self._stopping:
            self.beat()
            try:
                if not await self._turn() and not self._stopping:
                    await self._idle(0.0 if self.may_decide() else TROUBLE_WAIT_S)
            except Exception as error:  # the loop never dies: a turn that breaks is told, and the next one comes
                self.reports.broken("a turn of the loop", error)
                await asyncio.sleep(TROUBLE_WAIT_S)

    def stop(self) -> None:
        """Take no further Pod; ``run`` returns once what is being written has ended."""
        self._stopping = True
        for waiting in self.waiting_pods:
            waiting.reject("", "the scheduler stops")
        self.committer.stop()
        self._wake.set()

    @property
    def commit_count(self) -> int:
        """Decisions being written, those that wait at Permit included."""
        return len(self._commits)

    async def finish_commits(self) -> None:
        """Wait for every commit under way."""
        await self.leftovers.finish()
        while self._commits:
            self.beat()
            await asyncio.wait(self._commits, timeout=IDLE_WAIT_S)

    async def _idle(self, pause_s: float) -> None:
        """Sleep until something arrives or the queue's clock is due, ``pause_s`` at least."""
        self._wake.clear()
        if pause_s:
            await asyncio.sleep(pause_s)
        wait_s = min(IDLE_WAIT_S, max(0.0, self.queue.next_wakeup(self.clock())))
        try:
            await asyncio.wait_for(self._wake.wait(), wait_s)
        except TimeoutError:
            return

    async def _turn(self) -> bool:
        """A batch of attempts, one after the other; True when there was one."""
        if self.verify_caches:
            self.check()
        if not self.may_decide():
            return False
        now = self.clock()
        self.queue.flush(now)
        self.gated.look(now)
        room, slices, served = await self._slots.room(self.decisions_at_once), TimeSlices(), 0
        while served < room and not (served and slices.over) and self.may_decide() and not self._stopping:
            if served and self.verify_caches:
                self.check()
            queued = self.queue.pop(self.clock())
            if queued is None:
                break
            await self._serve(queued)
            served += 1
        if served:
            await asyncio.sleep(0)
        return served > 0

    async def _serve(self, queued: QueuedPod) -> None:
        """One Pod's attempt, whatever happens in it."""
        self.reports.popped(queued)
        started = self.clock()
        pod = self.state.pods.get(queued.uid, queued.pod)
        profile = self.profiles.get(pod.spec.schedulerName)
        if profile is None or pod.uid in self.state.placements:
            self.queue.done(queued.uid)
            return
        if pod.metadata.deletionTimestamp is not None:
            self.queue.done(queued.uid)
            self.reports.deleting(pod)
            return
        if self.leftovers.busy(pod.uid):
            self.fail(queued, bind_failure("what the pod held is being given back"), started)
            return
        if self.groups is not None and await self.groups.serve(queued, profile, pod):
            return
        try:
            decision = await self._decide(profile, pod, self.wall())
            self.reports.decided(queued, decision, started, self.clock())
            if isinstance(decision, Placed):
                self._reserve(queued, decision, started)
            else:
                self.fail(queued, report_failure(decision), started)
        except Exception as error:  # the loop never dies: an unforeseen error costs this Pod its attempt
            self.reports.broken(f"the attempt for pod {pod.key}", error)
            self.fail(queued, bind_failure(f"{type(error).__name__}: {error}"), started)

    def serve_groups(self, groups: Groups) -> None:
        """Let ``groups`` decide Pods that belong together; only with the gate GenericWorkload."""
        self.groups, self.intake.grouped = groups, True

    def rotation(self, profile_name: str) -> Rotation:
        """Where the next search of a profile starts."""
        return self._rotations[profile_name]

    async def _decide(self, profile: Profile, pod: Pod, now: float) -> Decision:
        attempt = self.attempts(profile, pod, self.state, now=now, rotation=self._rotations[profile.name])
        while True:
            outcome = attempt.step(self.step_budget)
            if isinstance(outcome, Need):
                attempt.answer(await self.committer.perform(pod, outcome.instruction))
            elif isinstance(outcome, Running):
                self.beat()
                await asyncio.sleep(0)
            else:
                return outcome

    def _reserve(self, queued: QueuedPod, placed: Placed, started: float) -> None:
        """Assume and reserve in memory, then commit beside the loop. No await: nothing may move in between."""
        current = self.state.pods.get(placed.pod.uid)
        if current is None or current.spec.nodeName:
            self.queue.done(queued.uid)
            return
        self.state.assume(placed.pod, placed.node)
        try:
            refusal = run_reserve(placed.profile, placed.cycle, placed.node)
        except PluginError as error:
            report = report_failure(Failed(placed.pod, placed.profile, str(error), error.plugin))
            self._unreserve(queued, placed, report, started)
            return
        if refusal is not None:
            self._unreserve(queued, placed, reserve_rejection(refusal), started)
            return
        self.send(queued, placed, started)

    def send(self, queued: QueuedPod, placed: Placed, started: float) -> None:
        """Ask the Permit plugins about a Pod that is assumed and reserved, then commit it beside the loop."""
        try:
            permitted = run_permit(placed.profile, placed.cycle, placed.node, self.clock())
        except PluginError as error:
            report = report_failure(Failed(placed.pod, placed.profile, str(error), error.plugin))
            self._unreserve(queued, placed, report, started)
            return
        if isinstance(permitted, Status):
            self._unreserve(queued, placed, reserve_rejection(permitted), started)
            return
        if permitted is not None:
            self.waiting_pods.add(permitted)
        promised = self.state.devices.promised(placed.pod)
        self.on_reserved(queued, placed, promised)
        task = asyncio.get_running_loop().create_task(self._commit(queued, placed, promised, permitted, started))
        self._commits.add(task)
        self._commit_of[placed.pod.uid] = task
        task.add_done_callback(self._commits.discard)
        task.add_done_callback(lambda _: self._commit_of.pop(placed.pod.uid, None))

    def _unreserve(self, queued: QueuedPod, placed: Placed, report: FailureReport, started: float) -> None:
        """Undo a refused Reserve in memory (nothing was written yet) and report it.

        The others hear of the room given back after the Pod itself has gone to wait, and it does not hear of it: its
        own release would wake it at once, for ever (spec 4.10).
        """
        promised = self.state.devices.promised(placed.pod)
        for plugin in reversed(placed.profile.reserve):
            try:
                unreserved(plugin, placed)
            except PluginError as error:  # the others must still let go
                self.reports.broken(f"giving back what was reserved for pod {placed.pod.key}", error)
        events = [*self.state.forget(placed.pod), *self.state.devices.released(promised)]
        self.fail(queued, report, started)
        self.queue.move(events, self.clock(), concerns=lambda pod: pod.uid != placed.pod.uid)

    async def _commit(
        self,
        queued: QueuedPod,
        placed: Placed,
        promised: Sequence[Promise],
        waiting: WaitingPod | None,
        started: float,
    ) -> None:
        if waiting is not None and not await self._permitted(queued, placed, waiting, started):
            return
        async with self._slots:
            try:
                outcome = await self.committer.commit(placed, promised)
            except Exception as error:  # as in _serve
                self.reports.broken(f"the binding of pod {placed.pod.key}", error)
                outcome = CommitOutcome(text=f"{type(error).__name__}: {error}")
                await self._undo(placed, promised)
        try:
            self._settle(queued, placed, outcome, started)
        except Exception as error:  # a report that breaks must not leave the Pod in flight for ever
            self.reports.broken(f"the outcome of pod {placed.pod.key}", error)
            self.queue.done(queued.uid)
        self._wake.set()

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[None]:
        """A commit that only waits holds no slot."""
        self._slots.release()
        try:
            yield
        finally:
            await self._slots.acquire()

    async def _permitted(self, queued: QueuedPod, placed: Placed, waiting: WaitingPod, started: float) -> bool:
        """Wait until Permit plugins agree; False when the Pod gave its place back (spec 7.1). Holds no commit slot."""
        changed = asyncio.Event()
        waiting.on_change = changed.set
        began = self.clock()
        self.reports.permit_waits(placed)
        while (verdict := waiting.verdict(now := self.clock())) is None:
            changed.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), max(0.0, waiting.due() - now))
        self.waiting_pods.remove(placed.pod.uid)
        self.reports.permit_waited(verdict.code.label, self.clock() - began)
        if verdict.code is Code.SUCCESS:
            return True
        report = bind_failure(f"waiting on permit for pod: {verdict.message}")
        if verdict.code.rejected:
            report = reserve_rejection(verdict)
        self._unreserve(queued, placed, report, started)
        self._wake.set()
        return False

    async def withdraw(self, uid: str) -> bool:
        """Make a Pod that is not bound yet give its place back to a more important one.

        True once it has; False when it is too late, or when it is none of ours.
        """
        waiting, commit = self.waiting_pods.get(uid), self._commit_of.get(uid)
        if commit is None:
            return False
        refused = waiting is not None and (waiting.preempt("preempted") or not waiting.allowed)
        if not refused and not self.committer.withdraw(uid):
            return False
        await asyncio.wait({commit})
        return uid not in self.state.placements

    def displace(self, pod: Pod) -> None:
        """End a Pod's nomination in memory; those who waited for that room hear of it."""
        if self.state.nominator.node_of(pod.uid):
            self.state.nominate(pod, "")
            self.queue.release_nomination(pod, self.clock())

    def activate(self, uid: str) -> None:
        """Let a Pod try again at once."""
        self.queue.activate([uid], self.clock())
        self._wake.set()

    async def _undo(self, placed: Placed, promised: Sequence[Promise]) -> None:
        try:
            await self.committer.undo(placed, promised)
        except Exception as error:  # as in _serve
            self.reports.broken(f"the undo for pod {placed.pod.key}", error)

    def _settle(self, queued: QueuedPod, placed: Placed, outcome: CommitOutcome, started: float) -> None:
        """What a commit ended with, for queue, state and reports."""
        if outcome.lost or outcome.overlaps:
            self.reports.lost_race(placed, outcome)
        if outcome.bound:
            self.queue.done(queued.uid)
            self.reports.bound(queued, placed, outcome, started, self.clock())
            self._post_bind(placed)
            return
        self.move(self.state.forget(placed.pod))
        if outcome.gone:
            self.queue.done(queued.uid)
            return
        self.fail(queued, bind_failure(outcome.text), started)

    def _post_bind(self, placed: Placed) -> None:
        """PostBind plugins are told in order; nothing they do takes the Binding back."""
        timings = placed.profile.timings
        began = timings.clock()
        for plugin in placed.profile.post_bind:
            try:
                call(plugin, "PostBind", plugin.post_bind, placed.cycle, placed.node)
            except PluginError as error:
                self.reports.broken(f"PostBind for pod {placed.pod.key}", error)
        timings.point("PostBind", "Success", began)

    def fail(self, queued: QueuedPod, report: FailureReport, started: float) -> None:
        """Requeue with the newest object and report (spec 6.2). A Pod that is gone or bound is not requeued."""
        now = self.clock()
        pod = self.state.pods.get(queued.uid)
        if pod is None or pod.spec.nodeName:
            self.queue.done(queued.uid)
            return
        if report.nominated_node is not None:
            self.state.nominate(pod, report.nominated_node)
        self.queue.requeue(queued, pod, report.unschedulable_plugins, report.pending_plugins, now)
        self.reports.failed(queued, pod, report, started, now)
        self.leftovers.after_failure(pod)

    def check(self) -> None:
        """Recompute everything derived; raises InternalError. Used by tests and by the periodic self-audit."""
        self.state.verify()
        self.queue.check()
        for profile in self.profiles.values():
            profile.classes.verify(self.state)
            profile.templates.verify(profile, self.state)
            for plugin in profile.plugins.values():
                verify = getattr(plugin, "verify_caches", None)
                if verify is not None:
                    verify()
