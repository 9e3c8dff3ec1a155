"""Builders of API objects for suites: dicts with short arguments, ready for Api.create."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Object = dict[str, Any]


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    zone: str | None = None,
    taints: Sequence[Mapping[str, str]] = (),
) -> Object:
    """A Node without status; see Nodes.add for one with resources."""
    merged = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})}
    if zone is not None:
        merged["topology.kubernetes.io/zone"] = zone
    return {"metadata": {"name": name, "labels": merged}, "spec": {"taints": list(taints)}}


def pod(
    name: str,
    *,
    scheduler: str = "dra-scheduler",
    requests: Mapping[str, str] | None = None,
    limits: Mapping[str, str] | None = None,
    claims: Mapping[str, str] | None = None,
    templates: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    **spec: Any,
) -> Object:
    """A Pod with one container that uses every claim.

    claims: entry name -> ResourceClaim name; templates: entry name -> ResourceClaimTemplate name.
    Further keyword arguments go into the spec (nodeSelector=..., tolerations=...).
    """
    entries = [{"name": key, "resourceClaimName": value} for key, value in (claims or {}).items()]
    entries += [{"name": key, "resourceClaimTemplateName": value} for key, value in (templates or {}).items()]
    container: Object = {
        "name": "main",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {
            "requests": dict(requests or {}),
            "limits": dict(limits or {}),
            "claims": [{"name": entry["name"]} for entry in entries],
        },
    }
    return {
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "containers": [container],
            "resourceClaims": entries,
            **spec,
        },
    }


def device_class(name: str, *selectors: str) -> Object:
    """A DeviceClass with CEL selectors."""
    return {"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": cel}} for cel in selectors]}}


def exactly(class_name: str, *selectors: str, name: str = "gpu", count: int = 1, **more: Any) -> Object:
    """One request of a claim: ``count`` devices of a class (more: allocationMode, tolerations, adminAccess ...)."""
    request: Object = {"deviceClassName": class_name, **more}
    if more.get("allocationMode", "ExactCount") == "ExactCount":
        request["count"] = count
    if selectors:
        request["selectors"] = [{"cel": {"expression": cel}} for cel in selectors]
    return {"name": name, "exactly": request}


def claim_spec(*requests: Object, constraints: Sequence[Object] = (), config: Sequence[Object] = ()) -> Object:
    """The spec of a ResourceClaim."""
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    if config:
        devices["config"] = list(config)
    return {"devices": devices}


def claim(name: str, *requests: Object, constraints: Sequence[Object] = ()) -> Object:
    """A ResourceClaim."""
    return {"metadata": {"name": name}, "spec": claim_spec(*requests, constraints=constraints)}


def claim_template(name: str, *requests: Object, constraints: Sequence[Object] = ()) -> Object:
    """A ResourceClaimTemplate."""
    return {"metadata": {"name": name}, "spec": {"spec": claim_spec(*requests, constraints=constraints)}}


def device(
    name: str,
    attributes: Mapping[str, str | int | bool] | None = None,
    capacity: Mapping[str, str] | None = None,
    **more: Any,
) -> Object:
    """A device of a slice; attribute types follow the Python types (a "1.2.3" stays a string)."""
    kinds: dict[type, str] = {bool: "bool", int: "int", str: "string"}
    typed = {key: {kinds[type(value)]: value} for key, value in (attributes or {}).items()}
    return {
        "name": name,
        "attributes": typed,
        "capacity": {key: {"value": value} for key, value in (capacity or {}).items()},
        **more,
    }
