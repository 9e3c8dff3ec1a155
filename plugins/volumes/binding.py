"""VolumeBinding: nodes that reach the Pod's volumes, or could get them; the volumes are bound before the Pod is."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import partial

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.fit_strategies import shape_table
from plugins.volumes.blame import blame
from plugins.volumes.capacity_score import capacity_scores
from plugins.volumes.claims import amount_bytes, claim_not_found, own_claim
from plugins.volumes.plan import REASONS, Plan, PodClaims, make_plan
from plugins.volumes.promise import Promise
from scheduler.api.core import Pod, Volume
from scheduler.api.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolumeClaim,
    StorageClass,
)
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.instructions import Instruction, WaitUntil
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SUCCESS, Code, Status, VerdictTable, error, unresolvable
from scheduler.state.attached import NotOwnedError, check_owner
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState

POLL_INTERVAL_S = 1.0
_DEFAULT_SHAPE = ({"utilization": 0, "score": 10}, {"utilization": 100, "score": 0})


class _ModeError(Exception):
    """A storage class without a binding mode, which the API server never stores."""


class VolumeBinding(PluginBase):
    """Source: kube-scheduler 1.37, VolumeBinding (spec 3.15).

    Arguments: ``bindTimeoutSeconds`` and ``shape`` (how much a class's use in percent is worth).
    """

    name = "VolumeBinding"
    pre_bind_parallel = True
    depends = Depends.NOTHING

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        self._timeout_s = float(handle.arguments.get("bindTimeoutSeconds", 600))
        self._shape = shape_table(handle.arguments.get("shape") or _DEFAULT_SHAPE, "shape")
        self._rejections = np.zeros(1 << len(REASONS), np.int64)
        for flags in range(1, len(self._rejections)):
            texts = [text for bit, text in REASONS.items() if flags & bit]
            self._rejections[flags] = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, texts)

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Sorts the Pod's claims; rejects it while one of them can lead nowhere."""
        state, pod = cycle.state.volumes, cycle.pod
        claims: list[PersistentVolumeClaim] = []
        for volume in pod.spec.volumes:
            found = _usable_claim(state, pod, volume)
            if isinstance(found, str):
                return PreFilterResult(unresolvable(found))
            if found is not None:
                claims.append(found)
        if not claims:
            return SKIP_FILTER
        bound = tuple(claim for claim in claims if claim.fully_bound)
        unbound = [claim for claim in claims if not claim.fully_bound]
        try:
            delayed = tuple(claim for claim in unbound if _waits_for_node(state, claim))
        except _ModeError as problem:
            return PreFilterResult(error(str(problem)))
        if len(delayed) < len(unbound):
            return PreFilterResult(unresolvable("pod has unbound immediate PersistentVolumeClaims"))
        cycle.data[self.name] = PodClaims(bound, delayed)
        return CONTINUE

    def signature(self, cycle: Cycle) -> Hashable | None:
        """Only for Pods without claims: their score is 0 everywhere."""
        return None if self.name in cycle.data else ()

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes that do not reach bound volumes, or where claims that wait would get none."""
        plan = self._plan(cycle, nodes, rows)
        cycle.data[self._kept] = cycle.state.version, rows, plan
        verdicts = self._rejections[plan.flags]
        for place, text in plan.errors.items():
            verdicts[place] = self.verdicts.intern(Code.ERROR, (text,))
        return verdicts

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Which claim is the trouble, and why, for each of the node's problems."""
        claims: PodClaims = cycle.data[self.name]
        return blame(self._state(cycle), nodes, row, claims)

    @staticmethod
    def _state(cycle: Cycle) -> VolumeState:
        return cycle.state.volumes

    def _plan(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Plan:
        return make_plan(self._state(cycle), nodes, rows, cycle.data[self.name])

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Never skips: Pods without claims get 0 everywhere."""
        return SUCCESS

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """The larger the stock or volume that would serve the claims, the better."""
        claims: PodClaims | None = cycle.data.get(self.name)
        if claims is None or not claims.delayed:
            return np.zeros(len(rows), np.int64)
        return capacity_scores(self._plan_again(cycle, nodes, rows), self._shape)

    def _plan_again(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Plan:
        """The plan that filter made last, as far as it speaks of ``rows`` and nothing has changed since."""
        kept: tuple[int, Rows, Plan] | None = cycle.data.get(self._kept)
        if kept is not None and kept[0] == cycle.state.version:
            _, planned, plan = kept
            places = np.flatnonzero(np.isin(planned, rows))
            if np.array_equal(planned[places], rows):
                return plan.at(places)
        return self._plan(cycle, nodes, rows)

    @property
    def _kept(self) -> str:
        return f"{self.name}/plan"

    def reserve(self, cycle: Cycle, node: str) -> Status:
        """Counts volumes and claims as given away from now on."""
        claims: PodClaims | None = cycle.data.get(self.name)
        nodes = cycle.state.nodes
        row = nodes.row_of(node)
        if claims is None or not claims.delayed:
            return SUCCESS
        if row is None:
            return unresolvable(f'node "{node}" not found')
        plan = self._plan(cycle, nodes, np.asarray([row], np.int64))
        if plan.errors:
            return error(plan.errors[0])
        if plan.flags[0]:
            return self.verdicts.status(int(self._rejections[plan.flags[0]]))
        promise = cycle.data[self._promise] = Promise.of(plan, 0, node)
        promise.assume(self._state(cycle))
        return SUCCESS

    @property
    def _promise(self) -> str:
        return f"{self.name}/promise"

    def unreserve(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Gives everything back; claims that still wait are no longer pinned to the node."""
        promise: Promise | None = cycle.data.pop(self._promise, None)
        return () if promise is None else promise.revert(self._state(cycle))

    def pre_bind(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Writes the promise down and waits until the volume controller and provisioners have kept it."""
        promise: Promise | None = cycle.data.get(self._promise)
        if promise is None:
            return ()
        wait = WaitUntil(
            ready=partial(self._progress, cycle, promise),
            timeout_s=self._timeout_s,
            interval_s=POLL_INTERVAL_S,
            timeout_text="binding volumes: context deadline exceeded",
        )
        return [*promise.writes(), wait]

    def _progress(self, cycle: Cycle, promise: Promise) -> str | None:
        found = promise.progress(self._state(cycle), cycle.state.nodes)
        return f"binding volumes: {found}" if found else found

    def events(self) -> Sequence[Registration]:
        """Anything that could give a claim its volume, or bring a node to it."""
        changed = Action.ADD | Action.UPDATE
        return (
            Registration(Resource.STORAGE_CLASS, changed, _allows_more),
            own_claim(changed),
            Registration(Resource.PERSISTENT_VOLUME, changed),
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL),
            Registration(Resource.CSI_NODE, changed, _migrates_otherwise),
            Registration(Resource.CSI_DRIVER, Action.UPDATE, _asks_less),
            Registration(Resource.CSI_STORAGE_CAPACITY, changed, _has_more),
        )


def _usable_claim(state: VolumeState, pod: Pod, volume: Volume) -> PersistentVolumeClaim | str | None:
    """The claim behind a volume, None without, or what is wrong with it."""
    name = volume.claim_name(pod.metadata.name)
    if name is None:
        return None
    generated = volume.persistentVolumeClaim is None
    claim = state.claims.get(f"{pod.metadata.namespace}/{name}")
    if claim is None:
        if generated:
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return claim_not_found(name)
    if claim.status.phase == "Lost":
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.spec.volumeName}"'
    if claim.metadata.deletionTimestamp is not None:
        return f'persistentvolumeclaim "{name}" is being deleted'
    if generated:
        try:
            check_owner(pod, claim)
        except NotOwnedError as problem:
            return str(problem)
    return claim


def _waits_for_node(state: VolumeState, claim: PersistentVolumeClaim) -> bool:
    """True for an unbound claim whose volume depends on the node; a volume it names itself makes it immediate."""
    storage_class = state.classes.get(claim.class_name) if claim.class_name else None
    if storage_class is None:
        return False
    if storage_class.volumeBindingMode is None:
        raise _ModeError(f'VolumeBindingMode not set for StorageClass "{claim.class_name}"')
    return storage_class.volumeBindingMode == WAIT_FOR_FIRST_CONSUMER and not claim.spec.volumeName


def _allows_more(pod: Pod, old: StorageClass | None, new: StorageClass) -> bool:
    return old is None or old.allowedTopologies != new.allowedTopologies


def _migrates_otherwise(pod: Pod, old: CSINode | None, new: CSINode) -> bool:
    return old is None or old.migrated_plugins != new.migrated_plugins


def _asks_less(pod: Pod, old: CSIDriver, new: CSIDriver) -> bool:
    inline = any(volume.csi is not None and volume.csi.driver == new.metadata.name for volume in pod.spec.volumes)
    return inline and bool(old.spec.storageCapacity) and not new.spec.storageCapacity


def _has_more(pod: Pod, old: CSIStorageCapacity | None, new: CSIStorageCapacity) -> bool:
    if old is None:
        return True
    pairs = ((old.maximumVolumeSize, new.maximumVolumeSize), (old.capacity, new.capacity))
    return any(amount_bytes(after) > amount_bytes(before) for before, after in pairs)
