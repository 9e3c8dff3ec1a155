"""VolumeState: claims, volumes, classes and CSI objects, what Reserve assumes of them, and who uses which claim.

Source: kube-scheduler 1.37, VolumeBinding's assume caches and the snapshot's claim references (spec 3.15.4, 5.5).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.meta import revision_of
from scheduler.api.storage import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    STORAGE_KINDS,
    VOLUME_ATTACHMENT,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler.errors import InternalError
from scheduler.state.attached import AttachedVolumes
from scheduler.state.disks import disk_keys
from scheduler.state.events import Action, ClusterEvent, Resource

VOLUME_KINDS = frozenset(kind.name for kind in STORAGE_KINDS)
_RESOURCES = {
    PERSISTENT_VOLUME_CLAIM.name: Resource.PERSISTENT_VOLUME_CLAIM,
    PERSISTENT_VOLUME.name: Resource.PERSISTENT_VOLUME,
    STORAGE_CLASS.name: Resource.STORAGE_CLASS,
    CSI_NODE.name: Resource.CSI_NODE,
    CSI_DRIVER.name: Resource.CSI_DRIVER,
    CSI_STORAGE_CAPACITY.name: Resource.CSI_STORAGE_CAPACITY,
    VOLUME_ATTACHMENT.name: Resource.VOLUME_ATTACHMENT,
}
T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


class Assumable(dict[str, T]):
    """Objects by key as decisions see them: what the API server showed, or what Reserve assumes on top of that.

    An assumption holds until a newer version of the object is shown; then the server's word counts.
    """

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[str, T] = {}

    def shown(self, key: str) -> T | None:
        """The newest version the API server showed."""
        return self._shown.get(key)

    def show(self, key: str, item: T | None) -> bool:
        """The API server showed ``item`` (None: gone); False when a newer version is known already."""
        known = self._shown.get(key)
        if item is None:
            self.pop(key, None)
            return self._shown.pop(key, None) is not None
        if known is not None and known.metadata.uid == item.metadata.uid and _revision(item) < _revision(known):
            return False
        if known is None or self.get(key) is known or _revision(item) > _revision(known):
            self[key] = item
        self._shown[key] = item
        return True

    def assume(self, key: str, item: T) -> None:
        """Decide as if the object were ``item``."""
        self[key] = item

    def restore(self, key: str) -> None:
        """Take an assumption back; nothing when the server's word counts already."""
        shown = self._shown.get(key)
        if shown is None:
            self.pop(key, None)
        else:
            self[key] = shown

    def assumed(self) -> Iterable[str]:
        """Keys with an assumption."""
        return (key for key, item in self.items() if self._shown.get(key) is not item)


