"""Pods, nodes and namespaces: the fields the scheduler reads, spelled as the API spells them.

Unknown fields are dropped while decoding, so none of these may be the source of a whole-object write.
Quantities stay text here; ``quantity.parse_quantity`` converts them once where they are used.
"""

from __future__ import annotations

import msgspec

from scheduler.api.meta import Condition, ObjectMeta
from scheduler.api.names import UPSTREAM_SCHEDULER_NAME
from scheduler.api.selectors import Affinity, LabelSelector
from scheduler.api.taints import Taint, Toleration

QuantityText = str | int | float
ResourceList = dict[str, QuantityText]


class ResourceRequirements(msgspec.Struct, frozen=True, omit_defaults=True):
    """requests and limits of a container or of a Pod."""

    requests: ResourceList | None = None
    limits: ResourceList | None = None


class ContainerPort(msgspec.Struct, frozen=True, omit_defaults=True):
    """A port; only ``hostPort`` > 0 matters for scheduling."""

    hostPort: int = 0
    protocol: str = ""
    hostIP: str = ""
    containerPort: int = 0


class VolumeMount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Only what NodeDeclaredFeatures asks about."""

    name: str = ""
    bindMountOptions: msgspec.Raw = msgspec.Raw(b"")


class ContainerClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """A container's use of one of the Pod's claims."""

    name: str = ""
    request: str = ""


class ContainerResources(ResourceRequirements, frozen=True, omit_defaults=True):
    """requests, limits and the claims a container uses."""

    claims: tuple[ContainerClaim, ...] = ()


class RestartRule(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of restartPolicyRules."""

    action: str = ""


class Container(msgspec.Struct, frozen=True, omit_defaults=True):
    """A container or init container; ``restartPolicy`` Always makes an init container a sidecar."""

    name: str = ""
    image: str = ""
    resources: ContainerResources = ContainerResources()
    ports: tuple[ContainerPort, ...] = ()
    restartPolicy: str = ""
    restartPolicyRules: tuple[RestartRule, ...] = ()
    volumeMounts: tuple[VolumeMount, ...] = ()


class PodResourceClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.resourceClaims[]: a direct claim name or a template name."""

    name: str = ""
    resourceClaimName: str | None = None
    resourceClaimTemplateName: str | None = None


class SchedulingGate(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.schedulingGates[]."""

    name: str = ""


class SchedulingGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.schedulingGroup: the Pod's PodGroup."""

    podGroupName: str | None = None


class TopologySpreadConstraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.topologySpreadConstraints[]."""

    maxSkew: int = 1
    topologyKey: str = ""
    whenUnsatisfiable: str = ""
    labelSelector: LabelSelector | None = None
    minDomains: int | None = None
    nodeAffinityPolicy: str | None = None
    nodeTaintsPolicy: str | None = None
    matchLabelKeys: tuple[str, ...] = ()


class PersistentVolumeClaimSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A volume's reference to a PersistentVolumeClaim."""

    claimName: str = ""
    readOnly: bool = False


class ImageVolumeSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """A volume made of an image; counts for ImageLocality."""

    reference: str = ""


class GCEPersistentDisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk, for VolumeRestrictions."""

    pdName: str = ""
    readOnly: bool = False


class AWSElasticBlockStore(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk, for VolumeRestrictions."""

    volumeID: str = ""
    readOnly: bool = False


class ISCSIVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk, for VolumeRestrictions."""

    iqn: str = ""
    targetPortal: str = ""
    lun: int = 0
    readOnly: bool = False


class RBDVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk, for VolumeRestrictions."""

    monitors: tuple[str, ...] = ()
    image: str = ""
    pool: str = "rbd"
    readOnly: bool = False


class CSIVolumeSource(msgspec.Struct, frozen=True, omit_defaults=True):
    """An inline CSI volume."""

    driver: str = ""


