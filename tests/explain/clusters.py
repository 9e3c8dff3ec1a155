"""Small clusters for explanations: plain objects in, snapshot out."""

from __future__ import annotations

from typing import Any

from scheduler.app.snapshot import Snapshot, from_items
from scheduler.cli.explain import template_reasons
from scheduler.config import load_config
from scheduler.explain.facts import Explanation
from scheduler.explain.hints import find_hints
from scheduler.explain.pods import explain_pod
from scheduler.explain.text import explanation_lines

Object = dict[str, Any]
DRIVER = "gpu.example.com"
NOW = 1_800_000_000.0


def snapshot(items: list[Object], gates: dict[str, bool] | None = None, config: str = "") -> Snapshot:
    """A snapshot at NOW."""
    return from_items(items, load_config(config), gates or {}, NOW)


def explained(
    items: list[Object],
    name: str = "p",
    *,
    hints: bool = False,
    gates: dict[str, bool] | None = None,
    config: str = "",
) -> tuple[Explanation, str]:
    """The explanation of Pod default/``name`` as data and as text."""
    snap = snapshot(items, gates, config)
    pod = snap.pod("default", name)
    profile, _ = snap.profile_for(pod)
    found = explain_pod(profile, pod, snap.state, snap.now)
    if found.phase == "held back":
        found.because.extend(template_reasons(snap, pod))
    if hints:
        find_hints(profile, pod, snap.state, snap.now, found)
    snap.state.verify()
    return found, "\n".join(explanation_lines(found, snap.now))


def device(name: str, model: str = "A100", memory: str = "40Gi", **more: Any) -> Object:
    """A device with a model and a memory size."""
    return {
        "name": name,
        "attributes": {"model": {"string": model}},
        "capacity": {"memory": {"value": memory}},
        **more,
    }


def slice_of(
    node: str | None, devices: list[Object], *, name: str = "", generation: int = 1, count: int = 1, **spec: Any
) -> Object:
    """A slice of the pool named as the node."""
    pool = node or "net"
    place: Object = {"nodeName": node} if node else {"allNodes": True}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name or f"{pool}-slice"},
        "spec": {
            "driver": DRIVER,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
            "devices": devices,
            **place,
            **spec,
        },
    }


def request(name: str = "r", count: int = 1, *selectors: str, **more: Any) -> Object:
    """``exactly`` devices of class gpu."""
    asked: Object = {"deviceClassName": "gpu", "count": count, **more}
    if selectors:
        asked["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": asked}


def want(*requests: Object, name: str = "want", constraints: list[Object] | None = None) -> Object:
    """A claim without an allocation."""
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = constraints
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": devices},
    }


def held(name: str, node: str, *devices: str, pod: str = "", **result: Any) -> Object:
    """A claim that holds devices of a node's pool since an hour ago, reserved for ``pod`` when given."""
    claim = want(request(count=len(devices)), name=name)
    results = [{"request": "r", "driver": DRIVER, "pool": node, "device": one, **result} for one in devices]
    claim["status"] = {
        "allocation": {
            "devices": {"results": results},
            "allocationTimestamp": "2027-01-15T07:00:00Z",
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
            },
        }
    }
    if pod:
        claim["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"pod/default/{pod}"}]
    return claim


def quota(name: str, namespace: str = "default", **limits: tuple[str, str]) -> Object:
    """A ResourceQuota: resource → (hard, used)."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {resource: hard for resource, (hard, _) in limits.items()}},
        "status": {
            "hard": {resource: hard for resource, (hard, _) in limits.items()},
            "used": {resource: used for resource, (_, used) in limits.items()},
        },
    }
