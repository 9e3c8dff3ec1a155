"""What is measured: nodes, devices and Pods of each workload, the same objects for both schedulers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Object = dict[str, Any]
CLASS = "gpu.example.com"
ZONES = 10
NAMESPACE = "default"


@dataclass(frozen=True)
class Workload:
    """``nodes``, ``pods``, ``devices`` per node. ``pod(i)`` is Pod number i without schedulerName."""

    name: str
    nodes: int
    pods: int
    pod: Callable[[int], Object]
    devices: int = 0
    templates: Sequence[Object] = ()
    services: Sequence[Object] = ()
    selectors: Sequence[str] = ()
    device: Callable[[int, int], Object] | None = None
    churn_per_s: float = 0.0
    unschedulable: int = 0
    present: int = 0
    parameters: dict[str, Any] = field(default_factory=dict)


def plain_pod(index: int, *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    """100m CPU and 100Mi, nothing else."""
    return {
        "metadata": {"name": f"pod-{index}", "namespace": NAMESPACE, "labels": labels or {"app": "bench"}},
        "spec": {
            "containers": [
                {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}}}
            ],
            **spec,
        },
    }


def claim_pod(index: int, template: str) -> Object:
    """A Pod with one claim from a template."""
    pod = plain_pod(index, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": template}])
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    return pod


def template(name: str, requests: list[Object], constraints: list[Object] | None = None) -> Object:
    """A claim template."""
    devices: Object = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"spec": {"devices": devices}}}


def request(name: str = "gpu", count: int = 1, selectors: Sequence[str] = (), class_name: str = CLASS) -> Object:
    """One request."""
    exactly: Object = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count}
    if selectors:
        exactly["selectors"] = [{"cel": {"expression": text}} for text in selectors]
    return {"name": name, "exactly": exactly}


def bench_device(node: int, index: int) -> Object:
    """A device with a driver version, memory, a PCI root shared by two devices."""
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": "H100"},
            "driverVersion": {"version": "2.1.0"},
            "resource.kubernetes.io/pciRoot": {"string": f"pci-{node}-{index // 2}"},
        },
        "capacity": {"memory": {"value": "80Gi"}},
    }


MODELS = ("H100", "A100", "L40")


def mixed_device(node: int, index: int) -> Object:
    """Three models and a serial number that no other device has."""
    device = bench_device(node, index)
    device["attributes"]["model"] = {"string": MODELS[(node + index) % 3]}
    device["attributes"]["serial"] = {"string": f"s-{node}-{index}"}
    return device


def _term(labels: dict[str, str], key: str) -> Object:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key}


def _spread(index: int) -> Object:
    constraint = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
    return plain_pod(index, labels={"app": "spread"}, topologySpreadConstraints=[constraint])


def _preferred(index: int) -> Object:
    term = {"weight": 100, "podAffinityTerm": _term({"app": "preferred"}, "kubernetes.io/hostname")}
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    return plain_pod(index, labels={"app": "preferred"}, affinity=affinity)


def _anti(index: int) -> Object:
    labels = {"app": f"anti-{index % 20}"}
    terms = [_term(labels, "kubernetes.io/hostname")]
    return plain_pod(
        index, labels=labels, affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    )


_CEL = (
    f'device.attributes["{CLASS}"].driverVersion.compareTo(semver("1.0.0")) >= 0 && '
    f'device.capacity["{CLASS}"].memory.compareTo(quantity("1Mi")) >= 0'
)
_ROOT = {"matchAttribute": "resource.kubernetes.io/pciRoot", "requests": ["a", "b"]}


def _mixed_pod(index: int) -> Object:
    """20 classes of Pods: plain ones of five sizes, labelled ones, and claims for three models and three counts."""
    kind = index % 20
    if kind < 10:
        pod = plain_pod(index, labels={"app": f"mix-{kind}"})
        pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = f"{100 + 50 * (index % 7)}m"
        return pod
    return claim_pod(index, f"mix-{kind - 10}")


def _mixed_templates() -> list[Object]:
    found = []
    for number in range(10):
        model = MODELS[number % 3]
        selector = f'device.attributes["{CLASS}"].model == "{model}"'
        found.append(template(f"mix-{number}", [request(selectors=[selector])]))
    return found


def _service() -> Object:
    return {
        "metadata": {"name": "bench", "namespace": NAMESPACE},
        "spec": {"selector": {"app": "bench"}, "ports": [{"port": 80}]},
    }


WORKLOADS: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        Workload("plain", 1000, 2000, plain_pod),
        Workload("plain-5000", 5000, 2000, plain_pod),
        Workload("service", 1000, 2000, plain_pod, services=[_service()]),
        Workload("spread", 1000, 2000, _spread),
        Workload("preferred-affinity", 1000, 2000, _preferred),
        Workload("anti-affinity", 1000, 2000, _anti),
        Workload(
            "device", 500, 1000, lambda i: claim_pod(i, "one"), devices=10, templates=[template("one", [request()])]
        ),
        Workload(
            "device-cel",
            500,
            1000,
            lambda i: claim_pod(i, "cel"),
            devices=10,
            templates=[template("cel", [request(selectors=[_CEL])])],
        ),
        Workload(
            "device-match",
            500,
            1000,
            lambda i: claim_pod(i, "match"),
            devices=10,
            templates=[template("match", [request("a"), request("b")], [_ROOT])],
        ),
        Workload("mixed", 500, 1500, _mixed_pod, devices=10, templates=_mixed_templates(), device=mixed_device),
        Workload("churn", 1000, 1800, plain_pod, churn_per_s=30.0),
        Workload("unschedulable", 1000, 1000, plain_pod, unschedulable=2000),
        Workload("restart", 1000, 200, plain_pod, present=10_000),
        Workload("large-plain", 5000, 10_000, plain_pod),
        Workload(
            "large-device",
            5000,
            5000,
            lambda i: claim_pod(i, "one"),
            devices=8,
            templates=[template("one", [request()])],
        ),
    )
}
LARGE = ("large-plain", "large-device")


def node(index: int) -> Object:
    """32 CPUs, 64 Gi, in one of ten zones."""
    amounts = {"cpu": "32", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    return {
        "metadata": {
            "name": f"node-{index}",
            "labels": {
                "kubernetes.io/hostname": f"node-{index}",
                "topology.kubernetes.io/zone": f"zone-{index % ZONES}",
            },
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "", "message": ""}],
        },
    }


def slices(workload: Workload) -> Iterator[Object]:
    """One slice per node."""
    make = workload.device or bench_device
    for index in range(workload.nodes if workload.devices else 0):
        name = f"node-{index}"
        yield {
            "metadata": {"name": f"{name}-{CLASS}"},
            "spec": {
                "driver": CLASS,
                "nodeName": name,
                "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
                "devices": [make(index, position) for position in range(workload.devices)],
            },
        }
