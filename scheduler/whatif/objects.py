"""The objects of a dump, sorted by kind and decoded: what can be used, what cannot, and which kinds are missing.

Nothing in a dump raises: an object that cannot be read becomes a Problem, so that the rest can still be judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.api.kinds import DEVICE_CLASS, RESOURCE_CLAIM, DecodeError, Kind, convert, without_nulls
from scheduler.api.names import UPSTREAM_SCHEDULER_NAME
from scheduler.api.resource import ALL, EXACT_COUNT
from scheduler.api.versions import GROUP, TAINT_RULE_VERSIONS, VERSIONS, choose_kinds
from scheduler.explain.quotas import QUOTA, Quotas

Json = dict[str, Any]
TEMPLATE = "ResourceClaimTemplate"
KEPT_RAW = ("PriorityClass", "LimitRange", QUOTA, "Deployment", "DaemonSet", "Job", "CronJob")
"""Kinds that no decision reads, but that shape or make Pods."""
NEEDED = ("Node", "Pod", "ResourceSlice", "ResourceClaim", "DeviceClass")
"""Kinds without which an answer about devices may be wrong."""
JUDGED_BY = {
    "Node": "no Pod fits anywhere without nodes",
    "Pod": "nodes look empty, and nobody is known to hold a claim",
    "ResourceSlice": "no node has any device",
    "ResourceClaim": "every device looks free, and Pods with claims wait for them",
    "DeviceClass": "no request for devices can be judged",
}
"""Kind → what an answer without it gets wrong."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An object that was left out: ``subject`` is ``Kind namespace/name``, ``field`` the path inside it."""

    subject: str
    field: str
    problem: str

    def words(self) -> str:
        """One line for people."""
        return f"{self.subject}: {self.field}: {self.problem}" if self.field else f"{self.subject}: {self.problem}"


@dataclass(slots=True)
class Objects:
    """``decoded``: (kind, object) by kind and ``namespace/name``, the last one of a name wins. ``raw``: the same as
    it was written, templates included. ``templates``: each ResourceClaimTemplate's claim, by the template's name.
    ``unknown``: kinds that no decision reads, with their number. ``found``: names of kinds that were listed.
    """

    decoded: dict[tuple[str, str], tuple[Kind, Any]] = field(default_factory=dict)
    raw: dict[tuple[str, str], Json] = field(default_factory=dict)
    templates: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    limits: Quotas | None = None

    def of(self, kind: str) -> Iterator[Any]:
        """Every usable object of a kind, in the order first seen."""
        return (item for (name, _), (_, item) in self.decoded.items() if name == kind)

    @property
    def empty(self) -> bool:
        """Nothing of Kubernetes was in the dump, not even a list that says of which kind there is nothing."""
        return not self.found

    def quotas(self) -> Quotas:
        """What limits claims, as things stood when this was first asked: before any claim was imagined."""
        if self.limits is None:
            raw = (item for (kind, _), item in self.raw.items() if kind == QUOTA)
            classes = {one.metadata.name: one.spec.extendedResourceName for one in self.of(DEVICE_CLASS.name)}
            extended = {name: resource for name, resource in classes.items() if resource}
            self.limits = Quotas(raw, self.of(RESOURCE_CLAIM.name), extended)
        return self.limits

    def missing(self) -> list[str]:
        """Kinds that an answer about devices needs and that were not in the dump."""
        return [kind for kind in NEEDED if kind not in self.found]


def known_kinds(kinds: Iterable[Kind]) -> dict[tuple[str, str], Kind]:
    """(apiVersion, kind) → how to read it: the given kinds, and those of resource.k8s.io in every version we know."""
    table = {(kind.api_version, kind.name): kind for kind in kinds}
    plurals = {kind.plural for kind in kinds if kind.group == GROUP}
    for version in VERSIONS:
        for rules in TAINT_RULE_VERSIONS:
            served = {version: frozenset(plurals), rules: frozenset(plurals)}
            chosen = choose_kinds(served)
            for kind in () if chosen is None else (chosen.claim, chosen.slice, chosen.device_class, chosen.taint_rule):
                table.setdefault((kind.api_version, kind.name), kind)
    return table


def read_objects(items: Iterable[Any], kinds: Mapping[tuple[str, str], Kind]) -> Objects:
    """Sort and decode. ``items``: objects and Lists of them, as ``kubectl get -o yaml`` prints them."""
    objects = Objects()
    for item in _flat(items, objects):
        _take(item, kinds, objects)
    return objects


def _flat(items: Iterable[Any], objects: Objects) -> Iterator[Json]:
    for number, item in enumerate(items):
        if item is None:
            continue
        if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
            shown = type(item).__name__ if not isinstance(item, dict) else "an object without kind"
            objects.problems.append(Problem(f"document {number + 1}", "", f"{shown} is no Kubernetes object"))
            continue
        if not item["kind"].endswith("List"):
            yield item
            continue
        entries = item.get("items")
        if not isinstance(entries, list):
            entries = []
        if item["kind"] != "List":
            # A typed list names the kind once, and an empty one says that there are none.
            kind = item["kind"].removesuffix("List")
            objects.found.add(kind)
            shared = {"kind": kind, "apiVersion": item.get("apiVersion", "")}
            entries = [{**shared, **entry} if isinstance(entry, dict) else entry for entry in entries]
        yield from _flat(entries, objects)


