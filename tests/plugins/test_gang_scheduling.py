"""GangScheduling alone: who is held back, who waits at Permit, what wakes, and what a gate that is off means."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.gang_scheduling import GangScheduling
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.api.podgroups import POD_GROUP, PodGroup
from scheduler.dra.features import Features
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.framework.permit import WaitingPod, WaitingPods
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


def group_of(name: str = "g", min_count: int = 2) -> PodGroup:
    policy: dict[str, Any] = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    item = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"schedulingPolicy": policy}}
    found: PodGroup = convert(POD_GROUP, item)
    return found


def pod_of(name: str, group: str = "g") -> Pod:
    spec = {"schedulingGroup": {"podGroupName": group}} if group else {}
    found: Pod = convert(POD, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})
    return found


class Gang:
    """A state with one node, the plugin, and its waiting Pods."""

    def __init__(self, on: bool = True) -> None:
        self.features = Features(generic_workload=on)
        self.state = ClusterState(self.features)
        self.waiting = WaitingPods()
        self.plugin = GangScheduling(Handle(self.state, None, self.features, waiting_pods=self.waiting))
        self.state.apply(Change(NODE, None, convert(NODE, {"metadata": {"name": "n1", "uid": "n1"}})))

    def add(self, *names: str, group: str = "g") -> list[Pod]:
        pods = [pod_of(name, group) for name in names]
        for pod in pods:
            self.state.apply(Change(POD, None, pod))
        return pods

    def group(self, min_count: int = 2) -> None:
        self.state.apply(Change(POD_GROUP, None, group_of(min_count=min_count)))

    def permit(self, pod: Pod) -> WaitingPod | None:
        """Assume and ask; the waiting Pod when it has to wait."""
        self.state.assume(pod, "n1")
        result = self.plugin.permit(self.cycle(pod), "n1")
        if result.status.code is not Code.WAIT:
            assert result.status.code is Code.SUCCESS
            return None
        assert result.status.message == "waiting for minCount pods from a gang to be scheduled"
        waiting = WaitingPod(pod, "n1", {self.plugin.name: (result.timeout_s, result.timeout_s)})
        self.waiting.add(waiting)
        return waiting

    def cycle(self, pod: Pod) -> Cycle:
        return Cycle(pod, pod_info(pod), self.state)


def test_a_pod_waits_for_its_group_and_then_for_enough_members() -> None:
    """Each refusal has its text; Pods without a group, and those of a basic one, pass."""
    gang = Gang()
    (one,) = gang.add("one")
    status = gang.plugin.pre_enqueue(one)
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.message == 'waiting for pods\'s pod group "g" to appear in scheduling queue'
    gang.group()
    assert gang.plugin.pre_enqueue(one).message == TOO_FEW
    gang.add("stranger", group="h")
    assert gang.plugin.pre_enqueue(one).message == TOO_FEW
    gang.add("two")
    assert gang.plugin.pre_enqueue(one).code is Code.SUCCESS
    assert gang.plugin.pre_enqueue(pod_of("alone", "")).code is Code.SUCCESS
    basic = Gang()
    basic.group(0)
    assert basic.plugin.pre_enqueue(basic.add("one")[0]).code is Code.SUCCESS


def test_a_member_that_goes_counts_no_more() -> None:
    """Deleted and ended Pods are no members."""
    gang = Gang()
    gang.group()
    one, two = gang.add("one", "two")
    assert gang.plugin.pre_enqueue(one).code is Code.SUCCESS
    gang.state.apply(Change(POD, two, None))
    assert gang.plugin.pre_enqueue(one).message == TOO_FEW
    gang.state.verify()


def test_the_member_that_completes_the_number_lets_the_others_go() -> None:
    """Until then they wait for five minutes at most."""
    gang = Gang()
    gang.group(3)
    one, two, three = gang.add("one", "two", "three")
    first, second = gang.permit(one), gang.permit(two)
    assert first is not None
    assert second is not None
    assert first.due() == 300.0
    assert first.verdict(299.0) is None
    assert gang.permit(three) is None
    assert first.allowed
    assert second.allowed


def test_when_one_times_out_the_others_give_their_places_back_too() -> None:
    """A gang that does not become whole holds nothing; strangers who wait are left alone."""
    gang = Gang()
    gang.group(3)
    one, two = gang.add("one", "two")
    first, second = gang.permit(one), gang.permit(two)
    assert first is not None
    assert second is not None
    foreign = WaitingPod(pod_of("stranger", "h"), "n1", {"x": (900.0, 900.0)})
    gang.waiting.add(foreign)
    verdict = first.verdict(300.0)
    assert verdict is not None
    assert verdict.message == "rejected due to timeout after waiting 5m0s at plugin GangScheduling"
    assert second.verdict(1.0) is None
    gang.plugin.unreserve(gang.cycle(one), "n1")
    refused = second.verdict(1.0)
    assert refused is not None
    assert (refused.plugin, refused.code.rejected) == ("GangScheduling", True)
    assert foreign.verdict(1.0) is None


def test_a_member_above_the_number_may_go_alone() -> None:
    """While enough others have a node, giving one place back concerns nobody else."""
    gang = Gang()
    gang.group(1)
    one, two = gang.add("one", "two")
    assert gang.permit(one) is None
    waiting = WaitingPod(two, "n1", {"other": (900.0, 900.0)})
    gang.state.assume(two, "n1")
    gang.waiting.add(waiting)
    gang.plugin.unreserve(gang.cycle(one), "n1")
    assert waiting.verdict(1.0) is None


def wakes(plugin: GangScheduling, pod: Pod, event: ClusterEvent) -> bool:
    """What the plugin's registrations say, and that their keys never hide a yes."""
    answer = False
    for registration in plugin.events():
        if registration.matches(event):
            assert registration.hint is not None
            assert registration.pod_keys is not None
            assert registration.event_keys is not None
            yes = registration.hint(pod, event.old, event.new)
            keys = registration.event_keys(event.old, event.new)
            assert keys is not None
            assert not yes or set(keys) & set(registration.pod_keys(pod))
            answer = answer or yes
    return answer


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD, None, pod_of("two")), True),
        (ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD, None, pod_of("two", "h")), False),
        (ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD, None, pod_of("two", "")), False),
        (ClusterEvent(Resource.ASSIGNED_POD, Action.ADD, None, pod_of("two")), True),
        (ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, pod_of("two"), None), False),
        (ClusterEvent(Resource.POD_GROUP, Action.ADD, None, group_of()), True),
        (ClusterEvent(Resource.POD_GROUP, Action.ADD, None, group_of("h")), False),
        (ClusterEvent(Resource.POD_GROUP, Action.UPDATE_OTHER, group_of(), group_of(min_count=1)), True),
        (ClusterEvent(Resource.POD_GROUP, Action.UPDATE_OTHER, group_of(), group_of(min_count=3)), False),
        (ClusterEvent(Resource.POD_GROUP, Action.DELETE, group_of(), None), False),
    ],
)
def test_only_what_concerns_the_group_wakes_its_members(event: ClusterEvent, expected: bool) -> None:
    """Members that appear or are placed, the group itself, and a smaller minCount; nothing of other groups."""
    assert wakes(Gang().plugin, pod_of("one"), event) is expected


def test_without_the_gate_nothing_is_held_back() -> None:
    """The plugin may be enabled by name; it does nothing then, and listens to nothing."""
    gang = Gang(on=False)
    gang.group(3)
    (one,) = gang.add("one")
    assert gang.plugin.pre_enqueue(one).code is Code.SUCCESS
    assert gang.permit(one) is None
    assert gang.plugin.events() == ()
