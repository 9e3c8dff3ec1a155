"""What extenders' answers mean, without HTTP."""

from __future__ import annotations

import json
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config.model import Extender, ManagedResource
from scheduler.framework.dryrun import Candidate
from scheduler.framework.extender_calls import CallExtenders, ExtenderError, arguments
from scheduler.framework.extenders import (
    ExtenderFiltered,
    filter_by_extenders,
    in_order,
    interested,
    preempt_by_extenders,
    score_by_extenders,
)
from scheduler.framework.runner import ScoreTable
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from tests.cycle.attempt_world import make_pod, state_of

FILTER = Extender("http://x/", filter_verb="filter", node_cache_capable=True)


def answered(steps: Generator[CallExtenders, str | None, Any], *answers: object) -> Any:
    """Run ``steps``; each call gets the next of ``answers``, an Exception for a failure."""
    left = list(answers)
    while True:
        try:
            asked = next(steps)
        except StopIteration as stop:
            assert not left
            return stop.value
        for call in asked.calls:
            answer = left.pop(0)
            if isinstance(answer, Exception):
                call.failure = str(answer)
            else:
                call.body = json.dumps(answer).encode()


def names(state: ClusterState, result: ExtenderFiltered) -> list[str]:
    return [state.nodes.name_of(row) for row in result.feasible.tolist()]


def filtered(state: ClusterState, extenders: list[Extender], *answers: object) -> ExtenderFiltered:
    result = answered(filter_by_extenders(extenders, make_pod(), state.nodes, state.nodes.order()), *answers)
    assert isinstance(result, ExtenderFiltered)
    return result


def test_keys_are_read_whatever_their_case() -> None:
    """Go's decoding takes nodenames for NodeNames, so do we."""
    state = state_of("a", "b")
    assert names(state, filtered(state, [FILTER], {"nodenames": ["b"]})) == ["b"]


def test_a_node_neither_returned_nor_failed_is_dropped_without_a_status() -> None:
    """It counts as dropped, so that every event wakes the Pod."""
    result = filtered(state_of("a", "b"), [FILTER], {"NodeNames": ["a"]})
    assert (result.rejected, result.dropped) == ([], True)


def test_unresolvable_wins_over_failed() -> None:
    """A node in both maps is told once, as unresolvable."""
    answer = {"NodeNames": [], "FailedNodes": {"a": "x", "b": "y"}, "FailedAndUnresolvableNodes": {"a": "z"}}
    result = filtered(state_of("a", "b"), [FILTER], answer)
    found = {nodes[0]: (status.code, status.message) for status, nodes in result.rejected}
    assert found == {"a": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "z"), "b": (Code.UNSCHEDULABLE, "y")}


def test_a_node_that_was_not_offered_is_an_error() -> None:
    """The text names extender and node as kube-scheduler's does."""
    with pytest.raises(ExtenderError) as caught:
        filtered(state_of("a"), [FILTER], {"NodeNames": ["zz"]})
    text = 'extender "http://x/" claims a filtered node "zz" which is not found in the input node list'
    assert str(caught.value) == text


@pytest.mark.parametrize("answer", [{"Error": "boom"}, ValueError("boom"), [], "x", {"Nodes": {"items": [1]}}])
def test_whatever_goes_wrong_passes_over_an_ignorable_extender_and_ends_the_attempt_otherwise(answer: object) -> None:
    """Errors in the answer, of the transport, and answers of a wrong shape."""
    state = state_of("a")
    ignorable = Extender("http://x", filter_verb="filter", ignorable=True)
    assert names(state, filtered(state, [ignorable], answer)) == ["a"]
    with pytest.raises(ExtenderError):
        filtered(state, [Extender("http://x", filter_verb="filter")], answer)


def test_the_second_extender_sees_what_the_first_left_and_none_when_nothing_is_left() -> None:
    """Sequential on the shrinking list."""
    state = state_of("a", "b")
    second = Extender("http://y", filter_verb="f", node_cache_capable=True)
    result = filtered(state, [FILTER, second], {"NodeNames": ["b"]}, {"NodeNames": ["b"]})
    assert names(state, result) == ["b"]
    assert names(state, filtered(state, [FILTER, second], {"NodeNames": []})) == []


