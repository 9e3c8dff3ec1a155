"""Columns: int64 arrays with one entry per row, grown together by doubling."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Bool = NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)

INT64_MAX = 2**63 - 1
_FIRST_CAPACITY = 16


class ResourceColumns:
    """One int64 column per resource name, created when the first row has an amount of it.

    ``column(name)`` is the live array (do not write to it); a name nobody has gives shared zeros. O(1).
    """

    __slots__ = ("_capacity", "_columns", "_zeros")

    def __init__(self, capacity: int = _FIRST_CAPACITY) -> None:
        self._capacity = capacity
        self._columns: dict[str, Int64] = {}
        self._zeros = _frozen_zeros(capacity)

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __contains__(self, name: str) -> bool:
        return name in self._columns

    def column(self, name: str) -> Int64:
        """Amounts of resource ``name`` over all rows."""
        return self._columns.get(name, self._zeros)

    def get(self, name: str, row: int) -> int:
        """One amount as a Python integer."""
        column = self._columns.get(name)
        return int(column[row]) if column is not None else 0

    def set(self, name: str, row: int, amount: int) -> None:
        """Store ``amount``; what exceeds int64 is stored as its largest value."""
        column = self._columns.get(name)
        if column is None:
            if amount == 0:
                return
            column = self._columns[name] = np.zeros(self._capacity, np.int64)
        column[row] = max(-INT64_MAX, min(amount, INT64_MAX))

    def add(self, name: str, rows: Sequence[int], amounts: Sequence[int], sign: int = 1) -> None:
        """Add (or with ``sign`` -1 take away) amounts that stay within int64; a row may occur more than once."""
        if not rows or not any(amounts):
            return
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = np.zeros(self._capacity, np.int64)
        np.add.at(column, np.asarray(rows, np.int64), sign * np.asarray(amounts, np.int64))

    def copy(self) -> ResourceColumns:
        """The same amounts in columns of their own."""
        other = ResourceColumns(self._capacity)
        other._columns = {name: column.copy() for name, column in self._columns.items()}
        return other

    def clear(self, row: int) -> None:
        """All amounts of ``row`` become 0."""
        for column in self._columns.values():
            column[row] = 0

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows; new entries are 0."""
        self._columns = {name: grown(column, capacity) for name, column in self._columns.items()}
        self._zeros = _frozen_zeros(capacity)
        self._capacity = capacity

    def row(self, row: int) -> dict[str, int]:
        """The non-zero amounts of ``row`` by name."""
        return {name: int(column[row]) for name, column in self._columns.items() if column[row]}


def grown(column: NDArray[Scalar], capacity: int, fill: int = 0) -> NDArray[Scalar]:
    """A copy of ``column`` with ``capacity`` entries, the new ones set to ``fill``."""
    result = np.full(capacity, fill, column.dtype)
    result[: len(column)] = column
    return result


def _frozen_zeros(capacity: int) -> Int64:
    zeros = np.zeros(capacity, np.int64)
    zeros.flags.writeable = False
    return zeros
