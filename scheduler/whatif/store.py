"""The objects of an imagined cluster, by kind and name, with the versions an API server would give them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.resource import ResourceClaim
from scheduler.api.storage import PERSISTENT_VOLUME_CLAIM
from scheduler.whatif.objects import Json, Objects

OWNED = (RESOURCE_CLAIM.name, PERSISTENT_VOLUME_CLAIM.name)
"""Kinds whose objects may belong to a Pod and go with it."""


class Store:
    """Current objects. ``put`` and ``remove`` are the only ways to change them; every version is newer than all before.

    ``now``: Unix seconds, moved on by whoever simulates. ``notes``: what had to be assumed, each once, in order.
    All calls are O(1) but ``of`` and ``owned_by``, which look at every object of a kind.
    """

    def __init__(self, objects: Objects, now: float) -> None:
        self._objects = dict(objects.decoded)
        self.templates = dict(objects.templates)
        self.raw: dict[tuple[str, str], Json] = dict(objects.raw)
        self.quotas = objects.quotas()
        self.now = now
        self.notes: dict[str, None] = {}
        self._revision = max(map(_revision, self._objects.values()), default=0) + 1_000_000
        self._uids = 0
        self._owned: dict[str, dict[tuple[str, str], None]] = {}
        self._deliver: Callable[[Change], None] = lambda change: None
        for (name, key), (_, item) in self._objects.items():
            if name in OWNED:
                self._note_owner((name, key), item)

    @property
    def revision(self) -> int:
        """Grows with every change."""
        return self._revision

    def get(self, kind: str, key: str) -> Any | None:
        """The object of a kind under ``namespace/name`` (cluster-wide: the name), None without one."""
        found = self._objects.get((kind, key))
        return None if found is None else found[1]

    def of(self, kind: str) -> list[Any]:
        """Every object of a kind, in the order first seen."""
        return [item for (name, _), (_, item) in self._objects.items() if name == kind]

    def entries(self) -> Iterator[tuple[Kind, Any]]:
        """Every object with its kind, in the order first seen."""
        return iter(self._objects.values())

    def put(self, kind: Kind, item: Any) -> Any:
        """Create or replace; answers with the object as stored."""
        self._revision += 1
        metadata = msgspec.structs.replace(item.metadata, resourceVersion=str(self._revision))
        stored = msgspec.structs.replace(item, metadata=metadata)
        old = self.get(kind.name, stored.metadata.key)
        self._objects[kind.name, stored.metadata.key] = kind, stored
        if kind.name in OWNED:
            self._note_owner((kind.name, stored.metadata.key), stored)
        self._deliver(Change(kind, old, stored, self._revision))
        return stored

    def remove(self, kind: Kind, item: Any) -> None:
        """Delete; nothing happens when it is gone already."""
        found = self._objects.pop((kind.name, item.metadata.key), None)
        if found is None:
            return
        for owner in found[1].metadata.ownerReferences:
            self._owned.get(owner.uid, {}).pop((kind.name, item.metadata.key), None)
        self._revision += 1
        self._deliver(Change(kind, found[1], None, self._revision))

    def follow(self, deliver: Callable[[Change], None]) -> None:
        """``deliver`` is told of every change from now on, after it was made."""
        self._deliver = deliver

    def owned_by(self, uid: str) -> list[tuple[Kind, Any]]:
        """The claims and volume claims that belong to the Pod with that uid."""
        return [self._objects[entry] for entry in list(self._owned.get(uid, ()))]

    def new_uid(self) -> str:
        """A uid that no object has, the same for equal input."""
        self._uids += 1
        return f"ffffffff-ffff-4fff-8fff-{self._uids:012x}"

    def stamp(self) -> str:
        """``now`` as the API writes it."""
        return datetime.fromtimestamp(self.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

    def note(self, text: str) -> None:
        """Remember an assumption."""
        self.notes.setdefault(text)

    def free_name(self, kind: str, namespace: str, wanted: str) -> str:
        """``wanted``, or with the first number behind it that makes it new."""
        prefix = f"{namespace}/" if namespace else ""
        name, number = wanted, 1
        while (kind, prefix + name) in self._objects:
            number += 1
            name = f"{wanted}-{number}"
        return name

    def new_metadata(self, name: str, namespace: str = "", **more: Any) -> ObjectMeta:
        """metadata of an object that comes into being now."""
        return ObjectMeta(name=name, namespace=namespace, uid=self.new_uid(), creationTimestamp=self.stamp(), **more)

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """The ResourceClaims that a Pod names, as far as they exist, and those made for it."""
        generated = {entry.name: entry.resourceClaimName for entry in pod.status.resourceClaimStatuses}
        names = [entry.resourceClaimName or generated.get(entry.name) for entry in pod.spec.resourceClaims]
        if pod.status.extendedResourceClaimStatus is not None:
            names.append(pod.status.extendedResourceClaimStatus.resourceClaimName)
        found = (self.get(RESOURCE_CLAIM.name, f"{pod.metadata.namespace}/{name}") for name in names if name)
        return [claim for claim in found if claim is not None]

    def pods(self) -> list[Pod]:
        """Pods that have not ended."""
        return [pod for pod in self.of(POD.name) if not pod.terminal]

    def _note_owner(self, entry: tuple[str, str], item: Any) -> None:
        for owner in item.metadata.ownerReferences:
            if owner.uid:
                self._owned.setdefault(owner.uid, {})[entry] = None


def _revision(entry: tuple[Kind, Any]) -> int:
    text = entry[1].metadata.resourceVersion
    return int(text) if text.isdecimal() and len(text) < 19 else 0
