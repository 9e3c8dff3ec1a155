"""Lint of fields that do not arrive: dropped by the API server, or hanging on a feature gate that is off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from scheduler.dra.features import Features
from scheduler.explain.findings import Finding

Json = dict[str, Any]
Raw = Mapping[tuple[str, str], Json]
"""Objects as they are written, by (kind, ``namespace/name``)."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
KINDS = ("ResourceClaim", "ResourceClaimTemplate", "DeviceClass", "ResourceSlice", "DeviceTaintRule")
_REQUEST_KINDS, _SLICE = ("ResourceClaim", "ResourceClaimTemplate"), ("ResourceSlice",)
_GATED: tuple[tuple[tuple[str, ...], str, str, str], ...] = (
    (_REQUEST_KINDS, "capacity", "DRAConsumableCapacity", "consumable_capacity"),
    (_REQUEST_KINDS, "distinctAttribute", "DRAConsumableCapacity", "consumable_capacity"),
    (_REQUEST_KINDS, "tolerations", "DRADeviceTaints", "device_taints"),
    (_REQUEST_KINDS, "derivedAttributes", "DRADerivedAttributes", "derived_attributes"),
    (_SLICE, "allowMultipleAllocations", "DRAConsumableCapacity", "consumable_capacity"),
    (_SLICE, "requestPolicy", "DRAConsumableCapacity", "consumable_capacity"),
    (_SLICE, "sharedCounters", "DRAPartitionableDevices", "partitionable_devices"),
    (_SLICE, "consumesCounters", "DRAPartitionableDevices", "partitionable_devices"),
    (_SLICE, "perDeviceNodeSelection", "DRAPartitionableDevices", "partitionable_devices"),
    (_SLICE, "compatibilityGroups", "DRADeviceCompatibilityGroups", "compatibility_groups"),
    (_SLICE, "taints", "DRADeviceTaints", "device_taints"),
    (_SLICE, "bindingConditions", "DRADeviceBindingConditions", "binding_conditions"),
    (_SLICE, "skipNodeOperations", "DRAOptionalNodeOperations", "optional_node_operations"),
    (_SLICE, "nodeAllocatableResources", "DRANodeAllocatableResources", "node_allocatable"),
    *((_SLICE, name, "DRAListTypeAttributes", "list_attributes") for name in ("bools", "ints", "strings", "versions")),
)
"""(kinds, field, upstream's gate, field of Features)."""


def dropped_fields(stored: Raw, manifests: Raw) -> Iterator[Finding]:
    """Fields of a manifest that the API server has not: of one that was given, else of kubectl's last one."""
    for (kind, name), item in stored.items():
        if kind not in KINDS:
            continue
        applied = manifests.get((kind, name)) or _last_applied(item)
        # Another version has another shape.
        if applied is None or applied.get("apiVersion") != item.get("apiVersion"):
            continue
        for path in dropped(applied.get("spec"), item.get("spec"), "spec"):
            gate = next((gate for kinds, field, gate, _ in _GATED if kind in kinds and field in path.split(".")), "")
            yield Finding(
                "error",
                "field-dropped",
                f"{kind} {name}",
                path,
                "was applied, but the API server does not have it",
                "a feature gate of the API server is off, or its version does not know the field; it says nothing",
                f"turn on {gate or 'the feature'} in the API server and apply again, or do without the field",
            )


def _last_applied(item: Json) -> Json | None:
    text = ((item.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    if not isinstance(text, str):
        return None
    try:
        applied = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return applied if isinstance(applied, dict) else None


def dropped(applied: Any, stored: Any, path: str) -> Iterator[str]:
    """Paths of fields that ``applied`` sets and ``stored`` lacks; lists are compared where they are equally long."""
    if isinstance(applied, dict) and isinstance(stored, dict):
        for name, value in applied.items():
            if name in stored:
                yield from dropped(value, stored[name], f"{path}.{name}")
            elif value not in (None, "", [], {}, False, 0):
                yield f"{path}.{name}"
    elif isinstance(applied, list) and isinstance(stored, list) and len(applied) == len(stored):
        for number, (one, other) in enumerate(zip(applied, stored, strict=True)):
            yield from dropped(one, other, f"{path}[{number}]")


def gated_fields(objects: Raw, features: Features) -> Iterator[Finding]:
    """Fields in use whose gate is off here: each gate once per object, at the first such field."""
    for (kind, name), item in objects.items():
        wanted = {field: gate for kinds, field, gate, flag in _GATED if kind in kinds and not getattr(features, flag)}
        seen: set[str] = set()
        for field, path in _fields(item.get("spec"), "spec", wanted) if wanted else ():
            gate = wanted[field]
            if gate in seen:
                continue
            seen.add(gate)
            yield Finding(
                "warning",
                "field-gated",
                f"{kind} {name}",
                path,
                f"needs the feature gate {gate}, which is off in this scheduler",
                "an API server with its gate off drops the field without a word; here what needs it is left out",
                f"turn {gate} on in the API server, the kubelets and the scheduler (--feature-gates), or do without it",
            )


def _fields(value: Any, path: str, wanted: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """(name, path) of every field with one of the names that is set to something."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name in wanted and inner not in (None, [], {}, False, ""):
                yield name, f"{path}.{name}"
            yield from _fields(inner, f"{path}.{name}", wanted)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _fields(inner, f"{path}[{number}]", wanted)
