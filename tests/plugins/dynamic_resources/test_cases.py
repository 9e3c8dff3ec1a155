"""Whole attempts in situations that went wrong elsewhere (docs/cases.md names the test of each case)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, convert
from scheduler.cycle.decision import Failed, Placed, Rejected
from scheduler.dra.rejections import Reason
from scheduler.framework.cycle import Cycle
from scheduler.framework.status import Code
from scheduler.state.podinfo import pod_info

from .device_world import DRIVER, DeviceWorld, allocation_of, cel, exactly, on_node

EVERY = {"name": "req", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}


def texts(decision: object) -> dict[str, int]:
    """The histogram of a rejection."""
    assert isinstance(decision, Rejected), decision
    return decision.diagnosis.reasons()


def in_use(world: DeviceWorld, pod_name: str) -> set[str]:
    """The claims that the reasons of a Pod name as holders."""
    pod = world.state.pods[pod_name]
    cycle = Cycle(pod, pod_info(pod), world.state)
    world.plugin.pre_filter(cycle)
    found = world.plugin.device_reasons(cycle, world.state.nodes.node(0))
    return {rejection.detail["claim"] for rejection in found if rejection.reason is Reason.IN_USE}


def test_b2_a_replacement_waits_until_the_old_claim_lets_go() -> None:
    """The old Pod is gone at once; its claim keeps the device as long as it has an allocation, and is named."""
    world = DeviceWorld()
    world.node("node-1")
    old = world.claim("old")
    world.allocate(old, allocation_of("gpu-0"), "gone")
    world.claim("new")
    pod = world.pod("replacement", "new")
    assert texts(world.decide(pod)) == {"cannot allocate all claims": 1}
    assert in_use(world, "replacement") == {"default/old"}
    world.allocate(old, None)
    assert isinstance(world.decide(pod), Placed)


def test_b12_an_exception_inside_the_allocator_costs_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Pod fails with the error as its text, and the next attempt starts afresh."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a")
    pod = world.pod("p", "a")

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("inside the allocator")

    with monkeypatch.context() as patch:
        patch.setattr(world.plugin, "filter_steps", broken)
        decision = world.decide(pod)
    assert isinstance(decision, Failed)
    assert "inside the allocator" in decision.text
    assert isinstance(world.decide(pod), Placed)


def test_b31_mode_all_beside_an_incomplete_pool_fails_the_attempt() -> None:
    """The Pod does not go to the healthy node but backs off with upstream's text."""
    world = DeviceWorld()
    world.node("node-1")
    world.node("node-2")
    world.slice("node-1", [{"name": "gpu-0"}], count=2)
    world.claim("a", EVERY)
    decision = world.decide(world.pod("p", "a"))
    assert isinstance(decision, Failed)
    assert decision.text == (
        'running "DynamicResources" filter plugin: claim default/a, request req: asks for all devices, but resource '
        f"pool {DRIVER}/node-1 is currently being updated"
    )


def test_b43_slices_that_come_late_let_the_pod_in() -> None:
    """A node without slices refuses; one attempt after its slice appears the Pod is placed."""
    world = DeviceWorld()
    world.put(NODE, {"metadata": {"name": "node-1"}})
    world.claim("a")
    pod = world.pod("p", "a")
    assert texts(world.decide(pod)) == {"cannot allocate all claims": 1}
    world.slice("node-1", [{"name": "gpu-0"}])
    assert isinstance(world.decide(pod), Placed)


def test_b53_what_was_promised_goes_with_its_owner() -> None:
    """An attempt that ends after Reserve gives everything back, and the books agree with a rebuild at each step."""
    world = DeviceWorld()
    world.node("node-1", devices=2)
    ledger = world.state.devices.ledger
    for name in ("a", "b"):
        world.claim(name)
        decision = world.decide(world.pod(name, name))
        assert isinstance(decision, Placed)
        world.plugin.reserve(decision.cycle, decision.node)
        ledger.verify()
        world.plugin.unreserve(decision.cycle, decision.node)
        ledger.verify()
        assert ledger.state() == {}


def test_b59_a_claim_being_deleted_is_not_given_and_keeps_its_devices() -> None:
    """Its Pod waits with upstream's words; another claim does not get the device before the allocation is gone."""
    world = DeviceWorld()
    world.node("node-1")
    dying = world.claim("dying")
    world.allocate(dying, allocation_of("gpu-0"), "x")
    stored = world.known[("ResourceClaim", "default/dying")]
    assert stored.status.allocation is not None
    status = {"allocation": allocation_of("gpu-0")}
    metadata = {"name": "dying", "namespace": "default", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    world.put(RESOURCE_CLAIM, {"metadata": metadata, "spec": {}, "status": status})
    world.claim("other")
    assert texts(world.decide(world.pod("q", "other"))) == {"cannot allocate all claims": 1}
    waiting = world.plugin.pre_enqueue(world.pod("p", "dying"))
    assert waiting.reasons == ('resourceclaim "dying" is being deleted',)
    world.remove(RESOURCE_CLAIM, "default/dying")
    assert isinstance(world.decide(world.state.pods["q"]), Placed)


def template_pod(**status: Any) -> Any:
    """A Pod whose claim is made from a template."""
    data = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "two-gpus"}]},
        "status": status,
    }
    return convert(POD, data)


