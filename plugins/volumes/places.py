"""Places: which of some rows a selector of nodes matches, asked for many selectors about the same rows."""

from __future__ import annotations

import numpy as np

from scheduler.api.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    Requirement,
    SelectorError,
    check_term,
)
from scheduler.api.storage import CSINode, PersistentVolume, StorageClass
from scheduler.framework.plugin import Rows
from scheduler.state.columns import Bool, Int64
from scheduler.state.migration import plugin_of, translated_selector
from scheduler.state.nodes import NodeTable
from scheduler.state.selection import rows_matching, rows_with_labels


class Places:
    """Positions in ``rows``. Valid while no node changes. Cost of a one-label selector after the key's first: small."""

    def __init__(self, nodes: NodeTable, rows: Rows, csi_nodes: dict[str, CSINode]) -> None:
        self.nodes, self.rows = nodes, rows
        self._csi_nodes = csi_nodes
        self._by_value: dict[str, dict[str, Int64]] = {}
        self.everywhere: Int64 = np.arange(len(rows))

    def reached_from(self, volume: PersistentVolume) -> Int64:
        """Positions from which the volume can be used: its node affinity as it counts on each node."""
        if plugin_of(volume.spec) is None:
            return self.matching(volume.selector)
        csi_nodes = [self._csi_nodes.get(self.nodes.name_of(row)) for row in self.rows.tolist()]
        kinds = {node.migrated_plugins: node for node in csi_nodes if node is not None}
        result = np.zeros(len(self.rows), np.bool_)
        for kind, example in ((None, None), *kinds.items()):
            here = [kind == (None if node is None else node.migrated_plugins) for node in csi_nodes]
            matching = self.matching(translated_selector(volume, example))
            result[matching] |= np.asarray(here, np.bool_)[matching]
        return np.flatnonzero(result)

    def matching(self, selector: NodeSelector | None) -> Int64:
        """Positions whose labels satisfy ``selector`` (None: all); node names are never looked at."""
        if selector is None:
            return self.everywhere
        terms = selector.nodeSelectorTerms
        if len(terms) == 1 and len(terms[0].matchExpressions) == 1 and not terms[0].matchFields:
            requirement = terms[0].matchExpressions[0]
            if requirement.operator == "In" and len(requirement.values) == 1:
                return self._with_value(requirement.key, requirement.values[0])
        result = np.zeros(len(self.rows), np.bool_)
        for term in terms:
            result |= self._term(term)
        return np.flatnonzero(result)

    def _with_value(self, key: str, value: str) -> Int64:
        by_value = self._by_value.get(key)
        if by_value is None:
            column = self.nodes.labels(key)
            codes = column.codes[self.rows]
            order = np.argsort(codes, kind="stable")
            present, starts = np.unique(codes[order], return_index=True)
            pieces = np.split(order, starts[1:])
            by_value = self._by_value[key] = {
                column.values[code]: piece for code, piece in zip(present.tolist(), pieces, strict=False) if code >= 0
            }
        return by_value.get(value, self.everywhere[:0])

    def _term(self, term: NodeSelectorTerm) -> Bool:
        nothing = np.zeros(len(self.rows), np.bool_)
        if not term.matchExpressions and not term.matchFields:
            return nothing
        try:
            check_term(term)
        except SelectorError:
            return nothing
        if any(requirement.operator == "In" for requirement in term.matchFields):
            return nothing
        return self._all(term.matchExpressions)

    def _all(self, requirements: tuple[Requirement, ...]) -> Bool:
        result = np.ones(len(self.rows), np.bool_)
        for requirement in requirements:
            result &= rows_matching(self.nodes, self.rows, requirement)
        return result

    def labelled(self, selector: LabelSelector | None) -> Bool:
        """True where the node's labels satisfy ``selector``; nowhere for None."""
        if selector is None:
            return np.zeros(len(self.rows), np.bool_)
        return rows_with_labels(self.nodes, self.rows, selector.matchLabels) & self._all(selector.matchExpressions)

    def allowed(self, storage_class: StorageClass) -> Bool:
        """True where the class allows new volumes; everywhere without allowedTopologies."""
        if not storage_class.allowedTopologies:
            return np.ones(len(self.rows), np.bool_)
        result = np.zeros(len(self.rows), np.bool_)
        for term in storage_class.allowedTopologies:
            requirements = term.matchLabelExpressions
            if requirements and all(requirement.values for requirement in requirements):
                result |= self._all(tuple(Requirement(r.key, "In", r.values) for r in requirements))
        return result

    def named(self, node: str) -> Bool:
        """True at the node called ``node``."""
        row = self.nodes.row_of(node)
        return self.rows == row if row is not None else np.zeros(len(self.rows), np.bool_)
