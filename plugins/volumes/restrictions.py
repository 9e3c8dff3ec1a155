"""VolumeRestrictions: disks that one node cannot serve twice, and claims for one Pod only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.volumes.claims import claim_not_found, own_claim
from scheduler.api.core import Pod, Volume
from scheduler.api.storage import READ_WRITE_ONCE_POD
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable, unresolvable
from scheduler.state.disks import disk_keys, disks_conflict
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo


@dataclass(slots=True)
class _Use:
    """``disks``: volumes of the Pod that may conflict. ``claims``: its claims for one Pod only; ``uses`` of them."""

    disks: tuple[Volume, ...]
    claims: frozenset[str]
    uses: int

    def clone(self) -> _Use:
        return _Use(self.disks, self.claims, self.uses)

    def change(self, pod: Pod, sign: int) -> None:
        if self.claims:
            self.uses += sign * sum(name in self.claims for name in _claim_names(pod))


class VolumeRestrictions(PluginBase):
    """Source: kube-scheduler 1.37, VolumeRestrictions (spec 3.13)."""

    name = "VolumeRestrictions"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        self._disk = self.verdicts.intern(Code.UNSCHEDULABLE, ("node(s) had no available disk",))
        text = (
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
            "already in-use by another pod"
        )
        self._in_use = self.verdicts.intern(Code.UNSCHEDULABLE, (text,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Rejects Pods with a claim that does not exist; skips those without anything to share."""
        volumes = cycle.pod.spec.volumes
        if not volumes:
            return SKIP_FILTER
        state, exclusive = cycle.state.volumes, set()
        for key in _claim_names(cycle.pod):
            claim = state.claims.get(key)
            if claim is None:
                return PreFilterResult(unresolvable(claim_not_found(key.partition("/")[2])))
            if READ_WRITE_ONCE_POD in claim.spec.accessModes:
                exclusive.add(key)
        disks = tuple(volume for volume in volumes if disk_keys(volume))
        nodes = cycle.state.nodes
        used = sum(state.users(key, lambda node: nodes.row_of(node) is not None) > 0 for key in exclusive)
        if not disks and not used:
            return SKIP_FILTER
        cycle.data[self.name] = _Use(disks, frozenset(exclusive), used)
        return CONTINUE

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes where the disk is taken, and all nodes while a claim for one Pod only is in use."""
        use: _Use = cycle.data[self.name]
        result = np.full(len(rows), self._in_use if use.uses > 0 else 0, np.int64)
        for place in self._suspects(cycle, use, nodes, rows):
            here = (volume for info in nodes.pods(int(rows[place])) for volume in info.pod.spec.volumes)
            if any(disks_conflict(disk, volume) for volume in here for disk in use.disks):
                result[place] = self._disk
        return result

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Who uses the disk on the node, or the claim anywhere."""
        use: _Use = cycle.data[self.name]
        for info in nodes.pods(row):
            taken = [v for v in info.pod.spec.volumes if any(disks_conflict(disk, v) for disk in use.disks)]
            if taken:
                text = f"a disk of the Pod is used here by pod {info.pod.key} (volume {taken[0].name})"
                yield Because("disk", text, {"pod": info.pod.key, "volume": taken[0].name})
        for key in sorted(use.claims) if use.uses > 0 else ():
            users = [p.info.pod for p in cycle.state.placements.values() if key in _claim_names(p.info.pod)]
            for pod in users[:1]:
                text = f"claim {key} is for one Pod only (ReadWriteOncePod): pod {pod.key} has it"
                yield Because(f"claim {key}", text, {"claim": key, "pod": pod.key})

    @staticmethod
    def _suspects(cycle: Cycle, use: _Use, nodes: NodeTable, rows: Rows) -> Iterable[int]:
        """Places in ``rows`` that may have one of the disks: by index, and where Pods are only thought of."""
        if not use.disks:
            return ()
        names = {
            name for disk in use.disks for key in disk_keys(disk) for name in cycle.state.volumes.nodes_with_disk(key)
        }
        found = [row for row in map(nodes.row_of, names) if row is not None]
        places: list[int] = np.flatnonzero(np.isin(rows, found) | (nodes.dynamic_versions[rows] < 0)).tolist()
        return places

    def add_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod is on ``row``, for this attempt only."""
        cycle.data[self.name].change(info.pod, 1)

    def remove_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod left ``row``, for this attempt only."""
        cycle.data[self.name].change(info.pod, -1)

    def events(self) -> Sequence[Registration]:
        """A Pod with the disk or claim went; a node came; a claim of the Pod came."""
        return (
            Registration(Resource.ASSIGNED_POD, Action.DELETE, _shared_volume),
            Registration(Resource.NODE, Action.ADD),
            own_claim(Action.ADD),
        )


def _claim_names(pod: Pod) -> list[str]:
    """Keys of the claims the Pod names itself; generic ephemeral ones are never shared."""
    return [
        f"{pod.metadata.namespace}/{volume.persistentVolumeClaim.claimName}"
        for volume in pod.spec.volumes
        if volume.persistentVolumeClaim is not None
    ]


def _shared_volume(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    other = old or new
    if other is None or other.metadata.namespace != pod.metadata.namespace:
        return False
    if set(_claim_names(pod)).intersection(_claim_names(other)):
        return True
    return any(disks_conflict(mine, theirs) for mine in pod.spec.volumes for theirs in other.spec.volumes)
