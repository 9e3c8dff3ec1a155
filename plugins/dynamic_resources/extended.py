"""A Pod's extended resources that devices may serve, in one attempt.

Source: kube-scheduler 1.37, DynamicResources, extended resources (dra spec 18). Which resources devices serve differs
from node to node (a device plugin's allocatable wins), so there is one variant of the claim per set of resources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from scheduler.api.core import ContainerExtendedResourceRequest, Node, Pod, PodExtendedResourceClaimStatus
from scheduler.api.resource import AllocationResult, ConsumerReference, ResourceClaim
from scheduler.dra.extended import requested_resources, requests_and_mappings, special_claim, with_requests
from scheduler.dra.requests import Plan
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import CreateClaim, Instruction, PatchPodStatus
from scheduler.framework.plugin import Rows
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable

LEFT_OVER = "cannot schedule extended resource claim"
NOT_SERVED = "cannot fit resource"
STATUS_FIELD = "extendedResourceClaimStatus"


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """The special claim as nodes need it that serve the same resources with devices, and the plan to allocate it."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...]
    plan: Plan


@dataclass(slots=True)
class Extended:
    """``resources``: name → class that serves it or None. ``claim``: the special claim in memory, without requests.

    ``leftover``: the claim of an earlier attempt, which has to go first. ``created``: the claim once it is stored.
    """

    pod: Pod
    resources: dict[str, str | None]
    claim: ResourceClaim
    leftover: ResourceClaim | None = None
    created: ResourceClaim | None = None
    variants: dict[tuple[str, ...], Variant | None] = field(default_factory=dict)

    def refusal(self, node: Node) -> str:
        """Why the node is refused before any search, "" without a reason."""
        if self.leftover is not None:
            return LEFT_OVER
        if any(served is None and name not in node.status.allocatable for name, served in self.resources.items()):
            return NOT_SERVED
        return ""

    def served(self, nodes: NodeTable, row: int) -> tuple[str, ...]:
        """The resources that devices serve on a node: those its device plugins do not offer (absent or 0)."""
        return tuple(
            name for name, served in self.resources.items() if served is not None and nodes.allocatable(name)[row] <= 0
        )

    def variant(self, served: tuple[str, ...], plan: Callable[[ResourceClaim], Plan]) -> Variant | None:
        """The special claim for nodes that serve these; None when nothing is requested. ``plan`` prepares it."""
        if served not in self.variants:
            classes = {name: self.resources[name] or "" for name in served}
            requests, mappings = requests_and_mappings(self.pod, classes)
            claim = with_requests(self.claim, requests)
            self.variants[served] = Variant(claim, mappings, plan(claim)) if requests else None
        return self.variants[served]


def find_extended(cycle: Cycle, new_id: Callable[[], str]) -> Extended | None:
    """What the Pod asks for that devices may serve, None when there is nothing."""
    devices = cycle.state.devices
    resources = requested_resources(cycle.info.requests, devices.classes)
    if not resources:
        return None
    leftover = devices.special_claim_of(cycle.pod.metadata.namespace, cycle.pod.uid)
    return Extended(cycle.pod, resources, special_claim(cycle.pod, new_id()), leftover)


def variants_of_rows(
    extended: Extended | None, nodes: NodeTable, rows: Rows, plan: Callable[[ResourceClaim], Plan]
) -> Sequence[Variant | None]:
    """One per row; None where no device has to serve an extended resource. Cost: a few dictionary look-ups a row."""
    if extended is None or extended.leftover is not None:
        return [None] * len(rows)
    return [extended.variant(extended.served(nodes, row), plan) for row in rows.tolist()]


def creation(
    state: ClusterState,
    extended: Extended,
    variant: Variant,
    allocation: AllocationResult,
    reserved: dict[str, AllocationResult],
) -> list[Instruction]:
    """Create the special claim with its allocation, then tell the kubelet by the Pod's status.

    As soon as the claim has its real uid, what was in flight under the temporary one goes over to it, also in
    ``reserved``.
    """
    pod = extended.pod

    def created(claim: ResourceClaim) -> None:
        extended.created = claim
        ledger = state.devices.ledger
        if reserved.pop(variant.claim.uid, None) is not None:
            ledger.drop_in_flight(variant.claim.uid, force=True)
            ledger.set_in_flight(claim.uid, claim.key, allocation)
            reserved[claim.uid] = allocation
            state.devices.promise_special(pod.uid, claim)

    def status() -> dict[str, object]:
        name = "" if extended.created is None else extended.created.metadata.name
        return {STATUS_FIELD: msgspec.to_builtins(PodExtendedResourceClaimStatus(name, variant.mappings))}

    consumer = ConsumerReference("", "pods", pod.metadata.name, pod.uid)
    return [
        CreateClaim(variant.claim, consumer, allocation, created),
        PatchPodStatus(pod, status, f"update pod {pod.key} ExtendedResourceClaimStatus"),
    ]
