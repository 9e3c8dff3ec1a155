"""The vectors of one class of Pods: verdicts and raw scores of its cacheable plugins over all rows of a node table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.errors import InternalError, PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Depends, Rows, Scores
from scheduler.framework.runner import MAX_SCORE, Filtered, call, check_verdicts, collect, normalized
from scheduler.framework.templates import by_template
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import pod_info

FEW_ROWS = 12
"""So few rows are asked one by one where a plugin has the form for it: cheaper than columns of so few."""
_SHIFT = 32
_VERDICT = (1 << _SHIFT) - 1


class _Owner(Protocol):
    evaluations: int

    def live(self, nodes: NodeTable) -> Any:
        """True for rows that have a node."""


class _Vector:
    """One plugin's answers over all rows: verdicts, or raw scores."""

    __slots__ = (
        "_even",
        "ask",
        "ask_epoch",
        "ask_row",
        "by_pods",
        "entry",
        "epoch",
        "even_normalize",
        "plugin",
        "point",
        "unlooked",
        "values",
    )

    def __init__(self, plugin: Any, point: str, capacity: int, entry: Any = None) -> None:
        self.plugin, self.point, self.entry = plugin, point, entry
        self.ask = plugin.filter if point == "Filter" else plugin.score
        self.ask_row: Any = getattr(plugin, "filter_row" if point == "Filter" else "score_row", None)
        self.ask_epoch = getattr(plugin, "epoch", None)
        self.by_pods = bool(plugin.depends & Depends.PODS)
        self.epoch: Hashable = None
        self.values = np.zeros(capacity, np.int64)
        self.even_normalize = bool(getattr(plugin, "even_normalize", by_template(plugin)))
        self._even: int | None = None
        self.unlooked = True
        """Whether values or rows have changed since ``even`` looked."""

    def even(self, live: Any) -> int | None:
        """The answer of all rows that have a node, None when they differ. Cost: one pass after a change."""
        if self.unlooked:
            answers = self.values[live]
            same = len(answers) > 0 and bool((answers == answers[0]).all())
            self._even, self.unlooked = int(answers[0]) if same else None, False
        return self._even

    def new_epoch(self, nodes: NodeTable) -> bool:
        """True when something changed on which all rows depend."""
        now = None if self.ask_epoch is None else call(self.plugin, self.point, self.ask_epoch, nodes)
        if now == self.epoch:
            return False
        self.epoch = now
        return True

    def fetch(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> NDArray[np.int64]:
        """The plugin's own answers for ``rows``, by its column form."""
        answer = call(self.plugin, self.point, self.ask, cycle, nodes, rows)
        if self.point == "Filter":
            verdicts = check_verdicts(self.plugin, answer, rows)
            if len(rows):
                self._check_known(int(verdicts.min()))
                self._check_known(int(verdicts.max()))
            return verdicts
        if not isinstance(answer, np.ndarray) or answer.shape != rows.shape or answer.dtype.kind not in "iu":
            raise PluginError(self.plugin.name, "Score", f"answered {type(answer).__name__}, not one integer per row")
        return answer.astype(np.int64, copy=False)

    def _check_known(self, verdict: int) -> None:
        if not 0 <= verdict < len(self.plugin.verdicts):
            raise PluginError(self.plugin.name, "Filter", f"answered {verdict}, which is none of its verdicts")

    def fetch_one(self, cycle: Cycle, nodes: NodeTable, row: int) -> int:
        """The plugin's answer for one row, by its form for one row where that has one."""
        answer = call(self.plugin, self.point, self.ask_row, cycle, nodes, row)
        if answer is None:
            return int(self.fetch(cycle, nodes, np.asarray((row,), np.int64))[0])
        if type(answer) is not int:
            raise PluginError(self.plugin.name, self.point, f"answered {type(answer).__name__} for one row, not int")
        if self.point == "Filter":
            self._check_known(answer)
        return answer

    def renew(self, cycle: Cycle, nodes: NodeTable, rows: Sequence[int]) -> bool:
        """Ask again about ``rows``; True when some answer changed."""
        values = self.values
        if self.ask_row is not None and len(rows) <= FEW_ROWS:
            changed = False
            for row in rows:
                answer = self.fetch_one(cycle, nodes, row)
                if answer != values[row]:
                    values[row] = answer
                    changed = self.unlooked = True
            return changed
        asked = np.asarray(rows, np.int64)
        answers = self.fetch(cycle, nodes, asked)
        if (values[asked] == answers).all():
            return False
        values[asked] = answers
        self.unlooked = True
        return True


class PodClass:
    """``filters`` are the plugins whose verdicts are kept, ``others`` those to be asked after them, in order.

    ``entries`` are the score entries whose raw scores are kept once ``score`` has been called. ``odd``: some raw score
    is out of range, so that scores have to be looked at one by one.
    What it gives out is never changed afterwards: a new answer is a new array.
    """

    def __init__(
        self, owner: _Owner, filters: Sequence[Any], others: Sequence[Any], entries: Sequence[Any], nodes: NodeTable
    ) -> None:
        self.filters, self.others, self.entries = filters, others, entries
        self.odd = False
        self._owner = owner
        self._verdicts = [_Vector(plugin, "Filter", nodes.capacity) for plugin in filters]
        self._skipped: frozenset[str] | None = None
        self._names: frozenset[str] = frozenset()
        self._take_in([])
        self._codes = np.zeros(nodes.capacity, np.int64)
        self._plain = np.zeros(nodes.capacity, np.int64)
        self._version = self._structure = self._seen = -1
        self._pod: Any = None
        self._filtered: tuple[Rows, Filtered] | None = None
        self._scaled: tuple[Rows, Scores] | None = None

    def _take_in(self, raws: list[_Vector]) -> None:
        self._raws = raws
        self._vectors = (*self._verdicts, *raws)
        self._by_pods = tuple(vector for vector in self._vectors if vector.by_pods)
        self._by_rows = all(vector.ask_row is not None for vector in self._by_pods)
        self._with_epoch = tuple(vector for vector in self._vectors if vector.ask_epoch is not None)

    def score(self, cycle: Cycle, nodes: NodeTable) -> None:
        """Keep the scores of those plugins that PreScore does not skip; the first time, all rows are asked about."""
        skipped = frozenset(cycle.skip_score)
        if skipped == self._skipped:
            return
        self._skipped, self._scaled, self.odd = None, None, False
        entries = [entry for entry in self.entries if entry.name not in skipped]
        self._names = frozenset(entry.name for entry in entries)
        self._plain = np.zeros(nodes.capacity, np.int64)
        self._take_in([_Vector(entry.scorer, "Score", nodes.capacity, entry) for entry in entries])
        rows = np.flatnonzero(self._owner.live(nodes)).tolist()
        try:
            for vector in self._raws:
                vector.new_epoch(nodes)
                self._owner.evaluations += len(rows)
                self._renew_score(vector, cycle, nodes, rows)
        except BaseException:
            self._take_in([])  # half asked: begin anew the next time
            raise
        self._skipped = skipped

    def fits(self, nodes: NodeTable) -> bool:
        """False when the table grew: its vectors are longer now."""
        return len(self._codes) == nodes.capacity

    def __contains__(self, score_plugin: str) -> bool:
        return score_plugin in self._names

    # Answers

    def filtered(self, nodes: NodeTable, rows: Rows) -> Filtered:
        """``rows`` after the kept filters. Cost: nothing while no verdict changed, for the rows of all nodes."""
        if self._filtered is not None and self._filtered[0] is rows:
            kept = self._filtered[1]
            return Filtered(kept.feasible, list(kept.rejected))
        codes = self._codes.take(rows)
        result = Filtered(rows)
        if codes.any():
            places = (codes >> _SHIFT) - 1
            for place in np.unique(places[codes != 0]).tolist():
                verdicts = np.where(places == place, codes & _VERDICT, 0)
                collect(self.filters[place], verdicts, rows, result)
            result.feasible = rows[codes == 0]
        if rows is nodes.order():
            self._filtered = (rows, Filtered(result.feasible, list(result.rejected)))
        return result

    def totals(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Weighted sum of the kept scores, normalised over ``rows``. Cost: two numpy calls while nothing changed."""
        totals = self._plain.take(rows)
        if self._scaled is None or self._scaled[0] is not rows:
            self._scaled = (rows, self._scale(cycle, nodes, rows))
        totals += self._scaled[1]
        return totals

    def _scale(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        total = np.zeros(len(rows), np.int64)
        live = self._owner.live(nodes)
        for vector in self._raws:
            entry = vector.entry
            if entry.normalizer is None:
                continue
            if len(rows) > 1 and vector.even_normalize and (even := vector.even(live)) is not None:
                # Equal scores stay equal: one is enough, however many rows there are.
                one = normalized(entry, cycle, nodes, rows[:1], np.full(1, even, np.int64))
                total += int(one[0]) * entry.weight
            else:
                total += normalized(entry, cycle, nodes, rows, vector.values.take(rows)) * entry.weight
        return total

    def single_scores(
        self, cycle: Cycle, nodes: NodeTable, rows: Rows
    ) -> Callable[[], dict[str, tuple[Scores, Scores]]]:
        """To be asked for (raw, normalised) scores per plugin, until the state moves."""
        version = nodes.version

        def look() -> dict[str, tuple[Scores, Scores]]:
            if nodes.version != version or self._version != version:
                raise InternalError("scores of single plugins were asked for after the state had moved")
            found = {}
            for vector in self._raws:
                scores = vector.values.take(rows)
                found[vector.entry.name] = (scores, normalized(vector.entry, cycle, nodes, rows, scores))
            return found

        return look

    # Bringing up to date

    def refresh(self, cycle: Cycle, nodes: NodeTable) -> None:
        """Ask again about rows that changed since the last time. Cost: two comparisons per row, and those rows."""
        self._pod = cycle.pod
        renewed = [vector for vector in self._with_epoch if vector.new_epoch(nodes)]
        if not renewed and self._version == nodes.version:
            return
        by_node, by_pods = self._changed(nodes)
        if not renewed and not by_node and len(by_pods) <= FEW_ROWS and self._few(cycle, nodes, by_pods):
            self._version = nodes.version
            return
        everything = np.flatnonzero(self._owner.live(nodes)).tolist() if renewed else []
        recoded: set[int] = set()
        for vector in self._vectors if by_node or renewed else self._by_pods:
            if vector in renewed:
                rows = everything
            else:
                rows = by_pods if vector.by_pods else by_node
            if not rows:
                continue
            self._owner.evaluations += len(rows)
            if vector.point == "Filter":
                if vector.renew(cycle, nodes, rows):
                    recoded.update(rows)
            else:
                self._renew_score(vector, cycle, nodes, rows)
        if recoded:
            self._code(sorted(recoded))
        self._version = nodes.version

    def _changed(self, nodes: NodeTable) -> tuple[list[int], list[int]]:
        """Rows whose node changed, and rows whose node or Pods changed; rows without a node left out."""
        live = self._owner.live(nodes)
        if self._structure != nodes.structure_version:
            self._structure = nodes.structure_version
            self._filtered = self._scaled = None
            for vector in self._vectors:
                vector.unlooked = True
        entries, self._seen = (None if self._seen < 0 else nodes.log.since(self._seen)), nodes.log.end
        if entries is not None and len(entries) <= FEW_ROWS:
            ordered = [entry if entry >= 0 else ~entry for entry in entries]
            if min(entries, default=0) >= 0:
                return [], [row for row in dict.fromkeys(ordered) if live[row]]
            by_node = sorted({~entry for entry in entries if entry < 0 and live[~entry]})
            return by_node, sorted({row for row in ordered if live[row]})
        by_node = [row for row in np.flatnonzero(nodes.static_versions > self._version).tolist() if live[row]]
        by_pods = [row for row in np.flatnonzero(nodes.dynamic_versions > self._version).tolist() if live[row]]
        return by_node, sorted({*by_node, *by_pods}) if by_node else by_pods

    def _few(self, cycle: Cycle, nodes: NodeTable, rows: list[int]) -> bool:
        """Few rows whose Pods changed, plugin by plugin without a detour over arrays; False: not all have that form."""
        if not self._by_rows:
            return False
        recoded = False
        for vector in self._by_pods:
            values, entry = vector.values, vector.entry
            self._owner.evaluations += len(rows)
            for row in rows:
                answer, before = vector.fetch_one(cycle, nodes, row), int(values[row])
                if answer == before:
                    continue
                values[row] = answer
                vector.unlooked = True
                if entry is None:
                    recoded = True
                elif entry.normalizer is not None:
                    self._scaled = None
                else:
                    self._plain[row] += (answer - before) * entry.weight
                    self.odd |= not 0 <= answer <= MAX_SCORE
        if recoded:
            self._code(sorted(rows))
        return True

    def _renew_score(self, vector: _Vector, cycle: Cycle, nodes: NodeTable, rows: list[int]) -> None:
        entry = vector.entry
        before = vector.values.take(rows)
        if not vector.renew(cycle, nodes, rows):
            return
        if entry.normalizer is not None:
            self._scaled = None
            return
        after = vector.values.take(rows)
        self._plain[rows] += (after - before) * entry.weight
        if ((after < 0) | (after > MAX_SCORE)).any():
            self.odd = True

    def _code(self, rows: list[int]) -> None:
        """Who rejects first, and with which verdict: one number per row, 0 where nobody does."""
        codes = np.zeros(len(rows), np.int64)
        for place in reversed(range(len(self._verdicts))):
            verdicts = self._verdicts[place].values.take(rows)
            codes = np.where(verdicts != 0, ((place + 1) << _SHIFT) + verdicts, codes)
        if not np.array_equal(self._codes.take(rows), codes):
            self._codes[rows] = codes
            self._filtered = None

    # Checking

    def verify(self, state: Any) -> None:
        """Ask about every row again; InternalError with the first difference. Cost: a whole attempt."""
        nodes, pod = state.nodes, self._pod
        cycle = Cycle(pod, pod_info(pod), state)
        for plugin in self.filters:
            if hasattr(plugin, "pre_filter"):
                call(plugin, "PreFilter", plugin.pre_filter, cycle)
        self.refresh(cycle, nodes)
        rows = nodes.order()
        for vector in self._vectors:
            fresh = vector.fetch(cycle, nodes, rows)
            _compare(f"{vector.point} of {vector.plugin.name}", nodes, rows, vector.values.take(rows), fresh)
        plain = np.zeros(len(rows), np.int64)
        for vector in self._raws:
            if vector.entry.normalizer is None:
                plain += vector.values.take(rows) * vector.entry.weight
        _compare("the sum of scores", nodes, rows, self._plain.take(rows), plain)
        if self._scaled is not None:
            kept, scaled = self._scaled
            _compare("the normalised scores", nodes, kept, scaled, self._scale(cycle, nodes, kept))
        known, self._filtered = self._filtered, None
        if known is not None and not np.array_equal(self.filtered(nodes, known[0]).feasible, known[1].feasible):
            raise InternalError("the nodes kept as feasible are others by now")


def _compare(what: str, nodes: NodeTable, rows: Rows, kept: NDArray[np.int64], fresh: NDArray[np.int64]) -> None:
    different = np.flatnonzero(kept != fresh)
    if len(different):
        place = int(different[0])
        node = nodes.name_of(int(rows[place]))
        raise InternalError(f"{what} kept for node {node} is stale", (f"kept: {kept[place]}", f"fresh: {fresh[place]}"))
