"""The kinds the embedded server serves: names, scope, sub-resources and the switches in which kinds differ.

Two served kinds may share one storage (core and events.k8s.io Events); everything else is one to one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    """One served resource. `storage` names the table it lives in; `has_status` means a /status sub-resource."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    has_status: bool = False
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    storage: str = ""
    status_at_create: bool = False
    """A status sent with create is kept (nodes) instead of dropped."""
    status_keeps_metadata: bool = False
    """A /status write leaves labels, annotations, finalizers and owners of the stored object alone."""
    counts_generation: bool = False
    unconditional_update: bool = True
    create_on_update: bool = False
    returns_deleted: bool = False
    """DELETE answers with the object instead of a Status."""

    @property
    def table(self) -> str:
        return self.storage or self.plural

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def singular(self) -> str:
        return self.kind.lower()


_ALL = ("all",)

KINDS: tuple[Kind, ...] = (
    Kind("", "v1", "Namespace", "namespaces", False, True, ("ns",), status_at_create=True, returns_deleted=True),
    Kind("", "v1", "Node", "nodes", False, True, ("no",), status_at_create=True),
    Kind("", "v1", "Pod", "pods", True, True, ("po",), _ALL, counts_generation=True, returns_deleted=True),
    Kind("", "v1", "Event", "events", True, short_names=("ev",), create_on_update=True),
    Kind("", "v1", "ConfigMap", "configmaps", True, short_names=("cm",)),
    Kind("", "v1", "Secret", "secrets", True),
    Kind("", "v1", "Service", "services", True, True, ("svc",), _ALL, returns_deleted=True),
    Kind("", "v1", "ServiceAccount", "serviceaccounts", True, short_names=("sa",), returns_deleted=True),
    Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, True, ("pvc",), returns_deleted=True),
    Kind("", "v1", "PersistentVolume", "persistentvolumes", False, True, ("pv",), returns_deleted=True),
    Kind(
        "", "v1", "ReplicationController", "replicationcontrollers", True, True, ("rc",), _ALL, counts_generation=True
    ),
    Kind("events.k8s.io", "v1", "Event", "events", True, short_names=("ev",), create_on_update=True),
    Kind(
        "apps",
        "v1",
        "Deployment",
        "deployments",
        True,
        True,
        ("deploy",),
        _ALL,
        counts_generation=True,
        status_keeps_metadata=True,
    ),
    Kind(
        "apps",
        "v1",
        "ReplicaSet",
        "replicasets",
        True,
        True,
        ("rs",),
        _ALL,
        counts_generation=True,
        status_keeps_metadata=True,
    ),
    Kind(
        "apps",
        "v1",
        "StatefulSet",
        "statefulsets",
        True,
        True,
        ("sts",),
        _ALL,
        counts_generation=True,
        status_keeps_metadata=True,
    ),
    Kind("batch", "v1", "Job", "jobs", True, True, (), _ALL, counts_generation=True, status_keeps_metadata=True),
    Kind("coordination.k8s.io", "v1", "Lease", "leases", True, unconditional_update=False, create_on_update=True),
    Kind(
        "resource.k8s.io",
        "v1",
        "ResourceClaim",
        "resourceclaims",
        True,
        True,
        status_keeps_metadata=True,
        returns_deleted=True,
    ),
    Kind("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", True, returns_deleted=True),
    Kind(
        "resource.k8s.io", "v1", "ResourceSlice", "resourceslices", False, counts_generation=True, returns_deleted=True
    ),
    Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, counts_generation=True, returns_deleted=True),
    Kind(
        "resource.k8s.io",
        "v1",
        "DeviceTaintRule",
        "devicetaintrules",
        False,
        True,
        counts_generation=True,
        status_keeps_metadata=True,
    ),
    Kind(
        "scheduling.k8s.io",
        "v1",
        "PriorityClass",
        "priorityclasses",
        False,
        short_names=("pc",),
        counts_generation=True,
    ),
    Kind("scheduling.k8s.io", "v1beta1", "PodGroup", "podgroups", True, True, counts_generation=True),
    Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, short_names=("sc",), returns_deleted=True),
    Kind("storage.k8s.io", "v1", "CSINode", "csinodes", False, returns_deleted=True),
    Kind("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, returns_deleted=True),
    Kind("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", True),
    Kind("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, True, returns_deleted=True),
    Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", True, True, ("pdb",), counts_generation=True),
)

_BY_PATH = {(kind.group, kind.version, kind.plural): kind for kind in KINDS}
_BY_API_KIND = {(kind.api_version, kind.kind): kind for kind in KINDS}
_BY_TABLE = {kind.table: kind for kind in reversed(KINDS)}

GROUPS: tuple[tuple[str, str], ...] = tuple(
    dict.fromkeys(
        [(kind.group, kind.version) for kind in KINDS]
        + [("authentication.k8s.io", "v1"), ("authorization.k8s.io", "v1")]
    )
)


def by_path(group: str, version: str, plural: str) -> Kind | None:
    return _BY_PATH.get((group, version, plural))


def by_api_kind(api_version: str, kind: str) -> Kind | None:
    return _BY_API_KIND.get((api_version, kind))


def by_table(table: str) -> Kind:
    """The kind whose form is stored in the table: for events the core one."""
    return _BY_TABLE[table]
