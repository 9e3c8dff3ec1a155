"""Scheduling an imagined cluster: the queue, the attempts and the Reserve plugins of the real scheduler; only what the
edge would do is imagined.

Source: the scheduling loop (edge/loop.py, edge/commit.py, edge/evict.py), step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import overload

import numpy as np
from msgspec.structs import replace

from scheduler.api.core import Pod
from scheduler.api.kinds import POD
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Failed, Need, Placed, Rejected, Running
from scheduler.cycle.gang import GroupAttempt, GroupDecision
from scheduler.errors import PluginError, SchedulerError
from scheduler.explain.outcome import FailureReport, bind_failure, report_failure, reserve_rejection
from scheduler.framework.instructions import BindPod, PreemptPods
from scheduler.framework.permit import WaitingPod, WaitingPods, run_permit
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call, run_reserve
from scheduler.framework.status import Code, Status
from scheduler.queue.pod import QueuedPod
from scheduler.whatif.controllers import evict, pod_ends
from scheduler.whatif.groups import serve_group
from scheduler.whatif.world import World
from scheduler.whatif.writes import perform

ROUNDS_MAX = 50
"""How often a Pod is tried: one that is preempted again and again must not go on for ever."""
WRITES_MAX = 64
"""Decisions that are counted and not written yet. A scheduler decides faster than the API server answers: what is ready
is tried before the first of them is written. The number is that of the loop.
"""
_STEP_BUDGET = 2000


@dataclass(slots=True)
class Fate:
    """What the last attempt for a Pod said. ``why``: how a node won. ``preempts``: Pods that are to go for it."""

    reason: str = ""
    message: str = ""
    plugins: tuple[str, ...] = ()
    why: str = ""
    preempts: tuple[str, ...] = ()
    nominated: str = ""


@dataclass(slots=True)
class _Parked:
    """A Pod with a node that waits at Permit."""

    queued: QueuedPod
    placed: Placed
    waiting: WaitingPod


@dataclass(frozen=True, slots=True)
class _Commit:
    """A decision that is counted and not written yet."""

    queued: QueuedPod
    placed: Placed
    why: str


@dataclass(slots=True)
class Simulation:
    """``run`` until nothing changes any more (``until_stable``), else one attempt for each Pod that waits.

    ``fates``: Pod uid → what the last attempt said. ``preempted``: keys of Pods that had to go → for whom. ``came``:
    uids of Pods that take the place of others → key of which. ``attempts`` counts. ``stable``: False when Pods went on
    displacing each other until the simulation gave up.
    """

    world: World
    profiles: Mapping[str, Profile]
    waiting_pods: WaitingPods
    until_stable: bool = False
    fates: dict[str, Fate] = field(default_factory=dict)
    preempted: dict[str, str] = field(default_factory=dict)
    came: dict[str, str] = field(default_factory=dict)
    attempts: int = 0
    stable: bool = True
    _rotations: dict[str, Rotation] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _preemptions: list[PreemptPods] = field(default_factory=list)
    _parked: dict[str, _Parked] = field(default_factory=dict)
    _writes: deque[_Commit | PreemptPods] = field(default_factory=deque)
    gang_profiles: dict[str, Profile] = field(default_factory=dict)

    def run(self) -> Generator[int, None, None]:
        """Yields the number of attempts after each; ends when there is nothing more to do."""
        queue, store = self.world.queue, self.world.store
        errors_seen = -1
        # Tried once only, a Pod must not fail because of what is a matter of milliseconds.
        ahead = WRITES_MAX if self.until_stable else 1
        while True:
            queue.flush(store.now)
            queued = queue.pop(store.now) if len(self._writes) < ahead else None
            if queued is not None:
                if self.spent(queued):
                    queue.done(queued.uid)
                    continue
                self._serve(queued)
                self._preempt()
                self._settle_parked()
                yield self.attempts
                continue
            if self._writes:
                self._write()
                self._settle_parked()
                continue
            if self._parked and self._expire_parked():
                continue
            if not self.until_stable:
                return
            if self._finish_deletions():
                continue
            if errors_seen == store.revision or not queue.counts()["backoff"]:
                return
            # What failed with an error is tried again, as long as anything else has changed meanwhile.
            errors_seen = store.revision
            store.now += queue.next_wakeup(store.now) + 1.0

    def spent(self, queued: QueuedPod) -> bool:
        """Count a try; True when the Pod has had all its tries."""
        tries = self._tries[queued.uid] = self._tries.get(queued.uid, 0) + 1
        if not self.until_stable:
            return tries > 1
        if tries > ROUNDS_MAX or self.attempts > ROUNDS_MAX * (len(self.world.state.pods) + ROUNDS_MAX):
            self.stable = False
            return True
        return False

    def held_back(self, pod: Pod, why: Callable[[Pod], Status | None]) -> str:
        """Why a Pod was never tried, "" when it was. ``why``: asks its PreEnqueue plugins."""
        queued = self.world.queue.get(pod.uid)
        if queued is None or not queued.gated:
            return ""
        status = why(pod)
        return "" if status is None else status.message

    # One Pod

    def _serve(self, queued: QueuedPod) -> None:
        state = self.world.state
        pod = state.pods.get(queued.uid, queued.pod)
        profile = self.profiles[pod.spec.schedulerName]
        if pod.uid in state.placements or pod.metadata.deletionTimestamp is not None:
            self.world.queue.done(queued.uid)
            return
        group = state.pod_groups.of(pod) if state.features.generic_workload else None
        if group is not None:
            self.attempts += serve_group(self, queued, profile, group)
            return
        self.attempts += 1
        try:
            decision = self.decide(
                Attempt(profile, pod, state, now=self.world.store.now, rotation=self.rotation(profile))
            )
            if isinstance(decision, Placed):
                self._reserve(queued, decision)
            else:
                self.fail(queued, report_failure(decision), decision)
        except Exception as error:  # as in the loop: an unforeseen error costs this Pod its attempt
            self.fail(queued, bind_failure(f"{type(error).__name__}: {error}"))

    def rotation(self, profile: Profile) -> Rotation:
        """Where the next search of a profile starts."""
        return self._rotations.setdefault(profile.name, Rotation())

    @overload
    def decide(self, attempt: Attempt) -> Decision: ...
    @overload
    def decide(self, attempt: GroupAttempt) -> GroupDecision: ...
    def decide(self, attempt: Attempt | GroupAttempt) -> Decision | GroupDecision:
        """Run an attempt to its end; what it needs of the edge is imagined."""
        while True:
            outcome = attempt.step(_STEP_BUDGET)
            if isinstance(outcome, Need):
                attempt.answer(self._perform(attempt.pod, outcome))
            elif not isinstance(outcome, Running):
                return outcome

    def _perform(self, pod: Pod, need: Need) -> str | None:
        if isinstance(need.instruction, PreemptPods):
            self._preemptions.append(need.instruction)
            return None
        try:
            perform(self.world.store, pod, need.instruction)
        except SchedulerError as error:
            return str(error)
        return None

    def _reserve(self, queued: QueuedPod, placed: Placed) -> None:
        self.world.state.assume(placed.pod, placed.node)
        try:
            refusal = run_reserve(placed.profile, placed.cycle, placed.node)
        except PluginError as error:
            self._unreserve(
                queued, placed, report_failure(Failed(placed.pod, placed.profile, str(error), error.plugin))
            )
            return
        if refusal is not None:
            self._unreserve(queued, placed, reserve_rejection(refusal))
            return
        self.send(queued, placed)

    def send(self, queued: QueuedPod, placed: Placed) -> None:
        """Ask the Permit plugins about a Pod that is assumed and reserved, then carry the decision out."""
        why = _why(placed)
        try:
            permitted = run_permit(placed.profile, placed.cycle, placed.node, self.world.store.now)
        except PluginError as error:
            self._unreserve(
                queued, placed, report_failure(Failed(placed.pod, placed.profile, str(error), error.plugin))
            )
            return
        if isinstance(permitted, Status):
            self._unreserve(queued, placed, reserve_rejection(permitted))
        elif permitted is not None:
            self.waiting_pods.add(permitted)
            self._parked[placed.pod.uid] = _Parked(queued, placed, permitted)
            self.fates[placed.pod.uid] = Fate("WaitOnPermit", f"node {placed.node} is kept for it", why=why)
        else:
            self._writes.append(_Commit(queued, placed, why))

    def _write(self) -> None:
        """Carry out what was decided first."""
        first = self._writes.popleft()
        if isinstance(first, PreemptPods):
            self._evict(first)
        else:
            self._commit(first)

    def _commit(self, commit: _Commit) -> None:
        state, store = self.world.state, self.world.store
        queued, placed, why = commit.queued, commit.placed, commit.why
        promised = state.devices.promised(placed.pod)
        newest = state.pods.get(placed.pod.uid)
        if newest is None or newest.metadata.deletionTimestamp is not None:
            self._give_back(placed)
            self.world.move([*state.forget(placed.pod), *state.devices.released(promised)])
            self.world.queue.done(queued.uid)
            return
        try:
            for plugin in placed.profile.pre_bind:
                for instruction in call(plugin, "PreBind", plugin.pre_bind, placed.cycle, placed.node) or ():
                    perform(store, placed.pod, instruction)
            for plugin in placed.profile.pre_bind:
                bound = getattr(plugin, "bound", None)
                if bound is not None:
                    call(plugin, "PreBind", bound, placed.cycle, placed.node)
            self._bind(placed)
        except SchedulerError as error:
            self._give_back(placed)
            self.world.move([*state.forget(placed.pod), *state.devices.released(promised)])
            self.fail(queued, bind_failure(str(error)))
            return
        self.world.queue.done(queued.uid)
        self.fates[placed.pod.uid] = Fate(why=why)
        for plugin in placed.profile.post_bind:
            try:
                call(plugin, "PostBind", plugin.post_bind, placed.cycle, placed.node)
            except PluginError as error:
                store.note(str(error))

    def _bind(self, placed: Placed) -> None:
        for plugin in placed.profile.bind:
            instruction = call(plugin, "Bind", plugin.bind, placed.cycle, placed.node)
            if isinstance(instruction, BindPod):
                now: Pod = self.world.store.get(POD.name, placed.pod.key) or placed.pod
                status = replace(now.status, nominatedNodeName="")
                bound = replace(now, spec=replace(now.spec, nodeName=instruction.node), status=status)
                self.world.store.put(POD, bound)
                return
            if instruction is not None:
                perform(self.world.store, placed.pod, instruction)
                return
        raise SchedulerError("no Bind plugin took the pod")

    def _give_back(self, placed: Placed) -> None:
        """Unreserve in reverse, with what it writes."""
        for plugin in reversed(placed.profile.reserve):
            method = getattr(plugin, "unreserve", None)
            if method is None:
                continue
            try:
                for instruction in call(plugin, "Unreserve", method, placed.cycle, placed.node) or ():
                    perform(self.world.store, placed.pod, instruction)
            except SchedulerError:
                continue  # the others must still let go

    def _unreserve(self, queued: QueuedPod, placed: Placed, report: FailureReport) -> None:
        state = self.world.state
        promised = state.devices.promised(placed.pod)
        self._give_back(placed)
        events = [*state.forget(placed.pod), *state.devices.released(promised)]
        self.fail(queued, report)
        uid = placed.pod.uid
        self.world.queue.move(events, self.world.store.now, concerns=lambda pod: pod.uid != uid)

    def fail(self, queued: QueuedPod, report: FailureReport, decision: Decision | None = None) -> None:
        """The Pod waits again; what it was told is kept."""
        state = self.world.state
        pod = state.pods.get(queued.uid)
        if pod is None or pod.spec.nodeName:
            self.world.queue.done(queued.uid)
            return
        if report.nominated_node is not None:
            state.nominate(pod, report.nominated_node)
        plugins = report.unschedulable_plugins | report.pending_plugins
        self.fates[pod.uid] = Fate(
            report.reason, report.message, tuple(sorted(plugins)), nominated=state.nominator.node_of(pod.uid)
        )
        if isinstance(decision, Rejected):
            self.fates[pod.uid].preempts = tuple(
                victim.key for one in self._preemptions if one.preemptor.uid == pod.uid for victim in one.victims
            )
        self.world.queue.requeue(
            queued, pod, report.unschedulable_plugins, report.pending_plugins, self.world.store.now
        )

    # What is waited for

    def _settle_parked(self) -> bool:
        """Go on with Pods whose waiting at Permit has ended; True when there were any."""
        settled = False
        while True:
            ended = [
                (parked, verdict)
                for parked in self._parked.values()
                if (verdict := parked.waiting.verdict(self.world.store.now)) is not None
            ]
            if not ended:
                return settled
            settled = True
            for parked, verdict in ended:
                del self._parked[parked.placed.pod.uid]
                self.waiting_pods.remove(parked.placed.pod.uid)
                if verdict.code is Code.SUCCESS:
                    why = self.fates[parked.placed.pod.uid].why
                    self._writes.append(_Commit(parked.queued, parked.placed, why))
                    continue
                report = bind_failure(f"waiting on permit for pod: {verdict.message}")
                if verdict.code.rejected:
                    report = reserve_rejection(verdict)
                self._unreserve(parked.queued, parked.placed, report)

    def _expire_parked(self) -> bool:
        """Nobody comes any more: time passes until the first time-out."""
        if not self.until_stable:
            return False
        self.world.store.now = max(self.world.store.now, min(p.waiting.due() for p in self._parked.values()))
        return self._settle_parked()

    def _preempt(self) -> None:
        """Begin the preemptions of the last attempt. Without ``until_stable`` the victims stay, and are only told."""
        preemptions, self._preemptions = self._preemptions, []
        for preemption in preemptions if self.until_stable else ():
            for pod in preemption.displaced:
                if self.world.state.nominator.node_of(pod.uid):
                    self.world.state.nominate(pod, "")
                    self.world.queue.release_nomination(pod, self.world.store.now)
            self._writes.append(preemption)

    def _evict(self, preemption: PreemptPods) -> None:
        """Make the victims go, one after the other. Whoever has no node yet but in our memory gives it back."""
        in_memory = False
        for victim in preemption.victims:
            now: Pod | None = self.world.store.get(POD.name, victim.key)
            if now is None or now.uid != victim.uid:
                continue
            preemption.progress.last = now
            if self._withdraw(now):
                in_memory = True
            else:
                self._evict_for(now, preemption.preemptor)
        if preemption.progress.last is None or in_memory:
            preemption.progress.ended = True
            self.world.queue.activate([preemption.preemptor.uid], self.world.store.now)

    def _withdraw(self, victim: Pod) -> bool:
        """As the loop does it: a Pod that waits at Permit or is not written yet gives its place back and waits."""
        waiting = self.waiting_pods.get(victim.uid)
        if waiting is not None and waiting.preempt("preempted"):
            self._settle_parked()
            return True
        for write in self._writes:
            if isinstance(write, _Commit) and write.placed.pod.uid == victim.uid:
                self._writes.remove(write)
                self._unreserve(write.queued, write.placed, bind_failure("preempted by DefaultPreemption"))
                return True
        return False

    def _evict_for(self, victim: Pod, preemptor: Pod) -> None:
        self.preempted[victim.key] = preemptor.key
        again = evict(self.world.store, victim)
        if again is not None:
            self.came[again.uid] = victim.key

    def _finish_deletions(self) -> bool:
        """Pods that are being deleted have gone in the end; True when there were any."""
        going = [pod for pod in self.world.store.pods() if pod.metadata.deletionTimestamp is not None]
        for pod in going:
            pod_ends(self.world.store, pod)
        if going:
            self.world.store.note(f"Pods that were being deleted have gone: {len(going)}")
        return bool(going)


def _why(placed: Placed) -> str:
    """How the node won; to be asked before the state moves on."""
    scores = placed.scores
    if scores is None:
        return "the only node that fits" if placed.feasible_nodes == 1 else "the node it was nominated to"
    own = scores.table.row_of(placed.node)
    others = np.flatnonzero(scores.rows != own)
    if not len(others):
        return "the only node that fits"
    best = int(others[np.argmax(scores.totals[others])])
    won, next_best = int(scores.totals[scores.rows == own][0]), int(scores.totals[best])
    than = "as many as" if next_best == won else f"more than the {next_best} of"
    return f"scores {won}, {than} {scores.table.name_of(int(scores.rows[best]))}; {len(scores.rows)} nodes fit"
