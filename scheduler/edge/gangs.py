"""Serves PodGroups in the scheduling loop: the members that wait are decided in one cycle and committed together.

Only there with the gate GenericWorkload. Source: kube-scheduler 1.37, the PodGroup scheduling cycle (spec 3.19).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.cycle.decision import Need, Running
from scheduler.cycle.gang import UNSCHEDULABLE_GROUP, GroupAttempt, GroupDecision, gang_profile
from scheduler.edge.group_status import SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE
from scheduler.edge.loop import SchedulingLoop
from scheduler.explain.gangs import member_report
from scheduler.explain.outcome import bind_failure
from scheduler.framework.profile import Profile
from scheduler.queue.groups import disagreement, gather
from scheduler.queue.pod import QueuedPod

_RESULTS = {SCHEDULED: "scheduled", UNSCHEDULABLE: "unschedulable", SCHEDULER_ERROR: "error"}


class GroupConditions(Protocol):
    """Where a cycle's outcome goes; does not block."""

    def set_condition(self, group: PodGroup, reason: str, message: str) -> None: ...


class GroupCycles:
    """The loop hands every popped Pod to ``serve`` first.

    ``measure``: told of each cycle: result (scheduled, unschedulable, error), profile, seconds, seconds of deciding.
    """

    def __init__(
        self,
        loop: SchedulingLoop,
        conditions: GroupConditions,
        measure: Callable[[str, str, float, float], None] = lambda result, profile, duration_s, algorithm_s: None,
    ) -> None:
        self._loop, self._conditions, self._measure = loop, conditions, measure
        self._gang_profiles: dict[str, Profile] = {}
        self.attempts: Callable[..., GroupAttempt] = GroupAttempt

    async def serve(self, queued: QueuedPod, profile: Profile, pod: Pod) -> bool:
        """Decide the Pod's whole group; False when it has none that is known: then it is decided alone."""
        group = self._loop.state.pod_groups.of(pod)
        if group is None:
            return False
        members = self._gather(queued, group)
        started = self._loop.clock()
        try:
            await self._cycle(members, profile, group, started)
        except Exception as error:  # the loop never dies: an unforeseen error costs the members their attempt
            self._loop.reports.broken(f"the cycle of PodGroup {group.metadata.key}", error)
            report = bind_failure(f"{type(error).__name__}: {error}")
            for member in members:
                if member.pod.uid not in self._loop.state.placements:
                    self._loop.fail(member, report, started)
        return True

    def _gather(self, queued: QueuedPod, group: PodGroup) -> list[QueuedPod]:
        """The members to decide, in flight; those that are being deleted or have a node are left out."""
        loop = self._loop
        everybody = list(loop.state.pod_groups.members(group.metadata.key))
        members = []
        for member in gather(loop.queue, queued, everybody):
            pod = loop.state.pods.get(member.uid, member.pod)
            if member is not queued:
                loop.reports.popped(member)
            if pod.uid in loop.state.placements:
                loop.queue.done(pod.uid)
            elif pod.metadata.deletionTimestamp is not None:
                loop.queue.done(pod.uid)
                loop.reports.deleting(pod)
            else:
                members.append(member)
        return members

    async def _cycle(self, members: Sequence[QueuedPod], profile: Profile, group: PodGroup, started: float) -> None:
        loop = self._loop
        if not members:
            return
        pods = [loop.state.pods.get(member.uid, member.pod) for member in members]
        placements = loop.state.placements
        placed = [pod for pod in loop.state.pod_groups.members(group.metadata.key) if pod.uid in placements]
        problem = disagreement(group, [*pods, *placed])
        if problem:
            for member in members:
                loop.fail(member, bind_failure(problem), started)
            self._conditions.set_condition(group, SCHEDULER_ERROR, problem)
            self._measure(_RESULTS[SCHEDULER_ERROR], profile.name, loop.clock() - started, 0.0)
            return
        decision = await self._decide(profile, group, pods)
        by_uid = {member.uid: member for member in members}
        finished = loop.clock()
        for decided in decision.members:
            if decided.decision is not None:
                loop.reports.decided(by_uid[decided.pod.uid], decided.decision, started, finished)
        reason, message = self._settle(group, decision, by_uid, started)
        self._conditions.set_condition(group, reason, message)
        self._measure(_RESULTS[reason], profile.name, loop.clock() - started, finished - started)

    async def _decide(self, profile: Profile, group: PodGroup, pods: Sequence[Pod]) -> GroupDecision:
        loop = self._loop
        if group.is_gang:
            if profile.name not in self._gang_profiles:
                self._gang_profiles[profile.name] = gang_profile(profile)
            profile = self._gang_profiles[profile.name]
        attempt = self.attempts(profile, group, pods, loop.state, now=loop.wall(), rotation=loop.rotation(profile.name))
        try:
            while True:
                outcome = attempt.step(loop.step_budget)
                if isinstance(outcome, Need):
                    attempt.answer(await loop.committer.perform(attempt.pod, outcome.instruction))
                elif isinstance(outcome, Running):
                    loop.beat()
                    await asyncio.sleep(0)
                else:
                    return outcome
        except BaseException:  # cancelled while it waited for the edge: nothing of it may stay counted
            attempt.abandon()
            raise

    def _settle(
        self, group: PodGroup, decision: GroupDecision, by_uid: dict[str, QueuedPod], started: float
    ) -> tuple[str, str]:
        """Commit the placed members, let the others wait; reason and message for the group."""
        placed = 0
        for member in decision.members:
            queued = by_uid[member.pod.uid]
            if member.placed is not None and not decision.text:
                placed += 1
                self._loop.send(queued, member.placed, started)
            else:
                self._loop.fail(queued, member_report(member, decision), started)
        if decision.error:
            return SCHEDULER_ERROR, decision.text
        if decision.text or (not placed and not group.is_gang):
            return UNSCHEDULABLE, decision.text or UNSCHEDULABLE_GROUP
        return SCHEDULED, ""