def test_b61_the_claim_counts_not_its_template() -> None:
    """Without the claim the Pod waits; once it exists its own spec is served, whatever became of the template."""
    world = DeviceWorld()
    world.node("node-1", devices=2)
    waiting = world.plugin.pre_enqueue(template_pod())
    assert waiting.reasons == ('pod "default/p": ResourceClaim not created yet',)
    owner = [{"controller": True, "uid": "p", "name": "p", "kind": "Pod"}]
    world.claim("made", exactly(count=1), ownerReferences=owner)
    pod = template_pod(resourceClaimStatuses=[{"name": "gpu", "resourceClaimName": "made"}])
    decision = world.decide(pod)
    assert isinstance(decision, Placed)
    assert world.plugin.reserve(decision.cycle, decision.node).code is Code.SUCCESS
    assert len(world.state.devices.ledger.state()) == 1


def test_b65_the_entrys_name_is_not_the_claims() -> None:
    """Entry, direct claim and generated claim are called differently and all exist: the right ones are served."""
    world = DeviceWorld()
    world.node("node-1", devices=3)
    owner = [{"controller": True, "uid": "p", "name": "p", "kind": "Pod"}]
    world.claim("direct")
    world.claim("generated", ownerReferences=owner)
    for entry in ("one", "two", "two-gpus"):
        world.claim(entry, exactly(device_class="none"))
    data = {
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {
            "resourceClaims": [
                {"name": "one", "resourceClaimName": "direct"},
                {"name": "two", "resourceClaimTemplateName": "two-gpus"},
            ]
        },
        "status": {"resourceClaimStatuses": [{"name": "two", "resourceClaimName": "generated"}]},
    }
    decision = world.decide(convert(POD, data))
    assert isinstance(decision, Placed)
    world.plugin.reserve(decision.cycle, decision.node)
    ledger = world.state.devices.ledger
    assert [ledger.in_flight(uid) is not None for uid in ("direct", "generated", "one")] == [True, True, False]


def test_b68_attempts_that_are_not_carried_out_leave_no_trace() -> None:
    """A hundred decisions without Reserve: the books are those of before."""
    world = DeviceWorld()
    world.node("node-1", devices=3)
    world.allocate(world.claim("held"), allocation_of("gpu-1"), "x")
    world.claim("a", exactly(count=2))
    pod = world.pod("p", "a")
    ledger = world.state.devices.ledger
    before = ledger.state(), ledger.version
    for _ in range(100):
        assert isinstance(world.decide(pod), Placed)
    assert (ledger.state(), ledger.version) == before
    world.state.verify()


def test_b78_admin_access_uses_nothing() -> None:
    """With and without a monitoring claim the same devices are free and the same node is chosen."""
    placed = []
    for monitoring in (False, True):
        world = DeviceWorld()
        world.node("node-1", devices=2)
        if monitoring:
            world.allocate(world.claim("watch"), allocation_of("gpu-0", adminAccess=True), "x")
        world.claim("a", exactly(count=2))
        decision = world.decide(world.pod("p", "a"))
        assert isinstance(decision, Placed)
        placed.append((decision.node, decision.feasible_nodes, world.state.devices.ledger.state()))
    assert placed[0] == placed[1]


def test_b82_devices_are_not_preempted_and_the_holders_are_named() -> None:
    """A Pod of high priority waits for a device of a low one: no attempt resolves that, and the reason says who."""
    world = DeviceWorld()
    world.node("node-1")
    world.allocate(world.claim("low"), allocation_of("gpu-0"), "low-pod")
    world.claim("a")
    data = {"metadata": {"name": "high", "namespace": "default"}, "spec": {"priority": 1000}}
    data["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "a"}]  # type: ignore[index] # JSON
    world.put(POD, data)
    decision = world.decide(world.state.pods["high"])
    assert texts(decision) == {"cannot allocate all claims": 1}
    assert isinstance(decision, Rejected)
    assert decision.nominated_node is None
    assert world.done == []
    assert in_use(world, "high") == {"default/low"}


def test_b84_claims_that_are_not_there_are_a_reason() -> None:
    """Missing claim, missing class, allocation on devices that left: the Pod's message or a placement, no exception."""
    world = DeviceWorld()
    world.node("node-1")
    assert texts(world.decide(world.pod("p", "none"))) == {'could not find ResourceClaim "default/none"': 1}
    world.claim("classless", exactly(device_class="none"))
    assert texts(world.decide(world.pod("q", "classless"))) == {
        "request req: device class none does not exist": 1,
    }
    world.allocate(world.claim("left"), allocation_of("gone", pool="nowhere") | on_node("node-1"))
    assert isinstance(world.decide(world.pod("r", "left")), Placed)
    world.claim("unmatched", exactly(selectors=[cel("false")]))
    assert texts(world.decide(world.pod("s", "unmatched"))) == {"cannot allocate all claims": 1}
