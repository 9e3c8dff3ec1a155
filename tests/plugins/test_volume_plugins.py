"""The volume plugins beyond recorded answers: promises, Pods that are only thought of, wake-ups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, convert
from scheduler.api.storage import PERSISTENT_VOLUME, PERSISTENT_VOLUME_CLAIM
from scheduler.framework.instructions import BindVolume, SelectNode, WaitUntil
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.events import Action, ClusterEvent, Resource
from scheduler.state.overlay import NodeOverlay
from scheduler.state.podinfo import pod_info
from tests.plugins.volume_world import KINDS, cycle_of, plugin_of, rejections, state_of

Json = dict[str, Any]
HOST = "kubernetes.io/hostname"


def item(kind: str, name: str, **fields: Any) -> Json:
    metadata = {"name": name, "uid": name, "resourceVersion": "1", **fields.pop("metadata", {})}
    if kind in ("Pod", "PersistentVolumeClaim", "CSIStorageCapacity"):
        metadata["namespace"] = "default"
    return {"kind": kind, "metadata": metadata, **fields}


def node(name: str) -> Json:
    return item("Node", name, metadata={"labels": {HOST: name}}, status={"allocatable": {"cpu": "8", "pods": "9"}})


def storage_class(name: str = "late", provisioner: str = "d.io") -> Json:
    return item("StorageClass", name, provisioner=provisioner, volumeBindingMode="WaitForFirstConsumer")


def claim(name: str, modes: tuple[str, ...] = ("ReadWriteOnce",), **spec: Any) -> Json:
    resources = {"requests": {"storage": "1Gi"}}
    body = {"storageClassName": "late", "accessModes": list(modes), "resources": resources, **spec}
    return item("PersistentVolumeClaim", name, spec=body)


def volume(name: str, node_name: str, size: str = "1Gi") -> Json:
    term = {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node_name]}]}
    spec = {
        "storageClassName": "late",
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "csi": {"driver": "d.io", "volumeHandle": name},
    }
    return item("PersistentVolume", name, spec=spec, status={"phase": "Available"})


def pod_data(name: str, *volumes: Json, node_name: str = "") -> Json:
    named = [{"name": f"v{index}", **entry} for index, entry in enumerate(volumes)]
    return item("Pod", name, spec={"volumes": named, "nodeName": node_name})


def pod(name: str, *volumes: Json, node_name: str = "") -> Pod:
    found: Pod = convert(POD, pod_data(name, *volumes, node_name=node_name))
    return found


def of_claim(name: str) -> Json:
    return {"persistentVolumeClaim": {"claimName": name}}


def decided(state: ClusterState, waiting: Pod) -> tuple[Any, Any]:
    """VolumeBinding and a cycle whose PreFilter has passed."""
    plugin, cycle = plugin_of("VolumeBinding", state), cycle_of(state, waiting)
    assert plugin.pre_filter(cycle).status.code is Code.SUCCESS
    return plugin, cycle


def test_a_promised_volume_is_not_promised_twice() -> None:
    """After Reserve another Pod cannot have the volume; after Unreserve it can."""
    static = storage_class(provisioner="kubernetes.io/no-provisioner")
    state = state_of([node("n1"), static, volume("v", "n1"), claim("a"), claim("b")])
    plugin, first = decided(state, pod("first", of_claim("a")))
    _, second = decided(state, pod("second", of_claim("b")))
    assert rejections(plugin, second) == {}
    assert plugin.reserve(first, "n1").code is Code.SUCCESS
    assert "n1" in rejections(plugin, second)
    write, wait = plugin.pre_bind(first, "n1")
    assert isinstance(write, BindVolume)
    assert write.volume.spec.claimRef is not None
    assert write.volume.spec.claimRef.uid == "a"
    assert isinstance(wait, WaitUntil)
    assert (wait.timeout_s, wait.interval_s) == (600.0, 1.0)
    assert plugin.unreserve(first, "n1") == []
    assert plugin.unreserve(first, "n1") == ()
    assert rejections(plugin, second) == {}


def test_a_promise_comes_true_step_by_step() -> None:
    """None while the volume controller works, "" once the claim is fully bound, a text when the node is taken out."""
    state = state_of([node("n1"), storage_class(), claim("a")])
    plugin, cycle = decided(state, pod("p", of_claim("a")))
    assert plugin.reserve(cycle, "n1").code is Code.SUCCESS
    write, wait = plugin.pre_bind(cycle, "n1")
    assert (write.claim.key, write.node) == ("default/a", "n1")
    selected = {"volume.kubernetes.io/selected-node": "n1"}
    show_claim(state, 2, selected)
    assert wait.ready() is None
    show_claim(state, 3, {**selected, "pv.kubernetes.io/bind-completed": "yes"}, volumeName="made")
    assert wait.ready() is None, "the volume itself has not been shown yet"
    state.apply(Change(PERSISTENT_VOLUME, None, convert(PERSISTENT_VOLUME, volume("made", "n1"))))
    assert wait.ready() == ""
    show_claim(state, 4, {"volume.kubernetes.io/selected-node": "n2"})
    assert wait.ready() == 'binding volumes: provisioning failed for PVC "a"'
    show_claim(state, 5, {})
    assert wait.ready() == 'binding volumes: selectedNode annotation reset for PVC "a"'


def test_a_volume_made_out_of_reach_is_a_failure() -> None:
    """The provisioner made the volume for another node than the one that was chosen."""
    state = state_of([node("n1"), storage_class(), claim("a"), volume("made", "n2")])
    plugin, cycle = decided(state, pod("p", of_claim("a")))
    assert plugin.reserve(cycle, "n1").code is Code.SUCCESS
    *_, wait = plugin.pre_bind(cycle, "n1")
    show_claim(state, 2, {"volume.kubernetes.io/selected-node": "n1"}, volumeName="made")
    text = 'binding volumes: pv "made" node affinity doesn\'t match node "n1": no matching NodeSelectorTerms'
    assert wait.ready() == text


def test_b121_a_claim_that_still_waits_is_set_free() -> None:
    """Unreserve asks for the node to be taken out only if it is ours and no volume has come."""
    state = state_of([node("n1"), storage_class(), claim("a")])
    plugin, cycle = decided(state, pod("p", of_claim("a")))
    assert plugin.reserve(cycle, "n1").code is Code.SUCCESS
    assert plugin.unreserve(cycle, "n1") == [], "nothing was written yet"
    for marks, spec, expected in (
        ({"volume.kubernetes.io/selected-node": "n1"}, {}, 1),
        ({"volume.kubernetes.io/selected-node": "n2"}, {}, 0),
        ({"volume.kubernetes.io/selected-node": "n1"}, {"volumeName": "made"}, 0),
    ):
        state = state_of([node("n1"), storage_class(), claim("a")])
        plugin, cycle = decided(state, pod("p", of_claim("a")))
        plugin.reserve(cycle, "n1")
        show_claim(state, 2, marks, **spec)
        freed = plugin.unreserve(cycle, "n1")
        assert len(freed) == expected
        assert all(isinstance(found, SelectNode) and found.node == "" for found in freed)


def show_claim(state: ClusterState, version: int, annotations: Json, **spec: Any) -> None:
    """The watch shows claim a as it is now."""
    data = claim("a", **spec)
    data["metadata"] |= {"resourceVersion": str(version), "annotations": annotations}
    old = state.volumes.claims.shown("default/a")
    state.apply(Change(PERSISTENT_VOLUME_CLAIM, old, convert(PERSISTENT_VOLUME_CLAIM, data)))


def test_victims_give_back_a_claim_for_one_pod_only() -> None:
    """With the Pod that uses it taken away in thought, the claim is free; other Pods make no difference."""
    state = state_of([node("n1"), claim("a", ("ReadWriteOncePod",)), pod_data("user", of_claim("a"), node_name="n1")])
    plugin, cycle = plugin_of("VolumeRestrictions", state), cycle_of(state, pod("p", of_claim("a")))
    assert plugin.pre_filter(cycle).status.code is Code.SUCCESS
    assert list(rejections(plugin, cycle)) == ["n1"]
    row = state.nodes.row_of("n1")
    plugin.remove_pod(cycle, pod_info(pod("other", of_claim("b"))), row)
    assert list(rejections(plugin, cycle)) == ["n1"]
    plugin.remove_pod(cycle, pod_info(pod("user", of_claim("a"))), row)
    assert rejections(plugin, cycle) == {}
    plugin.add_pod(cycle, pod_info(pod("user", of_claim("a"))), row)
    assert list(rejections(plugin, cycle)) == ["n1"]


@pytest.mark.parametrize("name", ["VolumeRestrictions", "NodeVolumeLimits"])
def test_pods_that_are_only_thought_of_count(name: str) -> None:
    """A nominated Pod's disk and volumes count on the overlay, and a victim's no more."""
    csi_node = item("CSINode", "n1", spec={"drivers": [{"name": "ebs.csi.aws.com", "allocatable": {"count": 1}}]})
    here = "vol-1" if name == "VolumeRestrictions" else "vol-2"
    disk = {"awsElasticBlockStore": {"volumeID": "vol-1"}}
    other = pod("other", {"awsElasticBlockStore": {"volumeID": here}}, node_name="n1")
    state = state_of([node("n1"), csi_node])
    plugin, cycle = plugin_of(name, state), cycle_of(state, pod("p", disk))
    assert plugin.pre_filter(cycle).status.code is Code.SUCCESS
    rows = state.nodes.order()
    overlay = NodeOverlay(state.nodes)
    overlay.put([(pod_info(other), int(rows[0]))])
    assert not plugin.filter(cycle, state.nodes, rows).any()
    assert plugin.filter(cycle, overlay, rows).all()
    state.apply(Change(POD, None, other))
    assert plugin.filter(cycle, state.nodes, rows).all()
    without = NodeOverlay(state.nodes)
    without.take([(pod_info(other), int(rows[0]))])
    assert not plugin.filter(cycle, without, rows).any()


def test_a_thousand_local_volumes_are_given_out_node_by_node() -> None:
    """Each node's own volumes are matched there, two claims get two volumes, and a node with one is not enough."""
    names = [f"n{index}" for index in range(500)]
    volumes = [
        volume(f"v{name}{size}", name, size)
        for name in names
        for size in ("1Gi", "2Gi")
        if name != "n7" or size == "1Gi"
    ]
    state = state_of(
        [*map(node, names), storage_class(provisioner="kubernetes.io/no-provisioner"), *volumes, claim("a"), claim("b")]
    )
    plugin, cycle = decided(state, pod("p", of_claim("a"), of_claim("b")))
    assert list(rejections(plugin, cycle)) == ["n7"]
    rows = state.nodes.order()
    verdicts = plugin.filter(cycle, state.nodes, rows)
    assert np.count_nonzero(verdicts) == 1


