"""Claims of PodGroups: for whom they are reserved, who may use them, who shares them."""

from __future__ import annotations

from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import ConsumerReference
from scheduler.cycle.decision import Placed, Rejected
from scheduler.dra.features import Features
from scheduler.framework.instructions import DeallocateClaim, WriteClaim

from .device_world import DeviceWorld, exactly

ON = Features(generic_workload=True, workload_claims=True)
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "shared"}
OWNER = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "g-uid", "controller": True}


def world_of(features: Features = ON, policy: dict[str, Any] | None = None, nodes: int = 2) -> DeviceWorld:
    """Two nodes with one device each, a group with a claim of its own."""
    world = DeviceWorld(features)
    for index in range(nodes):
        world.node(f"node-{index}")
    spec = {"resourceClaims": [ENTRY], "schedulingPolicy": policy or {"basic": {}}}
    world.put(POD_GROUP, {"metadata": {"name": "g", "namespace": "default", "uid": "g-uid"}, "spec": spec})
    world.claim("g-gpu", ownerReferences=[OWNER])
    return world


def member(world: DeviceWorld, name: str, group: str = "g", entry: dict[str, str] | None = None) -> Pod:
    """A Pod of the group that uses its claim."""
    spec = {"schedulingGroup": {"podGroupName": group}, "resourceClaims": [entry or ENTRY]}
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g-gpu"}]}
    world.put(POD, {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status})
    return world.state.pods[name]


def steps(world: DeviceWorld, decision: object) -> list[Any]:
    """Reserve and PreBind of a placed Pod."""
    assert isinstance(decision, Placed), decision
    assert world.plugin.reserve(decision.cycle, decision.node).code == 0
    return list(world.plugin.pre_bind(decision.cycle, decision.node))


def store(world: DeviceWorld, write: WriteClaim) -> None:
    """The claim as the write leaves it."""
    world.allocate(write.claim, write.allocation)
    stored = world.known[(RESOURCE_CLAIM.name, "default/g-gpu")]
    data = {"metadata": {"name": "g-gpu", "namespace": "default", "uid": stored.uid, "ownerReferences": [OWNER]}}
    status = {
        "allocation": msgspec.to_builtins(write.allocation),
        "reservedFor": [msgspec.to_builtins(write.consumer)],
    }
    world.put(RESOURCE_CLAIM, data | {"spec": msgspec.to_builtins(write.claim.spec), "status": status})


def refusal(decision: object) -> str:
    """The only reason."""
    assert isinstance(decision, Rejected), decision
    (reason,) = decision.diagnosis.reasons()
    return reason


def test_the_first_member_reserves_for_the_group_and_the_next_only_follows() -> None:
    """The reservation names the PodGroup; the second member goes to the devices and writes nothing."""
    world = world_of()
    (write,) = steps(world, world.decide(member(world, "one")))
    assert write.consumer == ConsumerReference("scheduling.k8s.io", "podgroups", "g", "g-uid")
    second = member(world, "two")
    assert refusal(world.decide(second)) == "resource claim default/g-gpu is in the process of being allocated"
    store(world, write)
    decision = world.decide(second)
    assert isinstance(decision, Placed)
    assert decision.node == "node-0"
    assert steps(world, decision) == []
    assert world.plugin.unreserve(decision.cycle, "node-0") == []


def test_an_entry_that_differs_from_the_groups_is_the_pods_own() -> None:
    """Name and template must both be the group's; otherwise the Pod itself is the consumer."""
    world = world_of()
    other = {"name": "gpu", "resourceClaimTemplateName": "another"}
    (write,) = steps(world, world.decide(member(world, "one", entry=other)))
    assert write.consumer == ConsumerReference("", "pods", "one", "one")


