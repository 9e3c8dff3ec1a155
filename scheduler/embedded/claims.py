"""Rules for ResourceClaims and their relatives: immutability, reservations, allocation results, limits.

Source: k8s.io/kubernetes 1.37 pkg/registry/resource and pkg/apis/resource/validation. The server does not check that a
device is given out once; nor do we.
"""

from __future__ import annotations

import re
from typing import Any

from scheduler.embedded.names import LABEL_TEXT, is_label
from scheduler.embedded.status import (
    FieldError,
    Json,
    field_duplicate,
    field_forbidden,
    field_invalid,
    field_not_supported,
    field_required,
    field_too_many,
)

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
MAX_RESERVED = 256
MAX_RESULTS = 32
MAX_ALLOCATION_CONFIGS = 64
MAX_REQUESTS = 32
MAX_DEVICES = 128
MAX_DEVICES_WITH_FEATURES = 64

_REQUEST_TEXT = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
_ONE_OF_REQUEST = "exactly one of `exactly` or `firstAvailable` is required"
_DEVICE_LABELS = ("Driver", "Pool", "Device", "ShareID")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


def prepare_status_update(new: Json, old: Json) -> None:
    """Drops the driver's entries of devices that leave the allocation with this very write."""
    before, after = old.get("status") or {}, new.get("status") or {}
    leaving = _allocated(before) - _allocated(after)
    devices = after.get("devices")
    if leaving and devices:
        kept = [device for device in devices if _device_key(device) not in leaving]
        if kept:
            after["devices"] = kept
        else:
            del after["devices"]


def _allocated(status: Json) -> set[tuple[Any, ...]]:
    results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
    return {_device_key(result) for result in results}


def _device_key(device: Json) -> tuple[Any, ...]:
    return device.get("driver"), device.get("pool"), device.get("device"), device.get("shareID")


