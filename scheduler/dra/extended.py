"""Extended resources that device classes stand for: the claim made for a Pod, its requests, who uses which.

Source: kube-scheduler 1.37, DynamicResources, extended resources (dra spec 18). The claim exists in memory until the
Pod is bound; its name there is only the beginning of the real one, which no object can have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from scheduler.api.core import Container, ContainerExtendedResourceRequest, Pod
from scheduler.api.meta import ObjectMeta, OwnerReference
from scheduler.api.podrequests import is_extended
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import (
    EXACT_COUNT,
    EXTENDED_RESOURCE_CLAIM_ANNOTATION,
    IMPLICIT_CLASS_PREFIX,
    DeviceClaim,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from scheduler.dra.classes import ClassStore

_Mapping = ContainerExtendedResourceRequest


def requested_resources(requests: Mapping[str, int], classes: ClassStore) -> dict[str, str | None]:
    """The Pod's extended resources by name, sorted, with the class that serves each (None: none does).

    ``requests``: what the Pod asks of a node. Empty when no class serves any of them: then nothing is to be done.
    """
    found = {
        name: None if (served := classes.for_extended_resource(name)) is None else served.name
        for name, amount in sorted(requests.items())
        if amount and (is_extended(name) or name.startswith(IMPLICIT_CLASS_PREFIX))
    }
    return found if any(found.values()) else {}


def special_owner(claim: ResourceClaim) -> str:
    """UID of the Pod a claim was made for because of its extended resources; "" for all other claims."""
    if claim.metadata.annotations.get(EXTENDED_RESOURCE_CLAIM_ANNOTATION) != "true":
        return ""
    controller = claim.metadata.controller()
    return "" if controller is None else controller.uid


def special_claim(pod: Pod, uid: str) -> ResourceClaim:
    """The Pod's claim in memory, without requests. ``uid`` is temporary: the server gives the real one."""
    meta = ObjectMeta(
        name=f"{pod.metadata.name}-extended-resources-",
        namespace=pod.metadata.namespace,
        uid=uid,
        annotations={EXTENDED_RESOURCE_CLAIM_ANNOTATION: "true"},
        ownerReferences=(OwnerReference("v1", "Pod", pod.metadata.name, pod.uid, True),),
    )
    return ResourceClaim(meta)


def with_requests(claim: ResourceClaim, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    """The same claim asking for ``requests``."""
    return msgspec.structs.replace(claim, spec=ResourceClaimSpec(DeviceClaim(tuple(requests))))


def requests_and_mappings(
    pod: Pod, served: Mapping[str, str]
) -> tuple[tuple[DeviceRequest, ...], tuple[_Mapping, ...]]:
    """Requests of the special claim, sorted by name, and which container uses which of them (dra spec 18.4).

    ``served``: resource → class, for the resources that devices serve. An init container runs before the containers
    that come after it, so it uses their devices first; of what the init containers need beyond that only the largest
    part is requested, as they run one after the other.
    """
    draft = _Draft(pod)
    for resource in sorted(served):
        draft.add(resource, served[resource])
    return tuple(sorted(draft.requests, key=lambda request: request.name)), tuple(draft.mappings)


@dataclass(slots=True)
class _Draft:
    pod: Pod
    requests: list[DeviceRequest] = field(default_factory=list)
    mappings: list[_Mapping] = field(default_factory=list)

    def add(self, resource: str, class_name: str) -> None:
        """All containers' needs of one resource."""
        long_lived: list[tuple[int, str, int]] = []
        for place, container, lasts in self._containers():
            count = _count(container, resource)
            if lasts and count:
                name = _request_name(place, container, resource)
                long_lived.append((place, name, count))
                self.requests.append(_request(name, class_name, count))
                self.mappings.append(_Mapping(container.name, resource, name))
        short_lived: list[tuple[str, str]] = []  # (container, request; "" for what is requested for all of them)
        own: tuple[str, int] | None = None
        for place, container, lasts in self._containers():
            count = _count(container, resource)
            if lasts or not count:
                continue
            for position, name, present in long_lived:
                if position >= place and count > 0:
                    short_lived.append((container.name, name))
                    count -= present
            if count > 0:
                short_lived.append((container.name, ""))
                if own is None or count > own[1]:  # the first of equals
                    own = _request_name(place, container, resource), count
        kept = ""
        if own is not None:
            kept, count = own
            self.requests.append(_request(kept, class_name, count))
        self.mappings.extend(_Mapping(container, resource, name or kept) for container, name in short_lived)

    def _containers(self) -> Iterator[tuple[int, Container, bool]]:
        """(number over init containers and containers, container, whether it lasts as long as the Pod)."""
        spec = self.pod.spec
        for place, container in enumerate(spec.initContainers):
            yield place, container, container.restartPolicy == "Always"
        for place, container in enumerate(spec.containers, len(spec.initContainers)):
            yield place, container, True


def _count(container: Container, resource: str) -> int:
    """How many a container asks for; 0 for what is no whole number that fits 64 bits."""
    text = (container.resources.requests or {}).get(resource)
    if text is None:
        return 0
    try:
        return max(parse_quantity(text).exact_int64() or 0, 0)
    except QuantityError:
        return 0


def _request_name(place: int, container: Container, resource: str) -> str:
    names = sorted(container.resources.requests or {})
    return f"container-{place}-request-{names.index(resource)}"


def _request(name: str, class_name: str, count: int) -> DeviceRequest:
    asked = ExactDeviceRequest(deviceClassName=class_name, allocationMode=EXACT_COUNT, count=count)
    return DeviceRequest(name, asked)
