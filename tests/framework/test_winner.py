"""The winner among equals: upstream's heap order, and the sample a percentage would have seen."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.cycle.attempt import nodes_to_find, take_sample
from scheduler.framework.runner import Filtered, winner
from scheduler.framework.status import unschedulable


def heap_root(totals: list[int]) -> int:
    """Make a binary max-heap in place with a strict comparison and take its root."""
    heap = list(range(len(totals)))

    def down(position: int) -> None:
        while (child := 2 * position + 1) < len(heap):
            if child + 1 < len(heap) and totals[heap[child + 1]] > totals[heap[child]]:
                child += 1
            if totals[heap[child]] <= totals[heap[position]]:
                return
            heap[position], heap[child] = heap[child], heap[position]
            position = child

    for start in range(len(heap) // 2 - 1, -1, -1):
        down(start)
    return heap[0]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_winner_is_the_root_of_a_strict_max_heap(totals: list[int]) -> None:
    """Whatever the scores, the winner is the node a heap made in place would have at its root."""
    assert winner(np.asarray(totals, dtype=np.int64)) == heap_root(totals)


def test_all_equal_takes_the_first() -> None:
    """With all nodes tied the first feasible node wins."""
    assert winner(np.full(7, 42, dtype=np.int64)) == 0


def test_percentage_counts() -> None:
    """Unset, 0 and 100 look at all nodes; others at a share, at least 100, at most all."""
    assert nodes_to_find(5000, 0) == nodes_to_find(5000, 100) == 5000
    assert nodes_to_find(99, 10) == 99
    assert nodes_to_find(500, 10) == 100
    assert nodes_to_find(5000, 10) == 500


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.integers(1, 20))
def test_sample_is_what_a_search_that_stops_would_have_seen(fits: list[bool], wanted: int) -> None:
    """The search ends at feasible node wanted + 1, drops it, and keeps the rejections it met before."""
    rotated = np.arange(len(fits), dtype=np.int64) + 7
    mask = np.asarray(fits)
    filtered = Filtered(rotated[mask], [(unschedulable("no"), rotated[~mask])] if not mask.all() else [])
    sampled, processed = take_sample(filtered, rotated, wanted)
    feasible, rejected = [], []
    for row, fit in zip(rotated.tolist(), fits, strict=True):
        if fit and len(feasible) == wanted:
            break
        (feasible if fit else rejected).append(row)
    assert sampled.feasible.tolist() == feasible
    assert [row for _, rows in sampled.rejected for row in rows.tolist()] == rejected
    assert processed == len(feasible) + len(rejected)
