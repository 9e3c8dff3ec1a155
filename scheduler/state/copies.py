"""What the state lacks of the objects that the watches have brought: an event whose handling broke was half applied.

The copies of the reflectors are compared with LISTs elsewhere; this compares the state with the copies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from scheduler.api.meta import revision_of
from scheduler.state.cluster import ClusterState


def unapplied(state: ClusterState, kind: Kind, copy: Mapping[str, Any]) -> list[Change]:
    """Changes that bring ``state`` to ``copy`` (objects by key) for one kind; empty when all is well.

    Claims newer in the state (answers to our own writes) are left alone. Kinds not listed here answer nothing.
    Cost: O(objects of the kind).
    """
    known = _known(state, kind, copy)
    if known is None:
        return []
    wanted = {key: found for key, found in copy.items() if kind.name != POD.name or not found.terminal}
    changes = [Change(kind, found, None, 0, True) for key, found in known.items() if key not in wanted]
    for key, found in wanted.items():
        present = known.get(key)
        if present is not None and present.metadata.uid != found.metadata.uid:
            changes.append(Change(kind, present, None, 0, True))
            present = None
        if present is None or _older(present, found):
            changes.append(Change(kind, present, found, 0, True))
    return changes


def _known(state: ClusterState, kind: Kind, copy: Mapping[str, Any]) -> dict[str, Any] | None:
    """Objects of the kind that the state holds, by key; None for kinds that are not compared."""
    if kind.name == POD.name:
        return {found.metadata.key: found for found in state.pods.values()}
    if kind.name == NODE.name:
        nodes = [state.nodes.node(row) for row in state.nodes.order().tolist()]
        return {found.metadata.key: found for found in nodes}
    if kind.name == RESOURCE_CLAIM.name:
        # A claim we made ourselves is known before the watch shows it.
        return {key: found for key, found in state.devices.claims.items() if key in copy}
    if kind.name == RESOURCE_SLICE.name:
        infos = {key: state.devices.slices.get(key) for key in copy}
        return {key: info.slice for key, info in infos.items() if info is not None}
    if kind.name == DEVICE_CLASS.name:
        classes = {key: state.devices.classes.get(key) for key in (*copy, *state.devices.classes.names())}
        return {key: found for key, found in classes.items() if found is not None}
    return None


def _older(present: Any, found: Any) -> bool:
    versions = present.metadata.resourceVersion, found.metadata.resourceVersion
    before, after = map(revision_of, versions)
    if before is not None and after is not None:
        return before < after
    return bool(versions[0] != versions[1])
