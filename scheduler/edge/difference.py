"""What a copy lacks of a LIST: of one it is brought to, and of one that a watch is checked by (reconcile)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from typing import Any

import msgspec

from scheduler.api import meta
from scheduler.api.changes import Change
from scheduler.api.kinds import DecodeError, Kind
from scheduler.edge.bad_objects import BadObjects, readable_meta
from scheduler.edge.copies import Copy

LISTED_AT_ONCE = 100
"""Objects of a LIST that are compared with the copy between two looks at the clock."""
Listed = tuple[msgspec.Raw, Any]
"""An object of a LIST as it came (needed only when it is bad), with the decoded one or the DecodeError."""


def revision_of(text: str) -> int:
    """A resourceVersion as a number; 0 for one that is none."""
    return meta.revision_of(text) or 0


def missed_changes(
    kind: Kind, store: Mapping[str, Any], listed: Mapping[str, Any], bad: set[str], revision: int, seen_revision: int
) -> list[Change]:
    """Changes that bring ``store`` (the copy, known up to ``seen_revision``) to ``listed`` (a LIST at ``revision``).

    Objects newer in the copy, and keys in ``bad`` (undecodable in the LIST), are left alone.
    """
    changes = [
        Change(kind, old, None, revision, True)
        for key, old in store.items()
        if key not in listed and key not in bad and revision_of(old.metadata.resourceVersion) <= revision
    ]
    for key, new in listed.items():
        known = store.get(key)
        if known is None:
            if seen_revision <= revision:  # else it may have been deleted since: the next pass tells
                changes.append(Change(kind, None, new, revision, True))
        elif revision_of(known.metadata.resourceVersion) < revision_of(new.metadata.resourceVersion):
            same = known.metadata.uid == new.metadata.uid
            if not same:
                changes.append(Change(kind, known, None, revision, True))
            changes.append(Change(kind, known if same else None, new, revision, True))
    return changes


def take_listed(
    kind: Kind, store: Copy, items: Iterable[Listed], revision: int, bad: BadObjects
) -> Generator[None, None, list[Change]]:
    """Bring ``store`` to a complete LIST; returns what changed, deletions first. Yields where others may be served.

    An object deleted and created again under one name is two changes. One that is bad now keeps its good version.
    """
    gone = dict(store)
    changes: list[Change] = []
    bad_keys: set[str] = set()
    for number, (raw, new) in enumerate(items):
        if number % LISTED_AT_ONCE == 0:
            yield
        if isinstance(new, DecodeError):
            known_as = readable_meta(raw)
            bad_keys.add(known_as.key)
            known = store.get(known_as.key)
            kept = known is not None and known.metadata.uid == known_as.uid
            if kept:
                gone.pop(known_as.key, None)
            bad.report(known_as.key, known_as.uid, new, kept)
            continue
        key, old = new.metadata.key, store.get(new.metadata.key)
        if old is not None and old.metadata.uid == new.metadata.uid:
            gone.pop(key, None)
            if old.metadata.resourceVersion == new.metadata.resourceVersion:
                continue
        else:
            old = None
        changes.append(Change(kind, old, new, revision_of(new.metadata.resourceVersion), True))
    bad.forget_others(bad_keys)
    deletions = [Change(kind, old, None, revision, True) for old in gone.values()]
    for deletion in deletions:
        del store[deletion.old.metadata.key]
    for number, change in enumerate(changes):
        if number % LISTED_AT_ONCE == 0:
            yield
        store[change.new.metadata.key] = change.new
    return deletions + changes
