"""Devices that take resources of their node: what is counted, what is refused, who is told."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM
from scheduler.cycle.decision import Failed, Placed, Rejected
from scheduler.dra.features import Features
from scheduler.framework.instructions import PatchPodStatus, WriteClaim
from scheduler.framework.status import Code

from .device_world import DeviceWorld, exactly

CPU_DEVICE = {"nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "2"}}}}
GPU = {"nodeAllocatableResources": {"memory": {"overhead": {"perPod": "1Gi", "perContainer": "512Mi"}}}}
SHARED = {
    "allowMultipleAllocations": True,
    "capacity": {"cpus": {"value": "8", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}},
    "nodeAllocatableResources": {"cpu": {"mapping": {"capacityKey": "cpus", "capacityMultiplier": "500m"}}},
}


def world_of(*devices: dict[str, Any], cpu: str = "4", memory: str = "8Gi", gate: bool = True) -> DeviceWorld:
    """A node with these devices."""
    world = DeviceWorld(Features(node_allocatable=gate))
    status = {"allocatable": {"cpu": cpu, "memory": memory, "pods": "110"}}
    world.put(NODE, {"metadata": {"name": "n", "labels": {}}, "status": status})
    world.slice("n", [{"name": f"d-{i}"} | device for i, device in enumerate(devices)])
    return world


def pod(world: DeviceWorld, name: str, claim: str, cpu: str = "1", containers: int = 1, **spec: Any) -> Pod:
    """A Pod whose containers all use one claim and ask for cpu each."""
    used = {"requests": {"cpu": cpu}, "claims": [{"name": "c0"}]}
    made = [{"name": f"main-{i}", "resources": used} for i in range(containers)]
    entries = [{"name": "c0", "resourceClaimName": claim}]
    data = {"containers": made, "resourceClaims": entries, **spec}
    world.put(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": data})
    return world.state.pods[name]


def place(world: DeviceWorld, decision: object) -> list[Any]:
    """Assume, Reserve and PreBind, as the loop does."""
    assert isinstance(decision, Placed), decision
    world.state.assume(decision.pod, decision.node)
    assert world.plugin.reserve(decision.cycle, decision.node).code == 0
    return list(world.plugin.pre_bind(decision.cycle, decision.node))


def used(world: DeviceWorld, name: str) -> int:
    """What counts on the node."""
    row = world.state.nodes.row_of("n")
    assert row is not None
    return int(world.state.nodes.requested(name)[row])


def told(step: object) -> Any:
    """The statuses a Pod gets."""
    assert isinstance(step, PatchPodStatus)
    return msgspec.json.decode(msgspec.json.encode(step.status()))["nodeAllocatableResourceClaimStatuses"]


def test_b76_mapped_devices_count_on_the_node_once_per_claim() -> None:
    """B76: requests and devices together; the status names claim, containers and quantity; undo takes all back."""
    world = world_of(CPU_DEVICE)
    world.claim("a")
    decision = world.decide(pod(world, "p", "a", containers=2))
    write, patch = place(world, decision)
    assert isinstance(write, WriteClaim)
    assert used(world, "cpu") == 4000
    assert told(patch) == [
        {"resourceClaimName": "a", "containers": ["main-0", "main-1"], "mapping": [{"name": "cpu", "quantity": "2"}]}
    ]
    assert isinstance(decision, Placed)
    (clear,) = world.plugin.unreserve(decision.cycle, "n")
    assert told(clear) == []
    world.state.forget(decision.pod)
    assert used(world, "cpu") == 0
    world.state.verify()


def test_b76_with_the_gate_off_devices_take_nothing() -> None:
    """B76: only the plain requests count, and no status is written."""
    world = world_of(CPU_DEVICE, cpu="1", gate=False)
    world.claim("a")
    (write,) = place(world, world.decide(pod(world, "p", "a")))
    assert isinstance(write, WriteClaim)
    assert used(world, "cpu") == 1000


@pytest.mark.parametrize(
    ("cpu", "code"), [("3", None), ("2500m", Code.UNSCHEDULABLE_AND_UNRESOLVABLE), ("4", Code.UNSCHEDULABLE)]
)
def test_the_node_must_have_what_the_devices_take(cpu: str, code: Code | None) -> None:
    """Beyond what is free preemption may help, beyond what the node has it cannot."""
    world = world_of(CPU_DEVICE, cpu=cpu)
    if code is Code.UNSCHEDULABLE:
        spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
        world.put(POD, {"metadata": {"name": "other", "namespace": "default"}, "spec": spec})
    world.claim("a")
    decision = world.decide(pod(world, "p", "a"))
    if code is None:
        assert isinstance(decision, Placed)
        return
    assert isinstance(decision, Rejected)
    assert decision.diagnosis.reasons() == {"Insufficient cpu": 1}
    assert dict(decision.diagnosis.statuses())["n"].code is code


def test_a_pod_that_leaves_wakes_who_lacks_node_resources() -> None:
    """With the gate on, the end of another Pod is an event for Pods that this plugin refused."""
    world = world_of(CPU_DEVICE)
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}
    world.put(POD, {"metadata": {"name": "other", "namespace": "default"}, "spec": spec})
    (event,) = world.remove(POD, "default/other")
    assert [r.hint for r in world.plugin.events() if r.resource == event.resource and r.actions & event.action] == [
        None
    ]


def test_overhead_is_paid_per_pod_and_per_container_and_may_be_shared() -> None:
    """Two Pods share the claim of a device with overhead; each pays for itself."""
    world = world_of(GPU)
    claim = world.claim("a")
    write, patch = place(world, world.decide(pod(world, "p", "a", cpu="100m", containers=2)))
    assert told(patch)[0]["overhead"] == [{"name": "memory", "perPod": "1Gi", "perContainer": "512Mi"}]
    assert used(world, "memory") == 2 * 2**30
    world.allocate(claim, write.allocation, "p")
    place(world, world.decide(pod(world, "q", "a", cpu="100m")))
    assert used(world, "memory") == 3.5 * 2**30


def test_mapped_claims_are_not_shared() -> None:
    """A claim whose device is cpu of the node is refused to a second Pod, with upstream's words."""
    world = world_of(CPU_DEVICE)
    claim = world.claim("a")
    write, _ = place(world, world.decide(pod(world, "p", "a")))
    world.allocate(claim, write.allocation, "p")
    decision = world.decide(pod(world, "q", "a"))
    assert isinstance(decision, Rejected)
    text = "node allocatable resource claim a has a mapped device and cannot be shared across pods"
    assert decision.diagnosis.reasons() == {text: 1}


