"""One undo discipline: every change of the search's state goes through a trail and is undone in reverse."""

from __future__ import annotations

from collections.abc import MutableMapping, MutableSequence
from typing import Any

_MISSING = object()


class Trail:
    """Remembers the old value of every place that was set. Values themselves must be immutable.

    ``mark()`` names a moment, ``undo(mark)`` restores it. Cost: O(1) per change.
    """

    __slots__ = ("_changes",)

    def __init__(self) -> None:
        self._changes: list[tuple[Any, Any, Any]] = []

    def mark(self) -> int:
        """This moment."""
        return len(self._changes)

    def put(self, place: MutableSequence[Any] | MutableMapping[Any, Any], key: Any, value: Any) -> None:
        """Set ``place[key]``, so that it can be undone."""
        old = place.get(key, _MISSING) if isinstance(place, dict) else place[key]
        self._changes.append((place, key, old))
        place[key] = value

    def undo(self, mark: int) -> None:
        """Restore everything changed since ``mark``."""
        changes = self._changes
        while len(changes) > mark:
            place, key, old = changes.pop()
            if old is _MISSING:
                del place[key]
            else:
                place[key] = old
