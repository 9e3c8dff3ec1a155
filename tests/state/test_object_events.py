"""Updates of Pods and nodes into cluster events."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.api.core import Node, Pod
from scheduler.state.events import Resource
from scheduler.state.object_events import node_update_events, pod_update_events

POD = {
    "metadata": {"name": "a", "labels": {"x": "1"}},
    "spec": {
        "schedulingGates": [{"name": "g"}],
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}],
    },
}
NODE = {
    "metadata": {"name": "n", "labels": {"x": "1"}, "annotations": {"a": "1"}},
    "spec": {"unschedulable": True, "taints": [{"key": "t", "effect": "NoSchedule"}]},
    "status": {
        "allocatable": {"cpu": "4"},
        "conditions": [{"type": "Ready", "status": "True", "message": "m"}],
        "declaredFeatures": ["F"],
    },
}


def changed(base: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of ``base`` with the field at the dotted ``path`` set."""
    copy: Any = msgspec.json.decode(msgspec.json.encode(base))
    target, *names = copy, *path.split(".")
    for name in names[:-1]:
        target = target[int(name)] if name.isdigit() else target.setdefault(name, {})
    target[names[-1]] = value
    return copy


def labels(call: Callable[..., Any], kind: type, base: dict[str, Any], *changes: tuple[str, Any]) -> list[str]:
    """Event labels of the update that ``changes`` make."""
    new = base
    for path, value in changes:
        new = changed(new, path, value)
    return [event.label for event in call(msgspec.convert(base, kind), msgspec.convert(new, kind))]


def pod_labels(*changes: tuple[str, Any], resource: Resource = Resource.TARGET_POD) -> list[str]:
    """Event labels of a Pod's update."""
    return labels(lambda old, new: pod_update_events(old, new, resource), Pod, POD, *changes)


REQUESTS = "spec.containers.0.resources.requests"


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("metadata.labels", {"x": "2"}, ["TargetPodUpdatePodLabel"]),
        (f"{REQUESTS}.cpu", "500m", ["TargetPodUpdatePodScaleDown"]),
        (f"{REQUESTS}.cpu", "2", ["TargetPodUpdatePodScaleUp"]),
        (REQUESTS, {"cpu": "2"}, ["TargetPodUpdatePodScaleDown", "TargetPodUpdatePodScaleUp"]),
        (f"{REQUESTS}.cpu", "1000m", ["TargetPodUpdate"]),
        ("spec.schedulingGates", [], ["TargetPodUpdatePodSchedulingGatesEliminated"]),
        ("spec.schedulingGates", [{"name": "h"}], ["TargetPodUpdate"]),
        ("spec.tolerations", [{"key": "t"}], ["TargetPodUpdatePodToleration"]),
        (
            "status.resourceClaimStatuses",
            [{"name": "c", "resourceClaimName": "a-c"}],
            ["TargetPodUpdatePodGeneratedResourceClaim"],
        ),
        (
            "status.extendedResourceClaimStatus",
            {"resourceClaimName": "a-x"},
            ["TargetPodUpdatePodGeneratedResourceClaim"],
        ),
        ("status.conditions", [{"type": "PodScheduled", "status": "False"}], ["TargetPodUpdate"]),
        (f"{REQUESTS}.cpu", "nonsense", ["TargetPodUpdatePodScaleDown", "TargetPodUpdatePodScaleUp"]),
    ],
)
def test_pod_update(path: str, value: Any, expected: list[str]) -> None:
    """Each change of a waiting Pod has its event; what is nobody's business is a generic update."""
    assert pod_labels((path, value)) == expected


def test_pod_update_order() -> None:
    """Several changes at once give several events: labels, scale, gates, tolerations, claims."""
    changes = [
        ("status.resourceClaimStatuses", [{"name": "c"}]),
        ("spec.tolerations", [{"key": "t"}]),
        ("spec.schedulingGates", []),
        (f"{REQUESTS}.cpu", "1m"),
        ("metadata.labels", {}),
    ]
    assert pod_labels(*changes, resource=Resource.ASSIGNED_POD) == [
        "AssignedPodUpdatePodLabel",
        "AssignedPodUpdatePodScaleDown",
        "AssignedPodUpdatePodSchedulingGatesEliminated",
        "AssignedPodUpdatePodToleration",
        "AssignedPodUpdatePodGeneratedResourceClaim",
    ]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("spec.unschedulable", False, ["NodeUpdateNodeTaint"]),
        ("status.allocatable.cpu", "5", ["NodeUpdateNodeAllocatable"]),
        ("status.allocatable.cpu", "4000m", []),
        ("status.allocatable", {"cpu": "4", "x.io/y": "1"}, ["NodeUpdateNodeAllocatable"]),
        ("status.allocatable.cpu", "nonsense", ["NodeUpdateNodeAllocatable"]),
        ("metadata.labels.y", "1", ["NodeUpdateNodeLabel"]),
        ("spec.taints", [], ["NodeUpdateNodeTaint"]),
        ("status.conditions", [{"type": "Ready", "status": "False"}], ["NodeUpdateNodeCondition"]),
        ("status.conditions", [{"type": "Ready", "status": "True", "message": "other"}], []),
        ("metadata.annotations.a", "2", ["NodeUpdateNodeAnnotation"]),
        ("status.declaredFeatures", ["F", "G"], ["NodeUpdateNodeDeclaredFeature"]),
        ("metadata.resourceVersion", "2", []),
    ],
)
def test_node_update(path: str, value: Any, expected: list[str]) -> None:
    """Each aspect of a node has its event; a heartbeat or another spelling of an amount has none."""
    assert labels(node_update_events, Node, NODE, (path, value)) == expected


def test_cordoning_is_no_event() -> None:
    """A node that becomes unschedulable wakes nobody."""
    base = changed(NODE, "spec.unschedulable", False)
    assert labels(node_update_events, Node, base, ("spec.unschedulable", True)) == []


def test_node_update_order() -> None:
    """Uncordoning comes first, then allocatable, labels, taints, conditions, annotations, features."""
    changes = [
        ("status.declaredFeatures", []),
        ("metadata.annotations", {}),
        ("status.conditions", []),
        ("spec.taints", []),
        ("metadata.labels", {}),
        ("status.allocatable", {}),
        ("spec.unschedulable", False),
    ]
    assert labels(node_update_events, Node, NODE, *changes) == [
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeAllocatable",
        "NodeUpdateNodeLabel",
        "NodeUpdateNodeTaint",
        "NodeUpdateNodeCondition",
        "NodeUpdateNodeAnnotation",
        "NodeUpdateNodeDeclaredFeature",
    ]
