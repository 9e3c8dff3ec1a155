"""What VolumeBinding promised at Reserve, and when it has come true. Source: kube-scheduler 1.37 (spec 3.15.4)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from plugins.volumes.places import Places
from plugins.volumes.plan import Plan
from scheduler.api.storage import (
    BOUND_BY_CONTROLLER_ANNOTATION,
    SELECTED_NODE_ANNOTATION,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
)
from scheduler.framework.instructions import BindVolume, Instruction, SelectNode
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState


@dataclass(frozen=True, slots=True)
class Promise:
    """``volumes``: (volume with its claim written in, claim, whether that is news to the API server). ``claims``: those
    to be provisioned, with the node written in.
    """

    node: str
    volumes: tuple[tuple[PersistentVolume, PersistentVolumeClaim, bool], ...]
    claims: tuple[PersistentVolumeClaim, ...]

    @classmethod
    def of(cls, plan: Plan, place: int, node: str) -> Promise:
        """What ``plan`` says for one place without flags."""
        volumes = []
        for match in plan.matches:
            if match.choice[place] >= 0:
                volume = match.volumes[match.choice[place]]
                promised = _promised(volume, match.claim)
                volumes.append((promised, match.claim, promised is not volume))
        claims = (_selected(provision.claim, node) for provision in plan.provisions if provision.needed[place])
        return cls(node, tuple(volumes), tuple(claims))

    def assume(self, state: VolumeState) -> None:
        """Decide from now on as if it were written."""
        for volume, _, _ in self.volumes:
            state.volumes.assume(volume.name, volume)
        for claim in self.claims:
            state.claims.assume(claim.key, claim)

    def revert(self, state: VolumeState) -> Sequence[Instruction]:
        """Stop assuming; claims that still wait for a volume are to be set free for other nodes.

        kube-scheduler leaves them pinned to the node (k/k #121436); a volume that comes nevertheless is found by its
        node affinity.
        """
        for volume, _, _ in self.volumes:
            state.volumes.restore(volume.name)
        freed: list[Instruction] = []
        for claim in self.claims:
            state.claims.restore(claim.key)
            now = state.claims.shown(claim.key)
            same = now is not None and now.metadata.uid == claim.metadata.uid
            if now is not None and same and now.selected_node == self.node and not now.spec.volumeName:
                freed.append(SelectNode(now, ""))
        return freed

    def writes(self) -> list[Instruction]:
        """Volumes first, then claims, as upstream."""
        news = [BindVolume(volume, claim) for volume, claim, is_news in self.volumes if is_news]
        return [*news, *(SelectNode(claim, self.node) for claim in self.claims)]

    def progress(self, state: VolumeState, nodes: NodeTable) -> str | None:
        """None while waiting, "" once all is bound, else what went wrong. Looks at what the server showed only."""
        row = nodes.row_of(self.node)
        if row is None:
            return f'failed to get node "{self.node}": node "{self.node}" not found'
        places = Places(nodes, np.asarray([row], np.int64), state.csi_nodes)
        for volume, claim, _ in self.volumes:
            found = _volume_progress(state, places, volume, claim, self.node)
            if found != "":
                return found
        for claim in self.claims:
            found = _claim_progress(state, places, claim, self.node)
            if found != "":
                return found
        return ""


def _volume_progress(
    state: VolumeState, places: Places, volume: PersistentVolume, claim: PersistentVolumeClaim, node: str
) -> str | None:
    now, claim_now = state.volumes.shown(volume.name), state.claims.shown(claim.key)
    if now is None:
        return f'failed to check binding: could not find v1.PersistentVolume "{volume.name}"'
    if claim_now is None:
        return f'failed to check binding: could not find v1.PersistentVolumeClaim "{claim.key}"'
    if not len(places.reached_from(now)):
        return _out_of_reach(now, node)
    if now.spec.claimRef is None or not now.spec.claimRef.uid:
        return f'ClaimRef got reset for pv "{now.name}"'
    return "" if claim_now.fully_bound else None


def _claim_progress(state: VolumeState, places: Places, claim: PersistentVolumeClaim, node: str) -> str | None:
    now = state.claims.shown(claim.key)
    if now is None:
        return f'failed to check provisioning pvc: could not find v1.PersistentVolumeClaim "{claim.key}"'
    if not now.metadata.annotations:
        return f'selectedNode annotation reset for PVC "{now.metadata.name}"'
    if now.selected_node != node:
        return f'provisioning failed for PVC "{now.metadata.name}"'
    if now.spec.volumeName:
        volume = state.volumes.shown(now.spec.volumeName)
        if volume is None:
            return None  # not shown yet, or gone: then the claim will tell
        if not len(places.reached_from(volume)):
            return _out_of_reach(volume, node)
    return "" if now.fully_bound else None


def _out_of_reach(volume: PersistentVolume, node: str) -> str:
    return f'pv "{volume.name}" node affinity doesn\'t match node "{node}": no matching NodeSelectorTerms'


def _promised(volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
    """``volume`` with ``claim`` written in; itself when that is so already."""
    reference = volume.spec.claimRef
    if reference is not None and volume.kept_for(claim) and reference.uid == claim.metadata.uid:
        return volume
    metadata = volume.metadata
    if not volume.kept_for(claim):
        annotations = {BOUND_BY_CONTROLLER_ANNOTATION: "yes", **metadata.annotations}
        metadata = msgspec.structs.replace(metadata, annotations=annotations)
    wanted = ClaimReference(
        kind="PersistentVolumeClaim",
        apiVersion="v1",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resourceVersion=claim.metadata.resourceVersion,
    )
    spec = msgspec.structs.replace(volume.spec, claimRef=wanted)
    return msgspec.structs.replace(volume, metadata=metadata, spec=spec)


def _selected(claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
    annotations = {**claim.metadata.annotations, SELECTED_NODE_ANNOTATION: node}
    metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
    return msgspec.structs.replace(claim, metadata=metadata)
