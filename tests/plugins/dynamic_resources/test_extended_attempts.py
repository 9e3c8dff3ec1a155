"""Extended resources in whole attempts: which side serves a node, the claim that is made, and its end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_CLASS, NODE, POD, RESOURCE_CLAIM
from scheduler.cycle.decision import Placed, Rejected
from scheduler.framework.instructions import CreateClaim, DeleteClaim, PatchPodStatus, WriteClaim

from .device_world import DRIVER, DeviceWorld, cel, devices_of

GPU = "example.com/gpu"


@pytest.fixture
def world() -> DeviceWorld:
    """A class that serves the resource."""
    made = DeviceWorld()
    spec = {"selectors": [cel(f'device.driver == "{DRIVER}"')], "extendedResourceName": GPU}
    made.put(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": spec})
    return made


def node(world: DeviceWorld, name: str, devices: int, allocatable: dict[str, str] | None = None) -> None:
    """A node with devices, and what its device plugins say."""
    metadata = {"name": name, "labels": {"kubernetes.io/hostname": name}}
    world.put(NODE, {"metadata": metadata, "status": {"allocatable": allocatable or {}}})
    if devices:
        world.slice(name, [{"name": f"gpu-{i}"} for i in range(devices)])


def pod(world: DeviceWorld, name: str, count: int = 1, resource: str = GPU, claims: tuple[str, ...] = ()) -> Pod:
    """A waiting Pod that asks for so many."""
    spec = {
        "containers": [{"name": "main", "resources": {"requests": {resource: count}}}],
        "resourceClaims": [{"name": f"c{i}", "resourceClaimName": claim} for i, claim in enumerate(claims)],
    }
    world.put(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
    return world.state.pods[name]


def place(world: DeviceWorld, decision: object) -> list[Any]:
    """Reserve and PreBind of a placed Pod."""
    assert isinstance(decision, Placed), decision
    assert world.plugin.reserve(decision.cycle, decision.node).code == 0
    return list(world.plugin.pre_bind(decision.cycle, decision.node))


def store(world: DeviceWorld, create: CreateClaim, name: str = "p-extended-resources-abcde") -> None:
    """What the edge does with a CreateClaim: the claim appears, then its allocation."""
    data = msgspec.to_builtins(create.claim)
    data["metadata"] |= {"name": name, "uid": "real"}
    world.put(RESOURCE_CLAIM, data)
    claim = world.state.devices.claims[f"default/{name}"]
    create.created(claim)
    status = {
        "allocation": msgspec.to_builtins(create.allocation),
        "reservedFor": [msgspec.to_builtins(create.consumer)],
    }
    world.put(RESOURCE_CLAIM, data | {"status": status})


def reasons(decision: object) -> dict[str, int]:
    """The histogram of a rejection."""
    assert isinstance(decision, Rejected), decision
    return decision.diagnosis.reasons()


@pytest.mark.parametrize("resource", [GPU, "deviceclass.resource.kubernetes.io/gpu"])
def test_b47_b77_devices_serve_a_resource_through_a_claim_of_our_own(world: DeviceWorld, resource: str) -> None:
    """B47, B77: with either name a claim is created, allocated and told to the kubelet; its devices are taken."""
    node(world, "n", 2)
    decision = world.decide(pod(world, "p", 2, resource))
    create, patch = place(world, decision)
    assert isinstance(create, CreateClaim)
    assert isinstance(patch, PatchPodStatus)
    assert devices_of(create.allocation) == ["n/gpu-0", "n/gpu-1"]
    assert [result.request for result in create.allocation.devices.results] == ["container-0-request-0"] * 2
    assert reasons(world.decide(pod(world, "q"))) == {"cannot allocate all claims": 1}
    store(world, create)
    assert msgspec.json.decode(msgspec.json.encode(patch.status())) == {
        "extendedResourceClaimStatus": {
            "resourceClaimName": "p-extended-resources-abcde",
            "requestMappings": [
                {"containerName": "main", "resourceName": resource, "requestName": "container-0-request-0"}
            ],
        }
    }
    assert isinstance(decision, Placed)
    world.plugin.bound(decision.cycle, "n")
    assert reasons(world.decide(pod(world, "q"))) == {"cannot allocate all claims": 1}
    world.state.verify()


@pytest.mark.parametrize(("offered", "expected"), [(None, True), ("0", True), ("1", False)])
def test_b71_b72_the_nodes_allocatable_decides_who_serves(
    world: DeviceWorld, offered: str | None, expected: bool
) -> None:
    """B71, B72: absent and 0 mean devices, anything above means the device plugin, never a part of each."""
    node(world, "n", 4, None if offered is None else {GPU: offered})
    steps = place(world, world.decide(pod(world, "p", 2)))
    assert bool(steps) is expected


def test_b75_no_claim_is_made_where_the_device_plugin_serves(world: DeviceWorld) -> None:
    """B75, 25 no. 21: with a claim of the user's own besides, only that one is written."""
    node(world, "n", 1, {GPU: "8"})
    world.claim("mine")
    steps = place(world, world.decide(pod(world, "p", 1, claims=("mine",))))
    assert [type(step) for step in steps] == [WriteClaim]


