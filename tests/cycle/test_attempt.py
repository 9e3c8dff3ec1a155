"""An attempt as a state machine: suspended, rechecked, begun anew, and every way it can end."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.api.changes import Change
from scheduler.api.kinds import NODE
from scheduler.cycle.attempt import INVALIDATIONS_MAX, Rotation, nodes_to_find
from scheduler.cycle.decision import Failed, Need, Placed, Rejected
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.status import SKIP, SUCCESS, error, unresolvable, unschedulable

from .attempt_world import (
    After,
    Gate,
    Like,
    Names,
    PreFilterResult,
    Room,
    attempt_of,
    finish,
    make_node,
    make_pod,
    passes,
    state_of,
)


def test_the_best_score_wins() -> None:
    """The node with the highest total gets the Pod; the table of scores comes along."""
    decision = finish(attempt_of(state_of("a", "b", "c"), Gate(), Like({"b": 7, "c": 3})), 1 << 30)
    assert isinstance(decision, Placed)
    assert (decision.node, decision.evaluated_nodes, decision.feasible_nodes) == ("b", 3, 3)
    assert decision.scores is not None
    assert dict(zip(decision.scores.nodes, decision.scores.totals.tolist(), strict=True)) == {"a": 0, "b": 7, "c": 3}


def test_one_feasible_node_is_not_scored() -> None:
    """Where there is no choice no score plugin is asked."""
    like = Like({})
    decision = finish(attempt_of(state_of("a", "b"), Gate(lambda name: name == "b"), like), 1 << 30)
    assert isinstance(decision, Placed)
    assert (decision.node, decision.scores, like.asked) == ("b", None, 0)


def test_no_nodes_at_all() -> None:
    """An empty cluster is its own kind of rejection."""
    decision = finish(attempt_of(state_of(), Gate()), 1)
    assert isinstance(decision, Rejected)
    assert decision.no_nodes


def test_a_budget_of_one_suspends_at_each_node() -> None:
    """The search goes on where it stopped, and ends as without a pause."""
    gate = Gate(lambda name: name != "b")
    steps: list[int] = []
    decision = finish(attempt_of(state_of("a", "b", "c"), gate, Like({"c": 1})), 1, steps.append)
    assert isinstance(decision, Placed)
    assert (decision.node, gate.looked, len(steps)) == ("c", ["a", "b", "c"], 3)


def test_a_change_elsewhere_leads_to_a_recheck_of_the_chosen_node_only() -> None:
    """The state moved while the search slept: the chosen node alone is filtered again."""
    state, gate = state_of("a", "b", "c"), Gate()

    def between(step: int) -> None:
        if step == 1:
            state.assume(make_pod("other"), "a")

    decision = finish(attempt_of(state, gate, Like({"b": 1})), 1, between)
    assert isinstance(decision, Placed)
    assert (decision.node, gate.looked) == ("b", ["a", "b", "c", "b"])


def test_a_node_filled_meanwhile_is_not_given_out() -> None:
    """The chosen node became full behind the search's back: the decision is made anew."""
    state = state_of("a", "b")
    gate = Gate()

    def between(step: int) -> None:
        if step == 2:
            state.assume(make_pod("other", cpu="8"), "a")

    attempt = attempt_of(state, Room(), gate, Like({"a": 1}))
    decision = finish(attempt, 1, between)
    assert isinstance(decision, Placed)
    assert (decision.node, attempt.invalidations) == ("b", 1)


def test_after_three_invalidations_nothing_is_waited_for() -> None:
    """Whoever loses each recheck decides in one go the fourth time."""
    state = state_of("a", "b", "c", "d", "e")
    scores = {name: 5 - place for place, name in enumerate("abcde")}
    filled: list[str] = []

    def between(step: int) -> None:
        # Whatever is best now is filled while the search sleeps.
        best = next(name for name in "abcde" if name not in filled)
        if gate.looked.count("e") > len(filled):
            state.assume(make_pod(f"filler-{step}", cpu="8"), best)
            filled.append(best)

    gate = Gate()
    attempt = attempt_of(state, Room(), gate, Like(scores))
    decision = finish(attempt, 1, between)
    assert isinstance(decision, Placed)
    assert attempt.invalidations == INVALIDATIONS_MAX == len(filled)
    assert decision.node == "d"


