"""DynamicResources in whole attempts on a real ClusterState: verdicts, texts, writes, undo."""

from __future__ import annotations

import pytest

from scheduler.api.kinds import RESOURCE_CLAIM
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Failed, Placed, Rejected, Running
from scheduler.dra.rejections import Reason
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import DeallocateClaim, UnreserveClaim, WaitUntil, WriteClaim
from scheduler.state.podinfo import pod_info

from .device_world import DeviceWorld, cel, devices_of, exactly, first_of, sub


def reasons(decision: object) -> dict[str, int]:
    """The histogram of a rejection."""
    assert isinstance(decision, Rejected), decision
    return decision.diagnosis.reasons()


def place(world: DeviceWorld, decision: object) -> list[object]:
    """Reserve and PreBind of a placed Pod."""
    assert isinstance(decision, Placed), decision
    assert world.plugin.reserve(decision.cycle, decision.node).code == 0
    return list(world.plugin.pre_bind(decision.cycle, decision.node))


def test_a_claim_is_written_for_the_pod_and_the_next_pod_sees_the_device_taken() -> None:
    """Reserve takes the device at once; PreBind asks for one write with allocation and consumer; the next one waits."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a")
    world.claim("b")
    first = world.decide(world.pod("one", "a"))
    (write,) = place(world, first)
    assert isinstance(write, WriteClaim)
    assert write.allocation is not None
    assert devices_of(write.allocation) == ["node-1/gpu-0"]
    assert (write.consumer.resource, write.consumer.name, write.consumer.uid) == ("pods", "one", "one")
    assert reasons(world.decide(world.pod("two", "b"))) == {"cannot allocate all claims": 1}
    world.state.devices.verify()


def test_devices_seen_for_the_first_time_are_seen_in_slices() -> None:
    """Building what a node's devices look like counts as work: the first attempt yields, the next one need not."""
    world = DeviceWorld()
    for number in range(20):
        world.node(f"node-{number}", devices=10)
    slices = []
    for name in ("a", "b"):
        world.claim(name)
        attempt = Attempt(world.profile, world.pod(name, name), world.state, now=0.0, rotation=Rotation())
        count = 1
        while isinstance(attempt.step(200), Running):
            count += 1
        slices.append(count)
    assert slices == [5, 1]  # 20 nodes, 10 devices each, 4 units a device: 800 units; then a unit per node


def test_unreserve_frees_what_was_promised_once() -> None:
    """Unreserve is idempotent, safe without Reserve, and gives the devices back."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a")
    pod = world.pod("one", "a")
    first = world.decide(pod)
    assert isinstance(first, Placed)
    assert world.plugin.unreserve(first.cycle, "node-1") == []
    place(world, first)
    assert world.plugin.unreserve(first.cycle, "node-1") == []
    assert world.plugin.unreserve(first.cycle, "node-1") == []
    assert isinstance(world.decide(pod), Placed)
    world.state.devices.verify()


def test_a_confirmed_allocation_stays_when_the_pod_is_given_up() -> None:
    """After the status write the device stays used; the Pod is only taken out of reservedFor (25 no. 16)."""
    world = DeviceWorld()
    world.node("node-1")
    claim = world.claim("a")
    world.claim("b")
    first = world.decide(world.pod("one", "a"))
    (write,) = place(world, first)
    assert isinstance(first, Placed)
    assert isinstance(write, WriteClaim)
    world.allocate(claim, write.allocation, "one")
    (undo,) = world.plugin.unreserve(first.cycle, "node-1")
    assert isinstance(undo, UnreserveClaim)
    assert undo.pod_uid == "one"
    assert reasons(world.decide(world.pod("two", "b"))) == {"cannot allocate all claims": 1}


def test_bound_lets_go_of_what_was_in_flight() -> None:
    """After all writes nothing is in flight; the device stays held by the stored allocation alone."""
    world = DeviceWorld()
    world.node("node-1")
    claim = world.claim("a")
    first = world.decide(world.pod("one", "a"))
    (write,) = place(world, first)
    assert isinstance(first, Placed)
    assert isinstance(write, WriteClaim)
    world.allocate(claim, write.allocation, "one")
    world.plugin.bound(first.cycle, "node-1")
    assert world.state.devices.ledger.in_flight(claim.uid) is None
    world.remove(RESOURCE_CLAIM, "default/a")
    world.claim("b")
    assert isinstance(world.decide(world.pod("two", "b")), Placed)


def test_a_second_pod_waits_while_a_shared_claim_is_being_allocated() -> None:
    """B51: in flight the claim is refused with upstream's words, afterwards the second Pod only reserves it."""
    world = DeviceWorld()
    world.node("node-1")
    world.node("node-2")
    claim = world.claim("shared")
    first = world.decide(world.pod("one", "shared"))
    (write,) = place(world, first)
    second = world.decide(world.pod("two", "shared"))
    assert reasons(second) == {"resource claim default/shared is in the process of being allocated": 2}
    assert isinstance(write, WriteClaim)
    world.allocate(claim, write.allocation, "one")
    again = world.decide(world.pod("two", "shared"))
    assert isinstance(again, Placed)
    assert again.node == "node-1"
    (reserve,) = world.plugin.pre_bind(again.cycle, again.node)
    assert isinstance(reserve, WriteClaim)
    assert reserve.allocation is None
    assert reserve.expected == write.allocation


