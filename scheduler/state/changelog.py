"""ChangeLog: the rows of a table that changed last, so that who looks often need not look at all rows."""

from __future__ import annotations

KEPT_MAX = 8192


class ChangeLog:
    """An endless list of changed rows of which the end is kept. Positions only grow.

    A row of which the node object changed stands as ``~row`` (negative), one of which the Pods changed as ``row``.
    """

    __slots__ = ("_first", "_rows")

    def __init__(self) -> None:
        self._first = 0
        self._rows: list[int] = []

    @property
    def end(self) -> int:
        """The position after the last change: what to ask ``since`` for next time."""
        return self._first + len(self._rows)

    def note_node(self, row: int) -> None:
        """The node object of ``row`` changed, came or went."""
        self._note(~row)

    def note_pods(self, row: int) -> None:
        """The Pods of ``row`` changed."""
        self._note(row)

    def _note(self, entry: int) -> None:
        self._rows.append(entry)
        if len(self._rows) > 2 * KEPT_MAX:
            self._first += len(self._rows) - KEPT_MAX
            del self._rows[:-KEPT_MAX]

    def since(self, position: int) -> list[int] | None:
        """Entries from ``position`` on, oldest first, with repetitions; None when they are not kept any more."""
        if position < self._first:
            return None
        return self._rows[position - self._first :]
