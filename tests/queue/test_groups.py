"""Groups in the queue: who is taken along, in which order, how long they back off, and who must agree."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup, PodGroupSpec
from scheduler.queue.backoff import Backoff
from scheduler.queue.groups import disagreement, gather
from scheduler.queue.pod import Place

from .queue_world import make_pod, make_queue


def spec(pod: Pod, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **fields))


def test_the_first_popped_takes_every_member_along_that_is_not_held_back() -> None:
    """From the active heap, from a back-off and from the waiting Pods; the gated stay, strangers too."""
    queue = make_queue()
    ready, waiting, gated = make_pod("ready"), make_pod("waiting"), make_pod("gated", gates=("g",))
    stranger = make_pod("stranger")
    queue.add(waiting, 0.0)
    popped = queue.pop(0.0)
    assert popped is not None
    queue.requeue(popped, waiting, ["Fit"], [], 3.0)
    for pod in (ready, gated, stranger):
        queue.add(pod, 1.0)
    first = queue.pop(1.0)
    assert first is not None
    assert first.uid == ready.uid
    gathered = gather(queue, first, [ready, waiting, gated])
    assert [item.pod.metadata.name for item in gathered] == ["waiting", "ready"], "more attempts go first"
    assert {item.group_size for item in gathered} == {2}
    assert [item.place for item in gathered] == [Place.IN_FLIGHT] * 2
    assert queue.counts() == {"active": 1, "backoff": 0, "unschedulable": 0, "gated": 1}
    queue.check()
    for item in gathered:
        queue.done(item.uid)
    queue.check()


def test_members_in_flight_are_not_taken_twice() -> None:
    """A member whose own commit is under way stays where it is."""
    queue = make_queue()
    one, two = make_pod("one"), make_pod("two")
    queue.add(one, 0.0)
    queue.add(two, 1.0)
    first, second = queue.pop(1.0), queue.pop(1.0)
    assert first is not None
    assert second is not None
    assert gather(queue, second, [one, two, make_pod("unknown")]) == [second]
    queue.check()


def test_the_longest_back_off_grows_with_the_square_root_of_the_group() -> None:
    """Nine Pods that fail together wait for up to three times as long; the first waits are the same."""
    rule = Backoff(1.0, 10.0)
    assert [rule.duration_s(failures, 9) for failures in (1, 2, 4, 5, 6, 20)] == [1.0, 2.0, 8.0, 16.0, 30.0, 30.0]
    assert [rule.duration_s(failures) for failures in (1, 4, 5, 20)] == [1.0, 8.0, 10.0, 10.0]


@pytest.mark.parametrize(
    ("group", "second", "expected"),
    [
        (PodGroupSpec(), {}, ""),
        (
            PodGroupSpec(),
            {"schedulerName": "other"},
            'all pods in a single pod group should have the same .spec.schedulerName set, got: "other" and '
            '"dra-scheduler"',
        ),
        (
            PodGroupSpec(priority=3),
            {},
            "all pods in a single pod group should have the same priority as the pod group's priority, got 0 and 3",
        ),
        (
            PodGroupSpec(),
            {"preemptionPolicy": "Never"},
            "all pods in a single pod group should have the same preemption policy, got PreemptLowerPriority and Never",
        ),
    ],
)
def test_members_must_agree(group: PodGroupSpec, second: dict[str, Any], expected: str) -> None:
    """On scheduler, priority (the group's where it has one) and preemption policy."""
    pods = [make_pod("one"), spec(make_pod("two"), **second)]
    assert disagreement(PodGroup(spec=group), pods) == expected
