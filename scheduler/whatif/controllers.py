"""What other controllers would do meanwhile: claims from templates, the end of a Pod, Pods that come back.

Source: kube-controller-manager 1.37: resourceclaim, ephemeral volume, garbage collector, workload and disruption
controllers. Names are those controllers' without the random end, so that equal input gives equal output.
"""

from __future__ import annotations

import msgspec

from scheduler.api.core import Pod, PodResourceClaimStatus, PodStatus
from scheduler.api.kinds import POD, RESOURCE_CLAIM, convert
from scheduler.api.meta import OwnerReference
from scheduler.api.podgroups import POD_GROUP, PodGroup
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.resource import FINALIZER, ResourceClaim, ResourceClaimStatus
from scheduler.api.storage import PERSISTENT_VOLUME_CLAIM
from scheduler.dra.podgroups import group_name
from scheduler.errors import UserError
from scheduler.state.budgets import speaks_of
from scheduler.whatif.store import Store
from scheduler.whatif.templates import claim_for

RECREATING = frozenset(("ReplicaSet", "ReplicationController", "StatefulSet", "Job"))
"""Controllers that make a new Pod for one that is gone."""
_DAEMON_SET = "DaemonSet"
_GONE_WITH_NODE = frozenset((_DAEMON_SET, "Node"))


def make_claims_of(store: Store, pod: Pod) -> Pod:
    """Make what the Pod's templates ask for, and note it in the Pod's status; the Pod as it is then.

    A template that does not exist makes nothing: the Pod then waits, and is told so.
    """
    known = {entry.name for entry in pod.status.resourceClaimStatuses}
    made = []
    group: PodGroup | None = store.get(POD_GROUP.name, f"{pod.metadata.namespace}/{group_name(pod)}")
    for entry in pod.spec.resourceClaims:
        template = store.templates.get(f"{pod.metadata.namespace}/{entry.resourceClaimTemplateName}")
        if entry.resourceClaimTemplateName is None or entry.name in known or template is None:
            continue
        shared = group if group is not None and entry in group.spec.resourceClaims else None
        name = "" if shared is None else _group_claim(store, shared, entry.name)
        if not name and _refused(store, pod, claim_for(pod, entry.name, template), template):
            continue
        if not name and shared is not None:
            name = _make_group_claim(store, shared, entry.name, template)
        elif not name:
            wanted = f"{pod.metadata.name}-{entry.name}"
            name = store.free_name(RESOURCE_CLAIM.name, pod.metadata.namespace, wanted)
            owner = OwnerReference("v1", "Pod", pod.metadata.name, pod.uid, True)
            _make_claim(store, template, name, pod.metadata.namespace, owner)
        made.append(PodResourceClaimStatus(name=entry.name, resourceClaimName=name))
    _make_volume_claims(store, pod)
    if not made:
        return pod
    statuses = (*pod.status.resourceClaimStatuses, *made)
    status = msgspec.structs.replace(pod.status, resourceClaimStatuses=statuses)
    stored: Pod = store.put(POD, msgspec.structs.replace(pod, status=status))
    return stored


def _refused(store: Store, pod: Pod, claim: ResourceClaim, template: ResourceClaim) -> bool:
    """Whether a quota does not let the claim be made, which is noted."""
    if not store.quotas:
        return False  # as in most clusters: no look at every claim
    refusals = store.quotas.refusals(claim, store.of(RESOURCE_CLAIM.name))
    if refusals:
        words = "; ".join(one.words() for one in refusals)
        store.note(f"the claim of template {template.key} for Pod {pod.key} is not made: {words}")
    return bool(refusals)


def _group_claim(store: Store, group: PodGroup, entry: str) -> str:
    """The name of the claim that all members share, "" before the first of them."""
    name = f"{group.metadata.name}-{entry}"
    for claim in store.of(RESOURCE_CLAIM.name):
        owner = claim.metadata.controller()
        if owner is not None and owner.uid == group.metadata.uid and claim.metadata.name.startswith(name):
            return str(claim.metadata.name)
    return ""


def _make_group_claim(store: Store, group: PodGroup, entry: str, template: ResourceClaim) -> str:
    """Make it; its name."""
    name = f"{group.metadata.name}-{entry}"
    owner = OwnerReference(POD_GROUP.api_version, POD_GROUP.name, group.metadata.name, group.metadata.uid, True)
    _make_claim(store, template, name, group.metadata.namespace, owner)
    return name


def _make_claim(store: Store, template: ResourceClaim, name: str, namespace: str, owner: OwnerReference) -> None:
    metadata = store.new_metadata(name, namespace, ownerReferences=(owner,))
    store.put(RESOURCE_CLAIM, msgspec.structs.replace(template, metadata=metadata, status=ResourceClaimStatus()))


