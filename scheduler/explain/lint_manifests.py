"""Lint of manifests: fields that their version does not have, and which findings have anything to do with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

import msgspec
from msgspec import inspect

from scheduler.api.kinds import DEVICE_CLASS, DEVICE_TAINT_RULE, RESOURCE_CLAIM, Kind
from scheduler.api.resource import ExactDeviceRequest
from scheduler.explain.findings import Finding, Findings
from scheduler.explain.lint_fields import Raw
from scheduler.explain.lint_workloads import POD_SPECS, TEMPLATE
from scheduler.explain.text import counted

Json = dict[str, Any]
Identity = tuple[str, str, str]
_TOP = ("apiVersion", "kind", "metadata", "spec", "status")
# People write these; slices are written by drivers, with whatever fields their version has.
_KINDS = (RESOURCE_CLAIM.name, TEMPLATE, DEVICE_CLASS.name, DEVICE_TAINT_RULE.name)
_ASKED = frozenset(field.encode_name for field in msgspec.structs.fields(ExactDeviceRequest))


def unreadable(subject: str, field: str, problem: str, document: int, file: str) -> Finding:
    """A document of a manifest that cannot be read as what it says it is.

    ``subject``: "document" for one that is no object; ``document`` counts from 1, 0 when that is not known.
    """
    return Finding(
        "error",
        "manifest-unreadable",
        subject,
        field.removeprefix("$").removeprefix("."),
        (f"document {document} of the file " if document else "") + f"cannot be used: {problem}",
        "the API server refuses it, and nothing else is said of it here",
        "give objects as kubectl apply takes them" if subject == "document"
        else "compare it with what kubectl explain tells of its kind",
        file,
    )  # fmt: skip


def unknown_fields(manifests: Raw, kinds: Mapping[tuple[str, str], Kind]) -> Iterator[Finding]:
    """Fields of claims, templates, classes and taint rules that their version does not have.

    ``kinds``: how to read an (apiVersion, kind).
    """
    for (name, key), item in manifests.items():
        version = str(item.get("apiVersion", ""))
        kind = kinds.get((version, RESOURCE_CLAIM.name if name == TEMPLATE else name))
        if name not in _KINDS or kind is None:
            continue
        for path, known in _unknown(item, kind, name == TEMPLATE):
            yield Finding(
                "error",
                "field-unknown",
                f"{name} {key}",
                path,
                f"{version} has no such field",
                "kubectl apply refuses the object, or the API server drops the field; here it was not looked at",
                _advice(path, known, version),
            )


def _unknown(item: Json, kind: Kind, template: bool) -> Iterator[tuple[str, Collection[str]]]:
    """(path, fields that there are instead)."""
    for field in item:
        if field not in _TOP:
            yield field, _TOP
    described = inspect.type_info(kind.wire or kind.struct)
    assert isinstance(described, inspect.StructType)
    of_spec = next(field.type for field in described.fields if field.encode_name == "spec")
    spec, path = item.get("spec"), "spec"
    if template and isinstance(spec, dict):
        for field in spec:
            if field not in ("metadata", "spec"):
                yield f"spec.{field}", ("metadata", "spec")
        spec, path = spec.get("spec"), "spec.spec"
    yield from _inside(spec, of_spec, path)


def _inside(value: Any, described: inspect.Type, path: str) -> Iterator[tuple[str, Collection[str]]]:
    if isinstance(described, inspect.UnionType):
        for one in described.types:
            yield from _inside(value, one, path)
    elif isinstance(described, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in described.fields}
        for name, inner in value.items():
            if name in known:
                yield from _inside(inner, known[name], f"{path}.{name}")
            else:
                yield f"{path}.{name}", tuple(known)
    elif isinstance(described, inspect.VarTupleType | inspect.ListType) and isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _inside(inner, described.item_type, f"{path}[{number}]")
    elif isinstance(described, inspect.DictType) and isinstance(value, dict):
        for name, inner in value.items():
            yield from _inside(inner, described.value_type, f"{path}[{name}]")


def _advice(path: str, known: Collection[str], version: str) -> str:
    name = path.rpartition(".")[2]
    if "exactly" in known and name in _ASKED:
        return f"write it inside exactly: only v1beta1 has it here, and this is {version}"
    if name == "exactly":
        return f"{version} has the fields of exactly in the request itself"
    near = get_close_matches(name, known, 1)
    return f"use {near[0]}" if near else f"use one of {', '.join(sorted(known))}"


# Which findings are about the manifests


def only_about(found: Findings, manifests: Raw, stored: Raw, before: Callable[[], Findings]) -> None:
    """Leave out what has nothing to do with the manifests.

    Kept are findings about their objects, about claims, templates and classes that these name, and those that were not
    there ``before`` the manifests: they are a consequence. ``stored``: the cluster's objects.
    """
    own = _subjects(manifests, stored)
    if all(finding.subject in own for finding in found.findings):
        return
    known = {_identity(finding) for finding in before().findings}
    kept = [finding for finding in found.findings if finding.subject in own or _identity(finding) not in known]
    left = len(found.findings) - len(kept)
    found.findings = kept
    if left:
        found.caveats.append(
            f"{counted(left, 'finding')} about objects that have nothing to do with the manifests "
            f"{'is' if left == 1 else 'are'} left out: lint without --manifest tells them"
        )


def _identity(finding: Finding) -> Identity:
    return finding.check, finding.subject, finding.path


def _subjects(manifests: Raw, stored: Raw) -> set[str]:
    """``Kind namespace/name`` of the manifests' objects and of what they name, directly or by a template."""
    found: set[str] = set()
    todo = list(manifests.items())
    while todo:
        (kind, key), item = todo.pop()
        metadata = item.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}
        namespace = str(metadata.get("namespace") or "default")
        for subject in (f"{kind} {key}", f"{kind} {namespace}/{metadata.get('name')}"):
            found.add(subject)
        for named in _named(kind, item, namespace):
            if f"{named[0]} {named[1]}" not in found:
                found.add(f"{named[0]} {named[1]}")
                if named in stored:
                    todo.append((named, stored[named]))
    return found


def _named(kind: str, item: Json, namespace: str) -> Iterator[tuple[str, str]]:
    """Claims, templates and classes that an object names, by (kind, ``namespace/name``)."""
    spec: Any = item
    for part in POD_SPECS.get(kind, ("spec",)):
        spec = spec.get(part) if isinstance(spec, dict) else None
    if kind in POD_SPECS:
        entries = spec.get("resourceClaims") if isinstance(spec, dict) else None
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict):
                yield RESOURCE_CLAIM.name, f"{namespace}/{entry.get('resourceClaimName')}"
                yield TEMPLATE, f"{namespace}/{entry.get('resourceClaimTemplateName')}"
    elif kind in (RESOURCE_CLAIM.name, TEMPLATE):
        yield from ((DEVICE_CLASS.name, name) for name in _class_names(spec))


def _class_names(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("deviceClassName"), str):
            yield value["deviceClassName"]
        for inner in value.values():
            yield from _class_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _class_names(inner)
