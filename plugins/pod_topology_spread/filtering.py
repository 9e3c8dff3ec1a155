"""The hard constraints of one attempt: Pods per domain, and which rows would skew them too far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plugins.pod_topology_spread.constraints import Constraint, Eligibility, rows_with_keys
from scheduler.api.core import Pod
from scheduler.framework.because import Because
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

    def because(self, row: int) -> Iterator[Because]:
        """The constraints that refuse a row: the Pods of its domain, of the emptiest one, and the skew it would be."""
        for number, domain in enumerate(self.domains):
            constraint, column = domain.constraint, domain.column
            about = f"constraint {number} on {constraint.topology_key}"
            code = int(column.codes[row])
            if code < 0:
                yield Because(about, f"{about}: the node has no such label", {"topologyKey": constraint.topology_key})
                continue
            least, itself = domain.minimum(), int(constraint.selects(self.pod.metadata.labels))
            here = int(at_codes(domain.counts, column.codes[row : row + 1])[0])
            skew = here + itself - least
            if skew <= constraint.max_skew:
                continue
            present = int(domain.present.sum())
            facts = {
                "topologyKey": constraint.topology_key,
                "domain": column.values[code],
                "pods": str(here),
                "fewest": str(least),
                "skew": str(skew),
                "maxSkew": str(constraint.max_skew),
                "domains": str(present),
            }
            text = f"{about}: {column.values[code]} has {here} of these Pods, the emptiest domain {least}"
            if present < constraint.min_domains:
                facts["minDomains"] = str(constraint.min_domains)
                text = (
                    f"{about}: only {present} of at least {constraint.min_domains} domains are there, as if one had no"
                )
                text += f" Pods; {column.values[code]} has {here}"
            yield Because(about, f"{text}: the skew would be {skew} > {constraint.max_skew}", facts, skew)
