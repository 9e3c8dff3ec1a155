"""Trial: changes of a state that are taken back, for "what if this were different".

Only for a state of one's own: while a trial runs, the state tells something that is not so.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.kinds import NODE, Kind
from scheduler.state.cluster import ClusterState


class Trial:
    """A context manager. ``put`` and ``remove`` change the state; leaving it restores every object, newest first.

    Objects are never changed, only exchanged. An object is removed and added again rather than updated, because a
    claim whose version is not newer than the known one is ignored. A node is updated: it keeps its place in the order.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._undo: list[tuple[Kind, Any, Any]] = []

    def __enter__(self) -> Trial:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for what, before, after in reversed(self._undo):
            self._exchange(what, after, before)
        self._undo.clear()

    def put(self, kind: Kind, before: Any | None, after: Any) -> None:
        """``after`` takes the place of ``before`` (None: it is new)."""
        self._exchange(kind, before, after)
        self._undo.append((kind, before, after))

    def remove(self, kind: Kind, before: Any) -> None:
        """``before`` goes."""
        self._exchange(kind, before, None)
        self._undo.append((kind, before, None))

    def _exchange(self, kind: Kind, before: Any | None, after: Any | None) -> None:
        if kind.name == NODE.name and before is not None and after is not None:
            self._state.apply(Change(kind, before, after))
            return
        if before is not None:
            self._state.apply(Change(kind, before, None))
        if after is not None:
            self._state.apply(Change(kind, None, after))