def test_consumed_capacity_is_multiplied() -> None:
    """Three of a shared device's units are one and a half cpus."""
    world = world_of(SHARED)
    world.claim("a", exactly(capacity={"requests": {"cpus": "3"}}))
    _, patch = place(world, world.decide(pod(world, "p", "a")))
    assert told(patch)[0]["mapping"] == [{"name": "cpu", "quantity": "1500m"}]
    assert used(world, "cpu") == 2500


def test_capacity_that_was_never_consumed_is_an_error() -> None:
    """A device given out whole records no capacity: what it takes cannot be told."""
    whole = {**SHARED, "allowMultipleAllocations": False, "capacity": {"cpus": {"value": "8"}}}
    world = world_of(whole)
    world.claim("a")
    decision = world.decide(pod(world, "p", "a"))
    assert isinstance(decision, Failed)
    assert "ConsumedCapacity is nil, but Capacity key 'cpus' is set" in decision.text


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ({"requests": {"cpu": "3"}}, ""),
        (
            {"requests": {"cpu": "2"}},
            "pod level request for cpu is insufficient to cover the aggregated container and node-allocatable DRA "
            "requests",
        ),
        (
            {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}},
            "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container main-0",
        ),
    ],
)
def test_pod_level_resources_must_cover_the_devices(resources: dict[str, Any], reason: str) -> None:
    """What the Pod asks for as a whole replaces the sums, so it has to be enough."""
    world = world_of(CPU_DEVICE)
    world.claim("a")
    limited = [
        {"name": "main-0", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}, "claims": [{"name": "c0"}]}}
    ]
    decision = world.decide(_pod_of(world, limited, resources))
    if not reason:
        place(world, decision)
        assert used(world, "cpu") == 3000
        return
    assert isinstance(decision, Rejected)
    assert decision.diagnosis.reasons() == {reason: 1}


def _pod_of(world: DeviceWorld, containers: list[dict[str, Any]], resources: dict[str, Any]) -> Pod:
    entries = [{"name": "c0", "resourceClaimName": "a"}]
    spec = {"containers": containers, "resourceClaims": entries, "resources": resources}
    world.put(POD, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    return world.state.pods["p"]


def test_what_a_bound_pod_says_counts() -> None:
    """After a restart the status of a bound Pod tells what its devices take."""
    world = world_of(CPU_DEVICE)
    taking = [{"resourceClaimName": "a", "mapping": [{"name": "cpu", "quantity": "2"}]}]
    spec = {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    status = {"nodeAllocatableResourceClaimStatuses": taking}
    world.put(POD, {"metadata": {"name": "old", "namespace": "default"}, "spec": spec, "status": status})
    assert used(world, "cpu") == 3000


def test_a_device_that_is_gone_beside_one_that_takes_something_is_an_error() -> None:
    """Of a claim with a mapped device everything must be known."""
    world = world_of(CPU_DEVICE, {})
    claim = world.claim("a", exactly(count=2))
    write, _ = place(world, world.decide(pod(world, "p", "a")))
    world.allocate(claim, write.allocation, "q")
    world.slice("n", [{"name": "d-0"} | CPU_DEVICE])
    decision = world.decide(pod(world, "q", "a"))
    assert isinstance(decision, Failed)
    assert "device d-1 not found in pool n for driver" in decision.text
    world.remove(RESOURCE_CLAIM, "default/a")
