"""Runs one profile's plugins for one cycle and turns their answers into verdicts, scores and one winner.

Source: kube-scheduler 1.37, framework/runtime and schedule_one (spec 1.3, 1.4, 1.6). Everything a plugin raises leaves
here as PluginError; the caller ends the attempt with it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.ma  # np.unique and np.isin load it at their first call, which fails without a file handle
from numpy.typing import NDArray

from scheduler.errors import PluginError, SchedulerError
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import Code, Status, unresolvable
from scheduler.framework.timings import NO_TIMINGS, status_label
from scheduler.state.nodes import NodeTable

if TYPE_CHECKING:
    from scheduler.framework.profile import Profile, ScoreEntry

MAX_SCORE = 100
_FEW_VERDICTS = 8
T = TypeVar("T")
A = TypeVar("A")


def answer_of(plugin: Any, point: str, kind: type[A], answer: object) -> A:
    """``answer`` if it is a ``kind``; PluginError names the plugin that answered something else."""
    if not isinstance(answer, kind):
        raise PluginError(plugin.name, point, f"answered {type(answer).__name__}, not {kind.__name__}")
    return answer


def call(plugin: Any, point: str, function: Callable[..., T], *arguments: Any) -> T:
    """Call a plugin; whatever it raises becomes PluginError with plugin and point (our own errors keep their text)."""
    timer = getattr(arguments[0], "timer", None) if arguments else None
    try:
        if timer is None:
            return function(*arguments)
        began = timer.clock()
        answer = function(*arguments)
        timer.took(plugin.name, point, status_label(answer), timer.clock() - began)
        return answer
    except PluginError:
        raise
    except SchedulerError as error:
        raise PluginError(plugin.name, point, str(error)) from error
    except Exception as error:  # plugins are foreign code: nothing they raise may end the loop
        raise PluginError(plugin.name, point, f"{type(error).__name__}: {error}") from error


@dataclass(slots=True)
class PreFiltered:
    """``rejection`` ends the attempt; ``names`` limits the search to these nodes, contributed by ``name_plugins``."""

    rejection: Status | None = None
    names: frozenset[str] | None = None
    name_plugins: list[str] = field(default_factory=list)


def run_pre_filter(profile: Profile, cycle: Cycle) -> PreFiltered:
    """PreFilter of all plugins in order, measured. Source: spec 1.3."""
    timings = profile.timings
    began = timings.clock()
    result = _pre_filter(profile, cycle)
    refused = ((result.rejection.plugin, 1),) if result.rejection is not None else ()
    timings.asked("PreFilter", cycle.skip_filter, 1, refused)
    timings.point("PreFilter", status_label(result.rejection), began)
    return result


def _pre_filter(profile: Profile, cycle: Cycle) -> PreFiltered:
    """PreFilter of all plugins in order.

    Unresolvable stops at once; of plain Unschedulable the last is kept while the rest still runs; anything else but
    Success and Skip is an error. Node sets are intersected. Source: spec 1.3.
    """
    result, plugins = PreFiltered(), profile.pre_filter
    template = cycle.template = profile.templates.of(cycle)
    if template is not None and template.filters_known:
        plugins = template.pre_filter
        cycle.skip_filter.update(template.skips)
        cycle.data.update(template.data)
        result.names, result.name_plugins = template.names, template.name_plugins.copy()
    for plugin in plugins:
        answer = call(plugin, "PreFilter", plugin.pre_filter, cycle)
        answer = answer_of(plugin, "PreFilter", PreFilterResult, answer)
        status = answer_of(plugin, "PreFilter", Status, answer.status)
        if status.code is Code.SKIP:
            cycle.skip_filter.add(plugin.name)
            continue
        if status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            result.rejection = status.by(plugin.name)
            return result
        if status.code is Code.UNSCHEDULABLE:
            result.rejection = status.by(plugin.name)
            continue
        if status.code is not Code.SUCCESS:
            raise PluginError(plugin.name, "PreFilter", status.message)
        if answer.node_names is not None:
            result.name_plugins.append(plugin.name)
            result.names = answer.node_names if result.names is None else result.names & answer.node_names
            if not result.names:
                result.rejection = empty_names_status(result.name_plugins)
                return result
    if template is not None and not template.filters_known and result.rejection is None:
        template.learn_filters(profile, cycle, result.names, result.name_plugins)
    return result


def empty_names_status(plugins: list[str]) -> Status:
    """The rejection when node sets have nothing in common."""
    if len(plugins) == 1:
        return unresolvable(f"node(s) didn't satisfy plugin {plugins[0]}")
    return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(sorted(plugins))}] simultaneously")


@dataclass(slots=True)
class Filtered:
    """``feasible`` rows in search order; ``rejected``: (status, rows it rejected), per plugin and verdict."""

    feasible: Rows
    rejected: list[tuple[Status, Rows]] = field(default_factory=list)


Ask = Callable[[Any, Cycle, NodeTable, Rows], Generator[None, None, Verdicts]]
"""How one filter plugin is asked about rows; see ``ask_filter``."""


def ask_filter(plugin: Any, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Verdicts]:
    """One filter plugin's verdicts over ``rows``, checked. Yields when the budget is used up."""
    if hasattr(plugin, "filter_steps"):
        verdicts = yield from _steps(plugin, cycle, nodes, rows)
    else:
        verdicts = call(plugin, "Filter", plugin.filter, cycle, nodes, rows)
        if cycle.budget.charge(1 + len(rows) // 64):
            yield
    return check_verdicts(plugin, verdicts, rows)


def check_verdicts(plugin: Any, answer: object, rows: Rows) -> Verdicts:
    """``answer`` when it is one verdict per row, else PluginError."""
    verdicts = answer_of(plugin, "Filter", np.ndarray, answer)
    if verdicts.shape != rows.shape or verdicts.dtype.kind not in "iu":
        text = f"answered {verdicts.dtype} of shape {verdicts.shape}, not {len(rows)} verdicts"
        raise PluginError(plugin.name, "Filter", text)
    return verdicts


def run_filters(
    profile: Profile, cycle: Cycle, nodes: NodeTable, rows: Rows, ask: Ask = ask_filter
) -> Generator[None, None, Filtered]:
    """Filters in order over ``rows``; a row leaves at its first rejection. Yields when the budget is used up.

    An Error verdict of any row ends the attempt whatever other nodes say: of several the first in row order is
    reported, so that equal input gives equal output (upstream: whichever arrives first).
    """
    result, plugins = Filtered(rows), profile.filter
    known = profile.classes.find(profile, cycle, nodes) if ask is ask_filter else None
    if known is not None:
        result, plugins = known.filtered(nodes, rows), tuple(known.others)
        if known.filters and cycle.budget.charge(1 + len(rows) // 64):
            yield
    for plugin in plugins:
        if plugin.name in cycle.skip_filter:
            continue
        if not len(result.feasible):
            break
        current = result.feasible
        verdicts = yield from ask(plugin, cycle, nodes, current)
        bad = verdicts != 0
        if not bad.any():
            continue
        collect(plugin, verdicts, current, result)
        result.feasible = current[~bad]
    if profile.timings is not NO_TIMINGS:
        # Kept answers count as asked: what matters is how many rows reached each filter.
        refused = [(status.plugin, len(gone)) for status, gone in result.rejected]
        profile.timings.asked("Filter", cycle.skip_filter, len(rows), refused)
    return result


def _steps(plugin: Any, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Any]:
    steps = call(plugin, "Filter", lambda: plugin.filter_steps(cycle, nodes, rows))
    timer, spent_s = cycle.timer, 0.0
    while True:
        began = 0.0 if timer is None else timer.clock()
        try:
            next(steps)
        except StopIteration as stop:
            if timer is not None:
                timer.took(plugin.name, "Filter", Code.SUCCESS.label, spent_s + timer.clock() - began)
            return stop.value
        except PluginError:
            raise
        except Exception as error:  # foreign code, as in call()
            raise PluginError(plugin.name, "Filter", f"{type(error).__name__}: {error}") from error
        spent_s += 0.0 if timer is None else timer.clock() - began
        yield


def collect(plugin: Any, verdicts: Any, rows: Rows, result: Filtered) -> None:
    """Add rejected rows by verdict to ``result``, in order of first appearance; raise for an Error verdict."""
    table = plugin.verdicts
    for verdict in _in_order(verdicts):
        status = call(plugin, "Filter", table.status, verdict)
        if not status.code.rejected:
            text = f'running "{plugin.name}" filter plugin: {status.message}'
            raise PluginError.worded(plugin.name, "Filter", text)
        result.rejected.append((status, rows[verdicts == verdict]))


def _in_order(verdicts: Verdicts) -> Iterator[int]:
    """Distinct verdicts but 0, in order of first appearance. Cost: one pass each for the first few, then one sort."""
    left = verdicts[verdicts != 0]
    for _ in range(_FEW_VERDICTS):
        if not len(left):
            return
        verdict = int(left[0])
        yield verdict
        left = left[left != verdict]
    first = np.unique(left, return_index=True)[1]
    yield from left[np.sort(first)].tolist()


@dataclass(slots=True)
class ScoreTable:
    """Scores of the feasible rows: per plugin (raw, normalised to 0..100) arrays, and the weighted totals.

    Arrays are in the order of ``rows``. Empty when only one node was feasible: nothing is scored then.
    """

    rows: Rows
    table: NodeTable
    totals: Scores
    weights: dict[str, int] = field(default_factory=dict)
    scores: dict[str, tuple[Scores, Scores]] = field(default_factory=dict)
    more: Callable[[], dict[str, tuple[Scores, Scores]]] | None = None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Node names in the order of ``rows``; made when asked, which is rare. Valid until a node comes or goes."""
        return tuple(self.table.name_of(row) for row in self.rows.tolist())

    @property
    def raw(self) -> dict[str, Scores]:
        """Raw scores by plugin, in the profile's order. To be asked for before the state moves."""
        return {name: scores[0] for name, scores in self._all().items()}

    @property
    def normalized(self) -> dict[str, Scores]:
        """Normalised scores by plugin, in the profile's order. To be asked for before the state moves."""
        return {name: scores[1] for name, scores in self._all().items()}

    def _all(self) -> dict[str, tuple[Scores, Scores]]:
        if self.more is not None:
            self.scores.update(self.more())
            self.more = None
        return {name: self.scores[name] for name in self.weights}


def run_scores(profile: Profile, cycle: Cycle, nodes: NodeTable, rows: Rows) -> ScoreTable:
    """PreScore, Score, normalize, range check, weights. Totals are 1 each without any score plugin (spec 1.6)."""
    if not profile.score:
        return ScoreTable(rows, nodes, np.ones(len(rows), dtype=np.int64))
    timings = profile.timings
    began = timings.clock()
    template, plugins = cycle.template, profile.pre_score
    if template is not None and template.scores_known:
        plugins = template.pre_score
        cycle.skip_score.update(template.score_skips)
        cycle.data.update(template.score_data)
    for plugin in plugins:
        status = call(plugin, "PreScore", plugin.pre_score, cycle, nodes, rows)
        status = answer_of(plugin, "PreScore", Status, status)
        if status.code is Code.SKIP:
            cycle.skip_score.add(plugin.name)
        elif status.code is not Code.SUCCESS:
            raise PluginError(plugin.name, "PreScore", status.message)
    if template is not None and template.filters_known and not template.scores_known:
        template.learn_scores(profile, cycle)
    timings.asked("PreScore", cycle.skip_score, 1)
    timings.point("PreScore", Code.SUCCESS.label, began)
    began = timings.clock()
    known = profile.classes.find(profile, cycle, nodes)
    if known is not None:
        known.score(cycle, nodes)
    if known is None or known.odd:
        known = None
        table = ScoreTable(rows, nodes, np.zeros(len(rows), dtype=np.int64))
    else:
        totals = known.totals(cycle, nodes, rows)
        table = ScoreTable(rows, nodes, totals, more=known.single_scores(cycle, nodes, rows))
    for entry in profile.score:
        if entry.name in cycle.skip_score:
            continue
        table.weights[entry.name] = entry.weight
        if known is not None and entry.name in known:
            continue
        raw = call(entry.scorer, "Score", entry.scorer.score, cycle, nodes, rows)
        scores = normalized(entry, cycle, nodes, rows, raw)
        table.scores[entry.name] = (raw, scores)
        table.totals = table.totals + scores * entry.weight
    timings.asked("Score", cycle.skip_score, len(rows))
    timings.point("Score", Code.SUCCESS.label, began)
    return table


def normalized(entry: ScoreEntry, cycle: Cycle, nodes: NodeTable, rows: Rows, raw: Scores) -> Scores:
    """``raw`` after the plugin's own normalisation, if it has one; PluginError for what is out of range."""
    scores = raw
    if entry.normalizer is not None:
        scores = call(entry.normalizer, "Score", entry.normalizer.normalize, cycle, nodes, rows, raw)
    _check_scores(entry.name, scores, nodes, rows)
    return scores


def _check_scores(plugin: str, scores: Any, nodes: NodeTable, rows: Rows) -> None:
    if not isinstance(scores, np.ndarray) or scores.shape != rows.shape or scores.dtype.kind not in "iu":
        raise PluginError(plugin, "Score", f"answered {type(scores).__name__}, not one integer per row")
    outside = (scores < 0) | (scores > MAX_SCORE)
    if outside.any():
        position = int(np.argmax(outside))
        raise PluginError.worded(
            plugin,
            "Score",
            f'plugin "{plugin}" returns an invalid score {int(scores[position])}, '
            "it should in the range of [0, 100] after normalizing",
            nodes.name_of(int(rows[position])),
        )


def winner(totals: Scores) -> int:
    """Position of the winner: the root of a binary max-heap made in place with a strict comparison.

    Equivalent: among the best, the first one in pre-order of the implicit heap (spec 1.6). Cost: a few numpy calls.
    """
    # ufuncs and methods of arrays: numpy's functions of the same names cost as much again as the work.
    best = (totals == np.maximum.reduce(totals)).nonzero()[0]
    if len(best) == 1 or best[0] == 0:
        return int(best[0])
    return int(best[_pre_order_keys(len(totals).bit_length()).take(best).argmin()])


@lru_cache(maxsize=32)
def _pre_order_keys(bits: int) -> NDArray[np.int64]:
    """A number per heap position below 2**bits that grows in pre-order (root, left subtree, right subtree).

    The path from the root as base-3 digits, 1 left and 2 right, padded with 0: a prefix sorts before its extensions.
    """
    keys = np.zeros((1 << bits) + 1, dtype=np.int64)
    for depth in range(1, bits + 1):
        positions = np.arange((1 << depth) - 1, min((2 << depth) - 1, len(keys)))
        keys[positions] = keys[(positions - 1) // 2] + (2 - positions % 2) * 3 ** (bits - depth)
    return keys


def run_reserve(profile: Profile, cycle: Cycle, node: str) -> Status | None:
    """Reserve in order; None for success, else the first failure (the caller runs unreserve for all)."""
    began = profile.timings.clock()
    refusal = _reserve(profile, cycle, node)
    profile.timings.point("Reserve", status_label(refusal), began)
    return refusal


def _reserve(profile: Profile, cycle: Cycle, node: str) -> Status | None:
    for plugin in profile.reserve:
        status = answer_of(plugin, "Reserve", Status, call(plugin, "Reserve", plugin.reserve, cycle, node))
        if status.code.rejected:
            return status.by(plugin.name)
        if status.code is not Code.SUCCESS:
            raise PluginError(plugin.name, "Reserve", status.message)
    return None
