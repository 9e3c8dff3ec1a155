"""Short forms for allocator cases, and what they answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from scheduler.cli.conformity import run_allocate

Json = dict[str, Any]
DRIVER = "gpu.example.com"
NODE = "node-1"


def case(
    slices: Sequence[Json],
    claims: Sequence[Json],
    *,
    allocated: Sequence[Json] = (),
    classes: Sequence[Json] = (),
    rules: Sequence[Json] = (),
    features: Json | None = None,
    node: str = NODE,
) -> Json:
    """A case; the class ``any`` takes every device. ``features`` come on top of (or out of) the default ones."""
    known: Json = {
        "name": "case",
        "node": {"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}, *classes],
        "slices": [
            slice_ | {"metadata": {"name": slice_["metadata"]["name"] or f"slice-{number}"}}
            for number, slice_ in enumerate(slices)
        ],
        "claims": list(claims),
        "allocated": list(allocated),
        "taintRules": list(rules),
    }
    if features is not None:
        known["features"] = {"default": True} | features
    return known


def pool(
    *devices: Json,
    driver: str = DRIVER,
    name: str = "pool-1",
    generation: int = 1,
    count: int = 1,
    slice_name: str = "",
    **spec: Any,
) -> Json:
    """A slice, on the node unless ``spec`` says otherwise; ``count`` is what its pool announces."""
    place = {} if {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(spec) else {"nodeName": NODE}
    content: Json = {
        "driver": driver,
        "pool": {"name": name, "generation": generation, "resourceSliceCount": count},
        **place,
        **spec,
    }
    if devices:
        content["devices"] = list(devices)
    return {"metadata": {"name": slice_name}, "spec": content}


def counters(total: str, set_name: str = "set", **fields: Any) -> Json:
    """A slice with one counter set of one counter ``mem``; give its pool two slices."""
    sets = [{"name": set_name, "counters": {"mem": {"value": total}}}]
    return pool(sharedCounters=sets, count=2, **fields)


def device(name: str, mem: str = "", **fields: Any) -> Json:
    """A device; ``mem``: what it takes of the counter set."""
    known: Json = {"name": name, **fields}
    if mem:
        known["consumesCounters"] = [{"counterSet": "set", "counters": {"mem": {"value": mem}}}]
    return known


def attribute(**values: str | int | bool) -> Json:
    """Attributes by id; a text that looks like x.y.z is a version."""
    kinds = {bool: "bool", int: "int", str: "string"}
    return {
        name: {"version": value} if isinstance(value, str) and value.count(".") == 2 else {kinds[type(value)]: value}
        for name, value in values.items()
    }


def exactly(name: str = "req", count: int = 1, **fields: Any) -> Json:
    """A request for a number of devices."""
    return {
        "name": name,
        "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count, **fields},
    }


def every(name: str = "req", **fields: Any) -> Json:
    """A request for all devices."""
    return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "All", **fields}}


def first_of(name: str, *subs: Json) -> Json:
    """A prioritized list."""
    return {"name": name, "firstAvailable": list(subs)}


def sub(name: str, count: int = 1, **fields: Any) -> Json:
    """An alternative; ``allocationMode`` All replaces the count."""
    mode = {"allocationMode": "ExactCount", "count": count} if "allocationMode" not in fields else {}
    return {"name": name, "deviceClassName": "any", **mode, **fields}


def claim(*requests: Json, name: str = "claim", constraints: Sequence[Json] = (), config: Sequence[Json] = ()) -> Json:
    """A claim in namespace default; without requests it asks for one device."""
    devices: Json = {"requests": list(requests) or [exactly()]}
    if constraints:
        devices["constraints"] = list(constraints)
    if config:
        devices["config"] = list(config)
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def held(*devices: str, name: str = "other", driver: str = DRIVER, pool_name: str = "pool-1", **fields: Any) -> Json:
    """A claim that holds devices; ``fields`` (shareID, consumedCapacity, adminAccess) go into each result."""
    results = [{"request": "req", "driver": driver, "pool": pool_name, "device": one, **fields} for one in devices]
    return claim(name=name) | {"status": {"allocation": {"devices": {"results": results}}}}


def cel(expression: str) -> list[Json]:
    """``selectors`` with one expression."""
    return [{"cel": {"expression": expression}}]


def answer(case_: Json) -> Json:
    """Our whole answer."""
    (line,) = run_allocate([json.dumps(case_)])
    found: Json = json.loads(line)
    assert "input_error" not in found, found
    return found


def results(case_: Json) -> list[Json]:
    """All results, claims in order; empty when nothing fits. Fails on an error."""
    found = answer(case_)
    assert "error" not in found, found["error"]
    return [result for allocation in found.get("results", ()) for result in allocation["devices"].get("results", ())]


def devices(case_: Json) -> list[str]:
    """The names of the devices, claims and requests in order; empty when nothing fits."""
    return [result["device"] for result in results(case_)]


def error(case_: Json) -> tuple[str, str]:
    """(kind, text) of the error; two empty texts without one."""
    found = answer(case_)
    return found.get("error_kind", ""), found.get("error", "")
