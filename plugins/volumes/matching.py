"""Which existing volumes could serve a claim. Source: kube-scheduler 1.37, volume binding (spec 3.15.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from plugins.volumes.claims import ZERO, amount
from plugins.volumes.places import Places
from scheduler.api.quantity import Quantity
from scheduler.api.selectors import label_selector_matches
from scheduler.api.storage import STORAGE, PersistentVolume, PersistentVolumeClaim
from scheduler.state.columns import Bool, Int64

_FILESYSTEM = "Filesystem"
UNMATCHED = -1


class Matcher:
    """Gives claims volumes, row by row, each volume once per row. Claims are given in order of their size."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self._taken: dict[str, Bool] = {}

    def match(
        self, claim: PersistentVolumeClaim, volumes: Sequence[PersistentVolume], active: Bool
    ) -> tuple[list[PersistentVolume], Int64]:
        """Candidates, and the index of the chosen one per place (UNMATCHED: none). Only ``active`` places are served.

        A volume that is promised to the claim is the only one that counts; otherwise the smallest that suffices.
        """
        candidates = candidates_for(claim, volumes)
        choice = np.full(len(active), UNMATCHED, np.int64)
        left = int(active.sum())
        for index, volume in enumerate(candidates):
            if not left:
                break
            where = self.places.matching(volume.selector)
            free = active[where] & (choice[where] == UNMATCHED)
            taken = self._taken.get(volume.name)
            if taken is not None:
                free &= ~taken[where]
            where = where[free]
            if not len(where):
                continue
            choice[where] = index
            left -= len(where)
            if taken is None:
                taken = self._taken[volume.name] = np.zeros(len(active), np.bool_)
            taken[where] = True
        return candidates, choice


def candidates_for(claim: PersistentVolumeClaim, volumes: Sequence[PersistentVolume]) -> list[PersistentVolume]:
    """Volumes that suit the claim wherever they are, best first."""
    requested = amount(claim.requested)
    suitable: list[tuple[Quantity, PersistentVolume]] = []
    for volume in volumes:
        size = amount(volume.spec.capacity.get(STORAGE)) if volume.spec.capacity else ZERO
        if size < requested or not _same_kind(claim, volume):
            continue
        if volume.kept_for(claim):
            return [volume]
        if volume.spec.claimRef is None and _offered(claim, volume):
            suitable.append((size, volume))
    suitable.sort(key=lambda pair: pair[0])
    return [volume for _, volume in suitable]


def _same_kind(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    mode, other = claim.spec.volumeMode or _FILESYSTEM, volume.spec.volumeMode or _FILESYSTEM
    quality, offered = claim.spec.volumeAttributesClassName or "", volume.spec.volumeAttributesClassName or ""
    return mode == other and quality == offered and volume.metadata.deletionTimestamp is None


def _offered(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    if volume.status.phase != "Available":
        return False
    if claim.spec.selector is not None and not label_selector_matches(claim.spec.selector, volume.metadata.labels):
        return False
    return set(claim.spec.accessModes) <= set(volume.spec.accessModes)
