"""Node selectors over columns: one answer per distinct label value, gathered over the rows.

The rules are those of ``api.selectors``; this is their form for many nodes at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scheduler.api.selectors import (
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    check_term,
    requirement_matches,
)
from scheduler.state.columns import Bool, Int64
from scheduler.state.nodes import NodeTable


def rows_with_labels(nodes: NodeTable, rows: Int64, labels: Mapping[str, str]) -> Bool:
    """True for rows that have every one of ``labels``."""
    result = np.ones(len(rows), np.bool_)
    for key, value in labels.items():
        column = nodes.labels(key)
        code = column.code_of(value)
        if code is None:
            return np.zeros(len(rows), np.bool_)
        result &= column.codes[rows] == code
    return result


def rows_matching(nodes: NodeTable, rows: Int64, requirement: Requirement) -> Bool:
    """True for rows whose labels satisfy ``requirement``. Cost: its values, or the key's values for Gt and Lt."""
    column = nodes.labels(requirement.key)
    codes = column.codes[rows]
    operator = requirement.operator
    if operator in ("In", "NotIn"):
        wanted = [code for code in map(column.code_of, requirement.values) if code is not None]
        found: Bool = np.isin(codes, wanted) if len(wanted) != 1 else codes == wanted[0]
        return found if operator == "In" else ~found
    if operator == "Exists":
        return codes >= 0
    if operator == "DoesNotExist":
        return codes < 0
    # The entry behind the last value answers code -1: the key is absent.
    answers = [requirement_matches(requirement, {requirement.key: value}) for value in column.values]
    return np.array([*answers, False], np.bool_)[codes]


def rows_matching_term(nodes: NodeTable, rows: Int64, term: NodeSelectorTerm) -> Bool:
    """True for rows that satisfy ``term``; nowhere for an empty or unparsable one."""
    nothing = np.zeros(len(rows), np.bool_)
    if not term.matchExpressions and not term.matchFields:
        return nothing
    try:
        check_term(term)
    except SelectorError:
        return nothing
    result = np.ones(len(rows), np.bool_)
    for requirement in term.matchExpressions:
        result &= rows_matching(nodes, rows, requirement)
    for requirement in term.matchFields:
        # check_term allowed metadata.name with one value only.
        named = rows == nodes.row_of(requirement.values[0])
        result &= named if requirement.operator == "In" else ~named
    return result


def rows_selected(nodes: NodeTable, rows: Int64, selector: NodeSelector) -> Bool:
    """True for rows that satisfy any term of ``selector``; nowhere without terms."""
    return rows_matching_any(nodes, rows, selector.nodeSelectorTerms)


def rows_matching_any(nodes: NodeTable, rows: Int64, terms: Sequence[NodeSelectorTerm]) -> Bool:
    """True for rows that satisfy any of ``terms``."""
    result = np.zeros(len(rows), np.bool_)
    for term in terms:
        result |= rows_matching_term(nodes, rows, term)
    return result
