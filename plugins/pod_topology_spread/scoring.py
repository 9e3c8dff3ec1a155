"""The soft constraints of one attempt: the fewer fellows in a node's domains, the better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.base import MAX_SCORE
from plugins.pod_topology_spread.constraints import HOSTNAME, Constraint, Eligibility, rows_with_keys
from scheduler.api.core import Pod
from scheduler.framework.plugin import Rows, Scores
from scheduler.state.columns import Bool, Int32, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.topology import TopologyIndex
from scheduler.state.topology_domains import domain_sums, domains_present


@dataclass(slots=True)
class SoftSpread:
    """Score state of one Pod over the feasible rows: raw scores and which rows are ignored."""

    raw: Scores
    ignored: Bool

    @classmethod
    def count(
        cls,
        pod: Pod,
        constraints: Sequence[Constraint],
        nodes: NodeTable,
        topology: TopologyIndex,
        rows: Rows,
        *,
        strict: bool,
    ) -> SoftSpread:
        """``strict``: rows without all topology keys are ignored and count nowhere (spec 3.11.3)."""
        order = nodes.order()
        ignored = np.zeros(len(rows), np.bool_)
        if strict:
            ignored = ~rows_with_keys(nodes, rows, constraints)
            order = order[rows_with_keys(nodes, order, constraints)]
        kept = rows[~ignored]
        eligibility = Eligibility(pod, nodes, order)
        total = np.zeros(len(rows), np.float64)
        for constraint in constraints:
            counts = constraint.counts(topology, pod.metadata.namespace, nodes.capacity)
            codes = nodes.labels(constraint.topology_key).codes
            if constraint.topology_key == HOSTNAME:
                amounts, size = counts[rows], len(kept)
            else:
                counted = order[eligibility.of(constraint)]
                amounts, size = _by_domain(nodes, constraint.topology_key, counts, counted, rows, kept)
            score = amounts.astype(np.float64) * math.log(float(size + 2)) + float(constraint.max_skew - 1)
            total += np.where(codes[rows] >= 0, score, 0.0)
        return cls(np.where(ignored, 0, rounded(total)), ignored)

    def normalized(self, scores: Scores) -> Scores:
        """Least becomes best: ``100 * (max + min - s) // max``; ignored rows 0, all others 100 when max is 0."""
        counted = scores[~self.ignored]
        largest = max(0, int(counted.max())) if len(counted) else 0
        if largest == 0:
            return np.where(self.ignored, 0, MAX_SCORE)
        return np.where(self.ignored, 0, MAX_SCORE * (largest + int(counted.min()) - scores) // largest)


def _by_domain(nodes: NodeTable, key: str, counts: Int64, counted: Int64, rows: Rows, kept: Rows) -> tuple[Int64, int]:
    """(Pods in each of ``rows``' domains, number of domains among ``kept``).

    A node without the key belongs to the domain of the empty value, as a missing label reads in Go.
    """
    column = nodes.labels(key)
    empty = column.code_of("")
    size = len(column.values) + 1

    def codes_of(some: Int64) -> Int32:
        codes = column.codes[some]
        return np.where(codes < 0, size - 1 if empty is None else empty, codes).astype(np.int32)

    sums = domain_sums(codes_of(counted), counts[counted], size)
    return sums[codes_of(rows)], int(domains_present(codes_of(kept), size).sum())


def rounded(values: NDArray[np.float64]) -> Scores:
    """Half away from zero, as Go's math.Round."""
    whole = np.trunc(values)
    whole += np.where(np.abs(values - whole) >= 0.5, np.sign(values), 0.0)
    return np.asarray(whole.astype(np.int64))