def test_b49_shared_claim_and_own_claim_in_either_order() -> None:
    """B49: only what is missing is allocated, whether the shared claim comes first or last."""
    for order in (("shared", "own"), ("own", "shared")):
        world = DeviceWorld()
        world.node("node-1", devices=2)
        shared = world.claim("shared")
        first = world.decide(world.pod("one", "shared"))
        (write,) = place(world, first)
        assert isinstance(write, WriteClaim)
        world.allocate(shared, write.allocation, "one")
        world.claim("own")
        steps = place(world, world.decide(world.pod("two", *order)))
        written = {step.claim.metadata.name: step.allocation for step in steps if isinstance(step, WriteClaim)}
        assert set(written) == {"shared", "own"}
        assert written["shared"] is None
        own = written["own"]
        assert own is not None
        assert devices_of(own) == ["node-1/gpu-1"]


def test_b56_the_257th_consumer_waits_with_exactly_this_reason() -> None:
    """B56: a claim has room for 256 consumers; one of them may still come back."""
    world = DeviceWorld()
    world.node("node-1")
    claim = world.claim("shared")
    allocation = {
        "devices": {"results": [{"request": "req", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}]}
    }
    world.allocate(claim, allocation, *(f"uid-{i}" for i in range(255)))
    assert isinstance(world.decide(world.pod("p", "shared")), Placed)
    world.allocate(claim, allocation, *(f"uid-{i}" for i in range(256)))
    text = "resource claim default/shared is reserved for 256 consumers, which is the limit"
    assert reasons(world.decide(world.pod("p", "shared"))) == {text: 1}
    assert isinstance(world.decide(world.pod("uid-7", "shared")), Placed)


def test_b69_an_unused_claim_that_is_in_the_way_is_deallocated() -> None:
    """B69: nobody or only this Pod holds the claim: it is freed, one per attempt; held by others: never."""
    allocation = {
        "devices": {"results": [{"request": "req", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}]},
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]
        },
    }
    for consumers, freed in (((), True), (("p",), True), (("other",), False), (("p", "other"), False)):
        world = DeviceWorld()
        world.node("node-1")
        world.allocate(world.claim("a"), allocation, *consumers)
        decision = world.decide(world.pod("p", "a"))
        assert isinstance(decision, Rejected)
        assert reasons(decision) == {"resourceclaim not available on the node": 1}
        assert decision.diagnosis.postfilter_message == ("deallocation of ResourceClaim completed" if freed else "")
        assert [type(step) for step in world.done] == ([DeallocateClaim] if freed else [])