def test_only_members_may_use_the_groups_claim() -> None:
    """A claim that another group owns is refused, by both names; without the gate by the Pod's alone."""
    world = world_of()
    data = {"metadata": {"name": "h", "namespace": "default", "uid": "h-uid"}, "spec": {}}
    world.put(POD_GROUP, data)
    stranger = member(world, "stranger", group="h")
    assert refusal(world.decide(stranger)) == (
        "ResourceClaim default/g-gpu was not created for Pod default/stranger (neither Pod nor PodGroup h is the owner)"
    )
    off = world_of(Features())
    assert refusal(off.decide(member(off, "one"))) == (
        "ResourceClaim default/g-gpu was not created for Pod default/one (Pod is not owner)"
    )


def test_a_group_that_is_not_there_is_waited_for() -> None:
    """The refusal names it, and its appearance wakes the Pod."""
    world = world_of()
    world.claim("mine")
    own = {"name": "gpu", "resourceClaimName": "mine"}
    assert (
        refusal(world.decide(member(world, "one", group="later", entry=own)))
        == 'could not find PodGroup "default/later"'
    )
    (event,) = world.put(POD_GROUP, {"metadata": {"name": "later", "namespace": "default"}, "spec": {}})
    assert [r.hint for r in world.plugin.events() if r.resource == event.resource] == [None]


def test_members_of_one_cycle_share_what_is_promised_and_let_go_one_by_one() -> None:
    """The second member uses the claim on the first one's node, unwritten; the device is free when both have let go."""
    world = world_of(policy={"gang": {"minCount": 2}})
    groups, ledger = world.state.pod_groups, world.state.devices.ledger
    groups.begin("default/g")
    first = world.decide(member(world, "one"))
    (write,) = steps(world, first)
    second = world.decide(member(world, "two"))
    assert isinstance(first, Placed)
    assert isinstance(second, Placed)
    assert second.node == first.node
    (same,) = steps(world, second)
    assert (same.allocation, same.consumer) == (write.allocation, write.consumer)
    groups.end()
    assert refusal(world.decide(member(world, "late"))) == (
        "resource claim default/g-gpu is in the process of being allocated"
    )
    world.plugin.unreserve(first.cycle, first.node)
    assert ledger.in_flight("g-gpu") == write.allocation
    world.plugin.unreserve(second.cycle, second.node)
    assert ledger.state() == {}


def test_a_promised_claim_that_fits_nowhere_is_not_given_back() -> None:
    """It is in the way of the member on another node, but not PostFilter's to free: nothing is written yet."""
    world = world_of(policy={"gang": {"minCount": 2}})
    world.state.pod_groups.begin("default/g")
    first = world.decide(member(world, "one"))
    steps(world, first)
    assert isinstance(first, Placed)
    world.remove(NODE, first.node)
    assert refusal(world.decide(member(world, "two"))) == "resourceclaim not available on the node"
    assert world.done == []


def test_an_idle_groups_claim_is_freed_when_it_is_in_the_way() -> None:
    """No member has a node and nobody else reserved it: PostFilter clears it; with a member on a node it stays."""
    world = world_of(nodes=1)
    (write,) = steps(world, world.decide(member(world, "one")))
    store(world, write)
    world.state.nodes.remove("node-0")
    world.node("node-9", devices=0)
    decision = world.decide(member(world, "two"))
    assert refusal(decision) == "resourceclaim not available on the node"
    (clear,) = world.done
    assert isinstance(clear, DeallocateClaim)
    assert clear.consumer_uid == "g-uid"
    store(world, write)
    world.done.clear()
    placed = {"nodeName": "node-9", "schedulingGroup": {"podGroupName": "g"}}
    world.put(POD, {"metadata": {"name": "here", "namespace": "default"}, "spec": placed})
    world.decide(member(world, "three"))
    assert world.done == []


def test_devices_of_other_claims_stay_apart() -> None:
    """A group's claim holds its device like any other."""
    world = world_of(nodes=1)
    (write,) = steps(world, world.decide(member(world, "one")))
    store(world, write)
    world.claim("mine", exactly())
    assert refusal(world.decide(world.pod("other", "mine"))) == "cannot allocate all claims"
