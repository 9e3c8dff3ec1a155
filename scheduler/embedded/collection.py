"""Objects that go with others: dependents of a deleted owner, the content of a deleted namespace."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.embedded.kinds import by_table
from scheduler.embedded.registry import DeleteOptions, Registry
from scheduler.embedded.store import Change, Key, Record

_NAMESPACES = "namespaces"


class GarbageCollector:
    """Background propagation only: a dependent goes once none of its owners is left.

    An object that names an owner which never was here stays, so that a part of a cluster can be loaded.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._owned: dict[str, set[tuple[str, Key]]] = {}
        self._present: set[str] = set()
        """UIDs of all objects."""

    def affected(self, table: str, change: Change) -> Iterable[tuple[str, Key]]:
        """Keeps the index of owners; a deletion makes its dependents worth a look (key is ("", owner's uid))."""
        uid = change.after.uid
        if change.deleted:
            self._present.discard(uid)
        else:
            self._present.add(uid)
        for owner in change.after.obj["metadata"].get("ownerReferences") or ():
            dependents = self._owned.setdefault(str(owner.get("uid")), set())
            if change.deleted:
                dependents.discard((table, change.key))
            else:
                dependents.add((table, change.key))
        return [("owner", ("", uid))] if change.deleted and self._owned.get(uid) else []

    def look_at_owner(self, key: Key) -> None:
        uid = key[1]
        for table, dependent in sorted(self._owned.pop(uid, ())):
            record = self._store.get(table, dependent)
            if record is not None and not self._has_owner(record, uid):
                kind = by_table(table)
                self._registry.delete(kind, *dependent, DeleteOptions(uid=record.uid))

    def _has_owner(self, record: Record, gone: str) -> bool:
        """Whether another owner than the one that is gone is left."""
        owners = [str(owner.get("uid")) for owner in record.obj["metadata"].get("ownerReferences") or ()]
        return gone not in owners or any(owner in self._present for owner in owners)


class NamespaceController:
    """Empties a terminating namespace and removes it once nothing is left in it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store

    def affected(self, table: str, change: Change) -> Iterable[tuple[str, Key]]:
        if table == _NAMESPACES and not change.deleted and change.after.obj["metadata"].get("deletionTimestamp"):
            return [("namespace", change.key)]
        if change.deleted and change.key[0] and self._terminating(("", change.key[0])):
            return [("namespace", ("", change.key[0]))]
        return []

    def _terminating(self, key: Key) -> bool:
        record = self._store.get(_NAMESPACES, key)
        return record is not None and bool(record.obj["metadata"].get("deletionTimestamp"))

    def look_at(self, key: Key) -> None:
        if not self._terminating(key):
            return
        left = False
        for table in self._store.tables():
            kind = by_table(table.name)
            if not kind.namespaced:
                continue
            for dependent in [found for found in table.records if found[0] == key[1]]:
                if table.records[dependent].obj["metadata"].get("deletionTimestamp"):
                    left = True
                else:
                    left = not self._registry.delete(kind, *dependent, DeleteOptions())[1] or left
        record = self._store.get(_NAMESPACES, key)
        if not left and record is not None and not record.obj["metadata"].get("finalizers"):
            self._store.remove(_NAMESPACES, key)
