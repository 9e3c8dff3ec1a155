"""Waking by key: an event costs the Pods that wait for its object, not all that wait."""

from __future__ import annotations

import pytest

from scheduler.framework.events import Action, ClusterEvent, Registration, Resource
from scheduler.queue.hooks import ProfileHooks
from scheduler.queue.pod import Place
from scheduler.queue.scheduling_queue import SchedulingQueue
from tests.queue.queue_world import PROFILE, by_priority, make_pod, reject

T = 500.0


def claim_queue(pod_keys=None, event_keys=None, pre_enqueue=lambda pod, first: None):
    """A queue whose Devices plugin waits for claims named like the Pod's label ``claim``; counts hint calls."""
    asked = []

    def hint(pod, old, new):
        asked.append(pod.metadata.name)
        return pod.metadata.labels.get("claim") == (new or old)

    registration = Registration(
        Resource.RESOURCE_CLAIM,
        Action.ADD | Action.UPDATE | Action.DELETE,
        hint,
        pod_keys or (lambda pod: [pod.metadata.labels["claim"]] if "claim" in pod.metadata.labels else []),
        event_keys or (lambda old, new: None if (new or old) == "all" else [new or old]),
    )
    hooks = {PROFILE: ProfileHooks(pre_enqueue, {"Devices": [registration]})}
    return SchedulingQueue(hooks, by_priority), asked


def claim_event(name):
    """Claim ``name`` was added."""
    return ClusterEvent(Resource.RESOURCE_CLAIM, Action.ADD, None, name)


def test_only_pods_sharing_a_key_are_asked():
    """Of many Pods that wait for a claim, the claim's event asks its own Pod."""
    queue, asked = claim_queue()
    for number in range(50):
        reject(queue, make_pod(f"p{number}", labels={"claim": f"c{number}"}), T, "Devices")
    assert queue.move([claim_event("c7")], T) == 1
    assert asked == ["p7"]


def test_event_without_keys_asks_everybody():
    """An event whose keys are None is put to every Pod of the plugin."""
    queue, asked = claim_queue()
    for number in range(3):
        reject(queue, make_pod(f"p{number}", labels={"claim": f"c{number}"}), T, "Devices")
    queue.move([claim_event("all")], T)
    assert asked == ["p0", "p1", "p2"]


def test_pod_without_keys_is_not_asked():
    """A Pod that waits for no claim sleeps through claim events."""
    queue, asked = claim_queue()
    reject(queue, make_pod("a"), T, "Devices")
    queue.move([claim_event("c")], T)
    assert asked == []


@pytest.mark.parametrize("broken", ["pod_keys", "event_keys"])
def test_key_function_that_raises_costs_time_not_wake_ups(broken):
    """When a key function fails the hint is asked as if there were no keys."""

    def fail(*arguments):
        raise RuntimeError("broken keys")

    queue, asked = claim_queue(**{broken: fail})
    queued = reject(queue, make_pod("a", labels={"claim": "c"}), T, "Devices")
    queue.move([claim_event("c")], T)
    queue.check()
    assert asked == ["a"]
    assert queued.place is Place.BACKOFF


def test_update_refiles_the_pod():
    """A Pod whose claim gets another name while it waits is found under the new name only."""
    queue, asked = claim_queue()
    old = make_pod("a", labels={"claim": "c1"})
    queued = reject(queue, old, T, "Devices")
    queue.update(old, make_pod("a", version="2", labels={"claim": "c2"}), T)
    queue.check()
    queue.move([claim_event("c1")], T)
    assert asked == []
    queue.move([claim_event("c2")], T)
    assert queued.place is Place.BACKOFF


def test_gated_pods_are_found_by_key_too():
    """Pods gated until their claim exists are asked one by one, not all for every claim."""
    from scheduler.framework.status import unschedulable

    made: set[str] = set()

    def gate(pod, first):
        return None if pod.metadata.labels["claim"] in made else unschedulable("no claim").by("Devices")

    queue, asked = claim_queue(pre_enqueue=gate)
    for number in range(20):
        queue.add(make_pod(f"p{number}", labels={"claim": f"c{number}"}), T)
    assert queue.counts()["gated"] == 20
    made.add("c3")
    assert queue.move([claim_event("c3")], T) == 1
    assert asked == ["p3"]
    assert queue.pop(T).pod.metadata.name == "p3"


def test_many_pods_many_events_are_not_quadratic():
    """2,000 waiting Pods and 2,000 claim events make 2,000 hint calls."""
    queue, asked = claim_queue()
    for number in range(2000):
        pod = make_pod(f"p{number}", labels={"claim": f"c{number}"})
        queue.add(pod, T)
        queue.requeue(queue.pop(T), pod, ["Devices"], [], T)
    assert queue.move([claim_event(f"c{number}") for number in range(2000)], T) == 2000
    assert len(asked) == 2000