HINTS: list[tuple[str, Resource, Action, Json | None, Json | None, bool]] = [
    ("VolumeRestrictions", Resource.ASSIGNED_POD, Action.DELETE, pod_data("o", of_claim("mine")), None, True),
    ("VolumeRestrictions", Resource.ASSIGNED_POD, Action.DELETE, pod_data("o", of_claim("other")), None, False),
    ("VolumeRestrictions", Resource.NODE, Action.ADD, None, node("n"), True),
    ("VolumeRestrictions", Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, claim("mine"), True),
    ("VolumeRestrictions", Resource.PERSISTENT_VOLUME_CLAIM, Action.ADD, None, claim("other"), False),
    ("NodeVolumeLimits", Resource.CSI_NODE, Action.ADD, None, item("CSINode", "n"), True),
    ("NodeVolumeLimits", Resource.ASSIGNED_POD, Action.DELETE, pod_data("o", of_claim("x"), node_name="n"), None, True),
    ("NodeVolumeLimits", Resource.ASSIGNED_POD, Action.DELETE, pod_data("o", node_name="n"), None, False),
    ("NodeVolumeLimits", Resource.VOLUME_ATTACHMENT, Action.DELETE, item("VolumeAttachment", "v"), None, True),
    ("VolumeBinding", Resource.STORAGE_CLASS, Action.ADD, None, storage_class(), True),
    ("VolumeBinding", Resource.STORAGE_CLASS, Action.UPDATE_OTHER, storage_class(), storage_class(), False),
    ("VolumeBinding", Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER, claim("mine"), claim("mine"), True),
    ("VolumeBinding", Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER, claim("o"), claim("o"), False),
    ("VolumeBinding", Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER, volume("v", "n"), volume("v", "n"), True),
    ("VolumeBinding", Resource.CSI_NODE, Action.UPDATE_OTHER, item("CSINode", "n"), item("CSINode", "n"), False),
    (
        "VolumeBinding",
        Resource.CSI_STORAGE_CAPACITY,
        Action.UPDATE_OTHER,
        item("CSIStorageCapacity", "c", capacity="1Gi"),
        item("CSIStorageCapacity", "c", capacity="2Gi"),
        True,
    ),
    (
        "VolumeBinding",
        Resource.CSI_STORAGE_CAPACITY,
        Action.UPDATE_OTHER,
        item("CSIStorageCapacity", "c", capacity="2Gi"),
        item("CSIStorageCapacity", "c", capacity="1Gi"),
        False,
    ),
    (
        "VolumeBinding",
        Resource.CSI_DRIVER,
        Action.UPDATE_OTHER,
        item("CSIDriver", "inline.io", spec={"storageCapacity": True}),
        item("CSIDriver", "inline.io", spec={"storageCapacity": False}),
        True,
    ),
    ("VolumeZone", Resource.STORAGE_CLASS, Action.ADD, None, storage_class(), True),
    ("VolumeZone", Resource.STORAGE_CLASS, Action.ADD, None, item("StorageClass", "now"), False),
    ("VolumeZone", Resource.PERSISTENT_VOLUME, Action.ADD, None, volume("v", "n"), True),
    ("VolumeZone", Resource.PERSISTENT_VOLUME, Action.UPDATE_OTHER, volume("v", "n"), volume("v", "n"), False),
    ("VolumeZone", Resource.PERSISTENT_VOLUME_CLAIM, Action.UPDATE_OTHER, claim("mine"), claim("mine"), True),
]


