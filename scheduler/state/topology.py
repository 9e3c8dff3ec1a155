"""TopologyIndex: which Pods are where, in the forms that spread and inter-Pod affinity ask for.

Kept current by one call per Pod that comes to or leaves a row; no question looks at all Pods, except the first one
of its kind. Node labels play no part here: plugins gather these counts per row into domains with the label columns,
so nothing has to be done when a node comes, goes or changes its labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from scheduler.errors import InternalError
from scheduler.state.columns import Int64
from scheduler.state.podinfo import PodInfo
from scheduler.state.topology_placed import PlacedTerm, PlacedTerms
from scheduler.state.topology_rows import RowCounts, with_row
from scheduler.state.topology_terms import PodMatch, pod_terms

_MATCHES_MAX = 256

Labels = frozenset[tuple[str, str]]
ClassKey = tuple[Labels, bool]


@dataclass(slots=True, eq=False)
class _Column:
    """Pods that satisfy ``match``, per row. Dropped ones are no longer ``live`` and leave the classes lazily."""

    match: PodMatch
    counts: Int64
    live: bool = True


@dataclass(slots=True, eq=False)
class _PodClass:
    """Pods of one namespace with equal labels, being deleted or not: a selector treats them alike."""

    namespace: str
    labels: Mapping[str, str]
    deleting: bool
    rows: RowCounts = field(default_factory=RowCounts)
    columns: list[_Column] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Placed:
    row: int
    pod_class: _PodClass
    terms: list[PlacedTerm]


class TopologyIndex:
    """Pods on rows by class; ``terms``: their inter-Pod terms. Rows are those of the NodeTable, ghosts included."""

    def __init__(self) -> None:
        self._placed: dict[str, _Placed] = {}
        self._classes: dict[str, dict[ClassKey, _PodClass]] = {}
        self._columns: dict[PodMatch, _Column] = {}
        self.terms = PlacedTerms()

    # Changes

    def pod_added(self, info: PodInfo, row: int) -> None:
        """A Pod counts on ``row`` from now on; one with the same UID is replaced."""
        self.pod_removed(info)
        pod_class = self._class_of(info)
        pod_class.rows.add(row, 1)
        self._count(pod_class, row, 1)
        terms = [self.terms.add(kind, term, row) for kind, term in pod_terms(info.pod).all()]
        self._placed[info.uid] = _Placed(row, pod_class, terms)

    def pod_removed(self, info: PodInfo) -> None:
        """The Pod counts no more; nothing when it did not."""
        placed = self._placed.pop(info.uid, None)
        if placed is None:
            return
        pod_class = placed.pod_class
        pod_class.rows.add(placed.row, -1)
        self._count(pod_class, placed.row, -1)
        if not pod_class.rows.total:
            of_namespace = self._classes[pod_class.namespace]
            del of_namespace[frozenset(pod_class.labels.items()), pod_class.deleting]
            if not of_namespace:
                del self._classes[pod_class.namespace]
        for term in placed.terms:
            self.terms.remove(term, placed.row)

    def _class_of(self, info: PodInfo) -> _PodClass:
        metadata = info.pod.metadata
        deleting = metadata.deletionTimestamp is not None
        of_namespace = self._classes.setdefault(metadata.namespace, {})
        key = (frozenset(metadata.labels.items()), deleting)
        found = of_namespace.get(key)
        if found is None:
            found = of_namespace[key] = _PodClass(metadata.namespace, metadata.labels, deleting)
            found.columns = [c for c in self._columns.values() if _holds(c.match, found)]
        return found

    @staticmethod
    def _count(pod_class: _PodClass, row: int, delta: int) -> None:
        stale = False
        for column in pod_class.columns:
            if column.live:
                column.counts = with_row(column.counts, row)
                column.counts[row] += delta
            else:
                stale = True
        if stale:
            pod_class.columns = [column for column in pod_class.columns if column.live]

    # Questions

    def counts(self, match: PodMatch, capacity: int) -> Int64:
        """Pods satisfying ``match`` per row, at least ``capacity`` entries; live, do not write or keep it.

        Cost: O(1) while kept (the 256 last used ones are); otherwise one evaluation per class of its namespaces.
        """
        column = self._columns.pop(match, None)
        if column is None:
            column = self._new_column(match, capacity)
            if len(self._columns) >= _MATCHES_MAX:
                oldest = next(iter(self._columns))
                self._columns.pop(oldest).live = False
        self._columns[match] = column
        column.counts = with_row(column.counts, capacity - 1)
        return column.counts

    def _new_column(self, match: PodMatch, capacity: int) -> _Column:
        column = _Column(match, np.zeros(max(capacity, 1), np.int64))
        namespaces = match.namespaces()
        for namespace in self._classes if namespaces is None else namespaces:
            for pod_class in self._classes.get(namespace, {}).values():
                if _holds(match, pod_class):
                    pod_class.columns.append(column)
                    column.counts = pod_class.rows.add_to(column.counts)
        return column

    # Checks

    def verify(self, placements: Iterable[tuple[PodInfo, int]]) -> None:
        """Recompute everything from ``placements`` (Pod, row); InternalError names the first difference."""
        fresh = TopologyIndex()
        for info, row in placements:
            fresh.pod_added(info, row)
        if self._rows_by_class() != fresh._rows_by_class():
            raise InternalError("topology counts: Pods per class and row differ from the Pods placed")
        if self._rows_by_pod() != fresh._rows_by_pod():
            raise InternalError("topology counts: the Pods counted are not the Pods placed")
        if self.terms.rows_by_term() != fresh.terms.rows_by_term() or self.terms.places() != fresh.terms.places():
            raise InternalError("topology counts: inter-Pod terms per row differ from the Pods placed")
        for match, column in self._columns.items():
            expected = fresh.counts(match, len(column.counts))
            if not np.array_equal(column.counts, expected[: len(column.counts)]):
                raise InternalError(f"topology counts: {match} differs from the Pods placed")

    def _rows_by_pod(self) -> dict[str, int]:
        return {uid: placed.row for uid, placed in self._placed.items()}

    def _rows_by_class(self) -> dict[tuple[str, ClassKey], dict[int, int]]:
        return {
            (namespace, key): pod_class.rows.items()
            for namespace, of_namespace in self._classes.items()
            for key, pod_class in of_namespace.items()
        }


def _holds(match: PodMatch, pod_class: _PodClass) -> bool:
    return match.holds(pod_class.namespace, pod_class.labels, pod_class.deleting)
