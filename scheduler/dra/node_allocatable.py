"""What allocated devices take of a node's own resources (alpha gate DRANodeAllocatableResources).

A CPU driver's device *is* cpu of the node (mapping, counted once per claim); a GPU may cost host memory besides
(overhead, per Pod and per container). Source: kube-scheduler 1.37 (dra spec 19). Devices are looked up in the newest
generation of their pool, where upstream takes any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from scheduler.api.core import (
    NodeAllocatableMappedResources,
    NodeAllocatableOverheadResources,
    NodeAllocatableResourceClaimStatus,
    Pod,
)
from scheduler.api.podrequests import (
    CPU,
    EPHEMERAL_STORAGE,
    MEMORY,
    container_requests,
    parse_resources,
    pod_requests,
)
from scheduler.api.quantity import Quantity, parse_quantity
from scheduler.api.resource import AllocationResult, Device, DeviceRequestAllocationResult, NodeAllocatableMapping
from scheduler.dra.devices import DeviceKey, PoolKey
from scheduler.dra.slices import SliceStore

HUGE_PAGES = "hugepages-"
Statuses = tuple[NodeAllocatableResourceClaimStatus, ...]


class FootprintError(ValueError):
    """The footprint of an allocation cannot be told; the text is upstream's. It ends the attempt."""


def find_device(slices: SliceStore, key: DeviceKey) -> Device | None:
    """The device in the newest generation of its pool, None when it is not published any more."""
    newest = None
    for info in slices.pool(PoolKey(key.driver, key.pool)):
        if newest is None or info.generation > newest[0]:
            found = next((device for device in info.slice.spec.devices if device.name == key.device), None)
            if found is not None:
                newest = (info.generation, found)
    return None if newest is None else newest[1]


def has_mapped_device(slices: SliceStore, allocation: AllocationResult) -> bool:
    """Whether a device of the allocation stands for node resources, so that Pods cannot share it."""
    for result in allocation.devices.results:
        device = find_device(slices, DeviceKey(result.driver, result.pool, result.device))
        if device is not None and any(entry.mapping is not None for entry in device.nodeAllocatableResources.values()):
            return True
    return False


@dataclass(slots=True)
class _Sums:
    mapping: dict[str, Quantity] = field(default_factory=dict)
    per_pod: dict[str, Quantity] = field(default_factory=dict)
    per_container: dict[str, Quantity] = field(default_factory=dict)


def claim_status(
    slices: SliceStore, namespace: str, name: str, allocation: AllocationResult, containers: Sequence[str]
) -> NodeAllocatableResourceClaimStatus | None:
    """What the claim takes of its node, None when nothing. ``containers``: all that use it, init containers first.

    Devices that are gone are passed over, unless others of the claim take something: then FootprintError.
    """
    found = [
        (result, find_device(slices, DeviceKey(result.driver, result.pool, result.device)))
        for result in allocation.devices.results
    ]
    if not any(device is not None and device.nodeAllocatableResources for _, device in found):
        return None
    sums = _Sums()
    for result, device in found:
        subject = f"claim {namespace}/{name}, device {result.device}"
        if device is None:
            raise FootprintError(
                f"{subject}, driver {result.driver}: device {result.device} not found in pool {result.pool} for "
                f"driver {result.driver}"
            )
        for resource, entry in device.nodeAllocatableResources.items():
            if entry.mapping is not None:
                _map(sums.mapping, resource, entry.mapping, result, subject)
            if entry.overhead is not None:
                _add(sums.per_pod, resource, entry.overhead.perPod)
                _add(sums.per_container, resource, entry.overhead.perContainer)
    overhead = sorted(sums.per_pod.keys() | sums.per_container.keys())
    if not sums.mapping and not overhead:
        return None
    return NodeAllocatableResourceClaimStatus(
        name,
        tuple(containers),
        tuple(NodeAllocatableMappedResources(key, str(sums.mapping[key])) for key in sorted(sums.mapping)),
        tuple(
            NodeAllocatableOverheadResources(key, _text(sums.per_pod.get(key)), _text(sums.per_container.get(key)))
            for key in overhead
        ),
    )


