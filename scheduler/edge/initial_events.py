"""A watch that begins with everything there is: the events before the server says that they are complete.

What kube-scheduler 1.37 does instead of a LIST and a watch after it (client-go's WatchList): one request for both, and
neither side holds a page. The first events may already tell of changes that came while they were sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.edge.difference import Listed, revision_of
from scheduler.edge.errors import AnswerLost
from scheduler.edge.watch_events import EventReader, StartOverError, raw_object

QUERY = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
COMPLETE = "k8s.io/initial-events-end"
REFUSED = (400, 422)
"""Statuses of a server that lists no kind, or not this one, by a watch."""


class InitialEvents:
    """Takes lines until they are ``complete``: then ``items`` is a LIST at ``revision``. ``added``: objects so far."""

    def __init__(self, kind: Kind, reader: EventReader) -> None:
        self.complete = False
        self.revision = self.added = 0
        self._kind, self._reader = kind, reader
        self._items: dict[str, Listed] = {}

    @property
    def items(self) -> list[Listed]:
        """One entry an object."""
        return list(self._items.values())

    def take(self, lines: Sequence[bytes]) -> int:
        """How many of ``lines`` belonged to the beginning: all, or those up to the one that completes it.

        Raises StartOverError for a line that is no event, ClusterError for what the server says instead of one.
        """
        for number, line in enumerate(lines):
            self._event(line)
            if self.complete:
                return number + 1
        return len(lines)

    def _event(self, line: bytes) -> None:
        try:
            seen = self._reader.read(line)
        except StartOverError:
            # An object whose very metadata is wrong: nobody knows which one it is, the others are good.
            self.added += 1
            self._items[f" {self.added}"] = self._listed(raw_object(line))
            return
        key = seen.meta.key
        match seen.type:
            case "BOOKMARK":
                self.complete = seen.meta.annotations.get(COMPLETE) == "true"
                self.revision = revision_of(seen.meta.resourceVersion)
            case "DELETED":
                self._items.pop(key, None)
            case "ADDED" | "MODIFIED":
                self.added += seen.type == "ADDED"
                self._items[key] = self._listed(seen.object)
            case _:
                raise StartOverError(f"unknown watch event type {seen.type!r}")

    def _listed(self, found: object) -> Listed:
        if not isinstance(found, msgspec.Raw):
            return _NO_BYTES, found
        try:
            return found, decode(self._kind, found)
        except DecodeError as error:
            return found, error


_NO_BYTES = msgspec.Raw(b"")


def cut_short(path: str) -> AnswerLost:
    """The stream ended, or went silent, before it was complete."""
    return AnswerLost(f"GET {path} (watch): the list was not complete")
