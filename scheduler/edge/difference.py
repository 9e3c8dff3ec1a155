"""What a copy lacks of a LIST that is compared with it while the watch goes on (reconcile). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.api import meta
from scheduler.api.changes import Change
from scheduler.api.kinds import Kind


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
