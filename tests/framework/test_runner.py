"""What plugins answer becomes verdicts, scores and one winner; what they answer wrongly is named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from scheduler.errors import ConfigError, PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.diagnosis import Diagnosis
from scheduler.framework.profile import MAX_TOTAL_SCORE, Profile, build_profile
from scheduler.framework.runner import Filtered, run_filters, run_reserve, run_scores
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, error, unresolvable, unschedulable
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from tests.cycle.attempt_world import Sort, make_pod, state_of

ORDER = {"queueSort": [("Sort", 1)], "bind": [("Sort", 1)]}


def profile(plugin: Any, *points: str, weight: int = 1) -> Profile:
    order = {**ORDER, **{point: [(plugin.name, weight)] for point in points}}
    return build_profile("test", {"Sort": Sort(), plugin.name: plugin}, order)


def cycle_of(state: ClusterState) -> Cycle:
    pod = make_pod()
    return Cycle(pod, pod_info(pod), state)


def filter_all(state: ClusterState, plugin: Any) -> Filtered:
    steps = run_filters(profile(plugin, "filter"), cycle_of(state), state.nodes, state.nodes.order())
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            filtered: Filtered = stop.value
            return filtered


class PerNode:
    """The forms users write first: ``check`` and ``score_node``."""

    name = "PerNode"

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self.answer = answer

    def check(self, cycle: Cycle, node: Any) -> Any:
        return self.answer(node.name)

    def score_node(self, cycle: Cycle, node: Any) -> Any:
        return self.answer(node.name)


class Column:
    """A column score with what a test wants around it."""

    name = "Column"

    def __init__(self, raw: Any, before: Status = SUCCESS) -> None:
        self.raw, self.before = raw, before

    def pre_score(self, cycle: Cycle, nodes: Any, rows: Any) -> Status:
        return self.before

    def score(self, cycle: Cycle, nodes: Any, rows: Any) -> Any:
        return self.raw


def test_per_node_checks_become_verdicts() -> None:
    """Rejections are grouped by status, in order of first appearance."""
    state = state_of("a", "b", "c", "d")
    answers = {"a": unschedulable("x"), "b": SUCCESS, "c": unresolvable("y"), "d": unschedulable("x")}
    filtered = filter_all(state, PerNode(answers.__getitem__))
    names = [
        (status.reasons, [state.nodes.name_of(row) for row in rows.tolist()]) for status, rows in filtered.rejected
    ]
    assert names == [(("x",), ["a", "d"]), (("y",), ["c"])]
    assert [state.nodes.name_of(row) for row in filtered.feasible.tolist()] == ["b"]
    assert all(status.plugin == "PerNode" for status, _ in filtered.rejected)


def raising(name: str) -> Any:
    raise ValueError("boom")


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (raising, 'running Filter plugin "PerNode" on node a: ValueError: boom'),
        (lambda name: None, 'running Filter plugin "PerNode" on node a: check returned None, not a Status'),
        (lambda name: error("broken"), 'running "PerNode" filter plugin: broken'),
    ],
)
def test_a_check_that_fails_is_named_with_its_node(answer: Callable[[str], Any], text: str) -> None:
    """An exception, a foreign answer, an error status: the attempt ends with plugin and node."""
    with pytest.raises(PluginError) as caught:
        filter_all(state_of("a", "b"), PerNode(answer))
    assert str(caught.value) == text
    assert caught.value.plugin == "PerNode"


@pytest.mark.parametrize("bad", [None, 1.5, True, 1 << 70])
def test_a_node_score_must_be_an_int64(bad: Any) -> None:
    """Anything else is an error with plugin and node."""
    state = state_of("a")
    with pytest.raises(PluginError, match='running Score plugin "PerNode" on node a'):
        run_scores(profile(PerNode(lambda name: bad), "score"), cycle_of(state), state.nodes, state.nodes.order())


@pytest.mark.parametrize("score", [-1, 101])
def test_scores_outside_the_range_are_upstreams_error(score: int) -> None:
    """0 to 100 after normalizing; the text is kube-scheduler's."""
    state = state_of("a")
    with pytest.raises(PluginError) as caught:
        run_scores(profile(PerNode(lambda name: score), "score"), cycle_of(state), state.nodes, state.nodes.order())
    assert str(caught.value) == (
        f'plugin "PerNode" returns an invalid score {score}, it should in the range of [0, 100] after normalizing'
    )


