"""The queue's building blocks against simple models."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import InternalError
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.queue.heap import PodHeap
from scheduler.queue.inflight import InFlight
from scheduler.queue.pod import QueuedPod
from tests.queue.queue_world import make_pod


def queued_pod(number):
    """A QueuedPod with uid ``u-p<number>``."""
    return QueuedPod(make_pod(f"p{number}"), 0.0)


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["push", "remove", "rekey", "pop"]), st.integers(0, 9), st.integers(0, 3)), max_size=200
)


@given(OPERATIONS)
def test_heap_agrees_with_a_sorted_list(operations):
    """Whatever is pushed, removed and re-keyed, pop returns the smallest key, oldest first among equals."""
    heap, model, turn = PodHeap(), {}, 0
    for name, number, key in operations:
        uid = f"u-p{number}"
        if name == "push" and uid not in model:
            heap.push(queued_pod(number), key)
            model[uid] = (key, turn)
            turn += 1
        elif name == "remove":
            assert (heap.remove(uid) is not None) == (model.pop(uid, None) is not None)
        elif name == "rekey" and uid in model:
            heap.rekey(uid, key)
            model[uid] = (key, model[uid][1])
        elif name == "pop":
            expected = min(model, key=model.__getitem__, default=None)
            found = heap.pop()
            assert (found.uid if found else None) == expected
            model.pop(expected, None)
        assert len(heap) == len(model)
        assert {queued.uid for queued in heap} == set(model)


def test_heap_forgets_removed_entries():
    """Pods that come and go without a pop leave no garbage behind that grows."""
    heap = PodHeap()
    heap.push(queued_pod(0), 0)
    for number in range(1, 5000):
        heap.push(queued_pod(number), number)
        heap.remove(f"u-p{number}")
    assert len(heap._heap) < 200


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pop"), st.integers(0, 9)),
            st.tuples(st.just("done"), st.integers(0, 9)),
            st.tuples(st.just("event"), st.integers(0, 999)),
        ),
        max_size=200,
    )
)
def test_in_flight_events_agree_with_a_full_log(operations):
    """Each Pod gets exactly the events since its pop, however often older ones are dropped."""
    flight, log, starts = InFlight(), [], {}
    for name, number in operations:
        uid = f"u-p{number}"
        if name == "pop" and uid not in starts:
            flight.add(queued_pod(number))
            starts[uid] = len(log)
        elif name == "done":
            assert (flight.done(uid) is not None) == (starts.pop(uid, None) is not None)
        elif name == "event":
            log.append(number)
            flight.record(ClusterEvent(Resource.NODE, Action.ADD, None, number))
        for known, start in starts.items():
            assert [event.new for event in flight.events_since(known)] == log[start:]
        if not starts:
            assert flight.event_count == 0


def test_in_flight_events_are_dropped_with_the_oldest_pod():
    """A stream of short attempts keeps only what the attempts under way may need."""
    flight = InFlight()
    for number in range(1000):
        flight.add(queued_pod(number))
        for _ in range(10):
            flight.record(ClusterEvent(Resource.NODE, Action.ADD))
        if number:
            flight.done(f"u-p{number - 1}")
    assert flight.event_count <= 40


def test_check_reports_a_broken_structure():
    """The invariant checker does find a Pod that is in two places."""
    from tests.queue.queue_world import make_queue

    queue = make_queue()
    queue.add(make_pod("a"), 0)
    queue._waiting.add(queue.get("u-a"))
    with pytest.raises(InternalError, match="ns/a claims to be in active"):
        queue.check()
