"""Validation of what clients send: shape, names, quantities and the rules of each kind.

Only what a scheduler, driver or kubelet can trip over; everything else is accepted as it comes. Each rule is checked
on the real API server by the behavioural suite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.embedded import claims, events, pods, shapes
from scheduler.embedded.kinds import Kind
from scheduler.embedded.names import (
    LABEL_VALUE_TEXT,
    SUBDOMAIN_TEXT,
    is_label_value,
    is_subdomain,
    qualified_name_problem,
)
from scheduler.embedded.status import (
    FieldError,
    Json,
    bad_request,
    field_forbidden,
    field_invalid,
    field_required,
)


def decode(kind: Kind, obj: Any) -> None:
    """Refuses with 400 what the real server cannot decode; writes quantities in their canonical form, in place."""
    try:
        shapes.check(kind.kind, obj, shapes.shape(kind.plural))
    except shapes.ShapeError as error:
        raise _undecodable(kind, str(error)) from error


def _undecodable(kind: Kind, text: str) -> Exception:
    return bad_request(f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: {text}')


def validate_create(kind: Kind, obj: Json) -> list[FieldError]:
    name = obj["metadata"].get("name") or ""
    if not name:
        return [field_required("metadata.name", "name or generateName is required")]
    errors = []
    if not is_subdomain(name):
        errors.append(field_invalid("metadata.name", name, SUBDOMAIN_TEXT))
    errors += _metadata(obj["metadata"])
    rule = _CREATE.get((kind.group, kind.plural))
    return errors + (rule(obj) if rule else [])


def _claim_template(obj: Json) -> list[FieldError]:
    return claims.validate_spec((obj.get("spec") or {}).get("spec") or {}, "spec.spec")


def _claim(obj: Json) -> list[FieldError]:
    return claims.validate_spec(obj.get("spec") or {})


_CREATE: dict[tuple[str, str], Callable[[Json], list[FieldError]]] = {
    ("", "pods"): pods.validate_create,
    ("resource.k8s.io", "resourceclaims"): _claim,
    ("resource.k8s.io", "resourceclaimtemplates"): _claim_template,
    ("resource.k8s.io", "resourceslices"): claims.validate_slice,
    ("", "events"): events.validate_core_create,
    ("events.k8s.io", "events"): events.validate_create,
}


def validate_update(kind: Kind, new: Json, old: Json, subresource: str) -> list[FieldError]:
    errors = _metadata_update(new["metadata"], old["metadata"])
    if kind.plural == "events" and kind.group:
        return errors + events.validate_update(new, old)
    if kind.plural == "resourceclaims":
        rule = claims.validate_status_update if subresource == "status" else claims.validate_update
        return errors + rule(new, old)
    if kind.plural == "pods" and subresource == "status":
        return errors + pods.validate_status_update(new)
    if subresource:
        return errors
    if kind.plural == "pods":
        return errors + pods.validate_update(new, old)
    if kind.plural == "resourceclaimtemplates" and new.get("spec") != old.get("spec"):
        errors.append(field_invalid("spec", _go_spec(new.get("spec") or {}), "field is immutable"))
    if kind.plural == "resourceslices":
        errors += claims.validate_slice(new) + _slice_update(new, old)
    return errors


def _slice_update(new: Json, old: Json) -> list[FieldError]:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    errors = []
    for path in (("nodeName",), ("driver",), ("pool", "name")):
        was: Any = before
        now: Any = after
        for part in path:
            was, now = (was or {}).get(part), (now or {}).get(part)
        if was != now:
            errors.append(field_invalid("spec." + ".".join(path), now, "field is immutable"))
    return errors


def _metadata(metadata: Json) -> list[FieldError]:
    """Keys of labels and annotations, values of labels, owner references."""
    errors = []
    for field in ("labels", "annotations"):
        for key, value in (metadata.get(field) or {}).items():
            if problem := qualified_name_problem(key):
                errors.append(field_invalid(f"metadata.{field}", key, problem))
            if field == "labels" and not is_label_value(value):
                errors.append(field_invalid("metadata.labels", value, LABEL_VALUE_TEXT))
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        path = f"metadata.ownerReferences[{index}]"
        missing = [field for field in ("apiVersion", "kind", "name", "uid") if not owner.get(field)]
        errors += [field_required(f"{path}.{field}", "must not be empty") for field in missing]
    return errors


def _metadata_update(new: Json, old: Json) -> list[FieldError]:
    errors = [
        field_invalid(f"metadata.{name}", new.get(name), "field is immutable")
        for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")
        if new.get(name) != old.get(name)
    ]
    errors += _metadata(new)
    if old.get("deletionTimestamp"):
        before = old.get("finalizers") or []
        added = [name for name in new.get("finalizers") or () if name not in before]
        if added:
            shown = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
            text = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
            errors.append(field_forbidden("metadata.finalizers", text))
    return errors


def _go_spec(spec: Json) -> Json:
    """A template's spec as the server's messages print it: Go's field names, every list present."""
    devices = (spec.get("spec") or {}).get("devices") or {}
    return {"Spec": {"Devices": {name.title(): devices.get(name) for name in ("requests", "constraints", "config")}}}