def admin_access(spec: Json) -> list[int]:
    """Positions of the requests that ask for admin access."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return [index for index, request in enumerate(requests) if (request.get("exactly") or {}).get("adminAccess")]


def validate_spec(spec: Json, path: str = "spec") -> list[FieldError]:
    devices = spec.get("devices") or {}
    requests = devices.get("requests") or []
    errors = []
    if len(requests) > MAX_REQUESTS:
        errors.append(field_too_many(f"{path}.devices.requests", len(requests), MAX_REQUESTS))
    seen: set[str] = set()
    for index, request in enumerate(requests):
        at = f"{path}.devices.requests[{index}]"
        errors += _validate_name(request.get("name", ""), f"{at}.name")
        if request.get("name") in seen:
            errors.append(field_duplicate(at, request))
        seen.add(request.get("name", ""))
        errors += _validate_request(request, at)
    known = _request_names(requests)
    for field in ("constraints", "config"):
        for index, entry in enumerate(devices.get(field) or ()):
            for place, name in enumerate(entry.get("requests") or ()):
                if name not in known:
                    where = f"{path}.devices.{field}[{index}].requests[{place}]"
                    errors.append(field_invalid(where, name, _REQUEST_TEXT))
    return errors


def _validate_name(name: str, path: str) -> list[FieldError]:
    if not name:
        return [field_required(path)]
    if not is_label(name):
        return [field_invalid(path, name, LABEL_TEXT)]
    return []


def _validate_request(request: Json, path: str) -> list[FieldError]:
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly and alternatives:
        return [field_invalid(path, None, f"{_ONE_OF_REQUEST}, but multiple fields are set")]
    if exactly:
        return _validate_exactly(exactly, f"{path}.exactly")
    if not alternatives:
        return [field_required(path, _ONE_OF_REQUEST)]
    errors = []
    for index, alternative in enumerate(alternatives):
        at = f"{path}.firstAvailable[{index}]"
        errors += _validate_name(alternative.get("name", ""), f"{at}.name") + _validate_exactly(alternative, at)
    return errors


def _validate_exactly(request: Json, path: str) -> list[FieldError]:
    errors = []
    if not request.get("deviceClassName"):
        errors.append(field_required(f"{path}.deviceClassName"))
    mode = request.get("allocationMode")
    if mode not in ("All", "ExactCount"):
        errors.append(field_not_supported(f"{path}.allocationMode", mode, ["All", "ExactCount"]))
    count = request.get("count", 0)
    if mode == "All" and count:
        text = "must not be specified when allocationMode is 'All'"
        errors.append(field_invalid(f"{path}.count", count, text))
    if mode == "ExactCount" and count <= 0:
        errors.append(field_invalid(f"{path}.count", count, "must be greater than zero"))
    return errors


def _request_names(requests: list[Json]) -> set[str]:
    names = set()
    for request in requests:
        names.add(str(request.get("name")))
        names |= {f"{request.get('name')}/{sub.get('name')}" for sub in request.get("firstAvailable") or ()}
    return names


def validate_update(new: Json, old: Json) -> list[FieldError]:
    if new.get("spec") != old.get("spec"):
        return [field_invalid("spec", None, "field is immutable")]
    return []


def validate_status_update(new: Json, old: Json) -> list[FieldError]:
    before, after = old.get("status") or {}, new.get("status") or {}
    reserved = after.get("reservedFor") or []
    errors = _validate_reserved(reserved)
    if before.get("allocation") and after.get("allocation") and before["allocation"] != after["allocation"]:
        errors.append(field_invalid("status.allocation", None, "field cannot be modified once set"))
    if reserved and not after.get("allocation"):
        errors.append(field_forbidden("status.reservedFor", "may not be specified when `allocated` is not set"))
    if new["metadata"].get("deletionTimestamp"):
        known = {entry.get("uid") for entry in before.get("reservedFor") or ()}
        if any(entry.get("uid") not in known for entry in reserved):
            text = "new entries may not be added while `deallocationRequested` or `deletionTimestamp` are set"
            errors.append(field_forbidden("status.reservedFor", text))
    if after.get("allocation") and not before.get("allocation"):
        errors += _validate_allocation(after["allocation"], new.get("spec") or {})
    errors += _validate_devices(after)
    return errors


def _validate_reserved(reserved: list[Json]) -> list[FieldError]:
    errors = []
    if len(reserved) > MAX_RESERVED:
        errors.append(field_too_many("status.reservedFor", len(reserved), MAX_RESERVED))
    seen: set[str] = set()
    for index, entry in enumerate(reserved):
        at = f"status.reservedFor[{index}]"
        errors += [field_required(f"{at}.{name}") for name in ("resource", "name", "uid") if not entry.get(name)]
        uid = str(entry.get("uid", ""))
        if uid and uid in seen:
            errors.append(field_duplicate(at, entry))
        seen.add(uid)
    return errors


def _validate_allocation(allocation: Json, spec: Json) -> list[FieldError]:
    path = "status.allocation.devices"
    devices = allocation.get("devices") or {}
    results, configs = devices.get("results") or [], devices.get("config") or []
    errors = []
    if len(results) > MAX_RESULTS:
        errors.append(field_too_many(f"{path}.results", len(results), MAX_RESULTS))
    if len(configs) > MAX_ALLOCATION_CONFIGS:
        errors.append(field_too_many(f"{path}.config", len(configs), MAX_ALLOCATION_CONFIGS))
    selector = allocation.get("nodeSelector")
    if selector is not None and not selector.get("nodeSelectorTerms"):
        where = "status.allocation.nodeSelector.nodeSelectorTerms"
        errors.append(field_required(where, "must have at least one node selector term"))
    known = _request_names((spec.get("devices") or {}).get("requests") or [])
    for index, result in enumerate(results):
        at = f"{path}.results[{index}]"
        if result.get("request") not in known:
            errors.append(field_invalid(f"{at}.request", result.get("request", ""), _REQUEST_TEXT))
        if not is_label(str(result.get("device", ""))):
            errors.append(field_invalid(f"{at}.device", result.get("device", ""), LABEL_TEXT))
        errors += [field_required(f"{at}.{name}") for name in ("driver", "pool") if not result.get(name)]
        share = result.get("shareID")
        if share is not None and not _UUID.fullmatch(share):
            text = "must be a lowercase UUID in 8-4-4-4-12 format"
            errors.append(field_invalid(f"{at}.shareID", share, text))
    return errors


def _validate_devices(status: Json) -> list[FieldError]:
    allocated = _allocated(status)
    errors = []
    for index, device in enumerate(status.get("devices") or ()):
        if _device_key(device) not in allocated:
            at = f"status.devices[{index}]"
            value = {label: device.get(label[0].lower() + label[1:]) or "" for label in _DEVICE_LABELS}
            errors.append(field_invalid(at, value, "must be an allocated device in the claim"))
    return errors


def validate_slice(obj: Json) -> list[FieldError]:
    spec = obj.get("spec") or {}
    errors = []
    if not spec.get("driver"):
        errors.append(field_required("spec.driver"))
    pool = spec.get("pool") or {}
    if not pool.get("name"):
        errors.append(field_required("spec.pool.name"))
    if int(pool.get("resourceSliceCount") or 0) <= 0:
        count = pool.get("resourceSliceCount") or 0
        errors.append(field_invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    places = [n for n in ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection") if spec.get(n)]
    choice = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
    if not places:
        errors.append(field_required("spec", choice))
    elif len(places) > 1:
        shown = "{" + ", ".join(f"`{name}`" for name in places) + "}"
        errors.append(field_invalid("spec", shown, f"{choice}, but multiple fields are set"))
    devices = spec.get("devices") or []
    rich = any(device.get("taints") or device.get("consumesCounters") for device in devices)
    limit = MAX_DEVICES_WITH_FEATURES if rich else MAX_DEVICES
    if len(devices) > limit:
        errors.append(field_too_many("spec.devices", len(devices), limit))
    seen: set[str] = set()
    for index, device in enumerate(devices):
        name = device.get("name", "")
        errors += _validate_name(name, f"spec.devices[{index}].name")
        if name in seen:
            errors.append(field_duplicate(f"spec.devices[{index}]", name))
        seen.add(name)
    return errors
