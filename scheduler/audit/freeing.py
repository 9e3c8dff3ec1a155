"""Why a claim lost its devices, as far as the watches can tell.

The API server does not say who wrote; our own writes we know, and whether a user was left we can see.
Source: the claim controller of kube-controller-manager 1.37, which takes back what nobody has reserved any more.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.audit.records import device_uses
from scheduler.state.cluster import ClusterState

OURSELVES, CONTROLLER, SOMEBODY = "dra-scheduler", "claim controller", "another client"


def cause_of_freeing(
    state: ClusterState,
    old: ResourceClaim,
    new: ResourceClaim | None,
    users: Sequence[ConsumerReference],
    own: str | None,
) -> tuple[str, str]:
    """(who, sentence). ``users``: who had it reserved last. ``own``: the Pod that we took it back for, None: not we."""
    if new is not None and own is not None:
        behalf = f" on behalf of pod {own}" if own else ""
        return OURSELVES, f"this scheduler took the allocation back{behalf}"
    left = [user for user in users if user.resource == "pods" and _lives(state, user.uid)]
    named = ", ".join(f"{user.resource.removesuffix('s')} {old.metadata.namespace}/{user.name}" for user in users[:3])
    if new is None:
        owner = old.metadata.controller()
        if owner is not None and owner.kind == "Pod":
            return CONTROLLER, f"the claim was deleted with its pod {old.metadata.namespace}/{owner.name}"
        return SOMEBODY, f"the claim was deleted; its last user: {named or 'none'}"
    if left:
        return SOMEBODY, f"the allocation was removed while {named} had it reserved"
    if users:
        return CONTROLLER, f"its last user, {named}, has ended or is gone"
    return CONTROLLER, "nobody had it reserved"


def _lives(state: ClusterState, uid: str) -> bool:
    pod = state.pods.get(uid)
    return pod is not None and not pod.terminal and pod.metadata.deletionTimestamp is None


def node_named(allocation: AllocationResult | None) -> str:
    """The one node that an allocation is bound to, "" when it names none or several."""
    terms = () if allocation is None or allocation.nodeSelector is None else allocation.nodeSelector.nodeSelectorTerms
    if len(terms) != 1:
        return ""
    for requirement in terms[0].matchFields:
        if requirement.key == "metadata.name" and requirement.operator == "In" and len(requirement.values) == 1:
            return str(requirement.values[0])
    return ""


def found_id(claim: ResourceClaim) -> str:
    """The same for every replica and every start that finds the same allocation, so that it is told once."""
    devices = " ".join(use.device + use.share for use in device_uses(claim.status.allocation))
    return f"found-{claim.uid}-{zlib.crc32(devices.encode()):08x}"
