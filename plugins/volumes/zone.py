"""VolumeZone: a Pod goes to the zone or region that its bound volumes name in their labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.volumes.claims import claim_not_found, class_not_found, own_claim
from scheduler.api.core import Pod
from scheduler.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, Status, VerdictTable, unresolvable
from scheduler.state.labels import ABSENT
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState

_GA_KEY = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
TOPOLOGY_LABELS = (*_GA_KEY, *_GA_KEY.values())


@dataclass(frozen=True, slots=True)
class _Topology:
    """A label of a volume: where its node must be."""

    key: str
    values: frozenset[str]
    volume: str = ""


class VolumeZone(PluginBase):
    """Source: kube-scheduler 1.37, VolumeZone (spec 3.16)."""

    name = "VolumeZone"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        reason = "node(s) had no available volume zone"
        self._elsewhere = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Collects the topology labels of bound volumes; rejects claims that can lead to no volume."""
        topologies: list[_Topology] = []
        for volume in cycle.pod.spec.volumes:
            if volume.persistentVolumeClaim is None:
                continue
            name = volume.persistentVolumeClaim.claimName
            found = _bound_volume(cycle.state.volumes, cycle.pod, name)
            if isinstance(found, Status):
                return PreFilterResult(found)
            if found is not None:
                topologies += _topologies(found)
        if not topologies:
            return SKIP_FILTER
        cycle.data[self.name] = topologies
        return CONTINUE

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes outside; nodes that name neither zone nor region pass."""
        placed = np.zeros(len(rows), np.bool_)
        for key in TOPOLOGY_LABELS:
            placed |= nodes.labels(key).codes[rows] != ABSENT
        outside = np.zeros(len(rows), np.bool_)
        for topology in cycle.data[self.name]:
            inside = _has_value(nodes, rows, topology.key, topology.values)
            if topology.key in _GA_KEY:
                lacking = nodes.labels(topology.key).codes[rows] == ABSENT
                inside |= lacking & _has_value(nodes, rows, _GA_KEY[topology.key], topology.values)
            outside |= ~inside
        return np.where(placed & outside, self._elsewhere, 0)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """The labels of volumes that differ from the node's."""
        labels = nodes.node(row).metadata.labels
        for topology in cycle.data[self.name]:
            here = labels.get(topology.key, labels.get(_GA_KEY.get(topology.key, ""), ""))
            if here not in topology.values:
                wanted = ", ".join(sorted(topology.values))
                about = f"volume {topology.volume} in {wanted}"
                facts = {"volume": topology.volume, "key": topology.key, "wanted": wanted, "found": here}
                yield Because(about, f"{about} ({topology.key}); the node is in {here or 'no zone'}", facts)

    def events(self) -> Sequence[Registration]:
        """A class that waits came; a node came or moved; a claim of the Pod or a volume's labels changed."""
        return (
            Registration(Resource.STORAGE_CLASS, Action.ADD, _waits),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            own_claim(Action.ADD | Action.UPDATE),
            Registration(Resource.PERSISTENT_VOLUME, Action.ADD | Action.UPDATE, _moved),
        )


def _bound_volume(state: VolumeState, pod: Pod, name: str) -> PersistentVolume | Status | None:
    """The volume of a claim, None while it waits for a node, or why there is none."""
    if not name:
        return unresolvable("PersistentVolumeClaim had no name")
    claim = state.claims.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        return unresolvable(claim_not_found(name))
    if not claim.spec.volumeName:
        return _unbound(state, claim)
    volume = state.volumes.get(claim.spec.volumeName)
    if volume is None:
        return unresolvable(f'persistentvolume "{claim.spec.volumeName}" not found')
    return volume


def _unbound(state: VolumeState, claim: PersistentVolumeClaim) -> Status | None:
    name = claim.class_name
    if not name:
        return unresolvable("PersistentVolumeClaim had no pv name and storageClass name")
    storage_class = state.classes.get(name)
    if storage_class is None:
        return unresolvable(class_not_found(name))
    if storage_class.volumeBindingMode is None:
        return unresolvable(f'VolumeBindingMode not set for StorageClass "{name}"')
    waits = storage_class.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER
    return None if waits else unresolvable("PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> list[_Topology]:
    """Labels with an empty part in their list of values are no constraint."""
    found = []
    for key in TOPOLOGY_LABELS:
        value = volume.metadata.labels.get(key)
        if value is not None:
            values = frozenset(part.strip() for part in value.split("__"))
            if "" not in values:
                found.append(_Topology(key, values, volume.name))
    return found


def _has_value(
    nodes: NodeTable, rows: Rows, key: str, values: frozenset[str]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    column = nodes.labels(key)
    wanted = [code for code in map(column.code_of, values) if code is not None]
    return np.isin(column.codes[rows], wanted)


def _waits(pod: Pod, old: StorageClass | None, new: StorageClass) -> bool:
    return new.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER


def _moved(pod: Pod, old: PersistentVolume | None, new: PersistentVolume) -> bool:
    if old is None:
        return True
    before, after = old.metadata.labels, new.metadata.labels
    return any(before.get(key) != after.get(key) for key in TOPOLOGY_LABELS)