def test_ignorable_ones_come_last_and_resources_limit_interest() -> None:
    """Order and interest of kube-scheduler."""
    first, last = Extender("http://1", ignorable=True), Extender("http://2")
    assert in_order([first, last]) == (last, first)
    managed = Extender("http://x", managed_resources=(ManagedResource("example.com/x"),))
    assert not interested(managed, make_pod())
    assert interested(Extender("http://x"), make_pod())


def score(extender: Extender, totals: list[int], *answers: object, seed: str = "s") -> tuple[int, list[int]]:
    state = state_of(*(f"n{i}" for i in range(len(totals))))
    table = ScoreTable(state.nodes.order(), state.nodes, np.asarray(totals, np.int64))
    place = answered(score_by_extenders([extender], make_pod(), state.nodes, table, seed), *answers)
    return place, table.totals.tolist()


PRIORITIZE = Extender("http://x", prioritize_verb="p", weight=3, node_cache_capable=True)


def test_scores_count_ten_times_weight_and_errors_count_nothing() -> None:
    """score × weight × 10 is added, neither normalised nor clamped; a failure leaves the totals."""
    assert score(PRIORITIZE, [5, 0], [{"Host": "n1", "Score": 40}, {"Host": "zz", "Score": 1}]) == (1, [5, 1200])
    assert score(PRIORITIZE, [5, 0], ValueError("away")) == (0, [5, 0])
    assert score(PRIORITIZE, [5, 0], {"not": "a list"}) == (0, [5, 0])


@given(st.text(min_size=1, max_size=8))
def test_equal_nodes_are_drawn_by_the_seed_and_the_same_seed_draws_the_same(seed: str) -> None:
    """An interested extender makes ties random; unscored nodes never win a tie against scored ones."""
    silent = Extender("http://x")
    assert score(silent, [7] * 5, seed=seed) == score(silent, [7] * 5, seed=seed)
    assert score(PRIORITIZE, [1, 1], [{"Host": "n1", "Score": 0}], seed=seed)[0] == 1


def test_different_seeds_draw_different_nodes() -> None:
    """All of four equal nodes win at some time."""
    silent = Extender("http://x")
    assert {score(silent, [7] * 4, seed=str(i))[0] for i in range(100)} == {0, 1, 2, 3}


def test_preemption_answers_are_checked() -> None:
    """Unknown victims and nodes without victims are errors; an ignorable extender's empty node is dropped."""
    state = state_of("a")
    victim = make_pod()
    candidates = [Candidate("a", (victim,), 0)]
    strict = Extender("http://x", preempt_verb="preempt")
    unknown = {"NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "zz"}]}}}
    with pytest.raises(ExtenderError) as caught:
        answered(preempt_by_extenders([strict], make_pod(), state.nodes, candidates), unknown)
    text = "extender: http://x claims to preempt pod (UID: zz) on node: a, but the pod is not found on that node"
    assert str(caught.value) == text
    empty = {"NodeNameToMetaVictims": {"a": {"Pods": []}}}
    with pytest.raises(ExtenderError, match='expected at least one victim pod on node "a"'):
        answered(preempt_by_extenders([strict], make_pod(), state.nodes, candidates), empty)
    lax = Extender("http://x", preempt_verb="preempt", ignorable=True)
    assert answered(preempt_by_extenders([lax], make_pod(), state.nodes, candidates), empty) == []
    assert answered(preempt_by_extenders([lax], make_pod(), state.nodes, candidates), unknown) == candidates


def test_meta_victims_are_sent_to_cache_capable_extenders() -> None:
    """UIDs only, and the number of violated budgets."""
    victim = make_pod()
    extender = Extender("http://x", preempt_verb="preempt", node_cache_capable=True)
    steps = preempt_by_extenders([extender], make_pod(), state_of("a").nodes, [Candidate("a", (victim,), 2)])
    call = next(steps).calls[0]
    assert json.loads(arguments(call, b"{}", (), lambda pod: b"{}")) == {
        "Pod": {},
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": victim.uid}], "NumPDBViolations": 2}},
    }
