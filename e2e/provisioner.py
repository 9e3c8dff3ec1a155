"""The pretended provisioner: makes volumes for claims whose node was chosen, as external provisioners do, badly too."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from contextlib import suppress

from e2e.api import Api, ApiError, Object, Resource

PERSISTENT_VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONER = "volume.kubernetes.io/storage-provisioner"
_POLL_S = 0.1


class PretendedProvisioner:
    """Serves one driver name while it is entered. ``refuses``: nodes it fails for, giving the claim back;
    ``ignores``: nodes it never answers for. ``made``: claim name → node of every volume it made.
    """

    def __init__(
        self, api: Api, name: str = "csi.example.com", *, refuses: Container[str] = (), ignores: Container[str] = ()
    ) -> None:
        self._api, self.name = api, name
        self.refuses, self.ignores = refuses, ignores
        self.made: dict[str, str] = {}
        self.refused: list[tuple[str, str]] = []

    async def __aenter__(self) -> PretendedProvisioner:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        while True:
            for claim in await self._api.list(VOLUME_CLAIMS):
                with suppress(ApiError):  # the claim changed or went meanwhile: the next round sees what it is now
                    await self._look(claim)
            await asyncio.sleep(_POLL_S)

    async def _look(self, claim: Object) -> None:
        annotations = claim["metadata"].get("annotations", {})
        node = annotations.get(SELECTED_NODE)
        ours = annotations.get(_PROVISIONER) == self.name
        if not ours or not node or claim["spec"].get("volumeName") or node in self.ignores:
            return
        name, namespace = claim["metadata"]["name"], claim["metadata"]["namespace"]
        if node in self.refuses:
            self.refused.append((name, node))
            body = {"metadata": {"annotations": {SELECTED_NODE: None}}}
            await self._api.patch(VOLUME_CLAIMS, name, body, namespace)
            return
        if name not in self.made:
            self.made[name] = node
            await self._api.create(PERSISTENT_VOLUMES, self._volume(claim, node))

    def _volume(self, claim: Object, node: str) -> Object:
        metadata, spec = claim["metadata"], claim["spec"]
        reference = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        return volume(
            f"pvc-{metadata['uid']}",
            spec["storageClassName"],
            node=node,
            size=spec["resources"]["requests"]["storage"],
            claimRef=reference,
            csi={"driver": self.name, "volumeHandle": metadata["uid"]},
        )


def volume(name: str, class_name: str, *, node: str = "", zone: str = "", size: str = "1Gi", **spec: object) -> Object:
    """A volume that one node or one zone reaches; ``spec``: claimRef, or a source other than a local path."""
    key, value = ("kubernetes.io/hostname", node) if node else ("topology.kubernetes.io/zone", zone)
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    source = {} if "csi" in spec else {"local": {"path": "/data"}}
    return {
        "metadata": {"name": name},
        "spec": {
            "storageClassName": class_name,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            **source,
            **spec,
        },
    }


def volume_claim(name: str, class_name: str, size: str = "1Gi") -> Object:
    """A claim of one volume."""
    spec = {
        "storageClassName": class_name,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": size}},
    }
    return {"metadata": {"name": name}, "spec": spec}


def late_class(name: str, provisioner: str = "kubernetes.io/no-provisioner", **fields: object) -> Object:
    """A StorageClass that waits for the first consumer."""
    return {
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": "WaitForFirstConsumer",
        **fields,
    }


def claim_volume(claim: str, name: str = "data") -> Object:
    """An entry of spec.volumes that names a claim."""
    return {"name": name, "persistentVolumeClaim": {"claimName": claim}}