def test_user_claims_and_the_special_one_are_allocated_together(world: DeviceWorld) -> None:
    """Both get different devices, the user's claim first; with one device too few neither is placed."""
    node(world, "n", 2)
    world.claim("mine")
    write, create, _ = place(world, world.decide(pod(world, "p", 1, claims=("mine",))))
    assert devices_of(write.allocation) == ["n/gpu-0"]
    assert devices_of(create.allocation) == ["n/gpu-1"]
    other = DeviceWorld()
    other.put(DEVICE_CLASS, {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": GPU}})
    node(other, "n", 1)
    other.claim("mine")
    assert reasons(other.decide(pod(other, "p", 1, claims=("mine",)))) == {"cannot allocate all claims": 1}


def test_each_node_is_served_its_own_way(world: DeviceWorld) -> None:
    """A node with the plugin needs no claim, one with devices needs one, one with neither cannot serve."""
    node(world, "devices", 1)
    node(world, "nothing", 0)
    decision = world.decide(pod(world, "p"))
    assert isinstance(decision, Placed)
    assert decision.node == "devices"
    node(world, "plugin", 0, {GPU: "1"})
    decision = world.decide(pod(world, "q"))
    assert isinstance(decision, Placed)
    assert decision.feasible_nodes == 2


def test_a_resource_nobody_offers_is_named(world: DeviceWorld) -> None:
    """With one resource served, another that neither the node nor a class knows cannot fit."""
    node(world, "n", 1)
    spec = {"containers": [{"name": "main", "resources": {"requests": {GPU: 1, "example.com/none": 1}}}]}
    world.put(POD, {"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    assert reasons(world.decide(world.state.pods["p"])) == {"cannot fit resource": 1}


def test_a_claim_left_over_is_deleted_first(world: DeviceWorld) -> None:
    """What an earlier attempt left is refused everywhere, PostFilter deletes it, its going wakes the Pod."""
    node(world, "n", 2)
    waiting = pod(world, "p")
    create, _ = place(world, world.decide(waiting))
    store(world, create)
    decision = world.decide(waiting)
    assert reasons(decision) == {"cannot schedule extended resource claim": 1}
    assert isinstance(decision, Rejected)
    assert decision.diagnosis.postfilter_message == "deletion of ResourceClaim completed"
    (delete,) = world.done
    assert isinstance(delete, DeleteClaim)
    assert delete.claim.uid == "real"
    events = world.remove(RESOURCE_CLAIM, "default/p-extended-resources-abcde")
    hints = [r for r in world.plugin.events() if r.resource == events[0].resource]
    assert hints[0].event_keys is not None
    assert hints[0].event_keys(events[0].old, None) is None
    assert hints[0].hint is not None
    assert hints[0].hint(waiting, events[0].old, None)


def test_unreserve_deletes_what_was_created_and_frees_the_devices(world: DeviceWorld) -> None:
    """Before the creation nothing is to be deleted; after it the real claim is; the devices come free for others."""
    node(world, "n", 1)
    waiting = pod(world, "p")
    decision = world.decide(waiting)
    place(world, decision)
    assert isinstance(decision, Placed)
    promised = world.state.devices.promised(waiting)
    assert world.plugin.unreserve(decision.cycle, "n") == []
    (event,) = world.state.devices.released(promised)
    assert event.old.status.allocation is not None
    decision = world.decide(waiting)
    create, _ = place(world, decision)
    store(world, create)
    assert isinstance(decision, Placed)
    (delete,) = world.plugin.unreserve(decision.cycle, "n")
    assert isinstance(delete, DeleteClaim)
    assert delete.claim.uid == "real"
    world.remove(RESOURCE_CLAIM, "default/p-extended-resources-abcde")
    assert isinstance(world.decide(pod(world, "q")), Placed)
    world.state.verify()


def test_the_search_of_all_nodes_is_shared_by_pods_of_one_kind(world: DeviceWorld) -> None:
    """A second Pod that asks for the same gets the devices the first one left, on the next node when it is full."""
    node(world, "a", 1)
    node(world, "b", 1)
    first, second = pod(world, "one"), pod(world, "two")
    chosen = []
    for waiting in (first, second):
        decision = world.decide(waiting)
        create, _ = place(world, decision)
        chosen += devices_of(create.allocation)
    assert sorted(chosen) == ["a/gpu-0", "b/gpu-0"]
