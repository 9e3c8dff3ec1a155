"""Objects that cannot be decoded: who they are as far as that can be read, each told once."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from scheduler.api.kinds import DecodeError, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.edge.watch_events import meta_of


class BadObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded. ``kept``: an earlier good version stays in use."""

    kind: Kind
    key: str
    problem: str
    kept: bool


class BadObjects:
    """Tells of each undecodable object of one kind once for each problem, however often it is shown or listed again."""

    def __init__(self, kind: Kind, tell: Callable[[BadObject], None]) -> None:
        self._kind, self._tell = kind, tell
        self._told: dict[str, tuple[str, str]] = {}  # key → uid and problem that were told

    def report(self, key: str, uid: str, error: DecodeError, kept: bool) -> None:
        """``error`` is what is wrong with it; the first time is told."""
        if self._told.get(key) == (uid, str(error)):
            return
        self._told[key] = (uid, str(error))
        self._tell(BadObject(self._kind, key, str(error), kept))

    def forget(self, key: str) -> None:
        """The object is gone, or good again."""
        self._told.pop(key, None)

    def forget_others(self, keys: set[str]) -> None:
        """A complete LIST holds only ``keys`` that are bad."""
        self._told = {key: told for key, told in self._told.items() if key in keys}


def readable_meta(raw: msgspec.Raw) -> ObjectMeta:
    """The metadata of an undecodable object; without a name when not even that can be read."""
    try:
        return meta_of(raw)
    except msgspec.DecodeError:
        return ObjectMeta()
