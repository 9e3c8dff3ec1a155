"""Claims that belong to a Pod's group: who is written into reservedFor, who may use them.

Source: kube-scheduler 1.37 with the gates GenericWorkload and DRAWorkloadResourceClaims (dra spec 3 and 20).
"""

from __future__ import annotations

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.api.resource import ConsumerReference, ResourceClaim
from scheduler.dra.claims import claims_by_entry

GROUP, RESOURCE = "scheduling.k8s.io", "podgroups"


def group_name(pod: Pod) -> str:
    """The name of the Pod's group, "" without one."""
    return "" if pod.spec.schedulingGroup is None else pod.spec.schedulingGroup.podGroupName or ""


def pod_consumer(pod: Pod) -> ConsumerReference:
    """The Pod itself."""
    return ConsumerReference("", "pods", pod.metadata.name, pod.uid)


def consumers_of(pod: Pod, group: PodGroup | None) -> dict[str, ConsumerReference]:
    """Claim name → the consumer to reserve it for, for the claims that belong to ``group``; all others are the Pod's.

    A claim belongs to the group when one of its entries equals the Pod's: same entry name, same claim or template.
    """
    if group is None:
        return {}
    names = claims_by_entry(pod)
    reference = ConsumerReference(GROUP, RESOURCE, group.metadata.name, group.metadata.uid)
    shared = set(group.spec.resourceClaims)
    return {
        names[entry.name]: reference for entry in pod.spec.resourceClaims if entry in shared and entry.name in names
    }


def means(consumer: ConsumerReference, pod: Pod) -> bool:
    """True when a reservation lets ``pod`` use the claim: it is for the Pod, or for the group that the Pod names.

    The Pod does not know its group's uid, so only the name counts.
    """
    if consumer.uid == pod.uid:
        return True
    name = group_name(pod)
    return bool(name) and (consumer.apiGroup, consumer.resource, consumer.name) == (GROUP, RESOURCE, name)


def reservation(claim: ResourceClaim, pod: Pod) -> ConsumerReference | None:
    """The reservation that lets ``pod`` use the claim, None without one."""
    return next((consumer for consumer in claim.consumers if means(consumer, pod)), None)
