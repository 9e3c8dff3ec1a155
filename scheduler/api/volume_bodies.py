"""Request bodies for volumes and their claims: merge patches that name the version they were made for."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.api.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    PersistentVolume,
    PersistentVolumeClaim,
)


def volume_claim_patch(volume: PersistentVolume) -> bytes:
    """Merge patch of the volume: its claimRef, and the mark that it was promised by a controller if it has that."""
    metadata = _precondition(volume)
    mark = volume.metadata.annotations.get(BOUND_BY_CONTROLLER_ANNOTATION)
    if mark is not None:
        metadata["annotations"] = {BOUND_BY_CONTROLLER_ANNOTATION: mark}
    return msgspec.json.encode({"metadata": metadata, "spec": {"claimRef": volume.spec.claimRef}})


def selected_node_patch(claim: PersistentVolumeClaim, node: str) -> bytes:
    """Merge patch of the claim: the node its volume is to be made for, "" for none."""
    metadata = _precondition(claim)
    metadata["annotations"] = {SELECTED_NODE_ANNOTATION: node or None}
    return msgspec.json.encode({"metadata": metadata})


def _precondition(item: PersistentVolume | PersistentVolumeClaim) -> dict[str, Any]:
    return {"uid": item.metadata.uid, "resourceVersion": item.metadata.resourceVersion}
