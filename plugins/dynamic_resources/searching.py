"""The searches of one attempt over nodes: which have to be made, in slices of the budget, and what they amount to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

import numpy as np

from plugins.dynamic_resources.answers import AnswerCache, Group
from plugins.dynamic_resources.attempt import ClaimsOfPod
from plugins.dynamic_resources.extended import Variant, variants_of_rows
from plugins.dynamic_resources.scoring import chosen_score
from scheduler.api.core import Node
from scheduler.api.resource import ResourceClaim
from scheduler.dra.allocator import Allocated, Allocation, Fatal, NodeError, Outcome, Timeout
from scheduler.dra.features import Features
from scheduler.dra.reporter import SILENT, Reporter
from scheduler.dra.requests import Plan, prepare
from scheduler.dra.selectors import SelectorCache
from scheduler.dra.suitability import verify_answers
from scheduler.errors import InternalError, PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable

NAME = "DynamicResources"
# The core has no clock: the filter's deadline is counted in search steps, at what one core does in a second.
STEPS_PER_S = 100_000
_SLICE_STEPS = 500
_STEPS_PER_FRESH_DEVICE = 4
"""What it takes to see a device on a node for the first time, and to know whether it suits."""
_UNRESOLVABLE = Code.UNSCHEDULABLE_AND_UNRESOLVABLE


class NodeSearches:
    """Searches nodes for devices and keeps their answers. ``timeout_s`` 0: no deadline per node."""

    def __init__(self, features: Features, verdicts: VerdictTable, timeout_s: float) -> None:
        self._features = features
        self._limit = int(timeout_s * STEPS_PER_S)
        self._selectors = SelectorCache()
        self._answers = AnswerCache()
        self.verdicts = verdicts
        self._none = verdicts.intern(_UNRESOLVABLE, ("cannot allocate all claims",))

    def prepare(self, cycle: Cycle, claims: Sequence[ResourceClaim]) -> Plan:
        """What to allocate for these claims, for all nodes alike."""
        return prepare(claims, cycle.state.devices.classes, self._features, self._selectors)

    def _plan_with(self, cycle: Cycle, attempt: ClaimsOfPod) -> Callable[[ResourceClaim], Plan]:
        """Prepares the open claims together with one more."""
        return lambda claim: self.prepare(cycle, [*attempt.open, claim])

    def groups(
        self, cycle: Cycle, attempt: ClaimsOfPod, nodes: NodeTable, rows: Rows, verdicts: Verdicts
    ) -> list[Group]:
        """Nodes that have the same to allocate; those refused before any search get their verdict here."""
        if attempt.extended is None:
            if attempt.plan is None:
                return []
            answers = self._answers.open(attempt.shape(), attempt.plan, cycle.state.devices, nodes)
            return [Group(slice(None), attempt.plan, answers)]
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

    def ask(
        self, cycle: Cycle, attempt: ClaimsOfPod, groups: Sequence[Group], nodes: NodeTable, rows: Rows
    ) -> Generator[None, None, None]:
        """Search the nodes whose answer is not known, in row order."""
        unknown = [(place, group) for group in groups for place in group.unknown(nodes, rows)]
        if len(groups) > 1:
            unknown.sort(key=lambda entry: entry[0])
        # The table may change at each yield: node objects and versions are taken together beforehand.
        asked = [(int(rows[place]), group) for place, group in unknown]
        known = [(row, nodes.node(row), int(nodes.static_versions[row]), group) for row, group in asked]
        for row, node, version, group in known:
            fresh = cycle.state.devices.slices.kept_view(node) is None
            allocation = self.allocation(cycle, group.plan, node)
            if fresh and cycle.budget.charge(allocation.device_count * _STEPS_PER_FRESH_DEVICE):
                yield
            yield from self._search(cycle, allocation, node.name)
            verdict = self._verdict(allocation.outcome, node.name)
            if not verdict:
                attempt.found[node.name] = allocation
            group.answers.keep(row, version, verdict, chosen_score(allocation.outcome))
            if cycle.budget.charge(1):
                yield

    def allocation(self, cycle: Cycle, plan: Plan, node: Node, reporter: Reporter = SILENT) -> Allocation:
        """One search on one node, with the devices as they are now."""
        devices = cycle.state.devices
        view = devices.slices.view(node)
        return Allocation(plan, view, devices.ledger.usage(view), self._features, reporter, devices.ledger.holders)

    def _search(self, cycle: Cycle, allocation: Allocation, node: str) -> Generator[None, None, None]:
        """Run one node's search in slices of the cycle's budget, up to the filter's deadline."""
        while True:
            before = allocation.steps
            outcome = allocation.run(_SLICE_STEPS)
            spent = cycle.budget.charge(allocation.steps - before)
            if outcome is not None:
                return
            if self._limit and allocation.steps >= self._limit:
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

    def found(self, cycle: Cycle, attempt: ClaimsOfPod, name: str) -> Allocation | None:
        """The devices of the chosen node: searched in this attempt and still current, or searched now."""
        found = attempt.found.get(name)
        nodes = cycle.state.nodes
        row = nodes.row_of(name)
        plan = attempt.plan_on(name)
        if row is None or plan is None:
            return None
        allocation = self.allocation(cycle, plan, nodes.node(row))
        if found is not None and found.same_world(allocation):
            return found
        return allocation if isinstance(allocation.run(self._limit or 1 << 62), Allocated) else None

    def verify(self, state: ClusterState) -> None:
        """Search again for every answer that is kept. Raises InternalError on a difference. Cost: whole clusters."""
        nodes, devices = state.nodes, state.devices
        for answers in self._answers.all():
            answers.refresh(devices, nodes)
            for row in nodes.order().tolist():
                if answers.static[row] != nodes.static_versions[row]:
                    continue
                view = devices.slices.view(nodes.node(row))
                for alternative in answers.plan.alternatives:
                    verify_answers(view, alternative, self._features)
                fresh = Allocation(answers.plan, view, devices.ledger.usage(view), self._features)
                outcome = fresh.run(self._limit or 1 << 62)
                verdict, score = self._verdict(outcome, nodes.name_of(row)), chosen_score(outcome)
                if (verdict, score) != (answers.verdicts[row], answers.scores[row]):
                    raise InternalError(
                        f"the answer kept for node {nodes.name_of(row)} is stale",
                        (f"kept: {answers.verdicts[row]} {answers.scores[row]}", f"fresh: {verdict} {score}"),
                    )
