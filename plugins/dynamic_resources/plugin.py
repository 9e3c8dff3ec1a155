"""The DynamicResources plugin: one short method per extension point.

Source: kube-scheduler 1.37, DynamicResources (dra spec 4); texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence

import numpy as np

from plugins.dynamic_resources import node_resources
from plugins.dynamic_resources.attempt import ClaimsOfPod, check_requests, check_room, hold
from plugins.dynamic_resources.because import because
from plugins.dynamic_resources.binding import binding_wait
from plugins.dynamic_resources.extended import creation, find_extended
from plugins.dynamic_resources.groups import find_group, held_by_idle_group, pending_here
from plugins.dynamic_resources.hints import registrations
from plugins.dynamic_resources.scoring import raw_score
from plugins.dynamic_resources.searching import NAME, STEPS_PER_S, NodeSearches
from scheduler.api.core import Node, Pod
from scheduler.api.resource import ResourceClaim
from scheduler.dra.claims import ClaimError, binding_state, binding_timed_out, has_binding_conditions, resolve_claims
from scheduler.dra.features import Features
from scheduler.dra.podgroups import consumers_of, pod_consumer
from scheduler.dra.rejections import DeviceSearch, Rejection
from scheduler.dra.reporter import Collector
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Registration
from scheduler.framework.instructions import DeallocateClaim, DeleteClaim, Instruction, UnreserveClaim, WriteClaim
from scheduler.framework.plugin import Depends, Handle, PostFilterResult, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, VerdictTable, error, unresolvable, unschedulable
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable

FILTER_TIMEOUT_S = 10.0
BINDING_TIMEOUT_S = 600.0
_EXPLAIN_STEPS = 500
_UNRESOLVABLE = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class DynamicResources:
    """Allocates the Pod's claims, reserves them and writes them before the Pod is bound."""

    name: str = NAME
    pre_bind_parallel = True
    even_normalize = True
    depends = Depends.NOTHING

    def __init__(self, handle: Handle) -> None:
        self._state: ClusterState = handle.state
        self._new_id: Callable[[], str] = handle.new_id
        self._features: Features = handle.features or self._state.features
        self._binding_timeout_s = float(handle.arguments.get("bindingTimeout", BINDING_TIMEOUT_S))
        self.verdicts = VerdictTable(NAME)
        filter_timeout_s = float(handle.arguments.get("filterTimeout", FILTER_TIMEOUT_S))
        self._searches = NodeSearches(self._features, self.verdicts, filter_timeout_s)
        self._unavailable = self.verdicts.intern(_UNRESOLVABLE, ("resourceclaim not available on the node",))

    def events(self) -> Sequence[Registration]:
        """What may make a refused Pod fit."""
        return registrations(self._state.devices.claim, self._features)

    def pre_enqueue(self, pod: Pod) -> Status:
        """A Pod waits outside the queue until all its claims exist and may be used."""
        try:
            resolve_claims(pod, self._state.devices.claim, self._features.workload_claims)
        except ClaimError as problem:
            return unresolvable(str(problem))
        return SUCCESS

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Find the claims, look at their requests, and prepare one plan for all nodes."""
        devices = cycle.state.devices
        cycle.data[NAME] = None
        spec = cycle.pod.spec
        if not spec.resourceClaims and spec.schedulingGroup is None and not any("/" in n for n in cycle.info.requests):
            return PreFilterResult(SKIP)  # nothing that devices could serve: most Pods of most clusters
        try:
            claims = resolve_claims(cycle.pod, devices.claim, self._features.workload_claims)
        except ClaimError as problem:
            return PreFilterResult(unresolvable(str(problem)))
        group = find_group(cycle, self._features)
        if isinstance(group, Status):
            return PreFilterResult(group)
        attempt = ClaimsOfPod(claims, find_extended(cycle, self._new_id), classes_version=devices.classes.version)
        if not claims and attempt.extended is None:
            return PreFilterResult(SKIP)
        attempt.group, attempt.group_claims = group, self._features.workload_claims
        for claim in claims:
            status = self._sort_in(cycle, attempt, claim)
            if status is not None:
                return PreFilterResult(status)
        if attempt.open:
            attempt.plan = self._searches.prepare(cycle, attempt.open)
        cycle.data[NAME] = attempt
        return PreFilterResult(SUCCESS)

    def _sort_in(self, cycle: Cycle, attempt: ClaimsOfPod, claim: ResourceClaim) -> Status | None:
        """Put a claim among those held or open; a status ends the attempt."""
        devices = cycle.state.devices
        if claim.status.allocation is not None:
            full = check_room(attempt, claim, cycle.pod)
            if full is not None:
                return full
            held = hold(claim, self._binding_broken(cycle, claim))
            if isinstance(held, Status):
                return held
            attempt.held.append(held)
            return None
        promised = pending_here(cycle.state, claim)
        if promised is not None:
            shared = hold(promised, False, pending=True)
            if isinstance(shared, Status):
                return shared
            attempt.held.append(shared)
            return None
        if devices.ledger.in_flight(claim.uid) is not None:
            return unresolvable(f"resource claim {claim.key} is in the process of being allocated")
        attempt.open.append(claim)
        return check_requests(claim, devices.classes, self._features)

    def _binding_broken(self, cycle: Cycle, claim: ResourceClaim) -> bool:
        """Whether binding failed or took too long: then the claim is of no use on any node."""
        if not self._features.binding_conditions or not has_binding_conditions(claim):
            return False
        ready, failure = binding_state(claim)
        if failure:
            return True
        return not ready and binding_timed_out(claim, cycle.now, self._binding_timeout_s)

    def signature(self, cycle: Cycle) -> Hashable | None:
        """Only for Pods without claims: their score is 0 everywhere."""
        return () if cycle.data.get(NAME) is None else None

    def filter_steps(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Verdicts]:
        """Search each node's devices, in row order; the first error ends the attempt for all nodes."""
        attempt: ClaimsOfPod = cycle.data[NAME]
        verdicts = np.zeros(len(rows), dtype=np.int64)
        unavailable = np.zeros(len(rows), dtype=np.bool_)
        for held in attempt.held:
            here = held.available_rows(nodes, rows)
            if not here.all() and held.pending:
                unavailable |= ~here
            elif not here.all():
                # Remembered even where the other claims find no devices, so that PostFilter can free them.
                attempt.unavailable[held.claim.uid] = held.claim
                unavailable |= ~here
        if self._features.node_allocatable:
            refusal = node_resources.sharing_refusal(cycle, attempt)
            if refusal:
                verdicts[:] = self.verdicts.intern(_UNRESOLVABLE, (refusal,))
                return verdicts
        groups = self._searches.groups(cycle, attempt, nodes, rows, verdicts)
        yield from self._searches.ask(cycle, attempt, groups, nodes, rows)
        attempt.scores = np.zeros(nodes.capacity, dtype=np.int64)
        for group in groups:
            asked = rows[group.places]
            verdicts[group.places] = group.answers.verdicts[asked]
            attempt.scores[asked] = group.answers.scores[asked]
        if self._features.node_allocatable:
            node_resources.check_rows(cycle, attempt, self._searches, nodes, rows, verdicts)
        verdicts[(verdicts == 0) & unavailable] = self._unavailable
        return verdicts

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterable[Because]:
        """Claims that have their devices elsewhere; why devices do not serve, ``device_reasons`` says."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        return () if attempt is None else because(attempt, nodes.node(row))

    def post_filter(
        self, cycle: Cycle, statuses: Mapping[str, Status]
    ) -> Generator[Instruction, str | None, PostFilterResult]:
        """Free one claim that is in the way and used by nobody else.

        When an earlier plugin's PreFilter has ended the attempt, upstream finds no state here and says so.
        """
        if NAME not in cycle.data:
            return PostFilterResult(error("not found"))
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        for claim in attempt.unavailable.values() if attempt is not None else ():
            only = cycle.pod.uid
            if attempt is not None and held_by_idle_group(cycle.state, claim, cycle.pod, attempt.group):
                only = claim.consumers[0].uid
            if any(consumer.uid != only for consumer in claim.consumers):
                continue
            failure = yield DeallocateClaim(claim, only)
            if failure is not None:
                return PostFilterResult(error(failure))
            return PostFilterResult(unschedulable("deallocation of ResourceClaim completed"))
        if attempt is not None and attempt.extended is not None and attempt.extended.leftover is not None:
            failure = yield DeleteClaim(attempt.extended.leftover)
            if failure is not None:
                return PostFilterResult(error(failure))
            return PostFilterResult(unschedulable("deletion of ResourceClaim completed"))
        return PostFilterResult(unschedulable())

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Better alternatives of firstAvailable requests score higher."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        scores = np.zeros(len(rows), dtype=np.int64)
        if attempt is None or not self._features.prioritized_list:
            return scores
        held = sum(raw_score(item.claim, item.claim.status.allocation) for item in attempt.held)
        if attempt.scores is not None:
            scores = attempt.scores[rows]
        return scores + held

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The highest raw score becomes 100, others in proportion; all 0 stays 0."""
        highest = int(scores.max()) if len(scores) else 0
        return scores if not highest else scores * 100 // highest

    def reserve(self, cycle: Cycle, node: str) -> Status:
        """Promise the node's devices to the open claims, so that the next Pod sees them taken."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return SUCCESS
        for held in attempt.held:
            allocation = held.claim.status.allocation
            if held.pending and allocation is not None:
                cycle.state.devices.ledger.set_in_flight(held.claim.uid, held.claim.key, allocation)
                attempt.reserved[held.claim.uid] = allocation
        if attempt.open_on(node):
            failure = self._promise(cycle, attempt, node)
            if failure is not None:
                return failure
        if self._features.node_allocatable:
            node_resources.promise(cycle, attempt, node)
        return SUCCESS

    def _promise(self, cycle: Cycle, attempt: ClaimsOfPod, node: str) -> Status | None:
        allocation = self._searches.found(cycle, attempt, node)
        if allocation is None:
            return error("claim allocation not found for node")
        ledger = cycle.state.devices.ledger
        for claim, result in zip(attempt.open_on(node), allocation.results(self._new_id), strict=True):
            ledger.set_in_flight(claim.uid, claim.key, result)
            attempt.reserved[claim.uid] = result
            cycle.state.pod_groups.note_promised(claim.uid)
        special = attempt.special.get(node)
        if special is not None:
            cycle.state.devices.promise_special(cycle.pod.uid, special.claim)
        return None

    def unreserve(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Give back what was promised; take the Pod out of the claims that list it. Allocations stay."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return ()
        devices = cycle.state.devices
        for uid in attempt.reserved:
            devices.ledger.drop_in_flight(uid)
        attempt.reserved.clear()
        devices.promise_special(cycle.pod.uid, None)
        newest = [devices.claims.get(claim.key, claim) for claim in attempt.claims]
        steps: list[Instruction] = [
            UnreserveClaim(now, cycle.pod.uid)
            for now, claim in zip(newest, attempt.claims, strict=True)
            if now.uid == claim.uid and now.status.allocation is not None and now.reserved_for(cycle.pod.uid)
        ]
        if attempt.extended is not None and attempt.extended.created is not None:
            steps.append(DeleteClaim(attempt.extended.created))
        if attempt.statuses_written or (attempt.statuses and cycle.pod.status.nodeAllocatableResourceClaimStatuses):
            steps.append(node_resources.clearing(cycle.pod))
        return steps

    def pre_bind(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Write each claim that is not yet reserved for the Pod, in order; then wait for binding conditions."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return ()
        pod = cycle.pod
        shared = consumers_of(pod, attempt.group if self._features.workload_claims else None)
        steps: list[Instruction] = []
        for claim in attempt.claims:
            consumer = shared.get(claim.metadata.name) or pod_consumer(pod)
            promised = attempt.reserved.get(claim.uid)
            if promised is not None:
                steps.append(WriteClaim(claim, consumer, allocation=promised))
            elif not attempt.reserved_already(claim, pod):
                steps.append(WriteClaim(claim, consumer, expected=claim.status.allocation))
        special = attempt.special.get(node)
        if attempt.extended is not None and special is not None:
            promised = attempt.reserved[special.claim.uid]
            steps += creation(cycle.state, attempt.extended, special, promised, attempt.reserved)
        if attempt.statuses:
            steps.append(node_resources.writing(attempt, pod))
        if self._features.binding_conditions:
            wait = binding_wait(cycle, attempt, node, self._binding_timeout_s)
            if wait is not None:
                steps.append(wait)
        return steps

    def bound(self, cycle: Cycle, node: str) -> None:
        """Everything is written: what was in flight is in the store now."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is not None:
            for uid in attempt.reserved:
                cycle.state.devices.ledger.drop_in_flight(uid, force=True)
            attempt.reserved.clear()
            cycle.state.devices.promise_special(cycle.pod.uid, None)

    def verify_caches(self) -> None:
        """Search again for every answer that is kept. Raises InternalError on a difference. Cost: whole clusters."""
        self._searches.verify(self._state)

    def device_reasons(self, cycle: Cycle, node: Node, max_steps: int = 10 * STEPS_PER_S) -> Sequence[Rejection]:
        """Why ``node`` cannot serve the attempt's open claims, device by device: asked only to explain.

        Looks at the devices as they are now. Cost: one search without shortcuts, at most ``max_steps`` steps.
        """
        steps = self.device_search_steps(cycle, node, max_steps)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: DeviceSearch = stop.value
                return found.rejections

    def device_question(self, cycle: Cycle, node: Node) -> Hashable:
        """Equal for searches that tell the same about the same devices in the same use."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        return None if attempt is None else attempt.question(node.name)

    def device_search_steps(
        self, cycle: Cycle, node: Node, max_steps: int = 10 * STEPS_PER_S
    ) -> Generator[None, None, DeviceSearch]:
        """The same in slices of some milliseconds, with what was taken. The devices must not change between them."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        plan = None if attempt is None else attempt.plan_on(node.name)
        if plan is None:
            return DeviceSearch()
        collector = Collector()
        allocation = self._searches.allocation(cycle, plan, node, collector)
        while allocation.run(_EXPLAIN_STEPS) is None:
            if allocation.steps >= max_steps:
                allocation.stop()
                break
            yield
        return DeviceSearch(tuple(collector.rejections.values()), allocation.chosen())