class AzureDisk(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk that a CSI driver serves; for NodeVolumeLimits."""

    diskName: str = ""
    diskURI: str = ""


class CinderVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk that a CSI driver serves; for NodeVolumeLimits."""

    volumeID: str = ""


class PortworxVolume(msgspec.Struct, frozen=True, omit_defaults=True):
    """In-tree disk that a CSI driver serves; for NodeVolumeLimits."""

    volumeID: str = ""


class Volume(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.volumes[]: only the kinds that some plugin looks at; ``ephemeral`` is kept raw as a mark."""

    name: str = ""
    persistentVolumeClaim: PersistentVolumeClaimSource | None = None
    ephemeral: msgspec.Raw = msgspec.Raw(b"")
    image: ImageVolumeSource | None = None
    gcePersistentDisk: GCEPersistentDisk | None = None
    awsElasticBlockStore: AWSElasticBlockStore | None = None
    iscsi: ISCSIVolume | None = None
    rbd: RBDVolume | None = None
    csi: CSIVolumeSource | None = None
    azureDisk: AzureDisk | None = None
    cinder: CinderVolume | None = None
    portworxVolume: PortworxVolume | None = None

    def claim_name(self, pod_name: str) -> str | None:
        """The PersistentVolumeClaim behind the volume, that of a generic ephemeral volume included; None without."""
        if self.persistentVolumeClaim is not None:
            return self.persistentVolumeClaim.claimName
        return f"{pod_name}-{self.name}" if self.is_ephemeral else None

    @property
    def is_ephemeral(self) -> bool:
        """True for a generic ephemeral volume: its claim is made for the Pod and named after it."""
        return bytes(self.ephemeral).strip() not in (b"", b"null")


class PodSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the user asked for."""

    nodeName: str = ""
    schedulerName: str = UPSTREAM_SCHEDULER_NAME
    priority: int | None = None
    priorityClassName: str = ""
    preemptionPolicy: str | None = None
    nodeSelector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    containers: tuple[Container, ...] = ()
    initContainers: tuple[Container, ...] = ()
    ephemeralContainers: tuple[Container, ...] = ()
    overhead: ResourceList | None = None
    resources: ResourceRequirements | None = None
    schedulingGates: tuple[SchedulingGate, ...] = ()
    resourceClaims: tuple[PodResourceClaim, ...] = ()
    schedulingGroup: SchedulingGroup | None = None
    topologySpreadConstraints: tuple[TopologySpreadConstraint, ...] = ()
    volumes: tuple[Volume, ...] = ()
    hostNetwork: bool = False
    hostUsers: bool | None = None


class PodResourceClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.resourceClaimStatuses[]: the claim generated for an entry; no name means none is needed."""

    name: str = ""
    resourceClaimName: str | None = None


class ContainerStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the kubelet gave a container (in-place resize)."""

    name: str = ""
    allocatedResources: ResourceList | None = None
    resources: ResourceRequirements | None = None


class ContainerExtendedResourceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One mapping of a container's extended resource to a request of the special claim."""

    containerName: str = ""
    resourceName: str = ""
    requestName: str = ""


class PodExtendedResourceClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.extendedResourceClaimStatus."""

    resourceClaimName: str = ""
    requestMappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class NodeAllocatableMappedResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Node resources that a claim's devices stand for, once per claim."""

    name: str = ""
    quantity: QuantityText = "0"


class NodeAllocatableOverheadResources(msgspec.Struct, frozen=True, omit_defaults=True):
    """Node resources that a claim's devices cost besides."""

    name: str = ""
    perPod: QuantityText | None = None
    perContainer: QuantityText | None = None


class NodeAllocatableResourceClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.nodeAllocatableResourceClaimStatuses[]: what one claim takes of the Pod's node (alpha)."""

    resourceClaimName: str = ""
    containers: tuple[str, ...] = ()
    mapping: tuple[NodeAllocatableMappedResources, ...] = ()
    overhead: tuple[NodeAllocatableOverheadResources, ...] = ()


class PodStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the cluster made of it."""

    phase: str = ""
    nominatedNodeName: str = ""
    conditions: tuple[Condition, ...] = ()
    resourceClaimStatuses: tuple[PodResourceClaimStatus, ...] = ()
    extendedResourceClaimStatus: PodExtendedResourceClaimStatus | None = None
    nodeAllocatableResourceClaimStatuses: tuple[NodeAllocatableResourceClaimStatus, ...] = ()
    containerStatuses: tuple[ContainerStatus, ...] = ()
    initContainerStatuses: tuple[ContainerStatus, ...] = ()
    allocatedResources: ResourceList | None = None
    resources: ResourceRequirements | None = None
    startTime: str | None = None


class Pod(msgspec.Struct, frozen=True, omit_defaults=True, eq=False, dict=True):
    """A Pod. Compared by identity: two versions of one Pod are two objects; ``uid`` is the Pod's identity.

    ``dict=True`` lets derived values (parsed requests) be kept beside the object for its lifetime.
    """

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.metadata.key

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.metadata.uid

    @property
    def priority(self) -> int:
        """spec.priority, 0 when unset."""
        return self.spec.priority or 0

    @property
    def terminal(self) -> bool:
        """True when the Pod has ended: it uses nothing any more."""
        return self.status.phase in ("Succeeded", "Failed")


class NodeSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether the node takes Pods."""

    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class ContainerImage(msgspec.Struct, frozen=True, omit_defaults=True):
    """An image present on a node."""

    names: tuple[str, ...] = ()
    sizeBytes: int = 0


class NodeStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the node offers."""

    allocatable: ResourceList = {}
    capacity: ResourceList = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    declaredFeatures: tuple[str, ...] = ()


class Node(msgspec.Struct, frozen=True, omit_defaults=True, eq=False, dict=True):
    """A node."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name


class Namespace(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A namespace; its labels matter for namespaceSelector."""

    metadata: ObjectMeta = ObjectMeta()
