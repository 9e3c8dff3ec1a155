"""Claims that the controller has not made yet: from the templates in the same input, named as it would name them."""

from __future__ import annotations

import msgspec

from scheduler.api.core import Pod, PodResourceClaimStatus
from scheduler.api.kinds import POD, RESOURCE_CLAIM, Kind
from scheduler.api.meta import ObjectMeta, OwnerReference
from scheduler.api.resource import ResourceClaim
from scheduler.explain.quotas import Quotas
from scheduler.whatif.objects import Objects


def make_claims(objects: Objects) -> list[str]:
    """Make the missing claims of waiting Pods whose template is known, and note them in the Pods' status.

    Those that a quota refuses are not made. Answers with the Pods (``namespace/name``) for which claims were made.
    Without it a Pod from a manifest, which no controller has seen, could only be told that its claim does not exist.
    """
    made, quotas = [], objects.quotas()
    for key, (kind, pod) in list(objects.decoded.items()):
        waits = kind.name == POD.name and not pod.spec.nodeName and not pod.terminal
        if waits and _complete(objects, kind, key, pod, quotas):
            made.append(pod.key)
    return made


def _complete(objects: Objects, kind: Kind, key: tuple[str, str], pod: Pod, quotas: Quotas) -> bool:
    known = {status.name for status in pod.status.resourceClaimStatuses}
    statuses = list(pod.status.resourceClaimStatuses)
    for entry in pod.spec.resourceClaims:
        if entry.resourceClaimTemplateName is None or entry.name in known:
            continue
        template = objects.templates.get(f"{pod.metadata.namespace}/{entry.resourceClaimTemplateName}")
        if template is None:
            continue
        claim = claim_for(pod, entry.name, template)
        if quotas.refusals(claim, objects.of(RESOURCE_CLAIM.name)):
            continue
        objects.decoded[(RESOURCE_CLAIM.name, claim.key)] = RESOURCE_CLAIM, claim
        objects.found.add(RESOURCE_CLAIM.name)
        statuses.append(PodResourceClaimStatus(name=entry.name, resourceClaimName=claim.metadata.name))
    if len(statuses) == len(known):
        return False
    status = msgspec.structs.replace(pod.status, resourceClaimStatuses=tuple(statuses))
    objects.decoded[key] = kind, msgspec.structs.replace(pod, status=status)
    return True


def claim_for(pod: Pod, entry: str, template: ResourceClaim) -> ResourceClaim:
    """The claim of one entry of a Pod. Its name lacks the random end, so that equal input gives equal names."""
    name = f"{pod.metadata.name}-{entry}"
    owner = OwnerReference("v1", "Pod", pod.metadata.name, pod.uid, True)
    metadata = ObjectMeta(
        name=name,
        namespace=pod.metadata.namespace,
        uid=f"resourceclaim/{pod.metadata.namespace}/{name}",
        resourceVersion="1",
        ownerReferences=(owner,),
    )
    return msgspec.structs.replace(template, metadata=metadata)
