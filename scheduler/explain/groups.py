"""Members of a gang are decided together, so they are explained together."""

from __future__ import annotations

from collections.abc import Generator, Iterator

from msgspec.structs import replace

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup, SchedulingPolicy
from scheduler.cycle.attempt import Rotation
from scheduler.cycle.decision import Failed, Need, Placed, Rejected, Running
from scheduler.cycle.gang import UNSCHEDULABLE_GROUP, GroupAttempt, GroupDecision, Member, gang_profile
from scheduler.explain.attempts import STEP, attempt_steps, grant
from scheduler.explain.facts import Explanation
from scheduler.explain.nodes import note_nodes
from scheduler.explain.outcome import report_failure
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.podgroups import group_key


def gang_of(pod: Pod, state: ClusterState) -> PodGroup | None:
    """The Pod's group when its members are placed all or none, and the gate is on."""
    group = state.pod_groups.of(pod) if state.features.generic_workload else None
    return group if group is not None and group.is_gang else None


def group_steps(
    profile: Profile, pod: Pod, group: PodGroup, state: ClusterState, now: float
) -> Generator[None, None, GroupDecision]:
    """Decide all waiting members on the state, which is as before afterwards. Order: priority, then name."""
    members = [pod if member.uid == pod.uid else member for member in state.pod_groups.members(group_key(pod))]
    waiting = [member for member in members if _may_enter(profile, member, state)]
    waiting.sort(key=lambda member: (-member.priority, member.metadata.name))
    attempt = GroupAttempt(gang_profile(profile), group, waiting or [pod], state, now=now, rotation=Rotation())
    try:
        return (yield from _run(attempt))
    finally:
        attempt.abandon()


def _run(attempt: GroupAttempt) -> Generator[None, None, GroupDecision]:
    while True:
        outcome = attempt.step(STEP)
        if isinstance(outcome, Need):
            grant(outcome)
            attempt.answer(None)
        elif not isinstance(outcome, Running):
            return outcome
        yield


def after_the_others(
    found: Explanation, profile: Profile, group: PodGroup, decision: GroupDecision, state: ClusterState, now: float
) -> Generator[None, None, None]:
    """Fill in the nodes of the first member without a place, while those with one have theirs."""
    placed = [member.pod for member in decision.members if member.placed is not None]
    lost = next((member.pod for member in decision.members if member.placed is None), None)
    if lost is None:
        return
    without_policy = replace(group, spec=replace(group.spec, schedulingPolicy=SchedulingPolicy()))
    held = None
    try:
        if placed:
            # As a group that keeps whatever fits, they stay counted until they are given back below.
            held = GroupAttempt(gang_profile(profile), without_policy, placed, state, now=now, rotation=Rotation())
            yield from _run(held)
        yield from note_nodes(found, profile, lost, state, now)
    finally:
        if held is not None:
            held.abandon()
    after = f" after {len(placed)} other{'' if len(placed) == 1 else 's'} of the group" if placed else ""
    found.summary.append(f"nodes are told for pod {lost.key}{after}")


def _may_enter(profile: Profile, pod: Pod, state: ClusterState) -> bool:
    if pod.uid in state.placements or pod.metadata.deletionTimestamp is not None:
        return False
    return all(call(gate, "PreEnqueue", gate.pre_enqueue, pod).code is Code.SUCCESS for gate in profile.pre_enqueue)


def node_steps(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Generator[None, None, str]:
    """The node that the Pod would get, with its gang when it has one; "" for none."""
    group = gang_of(pod, state)
    if group is None:
        decision = yield from attempt_steps(profile, pod, state, now)
        return decision.node if isinstance(decision, Placed) else ""
    together = yield from group_steps(profile, pod, group, state, now)
    if together.text:
        return ""
    return next((m.placed.node for m in together.members if m.pod.uid == pod.uid and m.placed is not None), "")


def member_message(member: Member, decision: GroupDecision) -> str:
    """What the member's condition says: its own reasons where it has some, else the group's."""
    if decision.error and not isinstance(member.decision, Failed):
        return decision.text
    if member.refusal is not None:
        return member.refusal.message
    if isinstance(member.decision, Rejected | Failed):
        return report_failure(member.decision).message
    return f"{UNSCHEDULABLE_GROUP}, {decision.text}" if decision.text else UNSCHEDULABLE_GROUP


def group_summary(group: PodGroup, pod: Pod, decision: GroupDecision) -> Iterator[str]:
    """How many members have a place, and what the others lack."""
    placed = [member for member in decision.members if member.placed is not None]
    yield (
        f"PodGroup {group.metadata.key} is placed all or none: {len(placed)} of {len(decision.members)} waiting Pods "
        f"would have a place, {group.min_count} are wanted together"
    )
    for member in decision.members:
        if member.placed is not None:
            yield f"pod {member.pod.key} would have node {member.placed.node}"
        elif member.pod.uid != pod.uid and member.decision is not None:
            yield f"pod {member.pod.key} has none: {member_message(member, decision)}"