def test_unavailable_claims_are_remembered_where_the_other_claims_fail() -> None:
    """25 no. 30: the claim in the way is freed although no node has devices for the Pod's other claim."""
    world = DeviceWorld()
    world.node("node-1")
    world.allocate(
        world.claim("a"),
        {
            "devices": {
                "results": [{"request": "req", "driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0"}]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gone"]}]}]
            },
        },
    )
    world.claim("b")
    decision = world.decide(world.pod("p", "a", "b"))
    assert reasons(decision) == {"cannot allocate all claims": 1}
    assert [type(step) for step in world.done] == [DeallocateClaim]


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (exactly(device_class="none"), "request req: device class none does not exist"),
        ({"name": "req"}, "resource claim default/a, request req: unknown request type"),
        (first_of("req", sub("x"), sub("y", deviceClassName="no")), "request req/y: device class no does not exist"),
    ],
)
def test_prefilter_refuses_requests_it_cannot_try(request_: dict[str, object], text: str) -> None:
    """A missing class or an unknown kind of request is that Pod's message, on all nodes."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a", request_)
    assert reasons(world.decide(world.pod("p", "a"))) == {text: 1}


def test_an_empty_class_name_is_an_error() -> None:
    """A request without class ends the attempt with upstream's error."""
    world = DeviceWorld()
    world.node("node-1")
    world.claim("a", exactly(device_class=""))
    decision = world.decide(world.pod("p", "a"))
    assert isinstance(decision, Failed)
    assert decision.text == 'running PreFilter plugin "DynamicResources": request req: unsupported request type'


def test_b22_a_selector_error_on_one_node_ends_the_attempt_with_its_place() -> None:
    """B22: the Pod is not placed although another node fits; the text names claim, selector, device and the guard."""
    world = DeviceWorld()
    world.node("node-1")
    world.node("node-2", attributes={"mode": {"string": "x"}})
    world.claim("a", exactly(selectors=[cel('device.attributes["gpu.example.com"].mode == "x"')]))
    decision = world.decide(world.pod("p", "a"))
    assert isinstance(decision, Failed)
    assert decision.text == (
        'running "DynamicResources" filter plugin: claim default/a: selector #0 on device '
        "gpu.example.com/node-1/gpu-0: CEL runtime error: no such key: mode. consider using CEL optional chaining "
        "(.? followed by orValue()) or guarding the check with has() for optional fields"
    )


def test_b28_the_better_ranked_alternative_wins() -> None:
    """B28: node A offers only the second choice, node B the first: B scores 100, A in proportion."""
    world = DeviceWorld()
    world.node("a", attributes={"kind": {"string": "small"}})
    world.node("b", attributes={"kind": {"string": "big"}})
    kind = 'device.attributes["gpu.example.com"].kind == "{}"'
    request = first_of(
        "req", sub("big", selectors=[cel(kind.format("big"))]), sub("small", selectors=[cel(kind.format("small"))])
    )
    world.claim("c", request)
    decision = world.decide(world.pod("p", "c"))
    assert isinstance(decision, Placed)
    assert decision.node == "b"
    assert decision.scores is not None
    raw = dict(zip(decision.scores.nodes, decision.scores.raw["DynamicResources"].tolist(), strict=True))
    scores = dict(zip(decision.scores.nodes, decision.scores.normalized["DynamicResources"].tolist(), strict=True))
    assert raw == {"a": 7, "b": 8}
    assert scores == {"a": 87, "b": 100}


def test_b70_binding_conditions_are_waited_for_and_a_failure_frees_the_claim() -> None:
    """B70: PreBind waits; ready, failed and timed out are told apart; the next attempt frees the failed claim."""
    world = DeviceWorld(bindingTimeout=60.0)
    world.node("node-1", bindingConditions=["ready"], bindingFailureConditions=["broken"])
    claim = world.claim("a")
    pod = world.pod("p", "a")
    steps = place(world, world.decide(pod))
    write, wait = steps
    assert isinstance(write, WriteClaim)
    assert isinstance(wait, WaitUntil)
    assert (wait.timeout_s, wait.interval_s) == (60.0, 5.0)
    stored = {
        "devices": {
            "results": [
                {
                    "request": "req",
                    "driver": "gpu.example.com",
                    "pool": "node-1",
                    "device": "gpu-0",
                    "bindingConditions": ["ready"],
                    "bindingFailureConditions": ["broken"],
                }
            ]
        },
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    }
    world.allocate(claim, stored, "p")
    assert wait.ready() is None

    def status(kind: str) -> list[dict[str, object]]:
        condition = {"type": kind, "status": "True", "reason": "Why", "message": "it is"}
        return [{"driver": "gpu.example.com", "pool": "node-1", "device": "gpu-0", "conditions": [condition]}]

    world.allocate(claim, stored, "p", devices=status("ready"))
    assert wait.ready() == ""
    world.allocate(claim, stored, "p", devices=status("broken"))
    assert wait.ready() == 'device binding failed: claim=a, reason=Why, message="it is"'
    decision = world.decide(pod)
    assert reasons(decision) == {"resourceclaim not available on the node": 1}
    assert [type(step) for step in world.done] == [DeallocateClaim]


