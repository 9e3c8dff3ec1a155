"""PodGroups in the imagined scheduler: the members that wait are decided in one cycle.

Source: the loop's own service of groups (edge/gangs.py), step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scheduler.api.podgroups import PodGroup
from scheduler.cycle.gang import GroupAttempt, GroupDecision, gang_profile
from scheduler.explain.gangs import member_report
from scheduler.explain.outcome import bind_failure
from scheduler.framework.profile import Profile
from scheduler.queue.groups import disagreement, gather
from scheduler.queue.pod import QueuedPod

if TYPE_CHECKING:
    from scheduler.whatif.simulation import Simulation


def serve_group(simulation: Simulation, queued: QueuedPod, profile: Profile, group: PodGroup) -> int:
    """Decide all waiting members of ``group``, of whom ``queued`` is one; how many were tried."""
    state, queue = simulation.world.state, simulation.world.queue
    everybody = list(state.pod_groups.members(group.metadata.key))
    members = []
    for member in gather(queue, queued, everybody):
        newest = state.pods.get(member.uid, member.pod)
        if newest.uid in state.placements or newest.metadata.deletionTimestamp is not None:
            queue.done(member.uid)
            continue
        members.append(member)
        if member is not queued:
            simulation.spent(member)
    if not members:
        return 0
    pods = [state.pods.get(member.uid, member.pod) for member in members]
    placed = [other for other in everybody if other.uid in state.placements]
    problem = disagreement(group, [*pods, *placed])
    if problem:
        for member in members:
            simulation.fail(member, bind_failure(problem))
        return len(members)
    if group.is_gang:
        profile = simulation.gang_profiles.setdefault(profile.name, gang_profile(profile))
    now, rotation = simulation.world.store.now, simulation.rotation(profile)
    attempt = GroupAttempt(profile, group, pods, state, now=now, rotation=rotation)
    try:
        decision = simulation.decide(attempt)
    except Exception as error:  # as in the loop: an unforeseen error costs the members their attempt
        for member in members:
            if member.uid not in state.placements:
                simulation.fail(member, bind_failure(f"{type(error).__name__}: {error}"))
        return len(members)
    _settle(simulation, members, decision)
    return len(members)


def _settle(simulation: Simulation, members: Sequence[QueuedPod], decision: GroupDecision) -> None:
    by_uid = {member.uid: member for member in members}
    for one in decision.members:
        if one.placed is not None and not decision.text:
            simulation.send(by_uid[one.pod.uid], one.placed)
        else:
            simulation.fail(by_uid[one.pod.uid], member_report(one, decision), one.decision)