def _make_volume_claims(store: Store, pod: Pod) -> None:
    """The PersistentVolumeClaims of generic ephemeral volumes."""
    for volume in pod.spec.volumes:
        if not volume.is_ephemeral:
            continue
        name = volume.claim_name(pod.metadata.name) or ""
        if store.get(PERSISTENT_VOLUME_CLAIM.name, f"{pod.metadata.namespace}/{name}") is not None:
            continue
        template = msgspec.json.decode(volume.ephemeral).get("volumeClaimTemplate") or {}
        owner = OwnerReference("v1", "Pod", pod.metadata.name, pod.uid, True)
        body = {"metadata": {"name": name}, "spec": template.get("spec") or {}, "status": {"phase": "Pending"}}
        try:
            claim = convert(PERSISTENT_VOLUME_CLAIM, body)
        except UserError as error:
            store.note(f"pod {pod.key}: volume {volume.name}: {error.problem}")
            continue
        metadata = store.new_metadata(name, pod.metadata.namespace, ownerReferences=(owner,))
        store.put(PERSISTENT_VOLUME_CLAIM, msgspec.structs.replace(claim, metadata=metadata))


def pod_ends(store: Store, pod: Pod) -> None:
    """The Pod goes: its claims are released, what was made for it goes with it."""
    store.remove(POD, pod)
    for claim in store.claims_of(pod):
        release_claim(store, claim, pod.uid)
    for kind, item in store.owned_by(pod.uid):
        store.remove(kind, item)


def release_claim(store: Store, claim: ResourceClaim, pod_uid: str) -> None:
    """Take a Pod that is gone out of a claim; without consumers the allocation ends, and a claim that is being deleted
    goes. An allocation without the scheduler's finalizer is not cleared, as by the real controller.
    """
    left = tuple(
        entry
        for entry, consumer in zip(claim.status.reservedFor, claim.consumers, strict=True)
        if consumer.uid != pod_uid
    )
    if len(left) == len(claim.status.reservedFor):
        return
    status = msgspec.structs.replace(claim.status, reservedFor=left)
    metadata = claim.metadata
    if not left and FINALIZER in metadata.finalizers:
        status = ResourceClaimStatus()
        others = tuple(name for name in metadata.finalizers if name != FINALIZER)
        metadata = msgspec.structs.replace(metadata, finalizers=others)
    if not left and metadata.deletionTimestamp is not None:
        store.remove(RESOURCE_CLAIM, claim)
        return
    store.put(RESOURCE_CLAIM, msgspec.structs.replace(claim, metadata=metadata, status=status))


def delete_claim(store: Store, claim: ResourceClaim) -> str:
    """What deleting a claim does: gone at once, or, while Pods that exist use it, marked only; then their names."""
    pods = {pod.uid: pod for pod in store.pods()}
    users = [consumer for consumer in claim.consumers if consumer.resource != "pods" or consumer.uid in pods]
    # A finalizer keeps a claim that waits for nobody only for a moment: the controller takes it off.
    if not users:
        store.remove(RESOURCE_CLAIM, claim)
        return ""
    metadata = msgspec.structs.replace(claim.metadata, deletionTimestamp=store.stamp())
    store.put(RESOURCE_CLAIM, msgspec.structs.replace(claim, metadata=metadata))
    return ", ".join(consumer.name for consumer in users)


def comes_back(pod: Pod) -> bool:
    """True when a controller makes a new Pod for this one once it is gone."""
    owner = pod.metadata.controller()
    return owner is not None and owner.kind in RECREATING


def stays_on_drain(pod: Pod) -> bool:
    """True for Pods that ``kubectl drain`` leaves: those of DaemonSets, and mirror Pods."""
    owner = pod.metadata.controller()
    mirror = "kubernetes.io/config.mirror" in pod.metadata.annotations
    return mirror or (owner is not None and owner.kind in _GONE_WITH_NODE)


def replacement(store: Store, pod: Pod) -> Pod:
    """The Pod that a controller makes for one that is gone, as stored: same spec, no node, claims of its own.

    A StatefulSet's Pod keeps its name, and so do its claims from templates.
    """
    owner = pod.metadata.controller()
    same_name = owner is not None and owner.kind == "StatefulSet"
    wanted = pod.metadata.name if same_name else f"{pod.metadata.name.removesuffix('-new')}-new"
    name = store.free_name(POD.name, pod.metadata.namespace, wanted)
    metadata = store.new_metadata(
        name,
        pod.metadata.namespace,
        labels=pod.metadata.labels,
        annotations=pod.metadata.annotations,
        ownerReferences=pod.metadata.ownerReferences,
    )
    spec = msgspec.structs.replace(pod.spec, nodeName="")
    stored: Pod = store.put(POD, Pod(metadata=metadata, spec=spec, status=PodStatus(phase="Pending")))
    return make_claims_of(store, stored)


def evict(store: Store, pod: Pod) -> Pod | None:
    """The Pod goes; the one that its controller makes for it, None without a controller that does.

    Budgets that speak of it allow one Pod less: until the new one runs, which takes longer than scheduling.
    """
    pod_ends(store, pod)
    for budget in store.of(POD_DISRUPTION_BUDGET.name):
        status = budget.status
        if status.disruptionsAllowed > 0 and speaks_of(budget, pod):
            less = msgspec.structs.replace(status, disruptionsAllowed=status.disruptionsAllowed - 1)
            store.put(POD_DISRUPTION_BUDGET, msgspec.structs.replace(budget, status=less))
    return replacement(store, pod) if comes_back(pod) else None
