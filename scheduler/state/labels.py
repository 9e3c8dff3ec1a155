"""Label columns: the values of one label key over all rows, as small integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from scheduler.state.columns import Int32, grown

ABSENT = -1
_MAX_KEYS = 256
_SPARE_VALUES = 64


class LabelColumn:
    """``codes[row]`` indexes ``values``; ABSENT where the node lacks the key."""

    __slots__ = ("_code_of", "codes", "values")

    def __init__(self, capacity: int) -> None:
        self.codes: Int32 = np.full(capacity, ABSENT, np.int32)
        self.values: list[str] = []
        self._code_of: dict[str, int] = {}

    def code_of(self, value: str) -> int | None:
        """The code of ``value``, None when no node ever had it."""
        return self._code_of.get(value)

    def set(self, row: int, value: str | None) -> None:
        """Give ``row`` a value (None: it lacks the key)."""
        self.codes[row] = ABSENT if value is None else self._intern(value)

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        self.codes = grown(self.codes, capacity, ABSENT)

    def _intern(self, value: str) -> int:
        code = self._code_of.get(value)
        if code is None:
            code = self._code_of[value] = len(self.values)
            self.values.append(value)
        return code


class LabelColumns:
    """Columns for the keys that were asked for, built on first use from ``rows`` and maintained afterwards.

    At most 256 keys are kept, the least recently used is dropped. A column whose old values outnumber its rows is
    dropped too when a node goes, so codes hold only until the next change of a node.
    """

    __slots__ = ("_columns", "_rows")

    def __init__(self, rows: Callable[[], Sequence[tuple[int, Mapping[str, str]]]]) -> None:
        self._rows = rows
        self._columns: dict[str, LabelColumn] = {}

    def column(self, key: str, capacity: int) -> LabelColumn:
        """The column of ``key``. Cost: O(1) when known, O(nodes) the first time."""
        column = self._columns.pop(key, None)
        if column is None:
            column = LabelColumn(capacity)
            for row, labels in self._rows():
                column.set(row, labels.get(key))
            if len(self._columns) >= _MAX_KEYS:
                del self._columns[next(iter(self._columns))]
        self._columns[key] = column
        return column

    def set(self, row: int, labels: Mapping[str, str]) -> None:
        """``row`` now has ``labels`` (empty: the node is gone)."""
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def trim(self, node_count: int) -> None:
        """Drop columns that mostly remember values of nodes long gone."""
        limit = 2 * node_count + _SPARE_VALUES
        for key in [key for key, column in self._columns.items() if len(column.values) > limit]:
            del self._columns[key]

    def grow(self, capacity: int) -> None:
        """Make room for ``capacity`` rows."""
        for column in self._columns.values():
            column.grow(capacity)

    def items(self) -> list[tuple[str, LabelColumn]]:
        """All columns held now, by key."""
        return list(self._columns.items())