@pytest.mark.parametrize("raw", [None, [1], np.asarray([1.0]), np.asarray([1, 2])])
def test_a_column_score_must_fit_its_rows(raw: Any) -> None:
    """One integer per row."""
    state = state_of("a")
    with pytest.raises(PluginError, match="not one integer per row"):
        run_scores(profile(Column(raw), "score"), cycle_of(state), state.nodes, state.nodes.order())


def test_weights_and_skips() -> None:
    """Totals are weighted; a plugin that skips PreScore adds nothing; without score plugins each node has 1."""
    state = state_of("a", "b")
    rows = state.nodes.order()
    scored = run_scores(
        profile(Column(np.asarray([3, 4])), "preScore", "score", weight=10), cycle_of(state), state.nodes, rows
    )
    assert scored.totals.tolist() == [30, 40]
    assert scored.nodes == ("a", "b")
    skipped = profile(Column(np.asarray([3, 4]), SKIP), "preScore", "score")
    assert run_scores(skipped, cycle_of(state), state.nodes, rows).totals.tolist() == [0, 0]
    without = profile(Column(None))
    assert run_scores(without, cycle_of(state), state.nodes, rows).totals.tolist() == [1, 1]


@pytest.mark.parametrize("status", [error("broken"), unschedulable("no")])
def test_pre_score_may_only_succeed_or_skip(status: Status) -> None:
    """Anything else fails the attempt."""
    state = state_of("a")
    with pytest.raises(PluginError, match="PreScore"):
        run_scores(
            profile(Column(np.asarray([1]), status), "preScore", "score"),
            cycle_of(state),
            state.nodes,
            state.nodes.order(),
        )


class Keeper:
    """Answers Reserve as told."""

    name = "Keeper"

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def reserve(self, cycle: Cycle, node: str) -> Any:
        return self.answer


def test_reserve_answers() -> None:
    """Success is None, a rejection carries its plugin, everything else raises with its name."""
    state = state_of("a")

    def reserve(answer: Any) -> Status | None:
        return run_reserve(profile(Keeper(answer), "reserve"), cycle_of(state), "a")

    assert reserve(SUCCESS) is None
    refused = reserve(unschedulable("taken"))
    assert refused is not None
    assert (refused.plugin, refused.reasons) == ("Keeper", ("taken",))
    for answer in (error("broken"), None, SKIP):
        with pytest.raises(PluginError, match="Keeper"):
            reserve(answer)


def test_weights_that_could_overflow_are_refused() -> None:
    """The largest possible total must fit 64 bits; a weight of nothing is no weight."""
    plugin = PerNode(lambda name: 1)
    with pytest.raises(ConfigError, match="total score of Score plugins could overflow"):
        profile(plugin, "score", weight=MAX_TOTAL_SCORE // 100 + 1)
    assert profile(plugin, "score", weight=MAX_TOTAL_SCORE // 100).score[0].weight == MAX_TOTAL_SCORE // 100
    with pytest.raises(ConfigError, match="is not configured with weight"):
        profile(plugin, "score", weight=0)


def test_a_diagnosis_counts_every_node_once() -> None:
    """Nodes never examined get the absent status; pending plugins are kept apart."""
    diagnosis = Diagnosis(5)
    diagnosis.add(Status(Code.UNSCHEDULABLE, ("x", "y"), "One"), ("a", "b"))
    diagnosis.add(Status(Code.PENDING, ("x",), "Two"), ("c",))
    assert diagnosis.reasons() == {"x": 3, "y": 2}
    diagnosis.absent = unresolvable("elsewhere")
    assert diagnosis.reasons() == {"x": 3, "y": 2, "elsewhere": 2}
    assert (diagnosis.unschedulable_plugins, diagnosis.pending_plugins) == ({"One"}, {"Two"})
    assert [(name, status.plugin) for name, status in diagnosis.statuses()] == [
        ("a", "One"),
        ("b", "One"),
        ("c", "Two"),
    ]
