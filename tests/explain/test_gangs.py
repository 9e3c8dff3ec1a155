"""What each member of a group is told."""

from __future__ import annotations

from scheduler.api.core import Pod
from scheduler.cycle.decision import Failed, Placed, Rejected
from scheduler.cycle.gang import GroupDecision, Member
from scheduler.explain.gangs import member_report
from scheduler.framework.cycle import Cycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.profile import Profile
from scheduler.framework.status import unschedulable
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

PROFILE = Profile("p", {})
POD = Pod()
LACKING = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"


def placed() -> Placed:
    cycle = Cycle(POD, pod_info(POD), ClusterState())
    return Placed(POD, PROFILE, cycle, "n1", "uid", None, 1, 1)


def rejected() -> Rejected:
    diagnosis = Diagnosis(1)
    diagnosis.add(unschedulable("Insufficient cpu").by("NodeResourcesFit"), ("n1",))
    return Rejected(POD, PROFILE, diagnosis)


def test_members_with_reasons_of_their_own_say_those() -> None:
    """A filter's or a Reserve plugin's no; they wait for what their own plugins wait for."""
    decision = GroupDecision((), LACKING)
    filtered = member_report(Member(POD, rejected()), decision)
    assert (filtered.message, filtered.unschedulable_plugins) == (
        "0/1 nodes are available: 1 Insufficient cpu.",
        {"NodeResourcesFit"},
    )
    refused = member_report(Member(POD, placed(), unschedulable("taken").by("Reserver")), decision)
    assert (refused.message, refused.unschedulable_plugins) == ("0/1 nodes are available: 1 taken.", {"Reserver"})


def test_members_that_would_fit_and_untried_ones_say_what_the_group_lacks() -> None:
    """They wait for the group; those that went meanwhile in a group that fits, too."""
    for member in (Member(POD, placed()), Member(POD)):
        report = member_report(member, GroupDecision((), LACKING))
        assert (report.reason, report.message) == ("Unschedulable", f"pod group is unschedulable, {LACKING}")
        assert report.unschedulable_plugins == {"GangScheduling"}
    assert member_report(Member(POD), GroupDecision(())).message == "pod group is unschedulable"


def test_an_error_is_everybodys_and_its_own_words_are_for_whom_it_hit() -> None:
    """No plugin is to blame: all back off as after an error."""
    decision = GroupDecision((), "failed to schedule other pod from a pod group: out of order", error=True)
    hit = member_report(Member(POD, Failed(POD, PROFILE, "out of order", "Reserver")), decision)
    assert (hit.reason, hit.message) == ("SchedulerError", "out of order")
    for member in (Member(POD, placed()), Member(POD, rejected()), Member(POD)):
        report = member_report(member, decision)
        assert (report.reason, report.message, report.unschedulable_plugins) == (
            "SchedulerError",
            "failed to schedule other pod from a pod group: out of order",
            frozenset(),
        )
