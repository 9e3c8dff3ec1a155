"""Writes what VolumeBinding promised: the claim into a volume, the chosen node into a claim.

Source: kube-scheduler 1.37, BindPodVolumes (spec 3.15.4). Every write names the version it was decided on; a change in
between refuses it, and the Pod is decided anew.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from scheduler.api.bodies import MERGE_PATCH
from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.api.storage import (
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.api.volume_bodies import selected_node_patch, volume_claim_patch
from scheduler.edge.backoff import read_back
from scheduler.edge.client import TRIES_MAX, ApiClient, Sleep
from scheduler.edge.errors import AnswerLost, Conflict, ServerError
from scheduler.errors import ClusterError


class VolumeWriter:
    """Both methods answer with the stored object. Raises ApiError, ApiUnavailable, AnswerLost or NotLeading."""

    def __init__(self, client: ApiClient, *, sleep: Sleep = asyncio.sleep, rng: random.Random | None = None) -> None:
        self._client, self._sleep, self._rng = client, sleep, rng or random.Random()

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """Store the claimRef that ``volume`` has. Cost: one write; a lost answer is read back."""
        wanted = volume.spec.claimRef

        def done(now: PersistentVolume) -> bool:
            reference = now.spec.claimRef
            return reference is not None and wanted is not None and reference.uid == wanted.uid

        stored: PersistentVolume = await self._patch(PERSISTENT_VOLUME, volume, volume_claim_patch(volume), done)
        return stored

    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
        """Store the node that the claim's volume is to be made for; "" takes it out. Cost: as bind_volume."""

        def done(now: PersistentVolumeClaim) -> bool:
            return (now.selected_node or "") == node

        body = selected_node_patch(claim, node)
        stored: PersistentVolumeClaim = await self._patch(PERSISTENT_VOLUME_CLAIM, claim, body, done)
        return stored

    async def _patch(self, kind: Kind, item: Any, body: bytes, done: Callable[[Any], bool]) -> Any:
        path = kind.path(item.metadata.namespace, item.metadata.name)
        problem: ClusterError | None = None
        for _ in range(TRIES_MAX):
            try:
                return _decoded(kind, (await self._client.call("PATCH", path, body, MERGE_PATCH)).body)
            except Conflict as error:
                # Refused, or already stored by a try whose answer was lost.
                if problem is None:
                    raise
                now = await self._read(kind, path)
                if now.metadata.uid == item.metadata.uid and done(now):
                    return now
                raise Conflict(error.status, error.reason, error.message, error.details, error.call) from problem
            except (AnswerLost, ServerError) as error:
                problem = error
                now = await self._read(kind, path)
                if now.metadata.uid == item.metadata.uid and done(now):
                    return now
        assert problem is not None
        raise problem

    async def _read(self, kind: Kind, path: str) -> Any:
        async def once() -> Any:
            return _decoded(kind, (await self._client.call("GET", path)).body)

        return await read_back(once, self._sleep, self._rng)


def _decoded(kind: Kind, body: bytes) -> Any:
    try:
        decoded = decode(kind, body)
    except DecodeError as error:
        raise AnswerLost(f"the answer is no {kind.name}: {error}") from error
    if not decoded.metadata.uid:
        raise AnswerLost(f"the answer is no {kind.name}")
    return decoded
