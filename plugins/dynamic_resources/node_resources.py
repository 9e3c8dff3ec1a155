"""Node resources that a Pod's devices take, in one attempt: does the node have them, and who is told.

Source: kube-scheduler 1.37, DynamicResources, node-allocatable resources (dra spec 19, alpha gate
DRANodeAllocatableResources).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from plugins.dynamic_resources.attempt import ClaimsOfPod
from plugins.dynamic_resources.searching import NAME, NodeSearches
from scheduler.api.core import Pod
from scheduler.api.quantity import QuantityError
from scheduler.api.resource import AllocationResult
from scheduler.dra.claims import claims_by_entry
from scheduler.dra.node_allocatable import (
    FootprintError,
    Statuses,
    claim_status,
    demand,
    has_mapped_device,
    pod_level_refusal,
    with_statuses,
)
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import PatchPodStatus
from scheduler.framework.plugin import Rows, Verdicts
from scheduler.framework.status import Code
from scheduler.state.nodes import NodeTable

STATUS_FIELD = "nodeAllocatableResourceClaimStatuses"


def sharing_refusal(cycle: Cycle, attempt: ClaimsOfPod) -> str:
    """Why the Pod cannot use one of its allocated claims on any node, "" when it can: node resources are not shared."""
    slices = cycle.state.devices.slices
    for held in attempt.held:
        claim, allocation = held.claim, held.claim.status.allocation
        others = bool(claim.consumers) and not attempt.reserved_already(claim, cycle.pod)
        if others and allocation is not None and has_mapped_device(slices, allocation):
            return (
                f"node allocatable resource claim {claim.metadata.name} has a mapped device and cannot be shared "
                "across pods"
            )
    return ""


def check_rows(
    cycle: Cycle, attempt: ClaimsOfPod, searches: NodeSearches, nodes: NodeTable, rows: Rows, verdicts: Verdicts
) -> None:
    """Refuse rows that are feasible so far but lack what the devices take. Cost: a sum per feasible row."""
    for place, row in enumerate(rows.tolist()):
        if verdicts[place]:
            continue
        name = nodes.name_of(row)
        allocation = searches.found(cycle, attempt, name)
        given: dict[str, AllocationResult] = {}
        if allocation is not None:
            results = allocation.results(lambda: "")  # the ids of shares do not matter here
            given = {claim.uid: result for claim, result in zip(attempt.open_on(name), results, strict=True)}
        statuses = statuses_on(cycle, attempt, name, given)
        if not statuses:
            continue
        taking = with_statuses(cycle.pod, statuses)
        refusal = pod_level_refusal(taking)
        if refusal:
            verdicts[place] = searches.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (refusal,))
            continue
        verdicts[place] = _fit(searches, nodes, row, demand(taking))


def _fit(searches: NodeSearches, nodes: NodeTable, row: int, needed: Mapping[str, int]) -> int:
    """The verdict for what is needed of one node, 0 when it is there."""
    reasons, beyond = [], False
    for name, amount in needed.items():
        allocatable = int(nodes.allocatable(name)[row])
        if amount > allocatable - int(nodes.requested(name)[row]):
            reasons.append(f"Insufficient {name}")
            beyond = beyond or amount > allocatable
    if not reasons:
        return 0
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if beyond else Code.UNSCHEDULABLE
    return searches.verdicts.intern(code, reasons)


def statuses_on(cycle: Cycle, attempt: ClaimsOfPod, node: str, given: Mapping[str, AllocationResult]) -> Statuses:
    """What each claim takes of a node, by claim name; ``given``: claim uid → what it would be allocated there.

    Raises PluginError where the footprint cannot be told: that ends the attempt.
    """
    pod, slices = cycle.pod, cycle.state.devices.slices
    entries = claims_by_entry(pod)
    found = []
    for claim in (*(held.claim for held in attempt.held), *attempt.open_on(node)):
        allocation = given.get(claim.uid, claim.status.allocation)
        if allocation is None:
            continue
        users = _users(pod, {entry for entry, name in entries.items() if name == claim.metadata.name})
        try:
            status = claim_status(slices, claim.metadata.namespace, claim.metadata.name, allocation, users)
        except (FootprintError, QuantityError) as problem:
            raise PluginError.worded(NAME, "Filter", f'running "{NAME}" filter plugin: {problem}', node) from problem
        if status is not None:
            found.append(status)
    return tuple(sorted(found, key=lambda status: status.resourceClaimName))


def _users(pod: Pod, entries: set[str]) -> list[str]:
    """The containers that use one of these entries of the Pod's claims, init containers first."""
    return [
        container.name
        for container in (*pod.spec.initContainers, *pod.spec.containers)
        for used in container.resources.claims
        if used.name in entries
    ]


def promise(cycle: Cycle, attempt: ClaimsOfPod, node: str) -> None:
    """Reserve: count what the promised devices take on the node at once."""
    attempt.statuses = statuses_on(cycle, attempt, node, attempt.reserved)
    if attempt.statuses:
        cycle.state.revise(with_statuses(cycle.pod, attempt.statuses))


def writing(attempt: ClaimsOfPod, pod: Pod) -> PatchPodStatus:
    """PreBind: tell the kubelet. A claim made for extended resources has got its name by then."""

    def status() -> dict[str, object]:
        attempt.statuses_written = True
        made = None if attempt.extended is None else attempt.extended.created
        named = [
            msgspec.structs.replace(entry, resourceClaimName=made.metadata.name)
            if made is not None
            and attempt.extended is not None
            and entry.resourceClaimName == attempt.extended.claim.metadata.name
            else entry
            for entry in attempt.statuses
        ]
        return {STATUS_FIELD: msgspec.to_builtins(named)}

    return PatchPodStatus(pod, status, f"update pod {pod.key} NodeAllocatableResourceClaimStatuses")


def clearing(pod: Pod) -> PatchPodStatus:
    """Unreserve: the Pod takes nothing any more."""
    return PatchPodStatus(pod, lambda: {STATUS_FIELD: []}, f"clear pod {pod.key} NodeAllocatableResourceClaimStatuses")
