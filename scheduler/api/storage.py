"""Volumes: claims, volumes, storage classes and what CSI drivers say of themselves; what decides placement."""

from __future__ import annotations

import msgspec

from scheduler.api.core import (
    AWSElasticBlockStore,
    AzureDisk,
    CinderVolume,
    GCEPersistentDisk,
    PortworxVolume,
    QuantityText,
    ResourceList,
    ResourceRequirements,
)
from scheduler.api.kinds import Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.selectors import LabelSelector, NodeSelector

BETA_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
BIND_COMPLETED_ANNOTATION = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER_ANNOTATION = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE_ANNOTATION = "volume.kubernetes.io/selected-node"
MIGRATED_PLUGINS_ANNOTATION = "storage.alpha.kubernetes.io/migrated-plugins"
NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
READ_WRITE_ONCE_POD = "ReadWriteOncePod"
STORAGE = "storage"


class ClaimReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.claimRef of a volume: the claim it is kept for; without ``uid`` whatever claim has that name."""

    kind: str = ""
    apiVersion: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


class PersistentVolumeClaimSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is asked for."""

    accessModes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: ResourceRequirements = ResourceRequirements()
    volumeName: str = ""
    storageClassName: str | None = None
    volumeMode: str | None = None
    volumeAttributesClassName: str | None = None


class PersistentVolumeClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Pending, Bound or Lost."""

    phase: str = ""


class PersistentVolumeClaim(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A PersistentVolumeClaim."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.metadata.key

    @property
    def class_name(self) -> str:
        """Storage class: the old annotation first, "" when none is asked for."""
        return self.metadata.annotations.get(BETA_CLASS_ANNOTATION) or self.spec.storageClassName or ""

    @property
    def fully_bound(self) -> bool:
        """True once the volume controller has bound both sides."""
        return bool(self.spec.volumeName) and BIND_COMPLETED_ANNOTATION in self.metadata.annotations

    @property
    def selected_node(self) -> str | None:
        """The node a volume is being provisioned for, None when none was chosen."""
        return self.metadata.annotations.get(SELECTED_NODE_ANNOTATION)

    @property
    def requested(self) -> QuantityText | None:
        """Size asked for, None when none is."""
        return (self.spec.resources.requests or {}).get(STORAGE)


class CSIVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """The volume as its CSI driver knows it."""

    driver: str = ""
    volumeHandle: str = ""


class VolumeNodeAffinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Nodes that reach the volume."""

    required: NodeSelector | None = None


class PersistentVolumeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is offered, and to whom it is promised. Of the sources those a CSI driver may serve."""

    capacity: ResourceList = {}
    accessModes: tuple[str, ...] = ()
    claimRef: ClaimReference | None = None
    nodeAffinity: VolumeNodeAffinity | None = None
    storageClassName: str = ""
    volumeMode: str | None = None
    volumeAttributesClassName: str | None = None
    csi: CSIVolume | None = None
    awsElasticBlockStore: AWSElasticBlockStore | None = None
    gcePersistentDisk: GCEPersistentDisk | None = None
    azureDisk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworxVolume: PortworxVolume | None = None


class PersistentVolumeStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Available, Bound, Released or Failed."""

    phase: str = ""


