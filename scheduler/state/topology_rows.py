"""RowCounts: how many of something are on each row, small while few rows have any."""

from __future__ import annotations

import numpy as np

from scheduler.state.columns import Int64, grown

_SPARSE_ROWS = 64
_FIRST_CAPACITY = 256


class RowCounts:
    """Counts by row: a mapping up to 64 rows, a column beyond. ``total`` is their sum."""

    __slots__ = ("_column", "_sparse", "total")

    def __init__(self) -> None:
        self.total = 0
        self._sparse: dict[int, int] = {}
        self._column: Int64 | None = None

    def add(self, row: int, delta: int) -> None:
        """Change the count of ``row``. O(1), but for the one step from mapping to column."""
        self.total += delta
        if self._column is not None:
            self._column = with_row(self._column, row)
            self._column[row] += delta
            return
        count = self._sparse.get(row, 0) + delta
        if count:
            self._sparse[row] = count
        else:
            self._sparse.pop(row, None)
        if len(self._sparse) > _SPARSE_ROWS:
            column = with_row(np.zeros(_FIRST_CAPACITY, np.int64), max(self._sparse))
            for there, number in self._sparse.items():
                column[there] = number
            self._column, self._sparse = column, {}

    def add_to(self, column: Int64, factor: int = 1) -> Int64:
        """``column`` with ``factor`` times these counts added, made longer when rows lie beyond its end."""
        if self._column is not None:
            column = with_row(column, len(self._column) - 1)
            column[: len(self._column)] += factor * self._column
            return column
        for row, count in self._sparse.items():
            column = with_row(column, row)
            column[row] += factor * count
        return column

    def items(self) -> dict[int, int]:
        """Rows with a count."""
        if self._column is None:
            return dict(self._sparse)
        return {row: int(self._column[row]) for row in np.flatnonzero(self._column).tolist()}


def with_row(column: Int64, row: int) -> Int64:
    """``column``, or a longer copy when it does not reach ``row``; grows by doubling."""
    if row < len(column):
        return column
    return grown(column, max(row + 1, 2 * len(column)))
