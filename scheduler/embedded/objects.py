"""Small steps on object dicts that every write shares: thawing a record, normal form, what a write may carry over."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from scheduler.embedded import events
from scheduler.embedded.kinds import Kind, by_api_kind
from scheduler.embedded.status import Json, bad_request
from scheduler.embedded.store import Record, Translate

_NULL_IS_KEPT = frozenset(
    {"lastProbeTime", "lastTransitionTime", "lastHeartbeatTime", "eventTime", "firstTimestamp", "lastTimestamp"}
)


def thaw(record: Record) -> Json:
    """A private copy of the record's object, free to be changed."""
    copy: Json = msgspec.json.decode(record.json())
    return copy


def timestamp(moment: datetime) -> str:
    """RFC 3339 in whole seconds, the precision of metadata."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def translation(kind: Kind) -> Translate | None:
    """How the stored form becomes this kind's served form; None when they are the same."""
    return events.from_core if kind.group == "events.k8s.io" else None


def strip_type(kind: Kind, obj: Any) -> Json:
    """Takes kind and apiVersion off a body, after checking that they name the resource of the URL."""
    if not isinstance(obj, dict):
        raise bad_request("the object provided is unrecognized (must be of type " + kind.kind + ")")
    api_version, name = obj.pop("apiVersion", "") or kind.api_version, obj.pop("kind", "") or kind.kind
    if (api_version, name) != (kind.api_version, kind.kind):
        version = api_version.rsplit("/", 1)[-1]
        head = f'{name} in version "{version}" cannot be handled as a {kind.kind}: '
        if by_api_kind(api_version, name) is None:
            raise bad_request(head + f'no kind "{name}" is registered for version "{api_version}"')
        raise bad_request(head + "unknown conversion")
    return events.to_core(obj) if kind.group == "events.k8s.io" else obj


def normalise(obj: Json) -> Json:
    """Drops what the server's types do not print: nulls, empty lists, empty fields of metadata."""
    out: Json = _without_empties(obj)
    metadata = out.setdefault("metadata", {})
    for name in [name for name, value in metadata.items() if value in ({}, [], "")]:
        del metadata[name]
    return out


def _is_printed(name: str, value: Any) -> bool:
    if value is None:
        return name in _NULL_IS_KEPT
    return value != [] or name in _EMPTY_IS_KEPT


def _without_empties(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_empties(part) for name, part in value.items() if _is_printed(name, part)}
    if isinstance(value, list):
        return [_without_empties(part) for part in value]
    return value


_EMPTY_IS_KEPT = frozenset({"nodeSelectorTerms", "containers", "command", "args"})
_KEPT_POD_STATUS = (
    "qosClass",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
)
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName")


def carry_over(kind: Kind, new: Json, old: Json, subresource: str) -> Json:
    """What of `new` this write may change: main writes leave the status alone, status writes leave all else alone."""
    metadata, before = new["metadata"], old["metadata"]
    if subresource == "status":
        if kind.status_keeps_metadata:
            metadata = {**before, "resourceVersion": metadata.get("resourceVersion")}
            metadata["uid"] = new["metadata"].get("uid") or before["uid"]
        elif kind.plural == "pods":
            _set_or_drop(metadata, "ownerReferences", before.get("ownerReferences"))
            for name in _KEPT_POD_STATUS:
                _keep(new, old, name)
        new = {**old, "metadata": metadata, "status": new.get("status") or {}}
    elif kind.has_status:
        _set_or_drop(new, "status", old.get("status"))
    for name in _SYSTEM_FIELDS:
        if not metadata.get(name) and before.get(name) is not None:
            metadata[name] = before[name]
    _set_or_drop(metadata, "creationTimestamp", before.get("creationTimestamp"))
    _set_or_drop(metadata, "generation", before.get("generation"))
    if kind.counts_generation and new.get("spec") != old.get("spec"):
        metadata["generation"] = int(before.get("generation") or 0) + 1
    metadata["name"] = before["name"]
    _set_or_drop(metadata, "namespace", before.get("namespace"))
    return new


def _keep(new: Json, old: Json, name: str) -> None:
    """A status that leaves this field out keeps the stored value."""
    value = (old.get("status") or {}).get(name)
    if value is not None:
        new.setdefault("status", {}).setdefault(name, value)


def _set_or_drop(target: Json, name: str, value: Any) -> None:
    if value is None:
        target.pop(name, None)
    else:
        target[name] = value
