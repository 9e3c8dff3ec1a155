"""Pod selectors and inter-Pod affinity terms in a canonical form: hashable, so that equal rules are answered once.

Source: kube-scheduler 1.37, framework's affinity terms and apimachinery's label selectors (spec 3.11.1, 3.12.1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum

import msgspec

from scheduler.api.core import Pod
from scheduler.api.selectors import LabelSelector, PodAffinityTerm, Requirement, SelectorError, requirement_matches

Requirements = tuple[Requirement, ...] | None
"""A label selector: every requirement must hold; ``()`` matches everything, None nothing."""

_OPERATORS = frozenset(("In", "NotIn", "Exists", "DoesNotExist"))
_VALUE_BYTES_MAX = 63
_VALUE = re.compile("(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?", re.ASCII)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE.pattern}')"
)


def requirements_of(selector: LabelSelector | None) -> Requirements:
    """``selector`` as sorted requirements without repetitions. Raises SelectorError for what upstream cannot parse."""
    if selector is None:
        return None
    found = {Requirement(key, "In", (value,)) for key, value in selector.matchLabels.items()}
    for requirement in sorted(found, key=_by_key):
        _check_values(requirement)
    for expression in selector.matchExpressions:
        _check(expression)
        found.add(Requirement(expression.key, expression.operator, tuple(sorted(set(expression.values)))))
    return tuple(sorted(found, key=_by_key))


def both(left: Requirements, right: Requirements) -> Requirements:
    """Requirements that hold when both do."""
    if left is None or right is None:
        return None
    return tuple(sorted({*left, *right}, key=_by_key))


def selects(requirements: Requirements, labels: Mapping[str, str]) -> bool:
    """True when ``labels`` satisfy ``requirements``."""
    return requirements is not None and all(requirement_matches(r, labels) for r in requirements)


def _by_key(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return requirement.key, requirement.operator, requirement.values


def _check(expression: Requirement) -> None:
    if expression.operator not in _OPERATORS:
        raise SelectorError(f'"{expression.operator}" is not a valid label selector operator')
    if expression.operator in ("In", "NotIn"):
        if not expression.values:
            text = "for 'in', 'notin' operators, values set can't be empty"
            raise SelectorError(f"values: Invalid value: null: {text}")
    elif expression.values:
        values = "[" + ",".join(f'"{value}"' for value in expression.values) + "]"
        raise SelectorError(f"values: Invalid value: {values}: values set must be empty for exists and does not exist")
    _check_values(expression)


def _check_values(requirement: Requirement) -> None:
    """Objects stored by old API servers may hold values that are no label values; keys were always checked there."""
    for index, value in enumerate(requirement.values):
        problem = ""
        if len(value.encode()) > _VALUE_BYTES_MAX:
            problem = f"must be no more than {_VALUE_BYTES_MAX} bytes"
        elif not _VALUE.fullmatch(value):
            problem = _VALUE_RULE
        if problem:
            raise SelectorError(f'values[{index}][{requirement.key}]: Invalid value: "{value}": {problem}')


class Condition(msgspec.Struct, frozen=True):
    """A Pod in one of ``namespaces`` (None: in any) whose labels satisfy ``selector``."""

    namespaces: frozenset[str] | None
    selector: Requirements

    def holds(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """True for a Pod of that namespace and those labels."""
        return (self.namespaces is None or namespace in self.namespaces) and selects(self.selector, labels)


class PodMatch(msgspec.Struct, frozen=True):
    """Pods for which every one of ``conditions`` holds; without ``deleting`` those being deleted do not count."""

    conditions: tuple[Condition, ...]
    deleting: bool = True

    def holds(self, namespace: str, labels: Mapping[str, str], deleting: bool) -> bool:
        """True for such a Pod."""
        return (self.deleting or not deleting) and all(c.holds(namespace, labels) for c in self.conditions)

    def namespaces(self) -> frozenset[str] | None:
        """The only namespaces with Pods that can match, None for any."""
        found: frozenset[str] | None = None
        for condition in self.conditions:
            if condition.namespaces is not None:
                found = condition.namespaces if found is None else found & condition.namespaces
        return found


class AffinityTerm(msgspec.Struct, frozen=True):
    """A term of inter-Pod (anti-)affinity; ``weight`` is 0 for required terms.

    ``namespaces`` holds the owner's namespace when the term names none and has no namespaceSelector.
    """

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Requirements
    selector: Requirements
    weight: int = 0

    def matches(self, namespace: str, labels: Mapping[str, str], namespace_labels: Mapping[str, str]) -> bool:
        """True for a Pod of ``namespace``, which has ``namespace_labels``, with ``labels``."""
        return (namespace in self.namespaces or selects(self.namespace_selector, namespace_labels)) and selects(
            self.selector, labels
        )

    def condition(self, namespaces: Mapping[str, Mapping[str, str]]) -> Condition:
        """The term with its namespaceSelector replaced by the ``namespaces`` (name → labels) it selects now."""
        selector = self.namespace_selector
        if selector == ():
            return Condition(None, self.selector)
        found = self.namespaces
        if selector is not None:
            found = found | {name for name, labels in namespaces.items() if selects(selector, labels)}
        return Condition(found, self.selector)


class TermKind(IntEnum):
    """Which list of spec.affinity a term stands in."""

    REQUIRED_AFFINITY = 0
    REQUIRED_ANTI_AFFINITY = 1
    PREFERRED_AFFINITY = 2
    PREFERRED_ANTI_AFFINITY = 3


class PodTerms(msgspec.Struct, frozen=True):
    """The inter-Pod terms of one Pod by TermKind; ``problem`` says what could not be parsed ("" if nothing).

    A list with an unparsable term counts as empty.
    """

    lists: tuple[tuple[AffinityTerm, ...], ...]
    problem: str = ""

    def __getitem__(self, kind: TermKind) -> tuple[AffinityTerm, ...]:
        return self.lists[kind]

    def all(self) -> Iterable[tuple[TermKind, AffinityTerm]]:
        """Every term with its kind."""
        return ((kind, term) for kind in TermKind for term in self.lists[kind])


_NO_TERMS = PodTerms(((), (), (), ()))
_LIST_NAMES = (
    "requiredAffinityTerms",
    "requiredAntiAffinityTerms",
    "preferredAffinityTerms",
    "preferredAntiAffinityTerms",
)


def pod_terms(pod: Pod) -> PodTerms:
    """The inter-Pod terms of ``pod``, parsed on first use and kept beside the object. Never raises."""
    affinity = pod.spec.affinity
    if affinity is None or (affinity.podAffinity is None and affinity.podAntiAffinity is None):
        return _NO_TERMS
    terms: PodTerms | None = pod.__dict__.get("affinity_terms")
    if terms is None:
        terms = pod.__dict__["affinity_terms"] = _parse(pod)
    return terms


def _parse(pod: Pod) -> PodTerms:
    written: list[list[tuple[PodAffinityTerm, int]]] = [[], [], [], []]
    affinity = pod.spec.affinity
    if affinity is not None:
        for offset, rules in enumerate((affinity.podAffinity, affinity.podAntiAffinity)):
            if rules is not None:
                required = rules.requiredDuringSchedulingIgnoredDuringExecution
                preferred = rules.preferredDuringSchedulingIgnoredDuringExecution
                written[offset] = [(term, 0) for term in required]
                written[2 + offset] = [(weighted.podAffinityTerm, weighted.weight) for weighted in preferred]
    lists: list[tuple[AffinityTerm, ...]] = []
    problems: list[str] = []
    for name, terms in zip(_LIST_NAMES, written, strict=True):
        try:
            lists.append(tuple(_term(pod.metadata.namespace, term, weight) for term, weight in terms))
        except SelectorError as error:
            lists.append(())
            problems.append(f"{name}: {error}")
    return PodTerms(tuple(lists), problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]" if problems else "")


def _term(namespace: str, term: PodAffinityTerm, weight: int) -> AffinityTerm:
    named = frozenset(term.namespaces)
    if not named and term.namespaceSelector is None:
        named = frozenset((namespace,))
    selector = requirements_of(term.labelSelector)
    return AffinityTerm(term.topologyKey, named, requirements_of(term.namespaceSelector), selector, weight)
