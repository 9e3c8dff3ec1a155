"""What a member of a PodGroup is told when it got no node in the group's cycle.

Source: kube-scheduler 1.37, the PodGroup scheduling cycle (spec 3.19).
"""

from __future__ import annotations

from scheduler.cycle.decision import Failed
from scheduler.cycle.gang import UNSCHEDULABLE_GROUP, GroupDecision, Member
from scheduler.explain.outcome import FailureReport, bind_failure, report_failure, reserve_rejection

PLUGIN = "GangScheduling"


def member_report(member: Member, decision: GroupDecision) -> FailureReport:
    """A member's own reasons where it has some, else the group's."""
    if isinstance(member.decision, Failed):
        return report_failure(member.decision)
    if decision.error:
        return bind_failure(decision.text)
    if member.refusal is not None:
        return reserve_rejection(member.refusal)
    if member.decision is not None and member.placed is None:
        return report_failure(member.decision)
    text = f"{UNSCHEDULABLE_GROUP}, {decision.text}" if decision.text else UNSCHEDULABLE_GROUP
    return FailureReport("Unschedulable", text, frozenset((PLUGIN,)))
