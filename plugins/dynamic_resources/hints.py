"""Which cluster events may help a Pod that DynamicResources refused.

Source: kube-scheduler 1.37, DynamicResources events and queueing hints. Node, class and slice events always queue; a
deleted slice never does. In addition a change of a node's declared features queues, which upstream forgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.dra.claims import ClaimError, ClaimLookup, claim_names, resolve_claims
from scheduler.dra.extended import special_owner
from scheduler.dra.features import Features
from scheduler.framework.events import Action, Registration, Resource

# A Pod that lacks node resources for its devices waits for other Pods to go or to shrink; upstream forgets it.
_LEAVING = Action.DELETE | Action.UPDATE_POD_SCALE_DOWN


def registrations(lookup: ClaimLookup, features: Features) -> Sequence[Registration]:
    """All registrations of the plugin; ``lookup`` finds the newest known claim."""
    groups = features.workload_claims

    def claim_hint(pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None) -> bool:
        return _claim_hint(pod, old, new, lookup, groups)

    def pod_hint(pod: Pod, old: Any, new: Pod | None) -> bool:
        return new is not None and _resolves(new, lookup, groups)

    node_actions = (
        Action.ADD | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_DECLARED_FEATURE
    )
    return (
        Registration(Resource.NODE, node_actions),
        Registration(
            Resource.RESOURCE_CLAIM,
            Action.ADD | Action.UPDATE | Action.DELETE,
            claim_hint,
            pod_keys=claim_keys,
            event_keys=event_keys,
        ),
        Registration(Resource.TARGET_POD, Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM, pod_hint),
        Registration(Resource.DEVICE_CLASS, Action.ADD | Action.UPDATE),
        Registration(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE),
        *([Registration(Resource.ASSIGNED_POD, _LEAVING)] if features.node_allocatable else ()),
        *([Registration(Resource.POD_GROUP, Action.ADD | Action.UPDATE)] if features.generic_workload else ()),
    )


def claim_keys(pod: Pod) -> Iterable[str]:
    """namespace/name of the claims the Pod waits for, as far as they are named."""
    keys: list[str] = []
    try:
        keys.extend(f"{pod.metadata.namespace}/{name}" for name, _ in claim_names(pod))
    except ClaimError:
        # The rest is not named yet; the Pod's own update will tell.
        return keys
    return keys


def event_keys(old: ResourceClaim | None, new: ResourceClaim | None) -> Iterable[str] | None:
    """The claim an event speaks of; None when devices came free, which concerns everybody.

    The claim made for extended resources is not named by its Pod, so its deletion concerns everybody, too.
    """
    if old is not None and new is None and special_owner(old):
        return None
    if old is not None and old.status.allocation is not None and (new is None or new.status.allocation is None):
        return None
    claim = new or old
    return None if claim is None else (claim.key,)


def _resolves(pod: Pod, lookup: ClaimLookup, groups: bool) -> bool:
    try:
        resolve_claims(pod, lookup, groups)
    except ClaimError:
        return False
    return True


def _claim_hint(
    pod: Pod, old: ResourceClaim | None, new: ResourceClaim | None, lookup: ClaimLookup, groups: bool
) -> bool:
    if new is None:
        # The Pod that waits for its own left-over claim to go is told, too; upstream forgets it.
        return old is None or old.status.allocation is not None or special_owner(old) == pod.uid
    try:
        claims = resolve_claims(pod, lookup, groups)
    except ClaimError:
        return False
    if old is not None and old.status.allocation is not None and new.status.allocation is None:
        return True
    if all(claim.uid != new.uid for claim in claims):
        return False
    return old is None or _status_changed(old, new)


def _status_changed(old: ResourceClaim, new: ResourceClaim) -> bool:
    one, other = old.status, new.status
    return (
        one.allocation != other.allocation
        or list(map(bytes, one.reservedFor)) != list(map(bytes, other.reservedFor))
        or one.devices != other.devices
    )