def _take(item: Json, kinds: Mapping[tuple[str, str], Kind], objects: Objects) -> None:
    name, version = item["kind"], str(item.get("apiVersion", ""))
    metadata = item.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    shown = "/".join(str(part) for part in (metadata.get("namespace"), metadata.get("name")) if part)
    objects.found.add(name)
    if name == TEMPLATE:
        _take_template(item, version, kinds, objects)
        return
    if name in KEPT_RAW:
        objects.raw[name, shown] = item
        return
    kind = kinds.get((version, name))
    if kind is None:
        if name in {known for _, known in kinds}:
            objects.problems.append(Problem(f"{name} {shown}", "apiVersion", f"{version!r} is not a version we read"))
        else:
            objects.unknown[name] = objects.unknown.get(name, 0) + 1
        return
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        objects.problems.append(Problem(name, "metadata.name", "is missing"))
        return
    try:
        complete = completed(item, kind)
        decoded = convert(kind, complete)
    except DecodeError as error:
        objects.problems.append(Problem(error.subject, error.field, error.problem))
        return
    except (TypeError, AttributeError, ValueError):
        objects.problems.append(Problem(f"{name} {shown}", "", "does not have the shape of its kind"))
        return
    key = (name, decoded.metadata.key)
    objects.decoded[key] = kind, decoded
    objects.raw[key] = item


def _take_template(item: Json, version: str, kinds: Mapping[tuple[str, str], Kind], objects: Objects) -> None:
    """A template is read as the claim that it would make."""
    kind = kinds.get((version, RESOURCE_CLAIM.name))
    metadata = item.get("metadata") if isinstance(item.get("metadata"), dict) else {}
    inner = item.get("spec") if isinstance(item.get("spec"), dict) else {}
    name = f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}" if metadata else "(without a name)"
    if kind is None:
        objects.problems.append(Problem(f"{TEMPLATE} {name}", "apiVersion", f"{version!r} is not a version we read"))
        return
    if not isinstance((metadata or {}).get("name"), str) or not metadata:
        objects.problems.append(Problem(TEMPLATE, "metadata.name", "is missing"))
        return
    claim = {**item, "metadata": dict(metadata or {}), "spec": (inner or {}).get("spec") or {}}
    try:
        decoded = convert(kind, completed(claim, kind))
    except DecodeError as error:
        objects.problems.append(Problem(f"{TEMPLATE} {name}", f"spec.{error.field.lstrip('$.')}", error.problem))
        return
    except (TypeError, AttributeError, ValueError):
        objects.problems.append(Problem(f"{TEMPLATE} {name}", "", "does not have the shape of its kind"))
        return
    objects.templates[decoded.metadata.key] = decoded
    objects.raw[(TEMPLATE, decoded.metadata.key)] = item


def completed(item: Json, kind: Kind) -> Json:
    """``item`` with what an API server would have filled in: identity, namespace, version, modes and counts."""
    item = without_nulls(item)
    metadata = dict(item.get("metadata") or {})
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    metadata["uid"] = metadata.get("uid") or f"{kind.name}/{metadata.get('namespace', '')}/{metadata['name']}".lower()
    metadata["resourceVersion"] = metadata.get("resourceVersion") or "1"
    completed_item = {**item, "metadata": metadata}
    if kind.name == "Pod":
        spec = dict(item.get("spec") or {})
        spec["schedulerName"] = spec.get("schedulerName") or UPSTREAM_SCHEDULER_NAME
        completed_item["spec"] = spec
    if kind.name == RESOURCE_CLAIM.name and isinstance(item.get("spec"), dict):
        devices = dict(item["spec"].get("devices") or {})
        devices["requests"] = [_request(request) for request in devices.get("requests") or ()]
        completed_item["spec"] = {**item["spec"], "devices": devices}
    return completed_item


def _request(request: Json) -> Json:
    if request.get("exactly"):
        return {**request, "exactly": _asked(request["exactly"])}
    if request.get("firstAvailable"):
        return {**request, "firstAvailable": [_asked(sub) for sub in request["firstAvailable"]]}
    return _asked(request) if request.get("deviceClassName") else request


def _asked(asked: Json) -> Json:
    mode = asked.get("allocationMode") or EXACT_COUNT
    counted = {} if mode == ALL else {"count": asked.get("count") or 1}
    return {**asked, "allocationMode": mode, **counted}


def kinds_in(objects: Objects) -> Sequence[str]:
    """Names of the kinds of which at least one object can be used, sorted."""
    return sorted({kind for kind, _ in objects.decoded})
