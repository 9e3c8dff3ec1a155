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
from scheduler.state.topology_rows import RowCounts, with_row
from scheduler.state.topology_terms import AffinityTerm, PodMatch, TermKind, pod_terms

_MATCHES_MAX = 256
_SUBJECTS_MAX = 1024

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
class PlacedTerm:
    """A term that Pods on nodes have, with their number per row; ``serial`` grows with its first appearance."""

    kind: TermKind
    term: AffinityTerm
    serial: int
    rows: RowCounts = field(default_factory=RowCounts)


@dataclass(slots=True, eq=False)
class _Subject:
    """What is known for incoming Pods of one namespace and one set of labels: the placed terms that match them."""

    seen: int = 0
    matching: tuple[list[PlacedTerm], ...] = field(default_factory=lambda: ([], [], [], []))


@dataclass(slots=True, eq=False)
class _Placed:
    row: int
    pod_class: _PodClass
    terms: list[PlacedTerm]


class TopologyIndex:
    """Pods on rows by class, and their inter-Pod terms. Rows are those of the NodeTable, ghosts included."""

    def __init__(self) -> None:
        self._placed: dict[str, _Placed] = {}
        self._classes: dict[str, dict[ClassKey, _PodClass]] = {}
        self._columns: dict[PodMatch, _Column] = {}
        self._terms: dict[tuple[TermKind, AffinityTerm], PlacedTerm] = {}
        self._serial = 0
        self._subjects: dict[tuple[str, Labels, Labels], _Subject] = {}

    # Changes

    def pod_added(self, info: PodInfo, row: int) -> None:
        """A Pod counts on ``row`` from now on; one with the same UID is replaced."""
        self.pod_removed(info)
        pod_class = self._class_of(info)
        pod_class.rows.add(row, 1)
        self._count(pod_class, row, 1)
        terms: list[PlacedTerm] = []
        for kind, term in pod_terms(info.pod).all():
            placed = self._terms.get((kind, term))
            if placed is None:
                self._serial += 1
                placed = self._terms[kind, term] = PlacedTerm(kind, term, self._serial)
            placed.rows.add(row, 1)
            terms.append(placed)
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
            term.rows.add(placed.row, -1)
            if not term.rows.total:
                # A term that comes back is a new one with a new serial: subjects forget this one when they see it.
                self._terms.pop((term.kind, term.term), None)

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

    def terms_matching(
        self, kind: TermKind, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> list[PlacedTerm]:
        """Terms of placed Pods that match an incoming Pod of ``namespace`` (with those labels) with ``labels``.

        Cost: one evaluation per term that appeared since the last such Pod asked.
        """
        key = (namespace, frozenset(labels.items()), frozenset(namespace_labels.items()))
        subject = self._subjects.pop(key, None)
        if subject is None:
            subject = _Subject()
            if len(self._subjects) >= _SUBJECTS_MAX:
                del self._subjects[next(iter(self._subjects))]
        self._subjects[key] = subject
        if subject.seen < self._serial:
            self._look_at_new_terms(subject, namespace, labels, namespace_labels)
        matching = subject.matching[kind]
        if any(not placed.rows.total for placed in matching):
            matching[:] = [placed for placed in matching if placed.rows.total]
        return matching

    def _look_at_new_terms(
        self, subject: _Subject, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> None:
        for placed in reversed(self._terms.values()):
            if placed.serial <= subject.seen:
                break
            if placed.term.matches(namespace, labels, namespace_labels):
                subject.matching[placed.kind].append(placed)
        subject.seen = self._serial
        for matching in subject.matching:
            matching[:] = [placed for placed in matching if placed.rows.total]

    # Checks

    def verify(self, placements: Iterable[tuple[PodInfo, int]]) -> None:
        """Recompute everything from ``placements`` (Pod, row); InternalError names the first difference."""
        fresh = TopologyIndex()
        for info, row in placements:
            fresh.pod_added(info, row)
        if self._rows_by_class() != fresh._rows_by_class():
            raise InternalError("topology counts: Pods per class and row differ from the Pods placed")
        held = {key: placed.rows.items() for key, placed in self._terms.items()}
        if held != {key: placed.rows.items() for key, placed in fresh._terms.items()}:
            raise InternalError("topology counts: inter-Pod terms per row differ from the Pods placed")
        for match, column in self._columns.items():
            expected = fresh.counts(match, len(column.counts))
            if not np.array_equal(column.counts, expected[: len(column.counts)]):
                raise InternalError(f"topology counts: {match} differs from the Pods placed")
        for (namespace, labels, namespace_labels), subject in self._subjects.items():
            for kind in TermKind:
                found = {p.term for p in subject.matching[kind] if p.rows.total and p.serial <= subject.seen}
                wanted = {
                    placed.term
                    for (of_kind, term), placed in self._terms.items()
                    if of_kind is kind
                    and placed.serial <= subject.seen
                    and term.matches(namespace, dict(labels), dict(namespace_labels))
                }
                if found != wanted:
                    raise InternalError(f"topology counts: terms matching a Pod of {namespace} are not those held")

    def _rows_by_class(self) -> dict[tuple[str, ClassKey], dict[int, int]]:
        return {
            (namespace, key): pod_class.rows.items()
            for namespace, of_namespace in self._classes.items()
            for key, pod_class in of_namespace.items()
        }


def _holds(match: PodMatch, pod_class: _PodClass) -> bool:
    return match.holds(pod_class.namespace, pod_class.labels, pod_class.deleting)
