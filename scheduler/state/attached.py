"""AttachedVolumes: per node, the volumes that CSI drivers attach there, by driver and handle.

Source: kube-scheduler 1.37, NodeVolumeLimits (spec 3.14). What a node has is worked out when first asked for and kept
until one of its Pods, claims, volumes, attachments or its CSINode changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from scheduler.api.core import Pod, Volume
from scheduler.api.storage import CSINode, PersistentVolumeClaim, VolumeAttachment
from scheduler.errors import InternalError, UserError
from scheduler.state.migration import DRIVERS, counted, inline_volume, plugin_of, translated_volume

if TYPE_CHECKING:
    from scheduler.state.volumes import VolumeState

VolumeKey = tuple[str, str]
"""(driver, handle): one volume, however many Pods use it."""


class NotOwnedError(UserError):
    """The claim of a generic ephemeral volume belongs to somebody else; the text is upstream's."""

    def __init__(self, pod: Pod, claim: PersistentVolumeClaim) -> None:
        super().__init__(pod.key, "", f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)")
        self.args = (self.problem,)


class AttachedVolumes:
    """Volumes per node: ``used`` through Pods, and ``attached`` according to VolumeAttachments."""

    def __init__(self, state: VolumeState) -> None:
        self._state = state
        self._used: dict[str, frozenset[VolumeKey]] = {}
        self._attached: dict[str, frozenset[VolumeKey]] = {}
        self._pods: dict[str, dict[str, Pod]] = {}
        self._nodes_of_claim: dict[str, dict[str, int]] = {}
        self._claims_of_volume: dict[str, set[str]] = {}
        self._attachments_on: dict[str, set[str]] = {}

    # Questions

    def used(self, node: str) -> frozenset[VolumeKey]:
        """Volumes of the Pods on ``node``. Raises NotOwnedError for a Pod whose ephemeral claim is another's."""
        found = self._used.get(node)
        if found is None:
            found = self._used[node] = self.of_pods(node, self._pods.get(node, {}).values())
        return found

    def of_pods(self, node: str, pods: Iterable[Pod]) -> frozenset[VolumeKey]:
        """Volumes of ``pods``, were they on ``node``; claims that do not exist are left out."""
        csi_node = self._state.csi_nodes.get(node)
        return frozenset(key for pod in pods for key in self.of_pod(pod, csi_node))

    def of_pod(self, pod: Pod, csi_node: CSINode | None, missing: list[str] | None = None) -> set[VolumeKey]:
        """Volumes of one Pod on a node with ``csi_node``; names of claims that do not exist go into ``missing``."""
        found: set[VolumeKey] = set()
        for volume in pod.spec.volumes:
            name = volume.claim_name(pod.metadata.name)
            if name is None:
                key = inline_volume(volume, csi_node)
            else:
                claim = self._state.claims.get(f"{pod.metadata.namespace}/{name}")
                if claim is None:
                    if missing is not None:
                        missing.append(name)
                    continue
                if volume.persistentVolumeClaim is None:
                    check_owner(pod, claim)
                key = self._of_claim(claim, csi_node)
            if key is not None:
                found.add(key)
        return found

    def attached(self, node: str) -> frozenset[VolumeKey]:
        """Volumes that are attached to ``node`` by VolumeAttachments, whoever uses them."""
        found = self._attached.get(node)
        if found is None:
            names = self._attachments_on.get(node, ())
            found = self._attached[node] = frozenset(self._attachment_keys(names))
        return found

    def _attachment_keys(self, names: Iterable[str]) -> Iterable[VolumeKey]:
        for name in names:
            spec = self._state.attachments[name].spec
            volume = self._state.volumes.get(spec.source.persistentVolumeName or "")
            if volume is not None and volume.spec.csi is not None and spec.attacher:
                yield spec.attacher, volume.spec.csi.volumeHandle

    def _of_claim(self, claim: PersistentVolumeClaim, csi_node: CSINode | None) -> VolumeKey | None:
        volume = self._state.volumes.get(claim.spec.volumeName) if claim.spec.volumeName else None
        if volume is None:
            return self._of_class(claim, csi_node)
        if volume.spec.csi is not None:
            key = volume.spec.csi.driver, volume.spec.csi.volumeHandle
            return key if all(key) else None
        return translated_volume(volume, csi_node)

    def _of_class(self, claim: PersistentVolumeClaim, csi_node: CSINode | None) -> VolumeKey | None:
        """A volume that does not exist yet: counted under its claim's name."""
        storage_class = self._state.classes.get(claim.class_name)
        if storage_class is None:
            return None
        driver = storage_class.provisioner
        if driver in DRIVERS:
            if not counted(csi_node):
                return None
            driver = DRIVERS[driver]
        return (driver, f"claim {claim.key}") if driver else None

    # Changes

    def pod_moved(self, pod: Pod, node: str, sign: int) -> None:
        """A Pod came to a node (1) or left it (-1)."""
        self._used.pop(node, None)
        here = self._pods.setdefault(node, {})
        uid = pod.uid or pod.key
        if sign > 0:
            here[uid] = pod
        else:
            here.pop(uid, None)
            if not here:
                del self._pods[node]
        for key in claim_keys(pod):
            nodes = self._nodes_of_claim.setdefault(key, {})
            nodes[node] = nodes.get(node, 0) + sign
            if not nodes[node]:
                del nodes[node]
            if not nodes:
                del self._nodes_of_claim[key]

    def claim_changed(self, key: str, old: PersistentVolumeClaim | None, new: PersistentVolumeClaim | None) -> None:
        """A claim came, went or changed."""
        if old is not None and old.spec.volumeName:
            keys = self._claims_of_volume[old.spec.volumeName]
            keys.discard(key)
            if not keys:
                del self._claims_of_volume[old.spec.volumeName]
        if new is not None and new.spec.volumeName:
            self._claims_of_volume.setdefault(new.spec.volumeName, set()).add(key)
        self._forget_users(key)

    def volume_changed(self, name: str) -> None:
        """A volume came, went or changed."""
        for key in self._claims_of_volume.get(name, ()):
            self._forget_users(key)
        self._attached.clear()

    def attachment_changed(self, name: str, attachment: VolumeAttachment, *, known: bool) -> None:
        """A VolumeAttachment came (``known``) or went."""
        node = attachment.spec.nodeName
        names = self._attachments_on.setdefault(node, set())
        (names.add if known else names.discard)(name)
        if not names:
            del self._attachments_on[node]
        self._attached.pop(node, None)

    def _forget_users(self, key: str) -> None:
        for node in self._nodes_of_claim.get(key, ()):
            self._used.pop(node, None)

    def forget(self, node: str) -> None:
        """What a node's drivers serve changed."""
        self._used.pop(node, None)

    def forget_all(self) -> None:
        """A storage class changed: rare."""
        self._used.clear()

    # Checks

    def verify(self, fresh: AttachedVolumes) -> None:
        """``fresh`` has seen the Pods on nodes; InternalError names the first difference."""
        if self._pods.keys() != fresh._pods.keys() or self._nodes_of_claim != fresh._nodes_of_claim:
            raise InternalError(f"claims per node: kept {self._nodes_of_claim}, recomputed {fresh._nodes_of_claim}")
        for node, kept in self._used.items():
            now = self.of_pods(node, self._pods.get(node, {}).values())
            if now != kept:
                raise InternalError(f"volumes on node {node}: kept {set(kept)}, recomputed {set(now)}")
        on: dict[str, set[str]] = {}
        for name, attachment in self._state.attachments.items():
            on.setdefault(attachment.spec.nodeName, set()).add(name)
        if on != self._attachments_on:
            raise InternalError(f"attachments per node: kept {self._attachments_on}, recomputed {on}")
        for node, kept in self._attached.items():
            now = frozenset(self._attachment_keys(on.get(node, ())))
            if now != kept:
                raise InternalError(f"attached to node {node}: kept {set(kept)}, recomputed {set(now)}")


def claim_keys(pod: Pod) -> list[str]:
    """``namespace/name`` of the claims behind a Pod's volumes, generic ephemeral ones included."""
    names = (volume.claim_name(pod.metadata.name) for volume in pod.spec.volumes)
    return [f"{pod.metadata.namespace}/{name}" for name in names if name is not None]


def check_owner(pod: Pod, claim: PersistentVolumeClaim) -> None:
    """Raise NotOwnedError unless ``claim`` was made for ``pod``."""
    owner = claim.metadata.controller()
    if owner is None or owner.uid != pod.uid:
        raise NotOwnedError(pod, claim)


def counts_of(keys: Iterable[VolumeKey]) -> Mapping[str, int]:
    """Volumes per driver."""
    counts: dict[str, int] = {}
    for driver, _ in keys:
        counts[driver] = counts.get(driver, 0) + 1
    return counts


def has_countable_volume(volume: Volume) -> bool:
    """True for a volume that NodeVolumeLimits may count: claims and in-tree disks that CSI drivers may serve."""
    from_claim = volume.persistentVolumeClaim is not None or volume.is_ephemeral
    return from_claim or plugin_of(volume) is not None
