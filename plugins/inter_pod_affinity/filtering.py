"""The required terms of one attempt: the incoming Pod's own and those of Pods on nodes that repel it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from plugins.inter_pod_affinity.pairs import Pairs
from scheduler.api.core import Pod
from scheduler.framework.plugin import Rows
from scheduler.state.cluster import ClusterState
from scheduler.state.columns import Bool
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology_terms import Condition, PodMatch, TermKind, pod_terms

NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Resolved:
    """A term of the incoming Pod: where it counts, and which Pods it speaks of."""

    topology_key: str
    condition: Condition


@dataclass(slots=True)
class RequiredTerms:
    """Filter state of one Pod; the three pairs are upstream's three maps (spec 3.12.2).

    Cost to make: one pass over the nodes per own term, and the rows of each placed term that matches the Pod.
    """

    pod: Pod
    namespace_labels: Mapping[str, str]
    affinity: tuple[Resolved, ...]
    anti_affinity: tuple[Resolved, ...]
    near: Pairs
    away: Pairs
    repelled: Pairs

    @classmethod
    def count(cls, pod: Pod, state: ClusterState) -> RequiredTerms:
        """Namespace selectors of own terms stand for the namespaces known now."""
        nodes, namespaces, terms = state.nodes, state.namespaces, pod_terms(pod)
        namespace = pod.metadata.namespace

        def resolved(kind: TermKind) -> tuple[Resolved, ...]:
            return tuple(Resolved(term.topology_key, term.condition(namespaces)) for term in terms[kind])

        found = cls(
            pod,
            namespaces.get(namespace, NO_LABELS),
            resolved(TermKind.REQUIRED_AFFINITY),
            resolved(TermKind.REQUIRED_ANTI_AFFINITY),
            Pairs(nodes),
            Pairs(nodes),
            Pairs(nodes),
        )
        if found.affinity:
            counts = state.topology.counts(found.all_affinity(), nodes.capacity)
            for term in found.affinity:
                found.near.add_rows(term.topology_key, counts)
        for term in found.anti_affinity:
            counts = state.topology.counts(PodMatch((term.condition,)), nodes.capacity)
            found.away.add_rows(term.topology_key, counts)
        placed_terms = state.topology.terms.matching(
            TermKind.REQUIRED_ANTI_AFFINITY, namespace, pod.metadata.labels, found.namespace_labels
        )
        for placed in placed_terms:
            column = placed.rows.add_to(np.zeros(nodes.capacity, np.int64))
            found.repelled.add_rows(placed.term.topology_key, column)
        return found

    def all_affinity(self) -> PodMatch:
        """A Pod counts for affinity only when it matches every own term."""
        return PodMatch(tuple(term.condition for term in self.affinity))

    def clone(self) -> RequiredTerms:
        """A copy to try additions and removals on."""
        return replace(self, near=self.near.clone(), away=self.away.clone(), repelled=self.repelled.clone())

    def change(self, info: PodInfo, row: int, delta: int) -> None:
        """Pretend that ``info``'s Pod came to (+1) or left (-1) ``row``."""
        other, own = info.pod.metadata, self.pod.metadata
        for term in pod_terms(info.pod)[TermKind.REQUIRED_ANTI_AFFINITY]:
            if term.matches(own.namespace, own.labels, self.namespace_labels):
                self.repelled.add(term.topology_key, row, delta)
        if self.affinity and self.all_affinity().holds(other.namespace, other.labels, deleting=False):
            for wanted in self.affinity:
                self.near.add(wanted.topology_key, row, delta)
        for unwanted in self.anti_affinity:
            if unwanted.condition.holds(other.namespace, other.labels):
                self.away.add(unwanted.topology_key, row, delta)

    def affinity_unmet(self, nodes: NodeTable, rows: Rows) -> Bool:
        """True for rows that fail own affinity.

        The first Pod of a group that wants itself near may go to any node with all keys, while no Pod anywhere counts.
        """
        keyless = np.zeros(len(rows), np.bool_)
        lonely = np.zeros(len(rows), np.bool_)
        for term in self.affinity:
            keyless |= nodes.labels(term.topology_key).codes[rows] < 0
            lonely |= self.near.at(term.topology_key, rows) <= 0
        own = self.pod.metadata
        if not self.affinity or (
            not self.near and self.all_affinity().holds(own.namespace, own.labels, deleting=False)
        ):
            return keyless
        return keyless | lonely

    def anti_affinity_broken(self, rows: Rows) -> Bool:
        """True for rows in a domain with a Pod that own anti-affinity speaks of."""
        broken = np.zeros(len(rows), np.bool_)
        for key in {term.topology_key for term in self.anti_affinity}:
            broken |= self.away.at(key, rows) > 0
        return broken

    def repelled_rows(self, rows: Rows) -> Bool:
        """True for rows in a domain with a Pod whose anti-affinity speaks of the incoming one."""
        found = np.zeros(len(rows), np.bool_)
        for key in self.repelled:
            found |= self.repelled.at(key, rows) > 0
        return found