def test_a_removed_node_makes_the_search_begin_anew() -> None:
    """A node goes while the search sleeps: no row of it is asked for, no error is reported, none is chosen."""
    state = state_of("a", "b", "c")
    gone = make_node("b")

    def between(step: int) -> None:
        if step == 2:
            state.apply(Change(NODE, gone, None))

    decision = finish(attempt_of(state, Gate(lambda name: name != "a"), Like({"b": 9})), 1, between)
    assert isinstance(decision, Placed)
    assert decision.node == "c"


def test_a_row_that_changed_hands_is_not_mistaken() -> None:
    """The removed node's row now belongs to another node: rejections name nodes that are there."""
    state = state_of("a", "b")

    def between(step: int) -> None:
        if step == 2:
            state.apply(Change(NODE, make_node("b"), None))
            state.apply(Change(NODE, None, make_node("z")))

    decision = finish(attempt_of(state, Gate(lambda name: False)), 1, between)
    assert isinstance(decision, Rejected)
    assert {name for group in decision.diagnosis.groups for name in group.nodes} == {"a", "z"}


def test_a_replaced_node_is_another_node() -> None:
    """Deleted and created again under its name during the search: the answer carries the new node's uid."""
    state = state_of("a")

    def between(step: int) -> None:
        if step == 1:
            state.apply(Change(NODE, make_node("a"), None))
            state.apply(Change(NODE, None, make_node("a", uid="second")))

    decision = finish(attempt_of(state, Gate()), 1, between)
    assert isinstance(decision, Placed)
    assert decision.node_uid == "second"


def test_a_nominated_node_is_tried_alone_first() -> None:
    """It is taken without looking at or scoring others; when it does not fit all are looked at."""
    gate, like = Gate(), Like({"a": 9})
    decision = finish(attempt_of(state_of("a", "b"), gate, like, pod=make_pod(nominated="b")), 1 << 30)
    assert isinstance(decision, Placed)
    assert (decision.node, gate.looked, like.asked) == ("b", ["b"], 0)
    gate = Gate(lambda name: name != "b")
    decision = finish(attempt_of(state_of("a", "b"), gate, pod=make_pod(nominated="b")), 1 << 30)
    assert isinstance(decision, Placed)
    assert (decision.node, gate.looked) == ("a", ["b", "a", "b"])


def test_a_nomination_of_an_unknown_node_is_ignored() -> None:
    """The nominated node is gone: an ordinary search."""
    decision = finish(attempt_of(state_of("a"), Gate(), pod=make_pod(nominated="gone")), 1 << 30)
    assert isinstance(decision, Placed)
    assert decision.node == "a"


def test_a_nominated_node_outside_the_node_set_has_a_reason_of_its_own() -> None:
    """It is tried although a PreFilter leaves it out; its refusal is told beside that of the nodes left out."""
    gate = Gate(lambda name: False)
    plugins = (Names(passes(frozenset("a")), "First"), gate)
    decision = finish(attempt_of(state_of("a", "b", "c"), *plugins, pod=make_pod(nominated="b")), 1 << 30)
    assert isinstance(decision, Rejected)
    assert gate.looked == ["b", "a"]
    assert decision.diagnosis.reasons() == {"closed": 2, "node(s) didn't satisfy plugin(s) [First Gate]": 1}


def test_an_error_on_the_nominated_node_ends_nothing() -> None:
    """The full search follows, and another node may be found."""

    def broken(name: str) -> bool:
        if name == "b" and gate.looked == ["b"]:
            raise ValueError("unreadable")
        return name == "a"

    gate = Gate(broken)
    decision = finish(attempt_of(state_of("a", "b"), gate, pod=make_pod(nominated="b")), 1 << 30)
    assert isinstance(decision, Placed)
    assert decision.node == "a"


