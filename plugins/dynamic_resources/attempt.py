"""What DynamicResources keeps for one attempt, and how PreFilter fills it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from plugins.dynamic_resources.extended import Extended, Variant
from scheduler.api.core import Node, Pod
from scheduler.api.podgroups import PodGroup
from scheduler.api.resource import RESERVED_FOR_MAX, AllocationResult, ResourceClaim
from scheduler.api.selectors import NodeSelector, SelectorError, check_node_selector, node_selector_matches
from scheduler.dra.allocator import Allocation
from scheduler.dra.classes import ClassStore
from scheduler.dra.features import Features
from scheduler.dra.node_allocatable import Statuses
from scheduler.dra.podgroups import reservation
from scheduler.dra.requests import Plan
from scheduler.dra.suitability import NODE_FEATURE
from scheduler.framework.plugin import Rows
from scheduler.framework.status import Status, error, unresolvable
from scheduler.state.nodes import NodeTable


@dataclass(frozen=True, slots=True)
class Held:
    """A claim that has its allocation already: where it can be used. ``pending``: promised, not written yet."""

    claim: ResourceClaim
    selector: NodeSelector | None
    needs_feature: bool
    broken: bool
    pending: bool = False

    def available_rows(self, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        """``available`` for many nodes; almost all allocations are pinned to one node, which costs one comparison."""
        if self.broken:
            return np.zeros(len(rows), np.bool_)
        if self.selector is None and not self.needs_feature:
            return np.ones(len(rows), np.bool_)
        pinned = _pinned_name(self.selector)
        if pinned is not None and not self.needs_feature:
            row = nodes.row_of(pinned)
            return np.zeros(len(rows), np.bool_) if row is None else rows == row
        return np.array([self.available(nodes.node(row)) for row in rows.tolist()], np.bool_)

    def available(self, node: Node) -> bool:
        """Whether the allocation can be used on ``node``."""
        if self.broken or (self.needs_feature and NODE_FEATURE not in node.status.declaredFeatures):
            return False
        return self.selector is None or node_selector_matches(self.selector, node.name, node.metadata.labels)


def _pinned_name(selector: NodeSelector | None) -> str | None:
    """The only node a selector allows when it is just that: metadata.name In [one name]."""
    if selector is None or len(selector.nodeSelectorTerms) != 1:
        return None
    term = selector.nodeSelectorTerms[0]
    if term.matchExpressions or len(term.matchFields) != 1:
        return None
    field = term.matchFields[0]
    return field.values[0] if field.key == "metadata.name" and field.operator == "In" and field.values else None


@dataclass(slots=True)
class ClaimsOfPod:
    """One attempt's claims in order.

    ``extended``: the Pod's extended resources that devices may serve, ``special``: node name → what it needs for them
    (no entry: its device plugins serve them). ``open``: claims without an allocation, to be allocated together;
    ``plan`` is None without any. ``found``: node name → allocation finished in this attempt; ``unavailable``: claims
    (by uid) that some node cannot use; ``reserved``: claim uid → what Reserve promised it. ``scores``: raw scores by
    row; ``classes_version``: of the classes the plans were made with. ``statuses``: what the promised devices take of
    the node's own resources, ``statuses_written``: the Pod's status may say so. ``group``: the
    Pod's group, ``group_claims``: whether reservations for it count (gate DRAWorkloadResourceClaims). ``asked``: the
    ``question`` about most nodes.
    """

    claims: list[ResourceClaim]
    extended: Extended | None = None
    special: dict[str, Variant] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    open: list[ResourceClaim] = field(default_factory=list)
    plan: Plan | None = None
    found: dict[str, Allocation] = field(default_factory=dict)
    unavailable: dict[str, ResourceClaim] = field(default_factory=dict)
    reserved: dict[str, AllocationResult] = field(default_factory=dict)
    scores: NDArray[np.int64] | None = None
    classes_version: int = 0
    statuses: Statuses = ()
    statuses_written: bool = False
    group: PodGroup | None = None
    group_claims: bool = False
    asked: Hashable = None

    def shape(self, more: Sequence[ResourceClaim] = ()) -> Hashable:
        """Equal for Pods whose open claims (and ``more``) ask for the same: their specs, never their names."""
        return self.classes_version, *(msgspec.json.encode(claim.spec.devices) for claim in (*self.open, *more))

    def question(self, node: str) -> Hashable:
        """Equal for the same claims asking for the same on a node, names included."""
        special = self.special.get(node)
        if special is not None:
            return self.shape((special.claim,)), *(claim.key for claim in self.open_on(node))
        if self.asked is None:
            self.asked = self.shape(), *(claim.key for claim in self.open)
        return self.asked

    def reserved_already(self, claim: ResourceClaim, pod: Pod) -> bool:
        """Whether the claim is reserved for the Pod, or for its group where that counts."""
        return reservation(claim, pod) is not None if self.group_claims else claim.reserved_for(pod.uid)

    def plan_on(self, node: str) -> Plan | None:
        """What is to be allocated on a node, None when nothing is."""
        special = self.special.get(node)
        return self.plan if special is None else special.plan

    def open_on(self, node: str) -> list[ResourceClaim]:
        """The claims that ``plan_on`` allocates, in order: the one for extended resources is the last."""
        special = self.special.get(node)
        return self.open if special is None else [*self.open, special.claim]


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


def hold(claim: ResourceClaim, broken: bool, pending: bool = False) -> Held | Status:
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
    return Held(claim, selector, needs_feature, broken, pending)


def check_room(attempt: ClaimsOfPod, claim: ResourceClaim, pod: Pod) -> Status | None:
    """A claim has room for 256 consumers; the API server refuses the next one, so say it before anything is tried."""
    if len(claim.status.reservedFor) < RESERVED_FOR_MAX or attempt.reserved_already(claim, pod):
        return None
    return unresolvable(f"resource claim {claim.key} is reserved for {RESERVED_FOR_MAX} consumers, which is the limit")
