"""Objects for the embedded API server, as short as the tests need them."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]


def node(name: str, cpu: str = "8") -> Object:
    """A Ready node."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str, *, cpu: str = "100m", template: str = "", claim: str = "", scheduler: str = "dra-scheduler", **spec: Any
) -> Object:
    """A Pod of ours with at most one claim."""
    entries = []
    if template:
        entries.append({"name": "gpu", "resourceClaimTemplateName": template})
    if claim:
        entries.append({"name": "gpu", "resourceClaimName": claim})
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"requests": {"cpu": cpu}, "claims": [{"name": e["name"]} for e in entries]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [container], "resourceClaims": entries, **spec},
    }


def gpu_class(name: str = "gpu") -> Object:
    """A class that takes every device of our driver."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.example.com"'}}]},
    }


def gpu_slice(node_name: str, count: int) -> Object:
    """A node's only slice with ``count`` devices."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node_name}-gpu"},
        "spec": {
            "driver": "gpu.example.com",
            "nodeName": node_name,
            "pool": {"name": node_name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": f"gpu-{i}", "attributes": {"index": {"int": i}}} for i in range(count)],
        },
    }


def claim_spec(count: int = 1, class_name: str = "gpu") -> Object:
    """Devices of one class."""
    request = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    return {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}


def claim(name: str, count: int = 1, class_name: str = "gpu") -> Object:
    """A named claim."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": claim_spec(count, class_name),
    }


def template(name: str, count: int = 1, class_name: str = "gpu") -> Object:
    """A claim template."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": claim_spec(count, class_name)},
    }
