"""NodeVolumeLimits: a node takes only so many volumes of a CSI driver."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.volumes.claims import claim_not_found, own_claim
from scheduler.api.core import Pod
from scheduler.api.storage import CSINode, VolumeAttachment
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.attached import NotOwnedError, VolumeKey, counts_of, has_countable_volume
from scheduler.state.migration import DRIVERS, plugin_of
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState


@dataclass(slots=True)
class _Wanted:
    """Volumes the Pod brings, by whether the node has a CSINode; a verdict where they cannot be told."""

    by_csi: dict[bool, frozenset[VolumeKey] | int] = field(default_factory=dict)


class NodeVolumeLimits(PluginBase):
    """Source: kube-scheduler 1.37, NodeVolumeLimits (spec 3.14)."""

    name = "NodeVolumeLimits"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        self._full = self.verdicts.intern(Code.UNSCHEDULABLE, ("node(s) exceed max volume count",))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Skips Pods without volumes that count."""
        if not any(has_countable_volume(volume) for volume in cycle.pod.spec.volumes):
            return SKIP_FILTER
        cycle.data[self.name] = _Wanted()
        return CONTINUE

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes that lack a driver which must be there, and nodes that are full.

        Cost: two look-ups per row; nodes that limit a driver of the Pod count their volumes, once until they change.
        """
        state, wanted = cycle.state.volumes, cycle.data[self.name]
        result = np.zeros(len(rows), np.int64)
        for place, row in enumerate(rows.tolist()):
            csi_node = state.csi_nodes.get(nodes.name_of(row))
            new = self._wanted(cycle.pod, state, csi_node, wanted)
            if isinstance(new, int):
                result[place] = new
            elif new:
                result[place] = self._verdict(state, csi_node, nodes, row, new)
        return result

    def _wanted(
        self, pod: Pod, state: VolumeState, csi_node: CSINode | None, wanted: _Wanted
    ) -> frozenset[VolumeKey] | int:
        found = wanted.by_csi.get(csi_node is not None)
        if found is None:
            found = wanted.by_csi[csi_node is not None] = self._volumes_of(pod, state, csi_node)
        return found

    def _volumes_of(self, pod: Pod, state: VolumeState, csi_node: CSINode | None) -> frozenset[VolumeKey] | int:
        missing: list[str] = []
        try:
            new = state.attached.of_pod(pod, csi_node, missing)
        except NotOwnedError as error:
            return self.verdicts.intern(Code.ERROR, (str(error),))
        if missing:
            text = f"looking up PVC {pod.metadata.namespace}/{missing[0]}: {claim_not_found(missing[0])}"
            return self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (text,))
        return frozenset(new)

    def _verdict(
        self, state: VolumeState, csi_node: CSINode | None, nodes: NodeTable, row: int, new: frozenset[VolumeKey]
    ) -> int:
        present = () if csi_node is None else {driver.name for driver in csi_node.spec.drivers}
        lacking = _lacking(state, {driver for driver, _ in new}, present)
        if lacking:
            return self.verdicts.intern(Code.UNSCHEDULABLE, (f"{lacking} CSI driver is not installed on the node",))
        limits = {} if csi_node is None else csi_node.limits
        if not limits:
            return 0
        try:
            used = _used(state, nodes, row)
        except NotOwnedError as error:
            return self.verdicts.intern(Code.ERROR, (str(error),))
        counts = counts_of(used | state.attached.attached(nodes.name_of(row)))
        for driver, added in counts_of(new - used).items():
            if driver in limits and counts.get(driver, 0) + added > limits[driver]:
                return self._full
        return 0

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Per driver: volumes there, volumes the Pod brings, and the limit."""
        state = cycle.state.volumes
        csi_node = state.csi_nodes.get(nodes.name_of(row))
        new = self._wanted(cycle.pod, state, csi_node, cycle.data[self.name])
        if csi_node is None or isinstance(new, int):
            return
        used = _used(state, nodes, row)
        counts = counts_of(used | state.attached.attached(nodes.name_of(row)))
        for driver, added in counts_of(new - used).items():
            there, limit = counts.get(driver, 0), csi_node.limits.get(driver)
            if limit is not None and there + added > limit:
                facts = {"driver": driver, "attached": str(there), "asked": str(added), "limit": str(limit)}
                text = f"driver {driver}: {there} volumes there and {added} more asked, at most {limit}"
                yield Because(f"driver {driver}", text, facts, there + added - limit)

    def events(self) -> Sequence[Registration]:
        """A node's drivers came or take more; a Pod with volumes went; a claim came; a volume was detached."""
        return (
            Registration(Resource.CSI_NODE, Action.ADD | Action.UPDATE, _takes_more),
            Registration(Resource.ASSIGNED_POD, Action.DELETE, _had_volumes),
            own_claim(Action.ADD),
            Registration(Resource.VOLUME_ATTACHMENT, Action.DELETE, _detached),
        )


def _used(state: VolumeState, nodes: NodeTable, row: int) -> frozenset[VolumeKey]:
    """Volumes of the Pods on a row, those only thought of included."""
    name = nodes.name_of(row)
    if nodes.dynamic_versions[row] < 0:
        return state.attached.of_pods(name, (info.pod for info in nodes.pods(row)))
    return state.attached.used(name)


def _lacking(state: VolumeState, drivers: Iterable[str], present: Collection[str]) -> str:
    """A driver that must be on the node and is not, "" without."""
    for driver in sorted(drivers):
        known = state.csi_drivers.get(driver)
        if known is not None and known.spec.preventPodSchedulingIfMissing and driver not in present:
            return driver
    return ""


def _takes_more(pod: Pod, old: CSINode | None, new: CSINode) -> bool:
    if old is None:
        return True
    return any(limit > old.limits.get(driver, limit) for driver, limit in new.limits.items())


def _had_volumes(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    other = old or new
    if other is None or not (other.spec.nodeName or other.status.nominatedNodeName):
        return False
    return any(has_countable_volume(volume) for volume in other.spec.volumes)


def _detached(pod: Pod, old: VolumeAttachment, new: VolumeAttachment | None) -> bool:
    """Any claim of the Pod may be behind the attachment; inline disks are compared by driver."""
    for volume in pod.spec.volumes:
        if volume.persistentVolumeClaim is not None:
            return True
        plugin = plugin_of(volume)
        if plugin is not None and DRIVERS[plugin] == old.spec.attacher:
            return True
    return False
