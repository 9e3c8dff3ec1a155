"""The map: each device in one state, nodes in natural order, and the Pods that wait."""

from __future__ import annotations

from typing import Any

from scheduler.explain.attempts import ended
from scheduler.explain.cluster_map import DEVICE_STATES, ClusterMap, map_steps, waiting_pods
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import NOW, Object, device, held, slice_of, snapshot, want

TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


def drawn(items: list[Object], **options: Any) -> ClusterMap:
    return ended(map_steps(snapshot(items).state, NOW, **options))


def states(found: ClusterMap, name: str) -> dict[str, str]:
    (on,) = [one for one in found.nodes if one.node == name]
    return {device.device: device.state for device in on.devices}


def test_every_state_is_drawn() -> None:
    """Free, used, shared, tainted, and unseen where a slice of the pool is missing; numbers agree with the picture."""
    shared = device("gpu-2", allowMultipleAllocations=True)
    share = {"shareID": "6f1ad5f4-0d5f-4c5a-9a5f-000000000001", "consumedCapacity": {"memory": "10Gi"}}
    items = [
        node("n1"),
        node("n2"),
        gpu_class(),
        slice_of("n1", [device("gpu-0"), device("gpu-1"), shared, device("gpu-3", taints=[TAINT])]),
        slice_of("n2", [device("gpu-0")], count=2),
        held("whole", "n1", "gpu-1", pod="user"),
        held("part", "n1", "gpu-2", **share),
        pod("user", claim="whole", nodeName="n1"),
    ]
    found = drawn(items)
    assert states(found, "n1") == {"gpu-0": "free", "gpu-1": "used", "gpu-2": "shared", "gpu-3": "tainted"}
    assert states(found, "n2") == {"gpu-0": "unseen"}
    assert found.states == {"free": 1, "used": 1, "shared": 1, "tainted": 1, "blocked": 0, "unseen": 1}
    by_name = {one.device: one for one in found.nodes[0].devices}
    assert by_name["gpu-1"].holders == ["claim default/whole (pod default/user)"]
    assert by_name["gpu-2"].left == {"memory": "30Gi"}
    assert by_name["gpu-3"].why == "broken=yes:NoSchedule"
    assert found.nodes[0].pods == 1
    assert "1 of 2 slices" in found.nodes[1].devices[0].why
    assert set(found.states) == set(DEVICE_STATES)


def test_nodes_are_chosen_and_sorted() -> None:
    """node-2 comes before node-10; only those asked for are drawn, the numbers are those of all."""
    items = [gpu_class()]
    for number in (10, 2, 1):
        items += [node(f"node-{number}"), slice_of(f"node-{number}", [device("gpu-0")])]
    found = drawn(items)
    assert [one.node for one in found.nodes] == ["node-1", "node-2", "node-10"]
    found = drawn(items, match="node-1", limit=1)
    assert ([one.node for one in found.nodes], found.found, found.states["free"]) == (["node-1"], 2, 3)


def test_devices_without_their_node() -> None:
    """Network-attached devices and those of a node that is not there have their own place."""
    found = drawn([gpu_class(), slice_of(None, [device("net-0")]), slice_of("gone", [device("gpu-0")])])
    assert {one.node: one.notes for one in found.nodes} == {"(any node)": [], "gone": ["there is no such node"]}


def test_what_keeps_pods_away_is_noted() -> None:
    """Cordoned, not ready, tainted."""
    item = node("n1")
    item["spec"] = {"unschedulable": True, "taints": [TAINT]}
    item["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    (on,) = drawn([item]).nodes
    assert on.notes == ["cordoned", "not ready", "taint broken=yes:NoSchedule"]


def test_pods_that_wait() -> None:
    """Ours without a node, oldest first, with what they were told."""
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    old, new = pod("old", claim="want"), pod("new")
    old["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    new["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    old["status"] = {"conditions": [told]}
    state = snapshot([node("n1"), new, old, want(), pod("theirs", scheduler="other"), pod("on", nodeName="n1")]).state
    found = waiting_pods(state, ["dra-scheduler"])
    assert [(one.pod, one.message, one.claims) for one in found.pods] == [
        ("default/old", "0/1 nodes are available", ["default/want"]),
        ("default/new", "", []),
    ]
    state.assume(state.pods[next(uid for uid, one in state.pods.items() if one.key == "default/new")], "n1")
    found = waiting_pods(state, ["dra-scheduler"], limit=1)
    assert (len(found.pods), found.found) == (1, 2)
    assert waiting_pods(state, ["dra-scheduler"]).pods[1].node == "n1", "decided, not bound yet"