@pytest.mark.parametrize(("name", "resource", "action", "old", "new", "queued"), HINTS)
def test_events_wake_whom_they_may_help(
    name: str, resource: Resource, action: Action, old: Json | None, new: Json | None, queued: bool
) -> None:
    """The rules of kube-scheduler 1.37 (spec 4.8), event by event."""
    waiting = pod("p", of_claim("mine"), {"csi": {"driver": "inline.io"}})
    objects = [None if data is None else convert(KINDS[data["kind"]], data) for data in (old, new)]
    event = ClusterEvent(resource, action, *objects)
    registrations = [entry for entry in plugin_of(name, ClusterState()).events() if entry.matches(event)]
    woken = any(entry.hint is None or entry.hint(waiting, event.old, event.new) for entry in registrations)
    assert woken is queued


def test_a_node_event_concerns_the_right_plugins() -> None:
    """Limits do not change with a Node; the other three look again when one comes."""
    event = ClusterEvent(Resource.NODE, Action.ADD, None, convert(NODE, node("n")))
    asked = {
        name
        for name in ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding", "VolumeZone")
        if any(entry.matches(event) for entry in plugin_of(name, ClusterState()).events())
    }
    assert asked == {"VolumeRestrictions", "VolumeBinding", "VolumeZone"}
