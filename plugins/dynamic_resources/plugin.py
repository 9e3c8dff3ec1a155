"""The DynamicResources plugin: one short method per extension point.

Source: kube-scheduler 1.37, DynamicResources (dra spec 4); texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np

from plugins.dynamic_resources.attempt import ClaimsOfPod, check_requests, check_room, hold
from plugins.dynamic_resources.binding import binding_wait
from plugins.dynamic_resources.hints import registrations
from plugins.dynamic_resources.scoring import chosen_score, raw_score
from scheduler.api.core import Node, Pod
from scheduler.api.resource import ConsumerReference, ResourceClaim
from scheduler.dra.allocator import Allocated, Allocation, Fatal, NodeError, Outcome, Timeout
from scheduler.dra.claims import ClaimError, binding_state, binding_timed_out, has_binding_conditions, resolve_claims
from scheduler.dra.features import Features
from scheduler.dra.rejections import Rejection
from scheduler.dra.reporter import SILENT, Collector, Reporter
from scheduler.dra.requests import prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Registration
from scheduler.framework.instructions import DeallocateClaim, Instruction, UnreserveClaim, WriteClaim
from scheduler.framework.plugin import Handle, PostFilterResult, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, VerdictTable, error, unresolvable, unschedulable
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable

NAME = "DynamicResources"
FILTER_TIMEOUT_S = 10.0
BINDING_TIMEOUT_S = 600.0
# The core has no clock: the filter's deadline is counted in search steps, at what one core does in a second.
STEPS_PER_S = 100_000
_SLICE_STEPS = 500
_UNRESOLVABLE = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class DynamicResources:
    """Allocates the Pod's claims, reserves them and writes them before the Pod is bound."""

    name: str = NAME

    def __init__(self, handle: Handle) -> None:
        self._state: ClusterState = handle.state
        self._new_id: Callable[[], str] = handle.new_id
        self._features: Features = self._state.features
        self._filter_timeout_s = float(handle.arguments.get("filterTimeout", FILTER_TIMEOUT_S))
        self._binding_timeout_s = float(handle.arguments.get("bindingTimeout", BINDING_TIMEOUT_S))
        self._selectors = SelectorCache()
        self.verdicts = VerdictTable(NAME)
        self._none = self.verdicts.intern(_UNRESOLVABLE, ("cannot allocate all claims",))
        self._unavailable = self.verdicts.intern(_UNRESOLVABLE, ("resourceclaim not available on the node",))

    def events(self) -> Sequence[Registration]:
        """What may make a refused Pod fit."""
        return registrations(self._state.devices.claim)

    def pre_enqueue(self, pod: Pod) -> Status:
        """A Pod waits outside the queue until all its claims exist and may be used."""
        try:
            resolve_claims(pod, self._state.devices.claim)
        except ClaimError as problem:
            return unresolvable(str(problem))
        return SUCCESS

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Find the claims, look at their requests, and prepare one plan for all nodes."""
        devices = cycle.state.devices
        cycle.data[NAME] = None
        try:
            claims = resolve_claims(cycle.pod, devices.claim)
        except ClaimError as problem:
            return PreFilterResult(unresolvable(str(problem)))
        attempt = ClaimsOfPod(claims, extended=self._extended_resources(cycle))
        if not claims and not attempt.extended:
            return PreFilterResult(SKIP)
        for claim in claims:
            status = self._sort_in(cycle, attempt, claim)
            if status is not None:
                return PreFilterResult(status)
        if attempt.open:
            attempt.plan = prepare(attempt.open, devices.classes, self._features, self._selectors)
        cycle.data[NAME] = attempt
        return PreFilterResult(SUCCESS)

    def _extended_resources(self, cycle: Cycle) -> tuple[str, ...]:
        """Resources the Pod asks for that a device class serves where no device plugin does, sorted."""
        classes = cycle.state.devices.classes
        return tuple(
            name
            for name, amount in sorted(cycle.info.requests.items())
            if amount and "/" in name and classes.for_extended_resource(name) is not None
        )

    def _unserved(self, attempt: ClaimsOfPod, nodes: NodeTable, row: int) -> int:
        """A node whose device plugins do not offer an extended resource would have to serve it with devices."""
        for name in attempt.extended:
            if not nodes.allocatable(name)[row]:
                return self.verdicts.intern(
                    _UNRESOLVABLE, (f"extended resource {name} needs DRAExtendedResource, which is not supported",)
                )
        return 0

    def _sort_in(self, cycle: Cycle, attempt: ClaimsOfPod, claim: ResourceClaim) -> Status | None:
        """Put a claim among those held or open; a status ends the attempt."""
        devices = cycle.state.devices
        if claim.status.allocation is not None:
            full = check_room(claim, cycle.pod)
            if full is not None:
                return full
            held = hold(claim, self._binding_broken(cycle, claim))
            if isinstance(held, Status):
                return held
            attempt.held.append(held)
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

    def filter_steps(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Verdicts]:
        """Search each node's devices, in row order; the first error ends the attempt for all nodes."""
        attempt: ClaimsOfPod = cycle.data[NAME]
        verdicts = np.zeros(len(rows), dtype=np.int64)
        unserved = [self._unserved(attempt, nodes, row) for row in rows.tolist()] if attempt.extended else ()
        for place, node in enumerate([nodes.node(row) for row in rows.tolist()]):
            if unserved and unserved[place]:
                verdicts[place] = unserved[place]
                continue
            unavailable = [held for held in attempt.held if not held.available(node)]
            for held in unavailable:
                # Remembered even where the other claims find no devices, so that PostFilter can free them.
                attempt.unavailable[held.claim.uid] = held.claim
            verdict = 0
            if attempt.plan is not None:
                allocation = self._allocation(cycle, attempt, node)
                yield from self._search(cycle, allocation, node.name)
                verdict = self._verdict(allocation.outcome, node.name)
                if not verdict:
                    attempt.found[node.name] = allocation
            if cycle.budget.charge(1):
                yield
            verdicts[place] = verdict or (self._unavailable if unavailable else 0)
        return verdicts

    def _allocation(self, cycle: Cycle, attempt: ClaimsOfPod, node: Node, reporter: Reporter = SILENT) -> Allocation:
        devices = cycle.state.devices
        view = devices.slices.view(node)
        assert attempt.plan is not None
        return Allocation(
            attempt.plan, view, devices.ledger.usage(view), self._features, reporter, devices.ledger.holders
        )

    def _search(self, cycle: Cycle, allocation: Allocation, node: str) -> Generator[None, None, None]:
        """Run one node's search in slices of the cycle's budget, up to the filter's deadline."""
        limit = int(self._filter_timeout_s * STEPS_PER_S)
        while True:
            before = allocation.steps
            outcome = allocation.run(_SLICE_STEPS)
            spent = cycle.budget.charge(allocation.steps - before)
            if outcome is not None:
                return
            if limit and allocation.steps >= limit:
                allocation.stop()
                return
            if spent:
                yield

    def _verdict(self, outcome: Outcome | None, node: str) -> int:
        """The verdict for an outcome. Errors are raised, as they end the attempt."""
        if isinstance(outcome, Allocated):
            return 0
        if isinstance(outcome, NodeError):
            return self.verdicts.intern(_UNRESOLVABLE, (outcome.text,))
        if isinstance(outcome, Timeout):
            raise self._filter_error(f"node {node}: timed out trying to allocate devices", node)
        if isinstance(outcome, Fatal):
            raise self._filter_error(outcome.text, node)
        return self._none

    def _filter_error(self, text: str, node: str) -> PluginError:
        return PluginError.worded(NAME, "Filter", f'running "{NAME}" filter plugin: {text}', node)

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
            consumers = claim.consumers
            if consumers and [consumer.uid for consumer in consumers] != [cycle.pod.uid]:
                continue
            failure = yield DeallocateClaim(claim)
            if failure is not None:
                return PostFilterResult(error(failure))
            return PostFilterResult(unschedulable("deallocation of ResourceClaim completed"))
        return PostFilterResult(unschedulable())

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Better alternatives of firstAvailable requests score higher."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        scores = np.zeros(len(rows), dtype=np.int64)
        if attempt is None or not self._features.prioritized_list:
            return scores
        held = sum(raw_score(item.claim, item.claim.status.allocation) for item in attempt.held)
        for place, row in enumerate(rows.tolist()):
            allocation = attempt.found.get(nodes.node(row).name)
            scores[place] = held + (0 if allocation is None else chosen_score(allocation.outcome))
        return scores

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The highest raw score becomes 100, others in proportion; all 0 stays 0."""
        highest = int(scores.max()) if len(scores) else 0
        return scores if not highest else scores * 100 // highest

    def reserve(self, cycle: Cycle, node: str) -> Status:
        """Promise the node's devices to the open claims, so that the next Pod sees them taken."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None or not attempt.open:
            return SUCCESS
        allocation = attempt.found.get(node)
        if allocation is None:
            return error("claim allocation not found for node")
        ledger = cycle.state.devices.ledger
        for claim, result in zip(attempt.open, allocation.results(self._new_id), strict=True):
            ledger.set_in_flight(claim.uid, claim.key, result)
            attempt.reserved[claim.uid] = result
        return SUCCESS

    def unreserve(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Give back what was promised; take the Pod out of the claims that list it. Allocations stay."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return ()
        devices = cycle.state.devices
        for uid in attempt.reserved:
            devices.ledger.drop_in_flight(uid)
        attempt.reserved.clear()
        newest = [devices.claims.get(claim.key, claim) for claim in attempt.claims]
        return [
            UnreserveClaim(now, cycle.pod.uid)
            for now, claim in zip(newest, attempt.claims, strict=True)
            if now.uid == claim.uid and now.status.allocation is not None and now.reserved_for(cycle.pod.uid)
        ]

    def pre_bind(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Write each claim that is not yet reserved for the Pod, in order; then wait for binding conditions."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return ()
        pod = cycle.pod
        consumer = ConsumerReference("", "pods", pod.metadata.name, pod.uid)
        steps: list[Instruction] = []
        for claim in attempt.claims:
            promised = attempt.reserved.get(claim.uid)
            if promised is not None:
                steps.append(WriteClaim(claim, consumer, allocation=promised))
            elif not claim.reserved_for(pod.uid):
                steps.append(WriteClaim(claim, consumer, expected=claim.status.allocation))
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

    def device_reasons(self, cycle: Cycle, node: Node) -> Sequence[Rejection]:
        """Why ``node`` cannot serve the attempt's open claims, device by device: asked only to explain.

        Looks at the devices as they are now. Cost: one search without shortcuts, bounded.
        """
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None or attempt.plan is None:
            return ()
        collector = Collector()
        allocation = self._allocation(cycle, attempt, node, collector)
        if allocation.run(10 * STEPS_PER_S) is None:
            allocation.stop()
        return tuple(collector.rejections.values())
