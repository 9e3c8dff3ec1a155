"""Claims, slices and books for the tests of the guard's judgement."""

from __future__ import annotations

from typing import Any

from scheduler.api.kinds import DEVICE_TAINT_RULE, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.api.resource import AllocationResult, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.dra.admissions import Admissions
from scheduler.dra.features import Features

DRIVER = "gpu.example.com"


def published(
    *devices: dict[str, Any] | str, pool: str = "p", generation: int = 1, slices: int = 1, index: int = 0, **spec: Any
) -> ResourceSlice:
    """One slice of a pool; a device given as text has only that name."""
    listed = [{"name": device} if isinstance(device, str) else device for device in devices]
    document = {
        "metadata": {"name": f"{pool}-{index}", "resourceVersion": "1"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": slices},
            "nodeName": "n",
            "devices": listed,
            **spec,
        },
    }
    found: ResourceSlice = convert(RESOURCE_SLICE, document)
    return found


def rule(name: str, taint: dict[str, str], **selector: str) -> DeviceTaintRule:
    """A DeviceTaintRule."""
    spec = {"deviceSelector": selector, "taint": taint}
    found: DeviceTaintRule = convert(DEVICE_TAINT_RULE, {"metadata": {"name": name}, "spec": spec})
    return found


def result(device: str, share: str = "", **fields: Any) -> dict[str, Any]:
    """One result of request r."""
    held = {"request": "r", "driver": DRIVER, "pool": "p", "device": device} | fields
    return held | ({"shareID": share} if share else {})


def claim(
    uid: str,
    *results: dict[str, Any],
    revision: int = 1,
    pods: tuple[str, ...] = (),
    request: dict[str, Any] | None = None,
    **more: Any,
) -> ResourceClaim:
    """Claim ns/UID; with ``results`` it is allocated."""
    status: dict[str, Any] = {"allocation": {"devices": {"results": list(results)}}} if results else {}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": name, "uid": f"uid-{name}"} for name in pods]
    spec = {"devices": {"requests": [{"name": "r", "exactly": request or {"deviceClassName": "c"}}]}}
    metadata = {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": str(revision), **more}
    found: ResourceClaim = convert(RESOURCE_CLAIM, {"metadata": metadata, "spec": spec, "status": status})
    return found


def allocation(*results: dict[str, Any]) -> AllocationResult:
    """The allocation with these results."""
    found = claim("x", *results).status.allocation
    assert found is not None
    return found


def book(*slices: ResourceSlice, **gates: bool) -> Admissions:
    """A book that knows these slices."""
    made = Admissions(Features(**gates))
    for slice_ in slices:
        made.apply_slice(None, slice_)
    return made


def why(admissions: Admissions, asking: ResourceClaim, *results: dict[str, Any]) -> list[str]:
    """``reason: text`` of everything that forbids the results for the claim."""
    return [f"{r.reason}: {r.text}" for r in admissions.judge(asking, allocation(*results))]
