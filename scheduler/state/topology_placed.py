"""PlacedTerms: the inter-Pod terms of Pods on rows, found by the Pods they speak of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product

from scheduler.state.topology_rows import RowCounts
from scheduler.state.topology_terms import AffinityTerm, TermKind

Label = tuple[str, str]
_Place = tuple[TermKind, str | None, Label | None]


@dataclass(slots=True, eq=False)
class PlacedTerm:
    """A term that Pods on rows have, with their number per row."""

    kind: TermKind
    term: AffinityTerm
    rows: RowCounts = field(default_factory=RowCounts)


class PlacedTerms:
    """Equal terms are held once. Each is filed under what a Pod must have for the term to speak of it: its namespace
    and one label, as far as the term demands these; so most terms are never looked at for most Pods.
    """

    def __init__(self) -> None:
        self._terms: dict[tuple[TermKind, AffinityTerm], PlacedTerm] = {}
        self._held = dict.fromkeys(TermKind, 0)
        self._places: dict[_Place, dict[AffinityTerm, PlacedTerm]] = {}

    def add(self, kind: TermKind, term: AffinityTerm, row: int) -> PlacedTerm:
        """One more Pod on ``row`` has ``term``."""
        placed = self._terms.get((kind, term))
        if placed is None:
            placed = self._terms[kind, term] = PlacedTerm(kind, term)
            self._held[kind] += 1
            for place in _places_of(kind, term):
                self._places.setdefault(place, {})[term] = placed
        placed.rows.add(row, 1)
        return placed

    def remove(self, placed: PlacedTerm, row: int) -> None:
        """One Pod less on ``row`` has the term; the last one takes it along."""
        placed.rows.add(row, -1)
        if placed.rows.total:
            return
        del self._terms[placed.kind, placed.term]
        self._held[placed.kind] -= 1
        for place in _places_of(placed.kind, placed.term):
            here = self._places[place]
            del here[placed.term]
            if not here:
                del self._places[place]

    def matching(
        self, kind: TermKind, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]
    ) -> Iterator[PlacedTerm]:
        """Terms of ``kind`` that match a Pod of ``namespace``, which has ``namespace_labels``, with ``labels``.

        Each comes once: a Pod has one value of the label a term is filed under. Cost: two look-ups per label, one
        evaluation per term filed there.
        """
        for of_namespace, label in product((namespace, None), (*labels.items(), None)):
            for placed in self._places.get((kind, of_namespace, label), _NOTHING).values():
                if placed.term.matches(namespace, labels, namespace_labels):
                    yield placed

    def any_of(self, kinds: Iterable[TermKind]) -> bool:
        """True when some Pod on a node has a term of one of ``kinds``."""
        return any(self._held[kind] for kind in kinds)

    def rows_by_term(self) -> dict[tuple[TermKind, AffinityTerm], dict[int, int]]:
        """Pods per row of every term held."""
        return {key: placed.rows.items() for key, placed in self._terms.items()}

    def places(self) -> dict[_Place, set[AffinityTerm]]:
        """Which terms are filed where."""
        return {place: set(here) for place, here in self._places.items()}


_NOTHING: Mapping[AffinityTerm, PlacedTerm] = {}


def _places_of(kind: TermKind, term: AffinityTerm) -> Iterable[_Place]:
    """Every place where a Pod that ``term`` may match would look; none for a term that matches nothing."""
    if term.selector is None:
        return ()
    namespaces: Iterable[str | None] = (None,) if term.namespace_selector is not None else term.namespaces
    demanded = [r for r in term.selector if r.operator == "In"]
    labels: Iterable[Label | None] = (None,)
    if demanded:
        fewest = min(demanded, key=lambda r: len(r.values))
        labels = [(fewest.key, value) for value in fewest.values]
    return product((kind,), namespaces, labels)
