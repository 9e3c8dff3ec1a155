"""Label selectors, node selectors and affinity, and how they match.

Source: apimachinery's label requirements and component-helpers' node affinity, 1.37 (kube-scheduler spec 3.6).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Requirement(msgspec.Struct, frozen=True, omit_defaults=True):
    """key, operator, values: of a label selector (In, NotIn, Exists, DoesNotExist) or node selector (also Gt, Lt)."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelector(msgspec.Struct, frozen=True, omit_defaults=True):
    """matchLabels AND matchExpressions; an empty selector matches everything, a missing one nothing."""

    matchLabels: dict[str, str] = {}
    matchExpressions: tuple[Requirement, ...] = ()


class NodeSelectorTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """matchExpressions on labels AND matchFields on metadata.name; without either it matches nothing."""

    matchExpressions: tuple[Requirement, ...] = ()
    matchFields: tuple[Requirement, ...] = ()


class NodeSelector(msgspec.Struct, frozen=True, omit_defaults=True):
    """Terms, ORed."""

    nodeSelectorTerms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A weighted node preference."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Required and preferred node affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: NodeSelector | None = None
    preferredDuringSchedulingIgnoredDuringExecution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A term of inter-Pod (anti-)affinity."""

    labelSelector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topologyKey: str = ""
    namespaceSelector: LabelSelector | None = None


class WeightedPodAffinityTerm(msgspec.Struct, frozen=True, omit_defaults=True):
    """A preferred term with its weight."""

    weight: int = 0
    podAffinityTerm: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """Required and preferred terms; the same shape serves affinity and anti-affinity."""

    requiredDuringSchedulingIgnoredDuringExecution: tuple[PodAffinityTerm, ...] = ()
    preferredDuringSchedulingIgnoredDuringExecution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.affinity."""

    nodeAffinity: NodeAffinity | None = None
    podAffinity: PodAffinity | None = None
    podAntiAffinity: PodAffinity | None = None


class SelectorError(ValueError):
    """A selector that cannot be parsed; the text says which part."""


_INT64_DIGITS = 19


def _number(text: str) -> int | None:
    """int64 as Go's ParseInt reads it, None when it does not."""
    digits = text[1:] if text[:1] in "+-" else text
    if not digits.isascii() or not digits.isdigit() or len(digits.lstrip("0")) > _INT64_DIGITS:
        return None
    value = int(digits.lstrip("0") or "0") * (-1 if text[0] == "-" else 1)
    return value if -(2**63) <= value < 2**63 else None


def requirement_matches(requirement: Requirement, labels: Mapping[str, str]) -> bool:
    """True when ``labels`` satisfy ``requirement``; an unknown operator matches nothing.

    NotIn and DoesNotExist accept a missing key; Gt and Lt compare int64 and refuse what does not parse.
    """
    value = labels.get(requirement.key)
    operator = requirement.operator
    if operator == "In":
        return value is not None and value in requirement.values
    if operator == "NotIn":
        return value is None or value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in ("Gt", "Lt") and value is not None and len(requirement.values) == 1:
        left, right = _number(value), _number(requirement.values[0])
        if left is None or right is None:
            return False
        return left > right if operator == "Gt" else left < right
    return False


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """True when ``labels`` satisfy ``selector``; None matches nothing, ``{}`` everything."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.matchLabels.items()):
        return False
    return all(requirement_matches(requirement, labels) for requirement in selector.matchExpressions)


def check_node_requirement(requirement: Requirement) -> None:
    """Raise SelectorError when upstream would refuse to parse this label requirement of a node selector."""
    operator, count = requirement.operator, len(requirement.values)
    if operator in ("In", "NotIn"):
        if count == 0:
            raise SelectorError(f"{requirement.key}: values: for 'in', 'notin' operators, values set can't be empty")
    elif operator in ("Exists", "DoesNotExist"):
        if count:
            raise SelectorError(f"{requirement.key}: values: values set must be empty for exists and does not exist")
    elif operator in ("Gt", "Lt"):
        if count != 1:
            raise SelectorError(f"{requirement.key}: values: for 'Gt', 'Lt' operators, exactly one value is required")
        if _number(requirement.values[0]) is None:
            raise SelectorError(f"{requirement.key}: values[0]: for 'Gt', 'Lt' operators, the value must be an integer")
    else:
        raise SelectorError(f'operator: Invalid value: "{operator}": not a valid selector operator')


def check_field_requirement(requirement: Requirement) -> None:
    """Raise SelectorError unless this is metadata.name In or NotIn one value: all that matchFields knows."""
    if requirement.operator not in ("In", "NotIn"):
        raise SelectorError(f'operator: Unsupported value: "{requirement.operator}": supported values: In, NotIn')
    if len(requirement.values) != 1:
        raise SelectorError(f"{requirement.key}: values: must have one element")
    if requirement.key != "metadata.name":
        raise SelectorError(f'key: Invalid value: "{requirement.key}": not a valid field selector key')


def check_term(term: NodeSelectorTerm) -> None:
    """Raise SelectorError when any requirement of ``term`` cannot be parsed."""
    for requirement in term.matchExpressions:
        check_node_requirement(requirement)
    for requirement in term.matchFields:
        check_field_requirement(requirement)


def term_matches(term: NodeSelectorTerm, name: str, labels: Mapping[str, str]) -> bool:
    """True when a node called ``name`` with ``labels`` satisfies ``term``. An empty or unparsable term: False."""
    if not term.matchExpressions and not term.matchFields:
        return False
    try:
        check_term(term)
    except SelectorError:
        return False
    fields = {"metadata.name": name}
    return all(requirement_matches(r, labels) for r in term.matchExpressions) and all(
        requirement_matches(r, fields) for r in term.matchFields
    )


def node_selector_matches(selector: NodeSelector, name: str, labels: Mapping[str, str]) -> bool:
    """True when any term matches. A selector without terms matches nothing; unparsable terms do not match."""
    return any(term_matches(term, name, labels) for term in selector.nodeSelectorTerms)


def check_node_selector(selector: NodeSelector) -> None:
    """Raise SelectorError when a term cannot be parsed (claims and slices treat that as an error)."""
    for term in selector.nodeSelectorTerms:
        check_term(term)