class VolumeState:
    """Everything the volume plugins read. Lists by class and counts by claim are kept current, never recounted."""

    def __init__(self) -> None:
        self.claims: Assumable[PersistentVolumeClaim] = Assumable()
        self.volumes: Assumable[PersistentVolume] = Assumable()
        self.classes: dict[str, StorageClass] = {}
        self.csi_nodes: dict[str, CSINode] = {}
        self.csi_drivers: dict[str, CSIDriver] = {}
        self.capacities: dict[str, dict[str, CSIStorageCapacity]] = {}
        self.attachments: dict[str, VolumeAttachment] = {}
        self.attached = AttachedVolumes(self)
        self._by_class: dict[str, set[str]] = {}
        self._users: dict[str, dict[str, int]] = {}
        self._disks: dict[str, dict[str, int]] = {}

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Every object as decisions see it, assumptions included, with the name of its kind."""
        yield from ((STORAGE_CLASS.name, item) for item in self.classes.values())
        yield from ((CSI_DRIVER.name, item) for item in self.csi_drivers.values())
        yield from ((CSI_NODE.name, item) for item in self.csi_nodes.values())
        yield from ((PERSISTENT_VOLUME_CLAIM.name, item) for item in self.claims.values())
        yield from ((PERSISTENT_VOLUME.name, item) for item in self.volumes.values())
        for of_class in self.capacities.values():
            yield from ((CSI_STORAGE_CAPACITY.name, item) for item in of_class.values())
        yield from ((VOLUME_ATTACHMENT.name, item) for item in self.attachments.values())

    # What changed

    def apply(self, change: Change) -> list[ClusterEvent]:
        """Take in a change of one of VOLUME_KINDS; the event it is. Cost: O(1), and the nodes that use a claim."""
        kind, old, new = change.kind.name, change.old, change.new
        self._store(kind, old, new)
        action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE_OTHER
        return [ClusterEvent(_RESOURCES[kind], action, old, new)] if (old, new) != (None, None) else []

    def _store(self, kind: str, old: Any, new: Any) -> None:
        item = new if new is not None else old
        if item is None:
            return
        key = item.metadata.key
        if kind == PERSISTENT_VOLUME_CLAIM.name:
            self._show_claim(key, new)
        elif kind == PERSISTENT_VOLUME.name:
            self._show_volume(key, new)
        elif kind == STORAGE_CLASS.name:
            _put(self.classes, key, new)
            self.attached.forget_all()
        elif kind == CSI_NODE.name:
            _put(self.csi_nodes, key, new)
            self.attached.forget(key)
        elif kind == CSI_DRIVER.name:
            _put(self.csi_drivers, key, new)
        elif kind == CSI_STORAGE_CAPACITY.name:
            self._show_capacity(key, old, new)
        else:
            _put(self.attachments, key, new)
            for attachment in (old, new):
                if attachment is not None:
                    self.attached.attachment_changed(key, attachment, known=attachment is new)

    def _show_claim(self, key: str, new: PersistentVolumeClaim | None) -> None:
        before = self.claims.shown(key)
        if self.claims.show(key, new):
            self.attached.claim_changed(key, before, new)

    def _show_volume(self, name: str, new: PersistentVolume | None) -> None:
        before = self.volumes.shown(name)
        if not self.volumes.show(name, new):
            return
        if before is not None:
            self._by_class[before.class_name].discard(name)
        if new is not None:
            self._by_class.setdefault(new.class_name, set()).add(name)
        self.attached.volume_changed(name)

    def _show_capacity(self, key: str, old: CSIStorageCapacity | None, new: CSIStorageCapacity | None) -> None:
        if old is not None:
            self.capacities.get(old.storageClassName, {}).pop(key, None)
        if new is not None:
            self.capacities.setdefault(new.storageClassName, {})[key] = new

    def learn_volume(self, volume: PersistentVolume) -> list[ClusterEvent]:
        """The answer to our own write: known from now on, before the watch shows it."""
        before = self.volumes.shown(volume.name)
        if before is None:
            return []
        self._show_volume(volume.name, volume)
        return [ClusterEvent(Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER, before, volume)]

    def learn_claim(self, claim: PersistentVolumeClaim) -> list[ClusterEvent]:
        """As learn_volume, for a claim."""
        before = self.claims.shown(claim.key)
        if before is None:
            return []
        self._show_claim(claim.key, claim)
        return [ClusterEvent(Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER, before, claim)]

    # Who uses what

    def pod_added(self, pod: Pod, node: str) -> None:
        """A Pod counts on a node from now on."""
        if pod.spec.volumes:
            self._count(pod, node, 1)

    def pod_removed(self, pod: Pod, node: str) -> None:
        """A Pod does not count on a node any more."""
        if pod.spec.volumes:
            self._count(pod, node, -1)

    def _count(self, pod: Pod, node: str, sign: int) -> None:
        for volume in pod.spec.volumes:
            if volume.persistentVolumeClaim is not None:
                key = f"{pod.metadata.namespace}/{volume.persistentVolumeClaim.claimName}"
                users = self._users.setdefault(key, {})
                _add(users, node, sign)
                if not users:
                    del self._users[key]
            for disk in disk_keys(volume):
                nodes = self._disks.setdefault(disk, {})
                _add(nodes, node, sign)
                if not nodes:
                    del self._disks[disk]
        self.attached.pod_moved(pod, node, sign)

    def users(self, claim_key: str, listed: Callable[[str], bool]) -> int:
        """Uses of the claim (``namespace/name``) by Pods on nodes for which ``listed`` says yes.

        Pods of a node that is gone do not count: kube-scheduler's snapshot holds listed nodes only (spec 5.2, 5.5).
        """
        return sum(count for node, count in self._users.get(claim_key, {}).items() if listed(node))

    def nodes_with_disk(self, disk: str) -> Iterable[str]:
        """Nodes with a Pod that uses the in-tree disk, as ``disk_keys`` names it."""
        return self._disks.get(disk, ())

    def volumes_of_class(self, class_name: str) -> list[PersistentVolume]:
        """Volumes of a storage class, assumptions included, by name."""
        return [self.volumes[name] for name in sorted(self._by_class.get(class_name, ()))]

    # Checks

    def verify(self, placed: Iterable[tuple[Pod, str]]) -> None:
        """Recompute counts and lists from the Pods on nodes; InternalError names the first difference."""
        fresh = VolumeState()
        for pod, node in placed:
            fresh.pod_added(pod, node)
        for name, ours, theirs in (
            ("claim uses", self._users, fresh._users),
            ("disk uses", self._disks, fresh._disks),
            ("volumes by class", _filled(self._by_class), self._classes_now()),
        ):
            if ours != theirs:
                raise InternalError(f"{name}: kept {ours}, recomputed {theirs}")
        self.attached.verify(fresh.attached)

    def _classes_now(self) -> Mapping[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in self.volumes:
            shown = self.volumes.shown(name)
            if shown is None:
                raise InternalError(f"volume {name} is assumed but was never shown")
            found.setdefault(shown.class_name, set()).add(name)
        return found


def _put(store: dict[str, Any], key: str, item: Any) -> None:
    if item is None:
        store.pop(key, None)
    else:
        store[key] = item


def _add(counts: dict[str, int], key: str, delta: int) -> None:
    total = counts.get(key, 0) + delta
    if total:
        counts[key] = total
    else:
        counts.pop(key, None)


def _filled(sets: Mapping[str, set[str]]) -> dict[str, set[str]]:
    return {key: members for key, members in sets.items() if members}


def _revision(item: PersistentVolume | PersistentVolumeClaim) -> int:
    return revision_of(item.metadata.resourceVersion) or 0
