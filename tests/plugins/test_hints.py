"""Queueing hints of the ordinary plugins: which events wake which Pods (spec 4.8)."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.registry import DEFAULT_PLUGINS
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, convert
from scheduler.framework.events import Action, ClusterEvent, Resource
from tests.plugins.plugin_world import World


def node(name: str = "n", **fields: Any) -> Any:
    """A node; ``labels``, ``taints``, ``unschedulable``, ``allocatable``."""
    return convert(
        NODE,
        {
            "metadata": {"name": name, "labels": fields.get("labels", {})},
            "spec": {"taints": fields.get("taints", []), "unschedulable": fields.get("unschedulable", False)},
            "status": {"allocatable": {"cpu": "4", "pods": "10", **fields.get("allocatable", {})}},
        },
    )


def pod(name: str = "p", requests: dict[str, str] | None = None, **spec: Any) -> Any:
    """A Pod with one container; ``ports`` of it, ``nominated``, other spec fields by name."""
    status = {"nominatedNodeName": spec.pop("nominated", "")}
    container = {"name": "c", "resources": {"requests": requests or {}}, "ports": spec.pop("ports", [])}
    metadata = {"name": name, "namespace": "d", "uid": name}
    return convert(POD, {"metadata": metadata, "spec": {"containers": [container], **spec}, "status": status})


def wakes(
    plugin: str,
    event: ClusterEvent,
    waiting: Any,
    args: object = None,
    classes: dict[str, str] | None = None,
) -> bool:
    """True when some registration of ``plugin`` matches ``event`` and its hint, if any, says queue."""
    registrations = World(classes=classes).plugin(plugin, args).events()
    return any(r.matches(event) and (r.hint is None or r.hint(waiting, event.old, event.new)) for r in registrations)


def added(new: Any) -> ClusterEvent:
    """A node appeared."""
    return ClusterEvent(Resource.NODE, Action.ADD, None, new)


def updated(action: Action, old: Any, new: Any) -> ClusterEvent:
    """A node changed."""
    return ClusterEvent(Resource.NODE, action, old, new)


def deleted(old: Any) -> ClusterEvent:
    """An assigned Pod went."""
    return ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, old, None)


def test_gates_and_names() -> None:
    """Gates gone wake a gated Pod; a new node wakes one that names its node; other events wake neither."""
    gates = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED, pod(), pod())
    assert wakes("SchedulingGates", gates, pod())
    assert not wakes("SchedulingGates", added(node()), pod())
    assert wakes("NodeName", added(node()), pod())
    assert not wakes("NodeName", updated(Action.UPDATE_NODE_LABEL, node(), node()), pod())


def test_node_unschedulable() -> None:
    """Uncordoning and open new nodes wake, a node that was open or stays closed does not."""
    closed, opened = node(unschedulable=True), node()
    taint = Action.UPDATE_NODE_TAINT
    assert wakes("NodeUnschedulable", added(opened), pod())
    assert not wakes("NodeUnschedulable", added(closed), pod())
    assert wakes("NodeUnschedulable", updated(taint, closed, opened), pod())
    assert not wakes("NodeUnschedulable", updated(taint, opened, opened), pod())
    tolerant = pod(tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])
    tolerations = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, pod(), tolerant)
    assert wakes("NodeUnschedulable", tolerations, pod())
    other = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, tolerant, pod())
    assert not wakes("NodeUnschedulable", other, pod())


def test_taint_toleration() -> None:
    """A node wakes when it is tolerated now and was not before."""
    tainted, clean = node(taints=[{"key": "k", "effect": "NoExecute"}]), node()
    soft = node(taints=[{"key": "k", "effect": "PreferNoSchedule"}])
    taint = Action.UPDATE_NODE_TAINT
    assert wakes("TaintToleration", added(clean), pod())
    assert wakes("TaintToleration", added(soft), pod())
    assert not wakes("TaintToleration", added(tainted), pod())
    assert wakes("TaintToleration", updated(taint, tainted, clean), pod())
    assert not wakes("TaintToleration", updated(taint, soft, clean), pod())
    tolerations = ClusterEvent(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, pod(), pod())
    assert wakes("TaintToleration", tolerations, pod())


def test_node_affinity() -> None:
    """A node wakes when it matches the profile's rules and newly matches the Pod's."""
    waiting = pod(nodeSelector={"disk": "ssd"})
    ssd, hdd = node(labels={"disk": "ssd"}), node(labels={"disk": "hdd"})
    label = Action.UPDATE_NODE_LABEL
    assert wakes("NodeAffinity", added(ssd), waiting)
    assert not wakes("NodeAffinity", added(hdd), waiting)
    assert wakes("NodeAffinity", updated(label, hdd, ssd), waiting)
    assert not wakes("NodeAffinity", updated(label, ssd, ssd), waiting)
    terms = [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
    args = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    assert not wakes("NodeAffinity", added(ssd), waiting, args)
    assert wakes("NodeAffinity", added(node(labels={"disk": "ssd", "zone": "a"})), waiting, args)


def test_node_ports() -> None:
    """A Pod that went wakes those that wanted one of its ports, unless it never had a node."""
    port = [{"hostPort": 80}]
    waiting = pod(ports=port)
    assert wakes("NodePorts", deleted(pod("other", ports=port, nodeName="n")), waiting)
    assert wakes("NodePorts", deleted(pod("other", ports=port, nominated="n")), waiting)
    assert not wakes("NodePorts", deleted(pod("other", ports=port)), waiting)
    assert not wakes("NodePorts", deleted(pod("other", ports=[{"hostPort": 81}], nodeName="n")), waiting)
    assert wakes("NodePorts", added(node()), waiting)


def test_fit_pods() -> None:
    """Any Pod that leaves a node wakes; one that shrinks does when it frees something requested."""
    waiting = pod(requests={"cpu": "1"})
    assert wakes("NodeResourcesFit", deleted(pod("other", nodeName="n")), waiting)
    assert not wakes("NodeResourcesFit", deleted(pod("other")), waiting)
    large, small = (
        pod("o", {"cpu": "2", "memory": "2"}, nodeName="n"),
        pod("o", {"cpu": "1", "memory": "2"}, nodeName="n"),
    )
    down = Action.UPDATE_POD_SCALE_DOWN
    assert wakes("NodeResourcesFit", ClusterEvent(Resource.ASSIGNED_POD, down, large, small), waiting)
    assert not wakes(
        "NodeResourcesFit", ClusterEvent(Resource.ASSIGNED_POD, down, large, small), pod(requests={"memory": "1"})
    )
    assert wakes("NodeResourcesFit", ClusterEvent(Resource.TARGET_POD, down, waiting, waiting), waiting)


def test_fit_nodes() -> None:
    """A node wakes when the Pod fits it empty and, for an update, something requested (or pods) grew."""
    waiting = pod(requests={"cpu": "4"})
    grown = Action.UPDATE_NODE_ALLOCATABLE
    small, large = node(allocatable={"cpu": "3"}), node(allocatable={"cpu": "8"})
    assert wakes("NodeResourcesFit", added(large), waiting)
    assert not wakes("NodeResourcesFit", added(small), waiting)
    assert not wakes("NodeResourcesFit", added(node(allocatable={"pods": "0"})), waiting)
    assert wakes("NodeResourcesFit", updated(grown, small, large), waiting)
    assert not wakes("NodeResourcesFit", updated(grown, large, large), waiting)
    more_memory = node(allocatable={"cpu": "8", "memory": "1"})
    assert not wakes("NodeResourcesFit", updated(grown, large, more_memory), waiting)
    assert wakes("NodeResourcesFit", updated(grown, large, node(allocatable={"cpu": "8", "pods": "11"})), waiting)


def test_fit_ignores_ignored_resources_in_hints() -> None:
    """ignoredResources are not looked at in hints: a node without the resource does not wake (upstream's quirk)."""
    waiting, args = pod(requests={"example.com/gpu": "1"}), {"ignoredResources": ["example.com/gpu"]}
    assert not wakes("NodeResourcesFit", added(node()), waiting, args)


def test_fit_delegated_resources() -> None:
    """A resource that a DeviceClass stands for never keeps a node from waking the Pod."""
    waiting, classes = pod(requests={"example.com/gpu": "1"}), {"example.com/gpu": "gpus"}
    assert wakes("NodeResourcesFit", added(node()), waiting, classes=classes)
    update = updated(Action.UPDATE_NODE_ALLOCATABLE, node(), node())
    assert wakes("NodeResourcesFit", update, waiting, classes=classes)
    assert not wakes("NodeResourcesFit", added(node()), waiting)


@pytest.mark.parametrize(
    ("old", "new", "requested", "expected"),
    [
        (None, {"extendedResourceName": "example.com/gpu"}, "example.com/gpu", True),
        (None, {}, "example.com/gpu", False),
        (None, {}, "deviceclass.resource.kubernetes.io/c", True),
        ({}, {}, "deviceclass.resource.kubernetes.io/c", False),
        ({}, {"extendedResourceName": "example.com/gpu"}, "example.com/gpu", True),
        (
            {"extendedResourceName": "example.com/gpu"},
            {"extendedResourceName": "example.com/gpu"},
            "example.com/gpu",
            False,
        ),
        ({"extendedResourceName": "example.com/gpu"}, {}, "example.com/gpu", False),
        ({"extendedResourceName": "a.b/c"}, {"extendedResourceName": "example.com/gpu"}, "a.b/c", False),
    ],
)
def test_fit_device_classes(old: dict[str, str] | None, new: dict[str, str], requested: str, expected: bool) -> None:
    """A DeviceClass wakes Pods that request the resource it newly stands for; its own implicit one when it is added."""
    before, after = (
        None if spec is None else convert(DEVICE_CLASS, {"metadata": {"name": "c"}, "spec": spec})
        for spec in (old, new)
    )
    action = Action.ADD if old is None else Action.UPDATE
    event = ClusterEvent(Resource.DEVICE_CLASS, action, before, after)
    assert wakes("NodeResourcesFit", event, pod(requests={requested: "1"})) is expected


def test_everything_that_rejects_says_what_wakes() -> None:
    """Plugins that can reject register events, those that only score or bind do not."""
    world = World()
    silent = {
        name for name in DEFAULT_PLUGINS if name != "DynamicResources" and not hasattr(world.plugin(name), "events")
    }
    assert silent == {"PrioritySort", "NodeResourcesBalancedAllocation", "ImageLocality", "DefaultBinder"}
