"""From counts per row to counts per domain: all rows whose node has one value of a topology key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.api.selectors import NodeSelector
from scheduler.api.taints import Toleration, first_untolerated
from scheduler.state.columns import Bool, Int32, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.selection import rows_selected, rows_with_labels


def domain_sums(codes: Int32, amounts: Int64, domain_count: int) -> Int64:
    """Sum of ``amounts`` per code 0..domain_count-1; entries with a negative code belong to no domain.

    Exact while sums stay below 2**53. Cost: one pass.
    """
    there = codes >= 0
    sums = np.bincount(codes[there], weights=amounts[there], minlength=domain_count)
    return np.asarray(sums.astype(np.int64))


def domains_present(codes: Int32, domain_count: int) -> Bool:
    """True per code that occurs in ``codes``."""
    return np.bincount(codes[codes >= 0], minlength=domain_count) > 0


def at_codes(sums: Int64, codes: Int32) -> Int64:
    """The sum of each entry's domain; 0 without a domain and for values that were unknown when sums were made."""
    known = (codes >= 0) & (codes < len(sums))
    result = np.zeros(len(codes), np.int64)
    result[known] = sums[codes[known]]
    return result


def rows_required(
    nodes: NodeTable, rows: Int64, node_selector: Mapping[str, str] | None, required: NodeSelector | None
) -> Bool:
    """True for rows that satisfy a Pod's nodeSelector and required node affinity."""
    result = rows_with_labels(nodes, rows, node_selector or {})
    if required is not None:
        result &= rows_selected(nodes, rows, required)
    return result


def rows_tolerated(nodes: NodeTable, rows: Int64, tolerations: Sequence[Toleration]) -> Bool:
    """True for rows without a NoSchedule or NoExecute taint that nothing tolerates.

    One look per distinct list of taints.
    """
    ids = nodes.taint_set_ids[rows]
    present, places = np.unique(ids, return_inverse=True)
    answers = [first_untolerated(nodes.taint_sets[set_id], tolerations) is None for set_id in present.tolist()]
    return np.asarray(answers, np.bool_)[places]
