"""A Pod's group in one attempt: which of its claims are reserved for the group, which are shared before they are
written.

Source: kube-scheduler 1.37 with GenericWorkload and DRAWorkloadResourceClaims (dra spec 20).
"""

from __future__ import annotations

import msgspec

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.api.resource import ResourceClaim
from scheduler.dra.features import Features
from scheduler.dra.podgroups import group_name
from scheduler.framework.cycle import Cycle
from scheduler.framework.status import Status, unresolvable
from scheduler.state.cluster import ClusterState


def find_group(cycle: Cycle, features: Features) -> PodGroup | Status | None:
    """The Pod's group, None without one (or with the gate off); a status when the Pod cannot be decided."""
    name = group_name(cycle.pod)
    if not features.generic_workload or not name:
        return None
    namespace = cycle.pod.metadata.namespace
    group = cycle.state.pod_groups.get(namespace, name)
    if group is None:
        return unresolvable(f'could not find PodGroup "{namespace}/{name}"')
    return group


def pending_here(state: ClusterState, claim: ResourceClaim) -> ResourceClaim | None:
    """The claim as an earlier member of the same PodGroup cycle will have it written, None when no one promised it."""
    flying = state.devices.ledger.in_flight(claim.uid)
    if flying is None or not state.pod_groups.promised_here(claim.uid):
        return None
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=flying))


def held_by_idle_group(state: ClusterState, claim: ResourceClaim, pod: Pod, group: PodGroup | None) -> bool:
    """True when only the Pod's group has reserved the claim and no Pod of the group has a node.

    Cost: all Pods; asked only when a claim is in the way of every node.
    """
    if group is None or not claim.consumers:
        return False
    if any(consumer.uid != group.metadata.uid for consumer in claim.consumers):
        return False
    return not any(
        placement.info.pod.metadata.namespace == pod.metadata.namespace
        and group_name(placement.info.pod) == group.metadata.name
        for placement in state.placements.values()
    )