def test_node_sets_of_pre_filters_are_intersected() -> None:
    """Only nodes in all sets are looked at; the others count as rejected by the plugins together."""
    gate = Gate(lambda name: False)
    first, second = Names(passes(frozenset("ab")), "First"), Names(passes(frozenset("bc")), "Second")
    decision = finish(attempt_of(state_of("a", "b", "c"), second, first, gate), 1 << 30)
    assert isinstance(decision, Rejected)
    assert gate.looked == ["b"]
    text = "node(s) didn't satisfy plugin(s) [First Second]"
    assert decision.diagnosis.reasons() == {"closed": 1, text: 2}
    assert decision.diagnosis.unschedulable_plugins == {"First", "Second", "Gate"}


def test_node_sets_without_common_node() -> None:
    """Nothing is looked at, and the message names the plugins."""
    gate = Gate()
    plugins = (Names(passes(frozenset("a")), "First"), Names(passes(frozenset("b")), "Second"), gate)
    decision = finish(attempt_of(state_of("a", "b"), *plugins), 1 << 30)
    assert isinstance(decision, Rejected)
    assert gate.looked == []
    assert decision.diagnosis.prefilter_message == "node(s) didn't satisfy plugin(s) [First Second] simultaneously"


def test_pre_filter_statuses() -> None:
    """Skip leaves the filter out; Unschedulable lets the others speak; Unresolvable ends at once; Error fails."""

    class Skipped(Gate):
        def pre_filter(self, cycle: Any) -> PreFilterResult:
            return PreFilterResult(SKIP)

    skipped = Skipped(lambda name: False)
    assert isinstance(finish(attempt_of(state_of("a"), skipped), 1), Placed)
    assert skipped.looked == []
    last = Names(PreFilterResult(unresolvable("never")), "Last")
    decision = finish(attempt_of(state_of("a"), Names(PreFilterResult(unschedulable("no"))), last), 1)
    assert isinstance(decision, Rejected)
    assert decision.diagnosis.prefilter_message == "never"
    assert decision.diagnosis.unschedulable_plugins == {"Last"}
    decision = finish(attempt_of(state_of("a"), Names(PreFilterResult(error("broken")))), 1)
    assert isinstance(decision, Failed)
    assert decision.plugin == "Names"


@pytest.mark.parametrize("answer", [None, PreFilterResult(None), ValueError("boom")])  # type: ignore[arg-type] # wrong
def test_a_pre_filter_that_misbehaves_is_named(answer: object) -> None:
    """An exception or an answer of another kind fails the attempt, with the plugin's name."""
    decision = finish(attempt_of(state_of("a"), Names(answer)), 1)
    assert isinstance(decision, Failed)
    assert decision.plugin == "Names"
    assert "Names" in decision.text


@pytest.mark.parametrize("answer", [None, [0], np.zeros(5, np.int64), np.zeros(1), np.asarray([77])])
def test_a_filter_that_misbehaves_is_named(answer: object) -> None:
    """No array, a wrong length, no integers, an unknown verdict: the attempt fails and names the plugin."""

    class Bad(Room):
        name = "Bad"

        def filter(self, cycle: Any, nodes: Any, rows: Any) -> Any:
            return answer

    decision = finish(attempt_of(state_of("a"), Bad()), 1)
    assert isinstance(decision, Failed)
    assert decision.plugin == "Bad"


