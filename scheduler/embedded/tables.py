"""Tables for `kubectl get`: columns and cells as the real server prints them, for the kinds people look at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from scheduler.embedded.kinds import Kind
from scheduler.embedded.status import Json
from scheduler.embedded.store import Record

Cells = Callable[[Json, datetime], list[Any]]
_NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Columns:
    """Names, those shown only with -o wide last; `cells` gives one row's values in that order."""

    names: tuple[str, ...]
    cells: Cells
    wide: tuple[str, ...] = ()


def table(kind: Kind, records: Sequence[Record], now: datetime, revision: str) -> Json:
    """A meta.k8s.io/v1 Table of the records."""
    columns = _COLUMNS.get(kind.plural, _DEFAULT)
    definitions = [_definition(name, 0) for name in columns.names] + [_definition(name, 1) for name in columns.wide]
    rows = []
    for record in records:
        partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": record.obj["metadata"]}
        rows.append({"cells": columns.cells(record.obj, now), "object": partial})
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": revision},
        "columnDefinitions": definitions,
        "rows": rows,
    }


def _definition(name: str, priority: int) -> Json:
    return {
        "name": name,
        "type": "string",
        "format": "name" if name == "Name" else "",
        "description": "",
        "priority": priority,
    }


def age(stamp: str | None, now: datetime) -> str:
    """Time since an RFC 3339 stamp in kubectl's short form: 42s, 5m10s, 3h, 2d4h, 10d."""
    if not stamp:
        return "<unknown>"
    then = datetime.fromisoformat(stamp.replace("Z", "+00:00"))
    seconds = max(0, int((now - then.astimezone(UTC)).total_seconds()))
    if seconds < 120:
        return f"{seconds}s"
    minutes, rest = divmod(seconds, 60)
    if minutes < 10:
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    if hours < 8:
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days, rest = divmod(hours, 24)
    if days < 8:
        return f"{days}d{rest}h" if rest else f"{days}d"
    return f"{days}d" if days < 730 else f"{days // 365}y"


def _created(obj: Json, now: datetime) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def _plain(obj: Json, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], _created(obj, now)]


def _pod(obj: Json, now: datetime) -> list[Any]:
    status, spec = obj.get("status") or {}, obj.get("spec") or {}
    containers = status.get("containerStatuses") or []
    ready = sum(1 for container in containers if container.get("ready"))
    restarts = sum(int(container.get("restartCount") or 0) for container in containers)
    return [
        obj["metadata"]["name"],
        f"{ready}/{len(spec.get('containers') or ())}",
        pod_status(obj),
        str(restarts),
        _created(obj, now),
        status.get("podIP") or _NONE,
        spec.get("nodeName") or _NONE,
        status.get("nominatedNodeName") or _NONE,
        _NONE,
    ]


def pod_status(obj: Json) -> str:
    """The STATUS column: reason or phase, gates, completion, deletion."""
    status = obj.get("status") or {}
    word = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            word = "SchedulingGated"
    if word == "Succeeded":
        word = "Completed"
    return "Terminating" if obj["metadata"].get("deletionTimestamp") else str(word)


def _node(obj: Json, now: datetime) -> list[Any]:
    status, metadata = obj.get("status") or {}, obj["metadata"]
    ready = next((c for c in status.get("conditions") or () if c.get("type") == "Ready"), None)
    word = "Unknown" if ready is None else ("Ready" if ready.get("status") == "True" else "NotReady")
    if (obj.get("spec") or {}).get("unschedulable"):
        word += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    roles = sorted(key.removeprefix(prefix) for key in metadata.get("labels") or {} if key.startswith(prefix))
    info = status.get("nodeInfo") or {}
    addresses = {entry.get("type"): entry.get("address") for entry in status.get("addresses") or ()}
    return [
        metadata["name"],
        word,
        ",".join(roles) or _NONE,
        _created(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or "<unknown>",
        info.get("kernelVersion") or "<unknown>",
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _claim(obj: Json, now: datetime) -> list[Any]:
    status, states = obj.get("status") or {}, []
    if status.get("allocation"):
        states.append("allocated")
    if obj["metadata"].get("deletionTimestamp"):
        states.insert(0, "deleted")
    if status.get("reservedFor"):
        states.append("reserved")
    return [obj["metadata"]["name"], ",".join(states) or "pending", _created(obj, now)]


def _slice(obj: Json, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    pool = spec.get("pool") or {}
    return [
        obj["metadata"]["name"],
        spec.get("nodeName") or _NONE,
        spec.get("driver", ""),
        pool.get("name", ""),
        _created(obj, now),
    ]


def _event(obj: Json, now: datetime) -> list[Any]:
    regarding = obj.get("involvedObject") or obj.get("regarding") or {}
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or obj.get("eventTime")
    first = obj.get("eventTime") or obj.get("firstTimestamp")
    source = (obj.get("source") or {}).get("component") or obj.get("reportingComponent", "")
    return [
        age(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{str(regarding.get('kind', '')).lower()}/{regarding.get('name', '')}",
        str(obj.get("message", "")).strip(),
        regarding.get("fieldPath", ""),
        source,
        age(first, now),
        str(series.get("count") or obj.get("count") or 1),
        obj["metadata"]["name"],
    ]


def _namespace(obj: Json, now: datetime) -> list[Any]:
    return [obj["metadata"]["name"], (obj.get("status") or {}).get("phase", ""), _created(obj, now)]


def _lease(obj: Json, now: datetime) -> list[Any]:
    holder = (obj.get("spec") or {}).get("holderIdentity") or ""
    return [obj["metadata"]["name"], holder, _created(obj, now)]


def _priority_class(obj: Json, now: datetime) -> list[Any]:
    shared = "true" if obj.get("globalDefault") else "false"
    return [obj["metadata"]["name"], str(obj.get("value", 0)), shared, _created(obj, now), obj.get("preemptionPolicy")]


_DEFAULT = Columns(("Name", "Age"), _plain)
_COLUMNS: dict[str, Columns] = {
    "pods": Columns(
        ("Name", "Ready", "Status", "Restarts", "Age"),
        _pod,
        ("IP", "Node", "Nominated Node", "Readiness Gates"),
    ),
    "nodes": Columns(
        ("Name", "Status", "Roles", "Age", "Version"),
        _node,
        ("Internal-IP", "External-IP", "OS-Image", "Kernel-Version", "Container-Runtime"),
    ),
    "resourceclaims": Columns(("Name", "State", "Age"), _claim),
    "resourceslices": Columns(("Name", "Node", "Driver", "Pool", "Age"), _slice),
    "events": Columns(
        ("Last Seen", "Type", "Reason", "Object", "Message"),
        _event,
        ("Subobject", "Source", "First Seen", "Count", "Name"),
    ),
    "namespaces": Columns(("Name", "Status", "Age"), _namespace),
    "leases": Columns(("Name", "Holder", "Age"), _lease),
    "priorityclasses": Columns(("Name", "Value", "Global-Default", "Age", "PreemptionPolicy"), _priority_class),
}
