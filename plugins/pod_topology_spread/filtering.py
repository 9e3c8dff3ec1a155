"""The hard constraints of one attempt: Pods per domain, and which rows would skew them too far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plugins.pod_topology_spread.constraints import Constraint, Eligibility, rows_with_keys
from scheduler.api.core import Pod
from scheduler.framework.plugin import Rows, Verdicts
from scheduler.state.columns import Bool, Int64
from scheduler.state.labels import LabelColumn
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_domains import at_codes, domain_sums, domains_present


@dataclass(slots=True)
class Domains:
    """One constraint's domains: ``counts`` Pods per label code, ``present`` domains, ``eligible`` rows (all rows)."""

    constraint: Constraint
    column: LabelColumn
    counts: Int64
    present: Bool
    eligible: Bool

    def minimum(self) -> int:
        """Pods in the emptiest domain; 0 when there are fewer domains than minDomains, none included."""
        here = self.counts[self.present]
        return int(here.min()) if len(here) >= max(self.constraint.min_domains, 1) else 0


@dataclass(slots=True)
class HardSpread:
    """Filter state of one Pod. Cost to make: a few passes over the nodes per constraint."""

    pod: Pod
    domains: list[Domains]

    @classmethod
    def count(
        cls, pod: Pod, constraints: Sequence[Constraint], nodes: NodeTable, topology: TopologyIndex
    ) -> HardSpread:
        """Only nodes with all topology keys and within a constraint's policies have domains (spec 3.11.2)."""
        order = nodes.order()
        rows = order[rows_with_keys(nodes, order, constraints)]
        eligibility = Eligibility(pod, nodes, rows)
        domains: list[Domains] = []
        for constraint in constraints:
            here = rows[eligibility.of(constraint)]
            column = nodes.labels(constraint.topology_key)
            codes, size = column.codes[here], len(column.values)
            amounts = constraint.counts(topology, pod.metadata.namespace, nodes.capacity)[here]
            eligible = np.zeros(nodes.capacity, np.bool_)
            eligible[here] = True
            counts = domain_sums(codes, amounts, size)
            domains.append(Domains(constraint, column, counts, domains_present(codes, size), eligible))
        return cls(pod, domains)

    def clone(self) -> HardSpread:
        """A copy to try additions and removals on."""
        return HardSpread(self.pod, [replace(domain, counts=domain.counts.copy()) for domain in self.domains])

    def change(self, info: PodInfo, row: int, delta: int) -> None:
        """Pretend that ``info``'s Pod came to (+1) or left (-1) ``row``. Here Pods being deleted count, too."""
        metadata = info.pod.metadata
        if metadata.namespace != self.pod.metadata.namespace:
            return
        for domain in self.domains:
            if domain.eligible[row] and domain.constraint.selects(metadata.labels):
                domain.counts[domain.column.codes[row]] += delta

    def verdicts(self, rows: Rows, missing: int, skewed: int) -> Verdicts:
        """Per row 0, or the verdict of the first constraint in order that refuses it."""
        labels: Mapping[str, str] = self.pod.metadata.labels
        result = np.zeros(len(rows), np.int64)
        for domain in self.domains:
            constraint = domain.constraint
            codes = domain.column.codes[rows]
            allowed = constraint.max_skew + domain.minimum() - constraint.selects(labels)
            own = np.where(at_codes(domain.counts, codes) > allowed, skewed, 0)
            own = np.where(codes < 0, missing, own)
            result = np.where(result == 0, own, result)
        return result
