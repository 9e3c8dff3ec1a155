"""Pairs: an amount for each (topology key, value), held per key as one array over the key's label codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from scheduler.framework.plugin import Rows
from scheduler.state.columns import Int64, grown
from scheduler.state.labels import LabelColumn
from scheduler.state.nodes import NodeTable
from scheduler.state.topology_domains import at_codes, domain_sums


class Pairs:
    """Amounts by topology key and value. A key whose every amount is 0 counts as absent."""

    __slots__ = ("_nodes", "_sums")

    def __init__(self, nodes: NodeTable) -> None:
        self._nodes = nodes
        self._sums: dict[str, tuple[LabelColumn, Int64]] = {}

    def clone(self) -> Pairs:
        """A copy to try changes on."""
        copy = Pairs(self._nodes)
        copy._sums = {key: (column, sums.copy()) for key, (column, sums) in self._sums.items()}
        return copy

    def add_rows(self, key: str, amounts: Int64) -> None:
        """Add ``amounts`` (per row, from row 0) to the pairs of the rows' nodes; nodes without the key add nothing."""
        column, sums = self._of(key)
        length = min(len(amounts), len(column.codes))
        self._sums[key] = (column, sums + domain_sums(column.codes[:length], amounts[:length], len(sums)))

    def add(self, key: str, row: int, amount: int) -> None:
        """Add ``amount`` to the pair of one row's node."""
        column, sums = self._of(key)
        code = int(column.codes[row])
        if code >= 0:
            sums[code] += amount

    def at(self, key: str, rows: Rows) -> Int64:
        """The amount of each row's pair; 0 for nodes without the key."""
        entry = self._sums.get(key)
        return np.zeros(len(rows), np.int64) if entry is None else at_codes(entry[1], entry[0].codes[rows])

    def __iter__(self) -> Iterator[str]:
        """Keys something was added to."""
        return iter(self._sums)

    def __bool__(self) -> bool:
        """True when some pair has an amount."""
        return any(bool(sums.any()) for _, sums in self._sums.values())

    def _of(self, key: str) -> tuple[LabelColumn, Int64]:
        entry = self._sums.get(key)
        if entry is None:
            column = self._nodes.labels(key)
            entry = (column, np.zeros(len(column.values), np.int64))
        column, sums = entry
        if len(sums) < len(column.values):
            sums = grown(sums, len(column.values))
        self._sums[key] = (column, sums)
        return column, sums
