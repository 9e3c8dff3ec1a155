"""Which lists strategic merge merges, and by which key: the patch tags of the 1.37 types, for the kinds served.

Lists that are not named here are atomic: a patch replaces them whole (tolerations, taints, claim requests, device
results, containerStatuses).
"""

from __future__ import annotations

SET = ""
"""Merge key of a list of plain values that merges as a set."""

_METADATA = {"metadata.finalizers": SET, "metadata.ownerReferences": "uid"}

_CONTAINER = {
    "env": "name",
    "ports": "containerPort",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "resizePolicy": None,
}


def _pod_spec(prefix: str) -> dict[str, str]:
    keys = {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "volumes": "name",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "schedulingGates": "name",
        "resourceClaims": "name",
    }
    for containers in ("containers", "initContainers", "ephemeralContainers"):
        keys |= {f"{containers}.{name}": key for name, key in _CONTAINER.items() if key is not None}
    return {f"{prefix}.{name}": key for name, key in keys.items()}


_CONDITIONS = {"status.conditions": "type"}
_WORKLOAD = _CONDITIONS | _pod_spec("spec.template.spec")

_BY_KIND: dict[str, dict[str, str]] = {
    "Pod": _CONDITIONS
    | _pod_spec("spec")
    | {"status.podIPs": "ip", "status.hostIPs": "ip", "status.resourceClaimStatuses": "name"},
    "Node": _CONDITIONS | {"status.addresses": "type", "spec.podCIDRs": SET},
    "Namespace": _CONDITIONS,
    "PersistentVolumeClaim": _CONDITIONS,
    "PodDisruptionBudget": _CONDITIONS,
    "PodGroup": _CONDITIONS | {"status.resourceClaimStatuses": "name"},
    "Service": _CONDITIONS | {"spec.ports": "port"},
    "ServiceAccount": {"secrets": "name", "imagePullSecrets": "name"},
    "ReplicationController": _WORKLOAD,
    "Deployment": _WORKLOAD,
    "ReplicaSet": _WORKLOAD,
    "StatefulSet": _WORKLOAD,
    "Job": _WORKLOAD,
    "CSINode": {"spec.drivers": "name"},
    "ResourceClaim": {"status.reservedFor": "uid"},
}


def merge_key(kind: str, path: tuple[str, ...]) -> str | None:
    """The merge key of the list at this path, SET for a set of plain values, None for an atomic list."""
    dotted = ".".join(path)
    found = _METADATA.get(dotted)
    return found if found is not None else _BY_KIND.get(kind, {}).get(dotted)
