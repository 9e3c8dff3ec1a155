"""What plugins declare about themselves decides what is kept; what they declare or answer wrongly is named."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from scheduler.errors import PluginError
from scheduler.framework import classes as classes_module
from scheduler.framework.classes import CLASSES_MIN
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Depends, Rows
from scheduler.framework.profile import Profile, build_profile
from scheduler.framework.runner import Filtered, run_filters, run_scores
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import pod_info
from tests.cycle.attempt_world import Sort, make_pod, state_of


class Kept:
    """Filters and scores by column; ``rows`` lists what it was asked."""

    name = "Kept"
    depends: Any = Depends.NODE

    def __init__(self, verdict: int = 0, score: int = 7, signature: Any = "all alike") -> None:
        self.verdicts = VerdictTable(self.name)
        self.verdicts.intern(Code.UNSCHEDULABLE, ("no",))
        self.verdict, self.points, self.said = verdict, score, signature
        self.asked: list[int] = []
        self.now = 0

    def signature(self, cycle: Cycle) -> Any:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def epoch(self, nodes: NodeTable) -> int:
        return self.now

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Any:
        self.asked += rows.tolist()
        return np.full(len(rows), self.verdict, np.int64)

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Any:
        return np.full(len(rows), self.points, np.int64)


class WithRows(Kept):
    """Answers ``one`` for single rows."""

    one: Any = 0

    def filter_row(self, cycle: Cycle, nodes: NodeTable, row: int) -> Any:
        return self.one


def profile_of(plugin: Any) -> Profile:
    order = {
        "queueSort": [("Sort", 1)],
        "bind": [("Sort", 1)],
        "filter": [(plugin.name, 1)],
        "score": [(plugin.name, 2)],
    }
    return build_profile("test", {"Sort": Sort(), plugin.name: plugin}, order)


def filter_all(profile: Profile, state: ClusterState) -> Filtered:
    pod = make_pod()
    steps = run_filters(profile, Cycle(pod, pod_info(pod), state), state.nodes, state.nodes.order())
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
            return filtered


def score_all(profile: Profile, state: ClusterState) -> list[int]:
    pod = make_pod()
    totals: list[int] = run_scores(
        profile, Cycle(pod, pod_info(pod), state), state.nodes, state.nodes.order()
    ).totals.tolist()
    return totals


def test_equal_pods_ask_once() -> None:
    """The second Pod of a class asks about nothing while nothing changes."""
    plugin, state = Kept(), state_of("a", "b", "c")
    profile = profile_of(plugin)
    for _ in range(2):
        assert len(filter_all(profile, state).feasible) == 3
    assert sorted(plugin.asked) == [0, 1, 2]


def test_a_new_epoch_asks_about_every_node() -> None:
    """A plugin says itself when something changed on which all its answers depend."""
    plugin, state = Kept(), state_of("a", "b", "c")
    profile = profile_of(plugin)
    filter_all(profile, state)
    plugin.now, plugin.verdict = 1, 1
    assert len(filter_all(profile, state).feasible) == 0
    assert len(plugin.asked) == 6


@pytest.mark.parametrize(("depends", "signature"), [(None, "x"), (Depends.NODE, None), ("NODE", "x")])
def test_what_is_not_declared_is_not_kept(depends: Any, signature: Any) -> None:
    """Without a signature, or without saying on what answers depend, every Pod asks about every node."""
    plugin, state = Kept(signature=signature), state_of("a", "b", "c")
    plugin.depends = depends
    profile = profile_of(plugin)
    for _ in range(2):
        filter_all(profile, state)
    assert len(plugin.asked) == 6


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        (Kept(signature=["a list"]), "TypeError"),
        (Kept(signature=ValueError("boom")), "ValueError: boom"),
        (Kept(verdict=5), "answered 5, which is none of its verdicts"),
        (Kept(verdict=-1), "answered -1"),
    ],
)
def test_a_wrong_answer_names_the_plugin(plugin: Kept, problem: str) -> None:
    """Whatever a cacheable plugin gets wrong costs the attempt and names it, however often it is asked."""
    profile, state = profile_of(plugin), state_of("a", "b")
    for _ in range(2):
        with pytest.raises(PluginError, match=problem) as raised:
            filter_all(profile, state)
        assert raised.value.plugin == "Kept"


@pytest.mark.parametrize("answer", ["text", 9, -2, True])
def test_a_wrong_answer_for_one_row_names_the_plugin(answer: Any) -> None:
    """The form for one row may answer with a known verdict, or None."""
    plugin = WithRows()
    plugin.one = answer
    with pytest.raises(PluginError, match='"Kept"'):
        filter_all(profile_of(plugin), state_of("a"))


def test_a_row_form_may_leave_it_to_the_column_form() -> None:
    """None asks ``filter`` about that row."""
    plugin = WithRows(verdict=1)
    plugin.one = None
    assert len(filter_all(profile_of(plugin), state_of("a")).feasible) == 0


def test_scores_out_of_range_are_told_as_without_a_cache() -> None:
    """A kept score beyond 100 ends the attempt with upstream's text, and in-range scores are weighted."""
    state = state_of("a", "b")
    assert score_all(profile_of(Kept()), state) == [14, 14]
    profile = profile_of(Kept(score=101))
    for _ in range(2):
        with pytest.raises(PluginError, match="returns an invalid score 101"):
            score_all(profile, state)


def test_a_score_that_failed_once_is_asked_for_anew() -> None:
    """An error while scores are asked for the first time leaves nothing half kept behind."""
    plugin, state = Kept(score=5), state_of("a", "b")
    profile = profile_of(plugin)
    good, plugin.score = plugin.score, lambda *_: "nonsense"  # type: ignore[method-assign]  # a bad moment
    with pytest.raises(PluginError):
        score_all(profile, state)
    plugin.score = good  # type: ignore[method-assign]  # over now
    assert score_all(profile, state) == [10, 10]
    profile.classes.verify(state)


class Various(Kept):
    """A verdict of its own for every few rows."""

    name = "Various"

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Any:
        texts = [f"reason {row * 7 % 20 // 2}" for row in rows.tolist()]
        return np.asarray([self.verdicts.intern(Code.UNSCHEDULABLE, (text,)) for text in texts], np.int64)


def test_many_verdicts_come_in_order_of_their_first_node() -> None:
    """However many there are; each row is told once."""
    state = state_of(*(f"n{number}" for number in range(20)))
    rejected = filter_all(profile_of(Various()), state).rejected
    firsts = [int(rows[0]) for _, rows in rejected]
    order = state.nodes.order().tolist()
    assert [order.index(row) for row in firsts] == sorted(order.index(row) for row in firsts)
    assert sorted(row for _, rows in rejected for row in rows.tolist()) == sorted(order)
    assert len(rejected) == 10


def test_a_class_that_is_dropped_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its vectors are as long as the cluster is large; verification, which looks at those used, may never come."""
    plugin, state = Kept(), state_of("a", "b", "c")
    profile = profile_of(plugin)
    classes = profile.classes
    monkeypatch.setattr(classes_module, "ROWS_KEPT_MAX", 0)
    plugin.said = "first"
    filter_all(profile, state)
    first = weakref.ref(next(iter(classes._classes.values())))
    for index in range(CLASSES_MIN + 3):
        plugin.said = index
        filter_all(profile, state)
    assert len(classes) == CLASSES_MIN
    assert classes._used.keys() <= classes._classes.keys()
    gc.collect()
    assert first() is None
