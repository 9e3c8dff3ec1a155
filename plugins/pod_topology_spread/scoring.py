"""The soft constraints of one attempt: the fewer fellows in a node's domains, the better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.base import MAX_SCORE
from plugins.pod_topology_spread.constraints import HOSTNAME, Constraint, Eligibility, rows_with_keys
from plugins.pod_topology_spread.kept import Domains, KeptDomains
from scheduler.api.core import Pod
from scheduler.framework.plugin import Rows, Scores
from scheduler.state.columns import Bool, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_domains import domain_sums, domains_present


@dataclass(slots=True)
class SoftRows:
    """What of the rows the soft constraints look at, whatever Pods are there.

    ``keyed``: rows with all topology keys, None when all count (not ``strict``); ``labelled``: per constraint, rows
    whose node has its key. ``sizes`` is for all nodes: the number of domains per constraint.
    """

    keyed: Bool | None
    labelled: list[Bool]
    sizes: list[int]
    order: Rows


def soft_domains(
    pod: Pod, constraints: Sequence[Constraint], nodes: NodeTable, topology: TopologyIndex, *, strict: bool
) -> tuple[list[Domains], SoftRows]:
    """``strict``: rows without all topology keys are ignored and count nowhere (spec 3.11.3).

    A node without the key belongs to the domain of the empty value, as a missing label reads in Go. Cost: a few passes
    over the nodes per constraint.
    """
    order = counted_order = nodes.order()
    keyed: Bool | None = None
    if strict:
        keyed = np.zeros(nodes.capacity, np.bool_)
        counted_order = order[rows_with_keys(nodes, order, constraints)]
        keyed[counted_order] = True
    eligibility = Eligibility(pod, nodes, counted_order)
    domains, about = [], SoftRows(keyed, [], [], order)
    for constraint in constraints:
        column = nodes.labels(constraint.topology_key)
        empty, size = column.code_of(""), len(column.values) + 1
        codes = np.where(column.codes < 0, size - 1 if empty is None else empty, column.codes).astype(np.int64)
        here = counted_order[eligibility.of(constraint)]
        counted = np.zeros(nodes.capacity, np.bool_)
        counted[here] = True
        amounts = constraint.counts(topology, pod.metadata.namespace, nodes.capacity)[here]
        counts = domain_sums(codes[here].astype(np.int32), amounts, size)
        present = domains_present(codes[counted_order].astype(np.int32), size)
        domains.append(Domains(constraint, column.values, codes, counted, present, counts))
        about.labelled.append(column.codes >= 0)
        hosts = constraint.topology_key == HOSTNAME
        about.sizes.append(len(counted_order) if hosts else int(present.sum()))
    return domains, about


@dataclass(slots=True)
class SoftSpread:
    """Score state of one Pod over the feasible rows: raw scores and which rows are ignored, None: none is."""

    raw: Scores
    ignored: Bool | None

    @classmethod
    def of(cls, pod: Pod, kept: KeptDomains, topology: TopologyIndex, rows: Rows) -> SoftSpread:
        """``kept.extra`` is the SoftRows of the constraints. Cost: two passes over ``rows`` per constraint."""
        about: SoftRows = kept.extra
        ignored = None if about.keyed is None else ~about.keyed.take(rows)
        if ignored is not None and not ignored.any():
            ignored = None
        total = np.zeros(len(rows), np.float64)
        for place, domain in enumerate(kept.domains):
            constraint = domain.constraint
            size = about.sizes[place]
            if rows is not about.order:
                size = _size(domain, rows if ignored is None else rows[~ignored])
            weight, more = math.log(float(size + 2)), float(constraint.max_skew - 1)
            if constraint.topology_key == HOSTNAME:
                counts = constraint.counts(topology, pod.metadata.namespace, kept.nodes.capacity)
                score = counts.take(rows) * weight + more
            else:
                score = (domain.counts * weight + more).take(domain.codes.take(rows))
            there = about.labelled[place].take(rows)
            total += score if there.all() else np.where(there, score, 0.0)
        raw = rounded(total)
        return cls(raw if ignored is None else np.where(ignored, 0, raw), ignored)

    def normalized(self, scores: Scores) -> Scores:
        """Least becomes best: ``100 * (max + min - s) // max``; ignored rows 0, all others 100 when max is 0."""
        counted = scores if self.ignored is None else scores[~self.ignored]
        largest = max(0, int(counted.max())) if len(counted) else 0
        if largest == 0:
            result = np.full(len(scores), MAX_SCORE, np.int64)
        else:
            result = MAX_SCORE * (largest + int(counted.min()) - scores) // largest
        return result if self.ignored is None else np.where(self.ignored, 0, result)


def _size(domain: Domains, kept: Int64) -> int:
    """The number of domains among ``kept`` rows; of host names, the number of rows."""
    if domain.constraint.topology_key == HOSTNAME:
        return len(kept)
    return int((np.bincount(domain.codes.take(kept), minlength=1) > 0).sum())


def rounded(values: NDArray[np.float64]) -> Scores:
    """Half away from zero, as Go's math.Round, of values that are not negative."""
    whole = np.trunc(values)
    whole += values - whole >= 0.5
    return whole.astype(np.int64)