def _map(
    sums: dict[str, Quantity],
    resource: str,
    mapping: NodeAllocatableMapping,
    result: DeviceRequestAllocationResult,
    subject: str,
) -> None:
    if not mapping.capacityKey:
        _add(sums, resource, mapping.deviceMultiplier)
        return
    if result.consumedCapacity is None:
        raise FootprintError(
            f"{subject}: ConsumedCapacity is nil, but Capacity key '{mapping.capacityKey}' is set in "
            f"NodeAllocatableResources for resource {resource}"
        )
    consumed = result.consumedCapacity.get(mapping.capacityKey)
    if consumed is None:
        return
    amount = parse_quantity(consumed)
    if mapping.capacityMultiplier is not None:
        factor = parse_quantity(mapping.capacityMultiplier)
        amount = Quantity(amount.mantissa * factor.mantissa, amount.power + factor.power, amount.format)
    sums[resource] = sums[resource] + amount if resource in sums else amount


def _add(sums: dict[str, Quantity], resource: str, text: str | int | float | None) -> None:
    if text is not None:
        amount = parse_quantity(text)
        sums[resource] = sums[resource] + amount if resource in sums else amount


def _text(amount: Quantity | None) -> str | None:
    return None if amount is None else str(amount)


def with_statuses(pod: Pod, statuses: Statuses) -> Pod:
    """The same Pod taking these resources besides what it asks for."""
    status = msgspec.structs.replace(pod.status, nodeAllocatableResourceClaimStatuses=statuses)
    return msgspec.structs.replace(pod, status=status)


def pod_level_refusal(pod: Pod) -> str:
    """Why what the Pod as a whole asks for does not cover its containers and devices, "" when it does.

    ``pod`` carries the statuses. What the Pod asks for as a whole replaces every sum, so it must be enough for it.
    """
    resources = pod.spec.resources
    if resources is None or not pod.status.nodeAllocatableResourceClaimStatuses:
        return ""
    subject = f"Pod {pod.key}"
    requests = parse_resources(resources.requests, subject, "spec.resources.requests")
    needed = container_requests(pod)
    for name, amount in requests.items():
        if (name in (CPU, MEMORY) or name.startswith(HUGE_PAGES)) and name in needed and needed[name] > amount:
            return (
                f"pod level request for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA requests"
            )
    limits = parse_resources(resources.limits, subject, "spec.resources.limits")
    return "" if not limits else _limit_refusal(pod, subject, limits, needed)


def _limit_refusal(pod: Pod, subject: str, limits: Mapping[str, Quantity], needed: Mapping[str, Quantity]) -> str:
    for name, amount in needed.items():  # of huge pages requests and limits are the same
        if name.startswith(HUGE_PAGES) and name in limits and amount > limits[name]:
            return (
                f"pod level limit for {name} is insufficient to cover the aggregated container and "
                "node-allocatable DRA limits"
            )
    for container in pod.spec.containers:
        extra = _of_container(pod, container.name)
        own = parse_resources(container.resources.limits, subject, f"spec.containers[{container.name}].limits")
        for name, amount in own.items():
            if name.startswith(HUGE_PAGES) or name not in limits:
                continue
            if (amount + extra[name] if name in extra else amount) > limits[name]:
                return (
                    f"pod level limit for {name} is insufficient to cover the limit and DRA overhead for container "
                    f"{container.name}"
                )
    return ""


def _of_container(pod: Pod, container: str) -> dict[str, Quantity]:
    """What the devices of one container's claims add to its limits."""
    sums: dict[str, Quantity] = {}
    for status in pod.status.nodeAllocatableResourceClaimStatuses:
        if container in status.containers:
            for mapped in status.mapping:
                _add(sums, mapped.name, mapped.quantity)
            for overhead in status.overhead:
                _add(sums, overhead.name, overhead.perPod)
                _add(sums, overhead.name, overhead.perContainer)
    return sums


def demand(pod: Pod) -> dict[str, int]:
    """What the Pod with its statuses takes of a node's own resources: cpu in milli, others in units."""
    requests = pod_requests(pod)
    names = (CPU, MEMORY, EPHEMERAL_STORAGE, *sorted(name for name in requests if name.startswith(HUGE_PAGES)))
    return {name: requests[name] for name in names if requests.get(name, 0) > 0}
