"""What DynamicResources keeps for one attempt, and how PreFilter fills it."""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler.api.core import Node, Pod
from scheduler.api.resource import RESERVED_FOR_MAX, AllocationResult, ResourceClaim
from scheduler.api.selectors import NodeSelector, SelectorError, check_node_selector, node_selector_matches
from scheduler.dra.allocator import Allocation
from scheduler.dra.classes import ClassStore
from scheduler.dra.features import Features
from scheduler.dra.requests import Plan
from scheduler.dra.suitability import NODE_FEATURE
from scheduler.framework.status import Status, error, unresolvable


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that has its allocation already: where it can be used."""

    claim: ResourceClaim
    selector: NodeSelector | None
    needs_feature: bool
    broken: bool

    def available(self, node: Node) -> bool:
        """Whether the allocation can be used on ``node``."""
        if self.broken or (self.needs_feature and NODE_FEATURE not in node.status.declaredFeatures):
            return False
        return self.selector is None or node_selector_matches(self.selector, node.name, node.metadata.labels)


@dataclass(slots=True)
class ClaimsOfPod:
    """One attempt's claims in order.

    ``extended``: extended resources that a device class may serve. ``open``: claims without an allocation, to be
    allocated together; ``plan`` is None without any. ``found``: node name → finished allocation; ``unavailable``:
    claims (by uid) that some node cannot use; ``reserved``: claim uid → what Reserve promised it.
    """

    claims: list[ResourceClaim]
    extended: tuple[str, ...] = ()
    held: list[Held] = field(default_factory=list)
    open: list[ResourceClaim] = field(default_factory=list)
    plan: Plan | None = None
    found: dict[str, Allocation] = field(default_factory=dict)
    unavailable: dict[str, ResourceClaim] = field(default_factory=dict)
    reserved: dict[str, AllocationResult] = field(default_factory=dict)


def check_requests(claim: ResourceClaim, classes: ClassStore, features: Features) -> Status | None:
    """PreFilter's look at the requests of a claim without allocation; None when they can be tried."""
    for request in claim.spec.devices.requests:
        if request.exactly is not None:
            asked = [(request.name, request.exactly.deviceClassName)]
        elif request.firstAvailable:
            if not features.prioritized_list:
                return unresolvable(
                    f"resource claim {claim.key}, request {request.name}: has subrequests, but the "
                    "DRAPrioritizedList feature is disabled"
                )
            asked = [(f"{request.name}/{sub.name}", sub.deviceClassName) for sub in request.firstAvailable]
        else:
            return unresolvable(f"resource claim {claim.key}, request {request.name}: unknown request type")
        for name, class_name in asked:
            if not class_name:
                return error(f"request {name}: unsupported request type")
            if classes.get(class_name) is None:
                return unresolvable(f"request {name}: device class {class_name} does not exist")
    return None


def hold(claim: ResourceClaim, broken: bool) -> Held | Status:
    """An allocated claim as the filter needs it; an Error status when its node selector does not parse."""
    allocation = claim.status.allocation
    assert allocation is not None
    selector = allocation.nodeSelector
    if selector is not None:
        try:
            check_node_selector(selector)
        except SelectorError as problem:
            return error(str(problem))
    needs_feature = any(result.skipNodeOperations for result in allocation.devices.results)
    return Held(claim, selector, needs_feature, broken)


def check_room(claim: ResourceClaim, pod: Pod) -> Status | None:
    """A claim has room for 256 consumers; the API server refuses the next one, so say it before anything is tried."""
    if len(claim.status.reservedFor) < RESERVED_FOR_MAX or claim.reserved_for(pod.uid):
        return None
    return unresolvable(f"resource claim {claim.key} is reserved for {RESERVED_FOR_MAX} consumers, which is the limit")
