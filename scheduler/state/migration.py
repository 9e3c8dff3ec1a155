"""In-tree disks that CSI drivers serve: which driver, and under which handle and topology label it knows them.

Source: csi-translation-lib 1.37 (spec 3.14). Only the plugins whose volumes are counted are known here.
"""

from __future__ import annotations

from scheduler.api.core import Volume
from scheduler.api.selectors import NodeSelector, NodeSelectorTerm, Requirement
from scheduler.api.storage import CSINode, PersistentVolume, PersistentVolumeSpec

EBS, GCE_PD = "kubernetes.io/aws-ebs", "kubernetes.io/gce-pd"
AZURE_DISK, CINDER = "kubernetes.io/azure-disk", "kubernetes.io/cinder"
PORTWORX = "kubernetes.io/portworx-volume"
DRIVERS = {
    EBS: "ebs.csi.aws.com",
    GCE_PD: "pd.csi.storage.gke.io",
    AZURE_DISK: "disk.csi.azure.com",
    CINDER: "cinder.csi.openstack.org",
    PORTWORX: "pxd.portworx.com",
}
"""In-tree plugin → CSI driver."""

TOPOLOGY_KEYS = {
    EBS: "topology.ebs.csi.aws.com/zone",
    GCE_PD: "topology.gke.io/zone",
    AZURE_DISK: "topology.disk.csi.azure.com/zone",
    CINDER: "topology.cinder.csi.openstack.org/zone",
}
ZONE_LABELS = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_UNKNOWN = "UNSPECIFIED"


def migrated(plugin: str, csi_node: CSINode | None) -> bool:
    """True when the node says that volumes of the in-tree ``plugin`` are its CSI driver's."""
    return csi_node is not None and plugin in csi_node.migrated_plugins


def counted(csi_node: CSINode | None) -> bool:
    """True when in-tree volumes count for their CSI drivers on the node, whatever it says of migration."""
    return csi_node is not None


def plugin_of(source: Volume | PersistentVolumeSpec) -> str | None:
    """The in-tree plugin of a volume, None for any other volume."""
    if source.awsElasticBlockStore is not None:
        return EBS
    if source.gcePersistentDisk is not None:
        return GCE_PD
    if source.azureDisk is not None:
        return AZURE_DISK
    if source.cinder is not None:
        return CINDER
    return PORTWORX if source.portworxVolume is not None else None


def inline_volume(volume: Volume, csi_node: CSINode | None) -> tuple[str, str] | None:
    """(driver, handle) of an in-tree disk that a Pod names itself; None when no CSI driver serves it there."""
    plugin = plugin_of(volume)
    if plugin is None or not counted(csi_node):
        return None
    if volume.gcePersistentDisk is not None:
        disk = f"projects/{_UNKNOWN}/zones/{_UNKNOWN}/disks/{volume.gcePersistentDisk.pdName}"
        return DRIVERS[plugin], disk
    handle = _handle(volume)
    return (DRIVERS[plugin], handle) if handle else None


def translated_volume(volume: PersistentVolume, csi_node: CSINode | None) -> tuple[str, str] | None:
    """(driver, handle) of an in-tree PersistentVolume; None when no CSI driver serves it there."""
    plugin = plugin_of(volume.spec)
    if plugin is None or not counted(csi_node):
        return None
    if volume.spec.gcePersistentDisk is None:
        handle = _handle(volume.spec)
        return (DRIVERS[plugin], handle) if handle else None
    zones = _zones(volume)
    place = f"zones/{_UNKNOWN}"
    if len(zones) == 1:
        place = f"zones/{zones[0]}"
    elif zones:
        place = f"regions/{zones[0].rpartition('-')[0]}"
    return DRIVERS[plugin], f"projects/{_UNKNOWN}/{place}/disks/{volume.spec.gcePersistentDisk.pdName}"


def translated_selector(volume: PersistentVolume, csi_node: CSINode | None) -> NodeSelector | None:
    """The volume's required node affinity as it counts on a node: in the driver's own zone label if migrated."""
    plugin = plugin_of(volume.spec)
    key = TOPOLOGY_KEYS.get(plugin or "")
    if key is None or plugin is None or not migrated(plugin, csi_node):
        return volume.selector
    selector = volume.selector
    if selector is not None and _names_zone(selector):
        return NodeSelector(tuple(_renamed(term, key) for term in selector.nodeSelectorTerms))
    zones = _zones(volume)
    if not zones:
        return selector
    wanted = Requirement(key, "In", zones)
    terms = selector.nodeSelectorTerms if selector is not None else (NodeSelectorTerm(),)
    return NodeSelector(tuple(NodeSelectorTerm((*term.matchExpressions, wanted), term.matchFields) for term in terms))


def _handle(source: Volume | PersistentVolumeSpec) -> str:
    if source.awsElasticBlockStore is not None:
        return source.awsElasticBlockStore.volumeID.rpartition("/")[2]
    if source.azureDisk is not None:
        return source.azureDisk.diskURI
    if source.cinder is not None:
        return source.cinder.volumeID
    return source.portworxVolume.volumeID if source.portworxVolume is not None else ""


def _zones(volume: PersistentVolume) -> tuple[str, ...]:
    for label in ZONE_LABELS:
        value = volume.metadata.labels.get(label)
        if value:
            return tuple(part for part in value.split("__") if part)
    return ()


def _names_zone(selector: NodeSelector) -> bool:
    return any(r.key in ZONE_LABELS for term in selector.nodeSelectorTerms for r in term.matchExpressions)


def _renamed(term: NodeSelectorTerm, key: str) -> NodeSelectorTerm:
    requirements = (
        Requirement(key, r.operator, r.values) if r.key in ZONE_LABELS else r for r in term.matchExpressions
    )
    return NodeSelectorTerm(tuple(requirements), term.matchFields)
