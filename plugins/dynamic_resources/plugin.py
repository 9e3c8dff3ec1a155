"""The DynamicResources plugin: one short method per extension point.

Source: kube-scheduler 1.37, DynamicResources (dra spec 4); texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import numpy as np

from plugins.dynamic_resources.answers import AnswerCache, Group
from plugins.dynamic_resources.attempt import ClaimsOfPod, check_requests, check_room, hold
from plugins.dynamic_resources.binding import binding_wait
from plugins.dynamic_resources.extended import Variant, creation, find_extended, variants_of_rows
from plugins.dynamic_resources.hints import registrations
from plugins.dynamic_resources.scoring import chosen_score, raw_score
from scheduler.api.core import Node, Pod
from scheduler.api.resource import ConsumerReference, ResourceClaim
from scheduler.dra.allocator import Allocated, Allocation, Fatal, NodeError, Outcome, Timeout
from scheduler.dra.claims import ClaimError, binding_state, binding_timed_out, has_binding_conditions, resolve_claims
from scheduler.dra.devices import DeviceKey
from scheduler.dra.features import Features
from scheduler.dra.rejections import Rejection
from scheduler.dra.reporter import SILENT, Collector, Reporter
from scheduler.dra.requests import Plan, prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.errors import ClusterError, InternalError, PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Registration
from scheduler.framework.instructions import DeallocateClaim, DeleteClaim, Instruction, UnreserveClaim, WriteClaim
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
        self._answers = AnswerCache()
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
        attempt = ClaimsOfPod(claims, find_extended(cycle, self._new_id), classes_version=devices.classes.version)
        if not claims and attempt.extended is None:
            return PreFilterResult(SKIP)
        for claim in claims:
            status = self._sort_in(cycle, attempt, claim)
            if status is not None:
                return PreFilterResult(status)
        if attempt.open:
            attempt.plan = prepare(attempt.open, devices.classes, self._features, self._selectors)
        cycle.data[NAME] = attempt
        return PreFilterResult(SUCCESS)

    def _plan_with(self, cycle: Cycle, attempt: ClaimsOfPod) -> Callable[[ResourceClaim], Plan]:
        """Prepares the open claims together with one more."""
        classes = cycle.state.devices.classes
        return lambda claim: prepare([*attempt.open, claim], classes, self._features, self._selectors)

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
        unavailable = np.zeros(len(rows), dtype=np.bool_)
        for held in attempt.held:
            here = held.available_rows(nodes, rows)
            if not here.all():
                # Remembered even where the other claims find no devices, so that PostFilter can free them.
                attempt.unavailable[held.claim.uid] = held.claim
                unavailable |= ~here
        groups = self._groups(cycle, attempt, nodes, rows, verdicts)
        yield from self._ask(cycle, attempt, groups, nodes, rows)
        attempt.scores = np.zeros(nodes.capacity, dtype=np.int64)
        for group in groups:
            asked = rows[group.places]
            verdicts[group.places] = group.answers.verdicts[asked]
            attempt.scores[asked] = group.answers.scores[asked]
        verdicts[(verdicts == 0) & unavailable] = self._unavailable
        return verdicts

    def _groups(
        self, cycle: Cycle, attempt: ClaimsOfPod, nodes: NodeTable, rows: Rows, verdicts: Verdicts
    ) -> list[Group]:
        """Nodes that have the same to allocate; those refused before any search get their verdict here."""
        if attempt.extended is None:
            if attempt.plan is None:
                return []
            answers = self._answers.open(attempt.shape(), attempt.plan, cycle.state.devices, nodes)
            return [Group(np.arange(len(rows)), attempt.plan, answers)]
        places: dict[Variant | None, list[int]] = {}
        variants = variants_of_rows(attempt.extended, nodes, rows, self._plan_with(cycle, attempt))
        for place, (row, variant) in enumerate(zip(rows.tolist(), variants, strict=True)):
            node = nodes.node(row)
            refusal = attempt.extended.refusal(node)
            if refusal:
                verdicts[place] = self.verdicts.intern(_UNRESOLVABLE, (refusal,))
                continue
            if variant is not None:
                attempt.special[node.name] = variant
            places.setdefault(variant, []).append(place)
        groups = []
        for variant, found in places.items():
            plan = attempt.plan if variant is None else variant.plan
            if plan is not None:
                shape = attempt.shape(() if variant is None else (variant.claim,))
                answers = self._answers.open(shape, plan, cycle.state.devices, nodes)
                groups.append(Group(np.array(found, dtype=np.int64), plan, answers))
        return groups

    def _ask(
        self, cycle: Cycle, attempt: ClaimsOfPod, groups: Sequence[Group], nodes: NodeTable, rows: Rows
    ) -> Generator[None, None, None]:
        """Search the nodes whose answer is not known, in row order."""
        unknown = [(place, group) for group in groups for place in group.unknown(nodes, rows)]
        if len(groups) > 1:
            unknown.sort(key=lambda entry: entry[0])
        order = rows.tolist()
        # The table may change at each yield: node objects and versions are taken together beforehand.
        asked = [(order[place], group) for place, group in unknown]
        known = [(row, nodes.node(row), int(nodes.static_versions[row]), group) for row, group in asked]
        for row, node, version, group in known:
            allocation = self._allocation(cycle, group.plan, node)
            yield from self._search(cycle, allocation, node.name)
            verdict = self._verdict(allocation.outcome, node.name)
            if not verdict:
                attempt.found[node.name] = allocation
            group.answers.keep(row, version, verdict, chosen_score(allocation.outcome))
            if cycle.budget.charge(1):
                yield

    def _allocation(self, cycle: Cycle, plan: Plan, node: Node, reporter: Reporter = SILENT) -> Allocation:
        devices = cycle.state.devices
        view = devices.slices.view(node)
        return Allocation(plan, view, devices.ledger.usage(view), self._features, reporter, devices.ledger.holders)

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
        if attempt is None or not attempt.open_on(node):
            return SUCCESS
        allocation = self._found(cycle, attempt, node)
        if allocation is None:
            return error("claim allocation not found for node")
        ledger = cycle.state.devices.ledger
        for claim, result in zip(attempt.open_on(node), allocation.results(self._new_id), strict=True):
            ledger.set_in_flight(claim.uid, claim.key, result)
            attempt.reserved[claim.uid] = result
        special = attempt.special.get(node)
        if special is not None:
            cycle.state.devices.promise_special(cycle.pod.uid, special.claim)
        return SUCCESS

    def _found(self, cycle: Cycle, attempt: ClaimsOfPod, name: str) -> Allocation | None:
        """The devices of the chosen node: searched in this attempt and still current, or searched now."""
        found = attempt.found.get(name)
        nodes = cycle.state.nodes
        row = nodes.row_of(name)
        plan = attempt.plan_on(name)
        if row is None or plan is None:
            return None
        allocation = self._allocation(cycle, plan, nodes.node(row))
        if found is not None and found.same_world(allocation):
            return found
        limit = int(self._filter_timeout_s * STEPS_PER_S)
        return allocation if isinstance(allocation.run(limit or 1 << 62), Allocated) else None

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
        return steps

    def pre_bind(self, cycle: Cycle, node: str) -> Sequence[Instruction]:
        """Write each claim that is not yet reserved for the Pod, in order; then wait for binding conditions."""
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        if attempt is None:
            return ()
        self._check_devices(cycle, attempt, node)
        pod = cycle.pod
        consumer = ConsumerReference("", "pods", pod.metadata.name, pod.uid)
        steps: list[Instruction] = []
        for claim in attempt.claims:
            promised = attempt.reserved.get(claim.uid)
            if promised is not None:
                steps.append(WriteClaim(claim, consumer, allocation=promised))
            elif not claim.reserved_for(pod.uid):
                steps.append(WriteClaim(claim, consumer, expected=claim.status.allocation))
        special = attempt.special.get(node)
        if attempt.extended is not None and special is not None:
            promised = attempt.reserved[special.claim.uid]
            steps += creation(cycle.state, attempt.extended, special, promised, attempt.reserved)
        if self._features.binding_conditions:
            wait = binding_wait(cycle, attempt, node, self._binding_timeout_s)
            if wait is not None:
                steps.append(wait)
        return steps

    def _check_devices(self, cycle: Cycle, attempt: ClaimsOfPod, name: str) -> None:
        """Before devices are written they must still be there; upstream does not look. Raises ClusterError."""
        nodes = cycle.state.nodes
        row = nodes.row_of(name)
        if row is None or not attempt.reserved:
            return
        known = cycle.state.devices.slices.view(nodes.node(row)).positions
        for allocation in attempt.reserved.values():
            for result in allocation.devices.results:
                key = DeviceKey(result.driver, result.pool, result.device)
                if key not in known:
                    raise ClusterError(f"device {key} went away while it was being allocated")

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
        nodes, devices = self._state.nodes, self._state.devices
        for answers in self._answers.all():
            answers.refresh(devices, nodes)
            for row in nodes.order().tolist():
                if answers.static[row] != nodes.static_versions[row]:
                    continue
                view = devices.slices.view(nodes.node(row))
                fresh = Allocation(answers.plan, view, devices.ledger.usage(view), self._features)
                outcome = fresh.run(int(self._filter_timeout_s * STEPS_PER_S) or 1 << 62)
                verdict, score = self._verdict(outcome, nodes.name_of(row)), chosen_score(outcome)
                if (verdict, score) != (answers.verdicts[row], answers.scores[row]):
                    raise InternalError(
                        f"the answer kept for node {nodes.name_of(row)} is stale",
                        (f"kept: {answers.verdicts[row]} {answers.scores[row]}", f"fresh: {verdict} {score}"),
                    )

    def device_reasons(self, cycle: Cycle, node: Node) -> Sequence[Rejection]:
        """Why ``node`` cannot serve the attempt's open claims, device by device: asked only to explain.

        Looks at the devices as they are now. Cost: one search without shortcuts, bounded.
        """
        attempt: ClaimsOfPod | None = cycle.data.get(NAME)
        plan = None if attempt is None else attempt.plan_on(node.name)
        if plan is None:
            return ()
        collector = Collector()
        allocation = self._allocation(cycle, plan, node, collector)
        if allocation.run(10 * STEPS_PER_S) is None:
            allocation.stop()
        return tuple(collector.rejections.values())