class PersistentVolume(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A PersistentVolume."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name

    @property
    def class_name(self) -> str:
        """Storage class: the old annotation first."""
        return self.metadata.annotations.get(BETA_CLASS_ANNOTATION) or self.spec.storageClassName

    @property
    def selector(self) -> NodeSelector | None:
        """Nodes that reach the volume, None for all."""
        return self.spec.nodeAffinity.required if self.spec.nodeAffinity is not None else None

    def kept_for(self, claim: PersistentVolumeClaim) -> bool:
        """True when the volume is promised to ``claim``."""
        reference = self.spec.claimRef
        if reference is None or reference.name != claim.metadata.name:
            return False
        same = reference.namespace == claim.metadata.namespace
        return same and reference.uid in ("", claim.metadata.uid)


class TopologySelectorRequirement(msgspec.Struct, frozen=True, omit_defaults=True):
    """A label and its allowed values."""

    key: str = ""
    values: tuple[str, ...] = ()


class TopologySelectorTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """Requirements, ANDed."""

    matchLabelExpressions: tuple[TopologySelectorRequirement, ...] = ()


class StorageClass(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A StorageClass; a missing binding mode is Immediate by the API server's default."""

    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volumeBindingMode: str | None = None
    allowedTopologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeNodeResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many volumes of a driver a node takes; None: any number."""

    count: int | None = None


class CSINodeDriver(msgspec.Struct, frozen=True, omit_defaults=True):
    """A driver that runs on the node."""

    name: str = ""
    allocatable: VolumeNodeResources | None = None


class CSINodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Drivers on the node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(msgspec.Struct, frozen=True, omit_defaults=True, eq=False, dict=True):
    """What CSI drivers say of a node; it has the node's name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSINodeSpec = CSINodeSpec()

    @property
    def migrated_plugins(self) -> frozenset[str]:
        """In-tree plugins whose volumes CSI drivers serve on this node."""
        found: frozenset[str] | None = self.__dict__.get("migrated")
        if found is None:
            names = self.metadata.annotations.get(MIGRATED_PLUGINS_ANNOTATION, "").split(",")
            found = self.__dict__["migrated"] = frozenset(names) - {""}
        return found

    @property
    def limits(self) -> dict[str, int]:
        """Driver → volumes it takes on the node; drivers without a limit are left out."""
        found: dict[str, int] | None = self.__dict__.get("limits")
        if found is None:
            found = self.__dict__["limits"] = {
                driver.name: driver.allocatable.count
                for driver in self.spec.drivers
                if driver.allocatable is not None and driver.allocatable.count is not None
            }
        return found


class CSIDriverSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a driver wants to be asked about."""

    storageCapacity: bool | None = None
    preventPodSchedulingIfMissing: bool | None = None


class CSIDriver(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A CSIDriver."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CSIDriverSpec = CSIDriverSpec()


class CSIStorageCapacity(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """Room for new volumes of a class on the nodes that ``nodeTopology`` selects (None: on none)."""

    metadata: ObjectMeta = ObjectMeta()
    nodeTopology: LabelSelector | None = None
    storageClassName: str = ""
    capacity: QuantityText | None = None
    maximumVolumeSize: QuantityText | None = None


class VolumeAttachmentSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """The volume; inline volumes are kept raw as a mark."""

    persistentVolumeName: str | None = None
    inlineVolumeSpec: msgspec.Raw = msgspec.Raw(b"")


class VolumeAttachmentSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which driver attaches what where."""

    attacher: str = ""
    nodeName: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A VolumeAttachment."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


_GROUP = "storage.k8s.io"
PERSISTENT_VOLUME_CLAIM = Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, PersistentVolumeClaim)
PERSISTENT_VOLUME = Kind("PersistentVolume", "", "v1", "persistentvolumes", False, PersistentVolume)
STORAGE_CLASS = Kind("StorageClass", _GROUP, "v1", "storageclasses", False, StorageClass)
CSI_NODE = Kind("CSINode", _GROUP, "v1", "csinodes", False, CSINode)
CSI_DRIVER = Kind("CSIDriver", _GROUP, "v1", "csidrivers", False, CSIDriver)
CSI_STORAGE_CAPACITY = Kind("CSIStorageCapacity", _GROUP, "v1", "csistoragecapacities", True, CSIStorageCapacity)
VOLUME_ATTACHMENT = Kind("VolumeAttachment", _GROUP, "v1", "volumeattachments", False, VolumeAttachment)

STORAGE_KINDS = (
    PERSISTENT_VOLUME_CLAIM,
    PERSISTENT_VOLUME,
    STORAGE_CLASS,
    CSI_NODE,
    CSI_DRIVER,
    CSI_STORAGE_CAPACITY,
    VOLUME_ATTACHMENT,
)
"""Everything the volume plugins read."""