def test_a_post_filter_asks_the_edge() -> None:
    """Its instruction comes out as a Need; the answer goes back in; its message and nomination come out."""
    seen: list[str | None] = []

    def body(cycle: Any, statuses: Any) -> Generator[Any, str | None, PostFilterResult]:
        seen.append((yield "first"))
        seen.append((yield "second"))
        return PostFilterResult(unschedulable("tried", "twice"), nominated_node="a")

    attempt = attempt_of(state_of("a"), Gate(lambda name: False), After(body))
    outcome = attempt.step(1 << 30)
    assert outcome == Need("first")  # type: ignore[arg-type]  # stands for an instruction
    attempt.answer(None)
    assert attempt.step(1) == Need("second")  # type: ignore[arg-type]  # as above
    attempt.answer("it failed")
    decision = attempt.step(1)
    assert isinstance(decision, Rejected)
    assert seen == [None, "it failed"]
    assert decision.nominated_node == "a"
    assert decision.diagnosis.postfilter_message == "tried, twice"


def test_post_filters_end_at_the_first_success() -> None:
    """Unschedulable lets the next one try, Success ends the row."""
    called: list[str] = []

    def after(name: str, status: Any) -> After:
        def body(cycle: Any, statuses: Any) -> Generator[Any, str | None, PostFilterResult]:
            called.append(name)
            yield from ()
            return PostFilterResult(status)

        return After(body, name)

    plugins = (after("one", unschedulable("no")), after("two", SUCCESS), after("three", SUCCESS))
    decision = finish(attempt_of(state_of("a"), Gate(lambda name: False), *plugins), 1 << 30)
    assert isinstance(decision, Rejected)
    assert called == ["one", "two"]


def test_a_post_filter_that_misbehaves_is_named() -> None:
    """It raises, or does not return a result: the attempt fails and names it."""

    def raises(cycle: Any, statuses: Any) -> Generator[Any, str | None, PostFilterResult]:
        yield from ()
        raise ValueError("boom")

    def nothing(cycle: Any, statuses: Any) -> Any:
        return None

    def returns_nothing(cycle: Any, statuses: Any) -> Generator[Any, str | None, Any]:
        yield from ()
        return None

    for body in (raises, nothing, returns_nothing):
        decision = finish(attempt_of(state_of("a"), Gate(lambda name: False), After(body)), 1 << 30)
        assert isinstance(decision, Failed), body
        assert decision.plugin == "After"


def test_sampling_rotates_through_the_nodes() -> None:
    """With a percentage each search starts where the last one stopped, and stops when enough are found."""
    names = [f"n{index:03d}" for index in range(300)]
    state, rotation = state_of(*names), Rotation()
    starts = []
    for index in range(3):
        gate = Gate()
        decision = finish(attempt_of(state, gate, pod=make_pod(f"p{index}"), rotation=rotation, percentage=40), 1 << 30)
        assert isinstance(decision, Placed)
        assert decision.feasible_nodes == 120
        starts.append(gate.looked[0])
    assert starts == ["n000", "n120", "n240"]
    assert rotation.start == 60


@given(st.integers(0, 3000), st.integers(-5, 120))
def test_nodes_to_find_is_never_more_than_there_are(count: int, percentage: int) -> None:
    """At least 100 (or all), at most all, and all without a percentage."""
    wanted = nodes_to_find(count, percentage)
    assert min(count, 100) <= wanted <= count
    if not 0 < percentage < 100:
        assert wanted == count


@given(st.data())
def test_any_sequence_of_pauses_decides_like_none(data: st.DataObject) -> None:
    """Without a change of the state the budget has no influence on the decision."""
    names = [f"n{index}" for index in range(data.draw(st.integers(1, 8)))]
    closed = data.draw(st.sets(st.sampled_from(names)))
    scores = {name: data.draw(st.integers(0, 100)) for name in names}
    budget = data.draw(st.integers(1, 5))

    def decide(steps: int) -> Any:
        plugins = (Gate(lambda name: name not in closed), Like(scores))
        found = finish(attempt_of(state_of(*names), *plugins), steps)
        return found.node if isinstance(found, Placed) else found.diagnosis.reasons()  # type: ignore[union-attr]

    assert decide(budget) == decide(1 << 30)