def test_b70_a_claim_that_was_never_ready_is_given_up_after_the_timeout() -> None:
    """Not ready and older than the timeout: unavailable everywhere; within it the claim is still good."""
    stored = {
        "devices": {
            "results": [
                {
                    "request": "req",
                    "driver": "gpu.example.com",
                    "pool": "node-1",
                    "device": "gpu-0",
                    "bindingConditions": ["ready"],
                }
            ]
        },
        "allocationTimestamp": "1970-01-01T00:10:00Z",
    }
    world = DeviceWorld(bindingTimeout=60.0)
    world.node("node-1")
    world.allocate(world.claim("a"), stored, "p")
    pod = world.pod("p", "a")
    assert isinstance(world.decide(pod, now=659.0), Placed)
    assert isinstance(world.decide(pod, now=661.0), Rejected)


def test_a_search_without_end_stops_at_its_step_budget() -> None:
    """The filter timeout is counted in steps; past it the attempt fails with upstream's words."""
    world = DeviceWorld(filterTimeout=0.0005)
    world.node("node-1", devices=1)
    world.slice(
        "node-1", [{"name": f"d{i}", "attributes": {"n": {"int": i % 7}, "m": {"int": i % 5}}} for i in range(40)]
    )
    constraints = [
        {"matchAttribute": "gpu.example.com/n", "requests": ["r0", "r1", "r2"]},
        {"distinctAttribute": "gpu.example.com/m", "requests": ["r0", "r1", "r2", "r3"]},
    ]
    requests = [exactly(f"r{i}", count=2) for i in range(4)]
    world.put(
        RESOURCE_CLAIM,
        {
            "metadata": {"name": "a", "namespace": "default"},
            "spec": {"devices": {"requests": requests, "constraints": constraints}},
        },
    )
    decision = world.decide(world.pod("p", "a"))
    assert isinstance(decision, Failed)
    assert decision.text == (
        'running "DynamicResources" filter plugin: node node-1: timed out trying to allocate devices'
    )


def test_device_reasons_name_every_device() -> None:
    """Asked to explain, the plugin tells for each device why it was refused."""
    world = DeviceWorld()
    world.node("node-1", devices=1)
    world.slice(
        "node-1",
        [
            {"name": "used"},
            {"name": "tainted", "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]},
            {"name": "other", "attributes": {"kind": {"string": "small"}}},
        ],
    )
    world.allocate(
        world.claim("holder"),
        {"devices": {"results": [{"request": "req", "driver": "gpu.example.com", "pool": "node-1", "device": "used"}]}},
        "x",
    )
    world.claim("a", exactly(selectors=[cel('device.attributes["gpu.example.com"].?kind.orValue("") != "small"')]))
    pod = world.pod("p", "a")
    assert isinstance(world.decide(pod), Rejected)
    cycle = Cycle(pod, pod_info(pod), world.state)
    world.plugin.pre_filter(cycle)
    rejections = world.plugin.device_reasons(cycle, world.state.nodes.node(0))
    found = {rejection.device.device: rejection for rejection in rejections if rejection.device is not None}
    assert {name: r.reason for name, r in found.items()} == {
        "used": Reason.IN_USE,
        "tainted": Reason.TAINTED,
        "other": Reason.SELECTOR_FALSE,
    }
    assert found["used"].detail == {"claim": "default/holder"}
