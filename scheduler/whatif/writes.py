"""Instructions carried out on an imagined cluster: what the committer writes, and what others answer to it.

Drivers, provisioners and the volume controller are taken at their word: what a Pod waits for before it is bound
happens at once, and a note says what was taken for granted.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from scheduler.api.core import Pod, PodStatus
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM
from scheduler.api.meta import Condition
from scheduler.api.resource import (
    FINALIZER,
    RESERVED_FOR_MAX,
    AllocatedDeviceStatus,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
    ResourceClaimStatus,
)
from scheduler.api.selectors import NodeSelector, NodeSelectorTerm, Requirement
from scheduler.api.storage import (
    BIND_COMPLETED_ANNOTATION,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    SELECTED_NODE_ANNOTATION,
    ClaimReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from scheduler.dra.claims import has_binding_conditions
from scheduler.errors import SchedulerError
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import (
    BindVolume,
    CreateClaim,
    DeallocateClaim,
    DeleteClaim,
    Instruction,
    PatchPodStatus,
    SelectNode,
    UnreserveClaim,
    WaitUntil,
    WriteClaim,
)
from scheduler.whatif.store import Store

_HOSTNAME = "kubernetes.io/hostname"


def perform(store: Store, pod: Pod, instruction: Instruction) -> None:
    """Carry out one instruction, all but Bindings and preemptions. Raises SchedulerError when it would be refused."""
    if isinstance(instruction, WriteClaim):
        _write_claim(store, instruction.claim, instruction.allocation, instruction.consumer)
    elif isinstance(instruction, DeallocateClaim):
        claim = _newest(store, instruction.claim)
        others = [c for c in claim.consumers if c.uid != (instruction.consumer_uid or pod.uid)]
        if others:
            raise SchedulerError(f"claim {claim.key} is in use by {others[0].name}")
        store.put(RESOURCE_CLAIM, replace(claim, status=ResourceClaimStatus()))
    elif isinstance(instruction, UnreserveClaim):
        _unreserve(store, instruction)
    elif isinstance(instruction, CreateClaim):
        _create_claim(store, instruction)
    elif isinstance(instruction, DeleteClaim):
        store.remove(RESOURCE_CLAIM, instruction.claim)
    elif isinstance(instruction, PatchPodStatus):
        _patch_status(store, instruction)
    elif isinstance(instruction, BindVolume):
        _bind_volume(store, instruction.volume, instruction.claim)
    elif isinstance(instruction, SelectNode):
        _select_node(store, instruction)
    elif isinstance(instruction, WaitUntil):
        _await(store, pod, instruction)
    elif isinstance(instruction, CallExtenders):
        for call in instruction.calls:
            call.failure = "extenders are not asked here"
    else:
        raise SchedulerError(f"{type(instruction).__name__} cannot be imagined")


def _newest(store: Store, claim: ResourceClaim) -> ResourceClaim:
    found: ResourceClaim | None = store.get(RESOURCE_CLAIM.name, claim.key)
    if found is None or found.uid != claim.uid:
        raise SchedulerError(f"claim {claim.key} is gone")
    return found


def _write_claim(
    store: Store, claim: ResourceClaim, allocation: AllocationResult | None, consumer: ConsumerReference
) -> None:
    now = _newest(store, claim)
    if now.metadata.deletionTimestamp is not None:
        raise SchedulerError(f"claim {now.key} is being deleted")
    status = now.status
    if allocation is not None and status.allocation is None:
        status = replace(status, allocation=replace(allocation, allocationTimestamp=store.stamp()))
    if not now.reserved_for(consumer.uid):
        if len(status.reservedFor) >= RESERVED_FOR_MAX:
            raise SchedulerError(f"claim {now.key} is reserved for {RESERVED_FOR_MAX} consumers, which is the limit")
        status = replace(status, reservedFor=(*status.reservedFor, msgspec.Raw(msgspec.json.encode(consumer))))
    metadata = now.metadata
    if FINALIZER not in metadata.finalizers:
        metadata = replace(metadata, finalizers=(*metadata.finalizers, FINALIZER))
    store.put(RESOURCE_CLAIM, replace(now, metadata=metadata, status=status))


def _unreserve(store: Store, instruction: UnreserveClaim) -> None:
    now = _newest(store, instruction.claim)
    kept = tuple(
        entry
        for entry, consumer in zip(now.status.reservedFor, now.consumers, strict=True)
        if consumer.uid != instruction.pod_uid
    )
    store.put(RESOURCE_CLAIM, replace(now, status=replace(now.status, reservedFor=kept)))


def _create_claim(store: Store, instruction: CreateClaim) -> None:
    """The claim for extended resources; the random end of its name is left out."""
    claim = instruction.claim
    stem = claim.metadata.name.rstrip("-")
    name = store.free_name(RESOURCE_CLAIM.name, claim.metadata.namespace, stem)
    metadata = replace(claim.metadata, name=name, uid=store.new_uid(), creationTimestamp=store.stamp())
    stored: ResourceClaim = store.put(RESOURCE_CLAIM, replace(claim, metadata=metadata))
    instruction.created(stored)
    _write_claim(store, stored, instruction.allocation, instruction.consumer)


def _patch_status(store: Store, instruction: PatchPodStatus) -> None:
    now: Pod | None = store.get(POD.name, instruction.pod.key)
    if now is None:
        raise SchedulerError(f"{instruction.doing}: pod {instruction.pod.key} is gone")
    status = msgspec.convert({**msgspec.to_builtins(now.status), **instruction.status()}, PodStatus)
    store.put(POD, replace(now, status=status))


# Volumes


def _bind_volume(store: Store, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
    """The volume is promised, and the volume controller completes it on both sides."""
    if store.get(PERSISTENT_VOLUME.name, volume.name) is None:
        raise SchedulerError(f"volume {volume.name} is gone")
    store.put(PERSISTENT_VOLUME, volume)
    _complete(store, claim, volume.name)


def _complete(store: Store, claim: PersistentVolumeClaim, volume_name: str) -> None:
    now: PersistentVolumeClaim | None = store.get(PERSISTENT_VOLUME_CLAIM.name, claim.key)
    if now is None:
        raise SchedulerError(f"claim {claim.key} is gone")
    metadata = replace(now.metadata, annotations={**now.metadata.annotations, BIND_COMPLETED_ANNOTATION: "yes"})
    bound = replace(now.spec, volumeName=volume_name)
    store.put(
        PERSISTENT_VOLUME_CLAIM,
        replace(now, metadata=metadata, spec=bound, status=PersistentVolumeClaimStatus(phase="Bound")),
    )


def _select_node(store: Store, instruction: SelectNode) -> None:
    """The provisioner makes a volume for that node."""
    now: PersistentVolumeClaim | None = store.get(PERSISTENT_VOLUME_CLAIM.name, instruction.claim.key)
    if now is None:
        raise SchedulerError(f"claim {instruction.claim.key} is gone")
    annotations = {key: value for key, value in now.metadata.annotations.items() if key != SELECTED_NODE_ANNOTATION}
    if instruction.node:
        annotations[SELECTED_NODE_ANNOTATION] = instruction.node
    chosen = store.put(PERSISTENT_VOLUME_CLAIM, replace(now, metadata=replace(now.metadata, annotations=annotations)))
    if not instruction.node:
        return
    store.note("volumes are provisioned wherever the scheduler asks for them")
    name = f"pvc-{now.metadata.uid}"
    reference = ClaimReference(
        kind=PERSISTENT_VOLUME_CLAIM.name,
        apiVersion="v1",
        namespace=now.metadata.namespace,
        name=now.metadata.name,
        uid=now.metadata.uid,
    )
    spec = PersistentVolumeSpec(
        capacity=dict(now.spec.resources.requests or {}),
        accessModes=now.spec.accessModes,
        claimRef=reference,
        nodeAffinity=_only(store, instruction.node),
        storageClassName=now.class_name,
        volumeMode=now.spec.volumeMode,
    )
    store.put(PERSISTENT_VOLUME, PersistentVolume(metadata=store.new_metadata(name), spec=spec))
    _complete(store, chosen, name)


def _only(store: Store, node: str) -> VolumeNodeAffinity | None:
    """That node alone, as long as it has a label of its own: how far a driver's volumes reach is not known."""
    found = store.get(NODE.name, node)
    label = None if found is None else found.metadata.labels.get(_HOSTNAME)
    if label is None:
        return None
    term = NodeSelectorTerm(matchExpressions=(Requirement(key=_HOSTNAME, operator="In", values=(label,)),))
    return VolumeNodeAffinity(required=NodeSelector(nodeSelectorTerms=(term,)))


# Waiting


def _await(store: Store, pod: Pod, wait: WaitUntil) -> None:
    """Let happen what is waited for. Raises SchedulerError for what has failed already."""
    failure = wait.ready()
    if failure is None:
        for claim in store.claims_of(pod):
            if has_binding_conditions(claim):
                store.note("binding conditions of devices are met as soon as they are waited for")
                _meet_conditions(store, claim)
        failure = wait.ready()
    if failure is None:
        store.note(f"pod {pod.key}: {wait.note or 'what it waits for before it is bound'} is taken for granted")
    elif failure:
        raise SchedulerError(failure)


def _meet_conditions(store: Store, claim: ResourceClaim) -> None:
    allocation = claim.status.allocation
    devices = []
    for result in () if allocation is None else allocation.devices.results:
        conditions = tuple(Condition(type=name, status="True") for name in result.bindingConditions)
        devices.append(AllocatedDeviceStatus(result.driver, result.pool, result.device, result.shareID, conditions))
    store.put(RESOURCE_CLAIM, replace(claim, status=replace(claim.status, devices=tuple(devices))))
