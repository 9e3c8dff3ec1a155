"""What changed since a version: a bounded log, so that caches drop only what a change concerns."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class ChangeLog(Generic[T]):
    """(version, concerned things) of the newest changes; None stands for "everything".

    Cost: ``since`` looks at the changes after the version asked for, nothing else.
    """

    __slots__ = ("_entries", "_limit", "_oldest")

    def __init__(self, limit: int = 4096) -> None:
        self._entries: deque[tuple[int, frozenset[T] | None]] = deque()
        self._limit = limit
        # Changes up to this version are not in the log any more.
        self._oldest = 0

    def add(self, version: int, concerned: Iterable[T] | None) -> None:
        """Note a change that led to ``version``; versions never go down."""
        self._entries.append((version, None if concerned is None else frozenset(concerned)))
        if len(self._entries) > self._limit:
            self._oldest = self._entries.popleft()[0]

    def since(self, version: int) -> set[T] | None:
        """Everything concerned by changes after ``version``; None when that may be everything."""
        if version < self._oldest:
            return None
        found: set[T] = set()
        for changed, concerned in reversed(self._entries):
            if changed <= version:
                break
            if concerned is None:
                return None
            found |= concerned
        return found
