"""What the API server fills in when a Pod is created, as far as it decides where the Pod goes.

Source: kube-apiserver 1.37: defaults of Pods; admission plugins Priority, DefaultTolerationSeconds and LimitRanger.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from scheduler.errors import UserError
from scheduler.whatif.objects import Json
from scheduler.whatif.store import Store

PRIORITY_CLASS, LIMIT_RANGE = "PriorityClass", "LimitRange"
TOLERATION_S = 300
_BUILT_IN = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_UNREACHABLE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")


def admit_pod(store: Store, pod: Json) -> Json:
    """``pod`` as the API server would store it. Raises UserError for one that it would refuse."""
    metadata = dict(pod.get("metadata") or {})
    metadata["namespace"] = metadata.get("namespace") or "default"
    spec = dict(pod.get("spec") or {})
    if not spec.get("containers"):
        raise UserError(f"Pod {metadata['namespace']}/{metadata.get('name')}", "spec.containers", "is missing")
    ranges = _limit_ranges(store, metadata["namespace"])
    host_network = spec.get("hostNetwork") is True
    for name in ("initContainers", "containers"):
        if spec.get(name):
            spec[name] = [_container(container, host_network, ranges) for container in spec[name]]
    _prioritize(store, metadata, spec)
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *_default_tolerations(spec.get("tolerations") or ())]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}


def _container(container: Json, host_network: bool, ranges: Iterable[Json]) -> Json:
    resources = dict(container.get("resources") or {})
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    requests = {**limits, **requests}
    for limit in ranges:
        limits = {**(limit.get("default") or {}), **limits}
        requests = {**(limit.get("defaultRequest") or limit.get("default") or {}), **requests}
    ports = [
        {"protocol": "TCP", **({"hostPort": port.get("containerPort", 0)} if host_network else {}), **port}
        for port in container.get("ports") or ()
    ]
    kept = {**resources, "limits": limits, "requests": requests}
    return {**container, "resources": kept, **({"ports": ports} if ports else {})}


def _limit_ranges(store: Store, namespace: str) -> list[Json]:
    found = []
    for (kind, key), item in store.raw.items():
        if kind == LIMIT_RANGE and key.partition("/")[0] == namespace:
            limits: Any = (item.get("spec") or {}).get("limits") or ()
            found += [limit for limit in limits if isinstance(limit, dict) and limit.get("type") == "Container"]
    return found


def _prioritize(store: Store, metadata: Json, spec: Json) -> None:
    name = spec.get("priorityClassName") or ""
    known = {key: item for (kind, key), item in store.raw.items() if kind == PRIORITY_CLASS}
    chosen = known.get(name)
    if not name:
        chosen = next((item for item in known.values() if item.get("globalDefault")), None)
    if chosen is None and name in _BUILT_IN:
        chosen = {"value": _BUILT_IN[name]}
    if chosen is not None:
        spec["priority"] = chosen.get("value") or 0
        if chosen.get("preemptionPolicy"):
            spec.setdefault("preemptionPolicy", chosen["preemptionPolicy"])
    elif name and known:
        raise UserError(
            f"Pod {metadata['namespace']}/{metadata.get('name')}", "spec.priorityClassName", f"no PriorityClass {name}"
        )
    elif name:
        store.note(
            f"PriorityClass {name} is not in the input: Pods that name it have priority {spec.get('priority', 0)}"
        )


def _default_tolerations(present: Iterable[Json]) -> list[Json]:
    """For nodes that stop answering; left out where the Pod says something about it itself."""
    said = {
        toleration.get("key") or "*"
        for toleration in present
        if (toleration.get("effect") or "NoExecute") == "NoExecute"
    }
    return [
        {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_S}
        for key in _UNREACHABLE
        if key not in said and "*" not in said
    ]
