"""The preferences of one attempt, the incoming Pod's and those of Pods on nodes about it."""

from __future__ import annotations

import numpy as np

from plugins.base import MAX_SCORE
from plugins.inter_pod_affinity.filtering import NO_LABELS
from plugins.inter_pod_affinity.pairs import Pairs
from scheduler.api.core import Pod
from scheduler.framework.plugin import Rows, Scores
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import Int64
from scheduler.state.topology_terms import PodMatch, TermKind, pod_terms


class Preferences:
    """Weights by topology pair (spec 3.12.3). ``touched`` is False when not one Pod contributed anything."""

    __slots__ = ("_capacity", "_pairs", "touched")

    def __init__(self, pod: Pod, state: ClusterState, required_weight: int) -> None:
        """``required_weight``: what a placed Pod's required affinity for the incoming one is worth, 0 for nothing."""
        self._pairs = Pairs(state.nodes)
        self._capacity = state.nodes.capacity
        self.touched = False
        terms = pod_terms(pod)
        for kind, sign in ((TermKind.PREFERRED_AFFINITY, 1), (TermKind.PREFERRED_ANTI_AFFINITY, -1)):
            for term in terms[kind]:
                counts = state.topology.counts(PodMatch((term.condition(state.namespaces),)), self._capacity)
                self._add(state, term.topology_key, counts, sign * term.weight)
        namespace = pod.metadata.namespace
        namespace_labels = state.namespaces.get(namespace, NO_LABELS)
        for kind, sign in _PLACED_KINDS:
            for placed in state.topology.terms.matching(kind, namespace, pod.metadata.labels, namespace_labels):
                weight = required_weight if kind is TermKind.REQUIRED_AFFINITY else sign * placed.term.weight
                if kind is TermKind.REQUIRED_AFFINITY and weight <= 0:
                    continue
                column = placed.rows.add_to(np.zeros(self._capacity, np.int64))
                self._add(state, placed.term.topology_key, column, weight)

    def _add(self, state: ClusterState, key: str, counts: Int64, weight: int) -> None:
        codes = state.nodes.labels(key).codes
        length = min(len(codes), len(counts))
        if bool((counts[:length][codes[:length] >= 0] != 0).any()):
            self.touched = True
            self._pairs.add_rows(key, counts * weight)

    def scores(self, rows: Rows) -> Scores:
        """Sum of the weights of each row's pairs."""
        total = np.zeros(len(rows), np.int64)
        for key in self._pairs:
            total += self._pairs.at(key, rows)
        return total


_PLACED_KINDS = (
    (TermKind.REQUIRED_AFFINITY, 1),
    (TermKind.PREFERRED_AFFINITY, 1),
    (TermKind.PREFERRED_ANTI_AFFINITY, -1),
)


def normalized(scores: Scores) -> Scores:
    """``int(100 * (s - min) / (max - min))`` in doubles, as upstream divides; all 0 when equal."""
    smallest, largest = int(scores.min()), int(scores.max())
    if largest == smallest:
        return np.zeros(len(scores), np.int64)
    parts = (scores - smallest).astype(np.float64) / float(largest - smallest)
    return np.asarray((float(MAX_SCORE) * parts).astype(np.int64))
