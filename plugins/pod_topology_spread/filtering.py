"""The hard constraints of one attempt: Pods per domain, and which rows would skew them too far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from plugins.pod_topology_spread.constraints import Constraint, Eligibility, rows_with_keys
from plugins.pod_topology_spread.kept import Domains
from scheduler.api.core import Pod
from scheduler.framework.because import Because
from scheduler.framework.plugin import Rows, Verdicts
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_domains import domain_sums, domains_present


def hard_domains(
    pod: Pod, constraints: Sequence[Constraint], nodes: NodeTable, topology: TopologyIndex
) -> list[Domains]:
    """Only nodes with all topology keys and within a constraint's policies have domains (spec 3.11.2).

    A row's code is -1 without the key. Cost: a few passes over the nodes per constraint.
    """
    order = nodes.order()
    rows = order[rows_with_keys(nodes, order, constraints)]
    eligibility = Eligibility(pod, nodes, rows)
    domains: list[Domains] = []
    for constraint in constraints:
        here = rows[eligibility.of(constraint)]
        column = nodes.labels(constraint.topology_key)
        codes, size = column.codes[here], len(column.values)
        amounts = constraint.counts(topology, pod.metadata.namespace, nodes.capacity)[here]
        counted = np.zeros(nodes.capacity, np.bool_)
        counted[here] = True
        present = domains_present(codes, size)
        all_codes = column.codes.astype(np.int64)
        counts = domain_sums(codes, amounts, size)
        domains.append(Domains(constraint, column.values, all_codes, counted, present, counts))
    return domains


@dataclass(slots=True)
class HardSpread:
    """Filter state of one Pod; ``domains``: its own copy of the counts."""

    pod: Pod
    domains: list[Domains]

    @classmethod
    def of(cls, pod: Pod, domains: Sequence[Domains]) -> HardSpread:
        """``domains`` stay as they are."""
        return cls(pod, [replace(domain, counts=domain.counts.copy()) for domain in domains])

    def clone(self) -> HardSpread:
        """A copy to try additions and removals on."""
        return self.of(self.pod, self.domains)

    def change(self, info: PodInfo, row: int, delta: int) -> None:
        """Pretend that ``info``'s Pod came to (+1) or left (-1) ``row``. Here Pods being deleted count, too."""
        metadata = info.pod.metadata
        if metadata.namespace != self.pod.metadata.namespace:
            return
        for domain in self.domains:
            if domain.counted[row] and domain.constraint.selects(metadata.labels):
                domain.counts[domain.codes[row]] += delta

    def verdicts(self, rows: Rows, missing: int, skewed: int) -> Verdicts:
        """Per row 0, or the verdict of the first constraint in order that refuses it. Cost: one pass each."""
        labels: Mapping[str, str] = self.pod.metadata.labels
        result: Verdicts | None = None
        for domain in self.domains:
            constraint = domain.constraint
            allowed = constraint.max_skew + domain.minimum() - constraint.selects(labels)
            by_code = np.full(len(domain.counts) + 1, missing, np.int64)  # code -1, the last entry: no such label
            by_code[:-1] = np.where(domain.counts > allowed, skewed, 0)
            own = by_code[domain.codes.take(rows)]
            result = own if result is None else np.where(result == 0, own, result)
        return np.zeros(len(rows), np.int64) if result is None else result

    def because(self, row: int) -> Iterator[Because]:
        """The constraints that refuse a row: the Pods of its domain, of the emptiest one, and the skew it would be."""
        for number, domain in enumerate(self.domains):
            constraint = domain.constraint
            about = f"constraint {number} on {constraint.topology_key}"
            code = int(domain.codes[row])
            if code < 0:
                yield Because(about, f"{about}: the node has no such label", {"topologyKey": constraint.topology_key})
                continue
            least, itself = domain.minimum(), int(constraint.selects(self.pod.metadata.labels))
            here = int(domain.counts[code])
            skew = here + itself - least
            if skew <= constraint.max_skew:
                continue
            present = int(domain.present.sum())
            facts = {
                "topologyKey": constraint.topology_key,
                "domain": domain.values[code],
                "pods": str(here),
                "fewest": str(least),
                "skew": str(skew),
                "maxSkew": str(constraint.max_skew),
                "domains": str(present),
            }
            text = f"{about}: {domain.values[code]} has {here} of these Pods, the emptiest domain {least}"
            if present < constraint.min_domains:
                facts["minDomains"] = str(constraint.min_domains)
                text = (
                    f"{about}: only {present} of at least {constraint.min_domains} domains are there, as if one had no"
                )
                text += f" Pods; {domain.values[code]} has {here}"
            yield Because(about, f"{text}: the skew would be {skew} > {constraint.max_skew}", facts, skew)
