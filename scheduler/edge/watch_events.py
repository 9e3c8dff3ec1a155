"""Reads the lines of a watch: an event and its object in one pass; what does not fit at once, piece by piece."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.api.deep import decode_deep
from scheduler.api.kinds import DecodeError, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.edge.errors import decode_status, error_for


class _Meta(msgspec.Struct):
    metadata: ObjectMeta = ObjectMeta()


class _WatchEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENT = msgspec.json.Decoder(_WatchEvent)
_META = msgspec.json.Decoder(_Meta)


class StartOverError(Exception):
    """Only a new LIST helps."""


class Seen(msgspec.Struct):
    """A watch event; ``object`` is an object of the kind, or its bytes when it still has to be decoded."""

    type: str
    meta: ObjectMeta
    object: Any


class EventReader:
    """Reads the events of one kind; ``path`` is for messages."""

    def __init__(self, kind: Kind, path: str) -> None:
        self._kind, self._path = kind, path
        fields: list[tuple[str, Any]] = [("type", str), ("object", kind.wire or kind.struct)]
        self._whole: msgspec.json.Decoder[Any] = msgspec.json.Decoder(msgspec.defstruct(f"{kind.name}Event", fields))

    def read(self, line: bytes) -> Seen:
        """One line. Raises StartOverError for one that is no event, ClusterError for what the server says instead."""
        try:
            whole = decode_deep(self._whole, line)
            if whole.type != "ERROR":
                found = whole.object if self._kind.wire is None else whole.object.v1()
                return Seen(whole.type, found.metadata, found)
        except (msgspec.DecodeError, DecodeError):
            pass
        event = _event(line)
        if event.type == "ERROR":
            status = decode_status(event.object)
            raise error_for(status.code or 500, status, f"GET {self._path} (watch)")
        try:
            return Seen(event.type, meta_of(event.object), event.object)
        except msgspec.DecodeError as error:
            raise _unreadable(error) from error


def raw_object(line: bytes) -> msgspec.Raw:
    """The bytes of an event's object, whatever they hold. Raises StartOverError for a line that is no event."""
    return _event(line).object


def _event(line: bytes) -> _WatchEvent:
    try:
        return decode_deep(_EVENT, line)
    except msgspec.DecodeError as error:
        raise _unreadable(error) from error


def _unreadable(error: msgspec.DecodeError) -> StartOverError:
    """It may have been any change: only a comparison with a LIST can tell."""
    return StartOverError(f"unreadable watch event: {error}")


def meta_of(raw: msgspec.Raw) -> ObjectMeta:
    """The metadata of an object whose other fields may be wrong. Raises msgspec.DecodeError."""
    return decode_deep(_META, raw).metadata
