"""Spread constraints of a Pod: its own, or the defaults applied to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from scheduler.api.core import Pod, TopologySpreadConstraint
from scheduler.api.selectors import Requirement
from scheduler.state.columns import Bool, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_domains import rows_required, rows_tolerated
from scheduler.state.topology_terms import Condition, PodMatch, Requirements, both, requirements_of, selects

DO_NOT_SCHEDULE = "DoNotSchedule"
SCHEDULE_ANYWAY = "ScheduleAnyway"
HOSTNAME = "kubernetes.io/hostname"
SYSTEM_DEFAULTS = (
    {"maxSkew": 3, "topologyKey": HOSTNAME, "whenUnsatisfiable": SCHEDULE_ANYWAY},
    {"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": SCHEDULE_ANYWAY},
)
"""defaultingType System. Source: kube-scheduler 1.37, PodTopologySpread."""


class Constraint(msgspec.Struct, frozen=True):
    """One constraint, defaults filled in, matchLabelKeys merged into ``selector``."""

    max_skew: int
    topology_key: str
    selector: Requirements
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False

    def selects(self, labels: Mapping[str, str]) -> bool:
        """True for Pods with these labels; an empty selector selects all."""
        return selects(self.selector, labels)

    def counts(self, topology: TopologyIndex, namespace: str, capacity: int) -> Int64:
        """Pods per row that count: of ``namespace``, selected, not being deleted. An empty selector counts none."""
        if not self.selector:
            return np.zeros(capacity, np.int64)
        condition = Condition(frozenset((namespace,)), self.selector)
        return topology.counts(PodMatch((condition,), deleting=False), capacity)


def own_constraints(pod: Pod, action: str) -> tuple[Constraint, ...]:
    """The Pod's own constraints with ``whenUnsatisfiable`` == ``action``, kept beside the object.

    Raises SelectorError for a selector that cannot be parsed.
    """
    if not pod.spec.topologySpreadConstraints:
        return ()
    kept: dict[str, tuple[Constraint, ...]] = pod.__dict__.setdefault("spread_constraints", {})
    found = kept.get(action)
    if found is None:
        labels = pod.metadata.labels
        written = (c for c in pod.spec.topologySpreadConstraints if c.whenUnsatisfiable == action)
        found = kept[action] = tuple(_constraint(c, labels) for c in written)
    return found


def _constraint(written: TopologySpreadConstraint, labels: Mapping[str, str]) -> Constraint:
    keys = {Requirement(key, "In", (labels[key],)) for key in written.matchLabelKeys if key in labels}
    return Constraint(
        written.maxSkew,
        written.topologyKey,
        both(requirements_of(written.labelSelector), tuple(keys)),
        1 if written.minDomains is None else written.minDomains,
        written.nodeAffinityPolicy in (None, "Honor"),
        written.nodeTaintsPolicy == "Honor",
    )


class DefaultConstraints:
    """The profile's constraints for Pods without their own."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self.system = arguments.get("defaultingType", "System") == "System"
        entries: Sequence[Mapping[str, Any]] = arguments.get("defaultConstraints") or ()
        if self.system:
            entries = SYSTEM_DEFAULTS
        self._entries = {
            action: [(int(e["maxSkew"]), str(e["topologyKey"])) for e in entries if e["whenUnsatisfiable"] == action]
            for action in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
        }

    def constraints(self, pod: Pod, action: str, workloads: Any) -> tuple[Constraint, ...]:
        """Those of ``action`` for a Pod that some Service or its controller selects, none for others."""
        entries = self._entries[action]
        selector = workloads.default_selector(pod) if entries else ()
        if not selector:
            return ()
        return tuple(Constraint(skew, key, selector) for skew, key in entries)


class Eligibility:
    """Which of ``rows`` a constraint counts on, by its inclusion policies; each policy is looked at once."""

    def __init__(self, pod: Pod, nodes: NodeTable, rows: Int64) -> None:
        self._pod, self._nodes, self._rows = pod, nodes, rows
        self._affinity: Bool | None = None
        self._taints: Bool | None = None

    def of(self, constraint: Constraint) -> Bool:
        """True for rows that satisfy the Pod's node affinity (Honor) and whose taints it tolerates (Honor)."""
        result = np.ones(len(self._rows), np.bool_)
        if constraint.honor_affinity:
            result &= self._satisfies_affinity()
        if constraint.honor_taints:
            result &= self._is_tolerated()
        return result

    def _satisfies_affinity(self) -> Bool:
        if self._affinity is None:
            spec = self._pod.spec
            rules = spec.affinity.nodeAffinity if spec.affinity is not None else None
            required = rules.requiredDuringSchedulingIgnoredDuringExecution if rules is not None else None
            self._affinity = rows_required(self._nodes, self._rows, spec.nodeSelector, required)
        return self._affinity

    def _is_tolerated(self) -> Bool:
        if self._taints is None:
            self._taints = rows_tolerated(self._nodes, self._rows, self._pod.spec.tolerations)
        return self._taints


def rows_with_keys(nodes: NodeTable, rows: Int64, constraints: Sequence[Constraint]) -> Bool:
    """True for rows whose node has the topology key of every constraint."""
    result = np.ones(len(rows), np.bool_)
    for constraint in constraints:
        result &= nodes.labels(constraint.topology_key).codes[rows] >= 0
    return result
