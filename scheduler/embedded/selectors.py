"""Label and field selectors of list, watch and deletecollection."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scheduler.embedded.kinds import Kind
from scheduler.embedded.status import Json, bad_request

Match = Callable[[Json], bool]


@dataclass(frozen=True, slots=True)
class Requirement:
    """key operator values; operators in, notin, exists, absent, gt, lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "exists":
                return present
            case "absent":
                return not present
            case "in":
                return present and labels[self.key] in self.values
            case "notin":
                return not present or labels[self.key] not in self.values
            case _:
                return present and self._compare(labels[self.key])

    def _compare(self, value: str) -> bool:
        try:
            number, bound = int(value), int(next(iter(self.values)))
        except ValueError:
            return False
        return number > bound if self.operator == "gt" else number < bound


_SET = re.compile(r"^([^\s!=,()<>]+)\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(r"^([^\s!=,()<>]+)\s*(==|=|!=|>|<)\s*([^\s!=,()<>]*)$")
_BARE = re.compile(r"^(!?)\s*([^\s!=,()<>]+)$")
_COMMA = re.compile(r",(?![^(]*\))")


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector in its text form. Raises 400 when it can't be parsed."""
    if not text.strip():
        return ()
    return tuple(_label_requirement(part.strip(), text) for part in _COMMA.split(text))


def _label_requirement(part: str, whole: str) -> Requirement:
    if found := _SET.match(part):
        key, operator, values = found.groups()
        return Requirement(key, operator, frozenset(value.strip() for value in values.split(",")))
    if found := _EQUAL.match(part):
        key, sign, value = found.groups()
        operator = {"=": "in", "==": "in", "!=": "notin", ">": "gt", "<": "lt"}[sign]
        return Requirement(key, operator, frozenset((value,)))
    if found := _BARE.match(part):
        return Requirement(found.group(2), "absent" if found.group(1) else "exists")
    raise bad_request(f"unable to parse requirement: {part!r} in label selector {whole!r}")


Path = tuple[str, ...]

_NAME_AND_NAMESPACE: dict[str, Path] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


def _event_fields(reference: str) -> dict[str, Path]:
    parts = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
    fields: dict[str, Path] = {f"{reference}.{part}": ("involvedObject", part) for part in parts}
    fields |= {"reason": ("reason",), "type": ("type",), "reportingComponent": ("reportingComponent",)}
    fields |= {"reportingController": ("reportingComponent",), "source": ("source", "component")}
    return fields


_FIELDS: dict[tuple[str, str], dict[str, Path]] = {
    ("", "pods"): {
        "spec.nodeName": ("spec", "nodeName"),
        "spec.restartPolicy": ("spec", "restartPolicy"),
        "spec.schedulerName": ("spec", "schedulerName"),
        "spec.serviceAccountName": ("spec", "serviceAccountName"),
        "status.phase": ("status", "phase"),
        "status.podIP": ("status", "podIP"),
        "status.nominatedNodeName": ("status", "nominatedNodeName"),
    },
    ("", "nodes"): {"spec.unschedulable": ("spec", "unschedulable")},
    ("", "namespaces"): {"status.phase": ("status", "phase")},
    ("", "secrets"): {"type": ("type",)},
    ("", "events"): _event_fields("involvedObject"),
    ("events.k8s.io", "events"): _event_fields("regarding"),
    ("batch", "jobs"): {"status.successful": ("status", "succeeded")},
    ("resource.k8s.io", "resourceslices"): {
        "spec.nodeName": ("spec", "nodeName"),
        "spec.driver": ("spec", "driver"),
    },
}


def field_value(obj: Json, path: Path) -> str:
    """The field as selectors see it: absent is empty, booleans are true and false."""
    current: object = obj
    for part in path:
        if not isinstance(current, dict):
            return ""
        current = current.get(part)
    if current is None:
        return "false" if path == ("spec", "unschedulable") else ""
    if isinstance(current, bool):
        return "true" if current else "false"
    return str(current)


@dataclass(frozen=True, slots=True)
class FieldRequirement:
    path: Path
    value: str
    equal: bool


def parse_fields(text: str, kind: Kind) -> tuple[FieldRequirement, ...]:
    """The requirements of a field selector. Raises 400 for a field this kind has no selector for."""
    if not text.strip():
        return ()
    known = _NAME_AND_NAMESPACE | _FIELDS.get((kind.group, kind.plural), {})
    out = []
    for part in text.split(","):
        if not part.strip():
            continue
        found = re.match(r"^\s*([^=!]+?)\s*(!=|==|=)(.*)$", part)
        if not found:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        name, sign, value = found.groups()
        if name not in known:
            if (kind.group, kind.plural) in _FIELDS:
                raise bad_request(f"field label not supported: {name}")
            only = '"metadata.name", "metadata.namespace"' if kind.namespaced else '"metadata.name"'
            raise bad_request(f'"{name}" is not a known field selector: only {only}')
        out.append(FieldRequirement(known[name], re.sub(r"\\([,=\\])", r"\1", value), sign != "!="))
    return tuple(out)


def matcher(labels: str, fields: str, kind: Kind) -> Match | None:
    """One predicate for both selectors, or None when everything matches."""
    label_terms = parse_labels(labels)
    field_terms = parse_fields(fields, kind)
    if not label_terms and not field_terms:
        return None

    def match(obj: Json) -> bool:
        for term in field_terms:
            if (field_value(obj, term.path) == term.value) != term.equal:
                return False
        if not label_terms:
            return True
        own: Mapping[str, str] = obj["metadata"].get("labels") or {}
        return all(term.matches(own) for term in label_terms)

    return match
