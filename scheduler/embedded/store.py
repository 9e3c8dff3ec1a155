"""Objects in memory: one revision counter, one table per kind with a bounded history for watches and old lists.

Records are immutable: a change replaces the record. The JSON of an object is encoded once per revision and shared by
every get, list and watch that shows it. No I/O and no clock here; the registry decides, the store remembers.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from scheduler.embedded.status import Json

Key = tuple[str, str]
"""(namespace, name); the namespace is empty for cluster-scoped kinds."""

Translate = Callable[[Json], Json]


class Record:
    """One object at one revision, without its kind and apiVersion. Never changed after it was made."""

    __slots__ = ("_json", "_other", "key", "obj", "revision")

    def __init__(self, key: Key, obj: Json, revision: int) -> None:
        self.key = key
        self.obj = obj
        self.revision = revision
        self._json: bytes | None = None
        self._other: bytes | None = None

    @property
    def uid(self) -> str:
        return str(self.obj["metadata"]["uid"])

    def json(self, translate: Translate | None = None) -> bytes:
        """The object's JSON without kind and apiVersion; `translate` gives the form of the other served version."""
        if translate is not None:
            if self._other is None:
                self._other = msgspec.json.encode(translate(self.obj))
            return self._other
        if self._json is None:
            self._json = msgspec.json.encode(self.obj)
        return self._json


@dataclass(frozen=True, slots=True)
class Change:
    """One write: after is None never happens; a deletion carries the last state at the deletion's revision."""

    revision: int
    key: Key
    before: Record | None
    after: Record
    deleted: bool = False


@dataclass(slots=True)
class Table:
    """All objects of one storage kind. `changes` holds those after `compacted`; older ones can't be watched now."""

    name: str
    limit: int
    records: dict[Key, Record] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    dropped: int = 0
    """How many changes have left the front of the list: position = dropped + index."""
    compacted: int = 0
    watchers: set[asyncio.Event] = field(default_factory=set)
    _order: list[Key] | None = None

    def ordered(self) -> list[Record]:
        """Current records by (namespace, name), the order of the real server's keys."""
        if self._order is None:
            self._order = sorted(self.records)
        return [self.records[key] for key in self._order]

    def add(self, change: Change) -> None:
        if change.deleted:
            del self.records[change.key]
            self._order = None
        else:
            if change.before is None:
                self._order = None
            self.records[change.key] = change.after
        self.changes.append(change)
        if len(self.changes) >= 2 * self.limit:
            self._drop(len(self.changes) - self.limit)
        for watcher in self.watchers:
            watcher.set()

    def position_after(self, revision: int) -> int | None:
        """Where a watch from this revision starts, or None when its history is gone."""
        if revision < self.compacted:
            return None
        return self.dropped + bisect_right(self.changes, revision, key=lambda change: change.revision)

    def since(self, position: int, limit: int = 500) -> list[Change] | None:
        """Changes from a position on, or None when the reader was too slow and they are gone."""
        index = position - self.dropped
        if index < 0:
            return None
        return self.changes[index : index + limit]

    def at(self, revision: int) -> list[Record] | None:
        """All records as they were at a revision, ordered; None when its history is gone."""
        if revision < self.compacted:
            return None
        if not self.changes or self.changes[-1].revision <= revision:
            return self.ordered()
        past = dict(self.records)
        for change in reversed(self.changes):
            if change.revision <= revision:
                break
            if change.before is None:
                past.pop(change.key, None)
            else:
                past[change.key] = change.before
        return [past[key] for key in sorted(past)]

    def compact(self) -> None:
        self._drop(len(self.changes))
        for watcher in self.watchers:
            watcher.set()

    def _drop(self, count: int) -> None:
        if count:
            self.compacted = self.changes[count - 1].revision
            self.dropped += count
            del self.changes[:count]


Listener = Callable[[str, Change], None]


class Store:
    """Every table and the one revision counter. Single-threaded: used only from the server's event loop."""

    def __init__(self, history: int = 10_000) -> None:
        self.revision = 1
        self._history = history
        self._tables: dict[str, Table] = {}
        self._listeners: list[Listener] = []

    def table(self, name: str) -> Table:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = Table(name, self._history)
        return table

    def tables(self) -> list[Table]:
        return list(self._tables.values())

    def get(self, table: str, key: Key) -> Record | None:
        return self.table(table).records.get(key)

    def listen(self, listener: Listener) -> None:
        """Calls listener(table, change) after every write, in order; it must not write itself."""
        self._listeners.append(listener)

    def put(self, table: str, key: Key, obj: Json) -> Record:
        """Stores obj (taken over, not copied) under the next revision."""
        before = self.get(table, key)
        after = self._stamp(key, obj)
        self._publish(table, Change(after.revision, key, before, after))
        return after

    def remove(self, table: str, key: Key) -> Record:
        """Deletes; the returned record is the last state, stamped with the deletion's revision."""
        before = self.table(table).records[key]
        final = dict(before.obj)
        final["metadata"] = dict(final["metadata"])
        after = self._stamp(key, final)
        self._publish(table, Change(after.revision, key, before, after, deleted=True))
        return after

    def _stamp(self, key: Key, obj: Json) -> Record:
        self.revision += 1
        obj["metadata"]["resourceVersion"] = str(self.revision)
        return Record(key, obj, self.revision)

    def _publish(self, table: str, change: Change) -> None:
        self.table(table).add(change)
        for listener in self._listeners:
            listener(table, change)
