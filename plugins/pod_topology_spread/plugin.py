"""The plugin: extension points and wake-up rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from plugins.pod_topology_spread.constraints import (
    DO_NOT_SCHEDULE,
    SCHEDULE_ANYWAY,
    Constraint,
    DefaultConstraints,
    own_constraints,
)
from plugins.pod_topology_spread.filtering import HardSpread, hard_domains
from plugins.pod_topology_spread.kept import Domains, KeptByTemplate, KeptDomains
from plugins.pod_topology_spread.scoring import SoftSpread, soft_domains
from scheduler.api.core import Node, Pod
from scheduler.api.selectors import SelectorError
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SKIP, SUCCESS, Code, Status, VerdictTable, error
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo

_SKEWED = "node(s) didn't match pod topology spread constraints"


class PodTopologySpread(PluginBase):
    """Source: kube-scheduler 1.37, PodTopologySpread (spec 3.11).

    Arguments: ``defaultingType`` (System or List) and ``defaultConstraints`` for List.
    """

    name = "PodTopologySpread"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._defaults = DefaultConstraints(handle.arguments)
        self._kept = KeptByTemplate()
        self.verdicts = VerdictTable(self.name)
        self._missing = self.verdicts.intern(
            Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (f"{_SKEWED} (missing required label)",)
        )
        self._skewed = self.verdicts.intern(Code.UNSCHEDULABLE, (_SKEWED,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Skips Pods without hard constraints."""
        pod, nodes, topology = cycle.pod, cycle.state.nodes, cycle.state.topology
        try:
            constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        except SelectorError as problem:
            text = "get constraints from pod: obtaining pod's hard topology spread constraints"
            return PreFilterResult(error(f"{text}: {problem}"))
        if not constraints:
            return SKIP_FILTER
        kept = self._find(cycle, DO_NOT_SCHEDULE, constraints)
        if kept is None:

            def anew() -> list[Domains]:
                return hard_domains(pod, constraints, nodes, topology)

            kept = KeptDomains(pod.metadata.namespace, anew(), nodes, topology)
            self._keep(cycle, DO_NOT_SCHEDULE, kept, anew)
        cycle.data[self.name] = HardSpread.of(pod, kept.domains)
        return CONTINUE

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes without a topology key, and those where one more Pod would exceed a maxSkew."""
        spread: HardSpread = cycle.data[self.name]
        return spread.verdicts(rows, self._missing, self._skewed)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterable[Because]:
        """Domains, Pods and skews of the constraints that refuse."""
        spread: HardSpread = cycle.data[self.name]
        return spread.because(row)

    def add_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod is on ``row``, for this attempt only."""
        cycle.data[self.name].change(info, row, 1)

    def remove_pod(self, cycle: Cycle, info: PodInfo, row: int) -> None:
        """Pretend that a Pod left ``row``, for this attempt only."""
        cycle.data[self.name].change(info, row, -1)

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Skips Pods without soft constraints."""
        pod, topology = cycle.pod, cycle.state.topology
        try:
            constraints = self._constraints(pod, SCHEDULE_ANYWAY)
        except SelectorError as problem:
            return error(f"calculating preScoreState: obtaining pod's soft topology spread constraints: {problem}")
        if not constraints:
            return SKIP
        kept = self._find(cycle, SCHEDULE_ANYWAY, constraints) if nodes is cycle.state.nodes else None
        if kept is None:
            strict = bool(pod.spec.topologySpreadConstraints) or not self._defaults.system

            def anew() -> list[Domains]:
                return soft_domains(pod, constraints, nodes, topology, strict=strict)[0]

            domains, about = soft_domains(pod, constraints, nodes, topology, strict=strict)
            kept = KeptDomains(pod.metadata.namespace, domains, nodes, topology, about)
            if nodes is cycle.state.nodes:
                self._keep(cycle, SCHEDULE_ANYWAY, kept, anew)
        cycle.data[f"{self.name}/score"] = SoftSpread.of(pod, kept, topology, rows)
        return SUCCESS

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """How many fellows share the node's domains, each key weighted by the logarithm of its domains."""
        spread: SoftSpread = cycle.data[f"{self.name}/score"]
        return spread.raw

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The fewer, the better; nodes outside all domains get 0."""
        spread: SoftSpread = cycle.data[f"{self.name}/score"]
        return spread.normalized(scores)

    def events(self) -> Sequence[Registration]:
        """Fellows came, went or changed; the Pod changed; nodes came, went or changed domains or taints."""
        pods = Action.ADD | Action.UPDATE_POD_LABEL | Action.DELETE
        nodes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
        return (
            Registration(Resource.ASSIGNED_POD, pods, self._fellow_changed, _namespace, _event_namespaces),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, self._tolerates_more),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_LABEL, self._relabelled),
            Registration(Resource.NODE, nodes, self._domains_changed),
        )

    def verify_caches(self) -> None:
        """Recount the domains kept per template. Raises InternalError."""
        self._kept.verify()

    def _find(self, cycle: Cycle, action: str, constraints: tuple[Constraint, ...]) -> KeptDomains | None:
        """The kept domains of the Pod's template, if they are those of ``constraints``."""
        if cycle.template is None:
            return None
        kept = self._kept.get((cycle.template, action), cycle.state.nodes, cycle.state.topology)
        return kept if kept is not None and kept.constraints == constraints else None

    def _keep(self, cycle: Cycle, action: str, kept: KeptDomains, anew: Callable[[], list[Domains]]) -> None:
        if cycle.template is not None:
            self._kept.put((cycle.template, action), kept, anew)

    def _constraints(self, pod: Pod, action: str) -> tuple[Constraint, ...]:
        if pod.spec.topologySpreadConstraints:
            return own_constraints(pod, action)
        return self._defaults.constraints(pod, action, self.state.workloads)

    def _fellow_changed(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        other = new or old
        if other is None or not (other.spec.nodeName or other.status.nominatedNodeName):
            return False
        if other.metadata.namespace != pod.metadata.namespace:
            return False
        constraints = self._constraints(pod, DO_NOT_SCHEDULE)
        if old is not None and new is not None:
            return _flips(constraints, old, new)
        return any(constraint.selects(other.metadata.labels) for constraint in constraints)

    def _tolerates_more(self, pod: Pod, old: Pod, new: Pod) -> bool:
        return any(constraint.honor_taints for constraint in self._constraints(pod, DO_NOT_SCHEDULE))

    def _relabelled(self, pod: Pod, old: Pod, new: Pod) -> bool:
        return _flips(self._constraints(pod, DO_NOT_SCHEDULE), old, new)

    def _domains_changed(self, pod: Pod, old: Node | None, new: Node | None) -> bool:
        keys = [constraint.topology_key for constraint in self._constraints(pod, DO_NOT_SCHEDULE)]
        had, has = _has_all(old, keys), _has_all(new, keys)
        if old is None or new is None:
            return had or has
        if had != has:
            return True
        before, after = old.metadata.labels, new.metadata.labels
        moved = any(before[key] != after[key] for key in keys) if has else False
        return has and (moved or old.spec.taints != new.spec.taints)


def _flips(constraints: Iterable[Constraint], old: Pod, new: Pod) -> bool:
    return any(c.selects(old.metadata.labels) != c.selects(new.metadata.labels) for c in constraints)


def _has_all(node: Node | None, keys: Iterable[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)


def _namespace(pod: Pod) -> Iterable[str]:
    return (pod.metadata.namespace,)


def _event_namespaces(old: Pod | None, new: Pod | None) -> Iterable[str] | None:
    return {pod.metadata.namespace for pod in (old, new) if pod is not None}
