"""Pools, slices, generations, taints and unknown references: what went wrong elsewhere (docs/cases.md)."""

from __future__ import annotations

from typing import Any

import pytest

from .cases import (
    NODE,
    answer,
    case,
    claim,
    counters,
    device,
    devices,
    error,
    every,
    exactly,
    first_of,
    held,
    pool,
    results,
    sub,
)

INVALID = ("node", "invalid resource pools were encountered")


def test_b31_mode_all_beside_an_incomplete_pool_is_an_error() -> None:
    """The pool announces two slices and one is seen: the text names the pool, whoever's it is."""
    slices = [pool(device("x")), pool(device("y"), driver="other.example.com", count=2)]
    assert error(case(slices, [claim(every())])) == (
        "fatal",
        "claim default/claim, request req: asks for all devices, but resource pool other.example.com/pool-1 is "
        "currently being updated",
    )


@pytest.mark.parametrize("node", ["node-1", "node-2", "node-3"])
def test_b33_a_pool_over_several_nodes_is_complete_from_each(node: str) -> None:
    """Three slices on three nodes: All gives the node's own device; with one slice missing, no node has a pool."""
    slices = [pool(device(f"on-{n}"), count=3, nodeName=f"node-{n}", slice_name=f"s{n}") for n in (1, 2, 3)]
    assert devices(case(slices, [claim(every())], node=node)) == [f"on-{node[-1]}"]
    seen = [
        slice_ for slice_ in slices if slice_["spec"]["nodeName"] in (node, "node-2" if node != "node-2" else "node-1")
    ]
    assert error(case(seen, [claim(every())], node=node))[0] == "fatal"
    assert devices(case(seen, [claim()], node=node)) == []


def test_b35_slices_that_disagree_about_their_number() -> None:
    """The first one seen decides; a newer generation voids both."""
    two, one = pool(device("a"), count=2, slice_name="a"), pool(device("b"), count=1, slice_name="b")
    assert devices(case([two, one], [claim()])) == ["a"]
    assert devices(case([one, two], [claim()])) == []
    newer = pool(device("new"), generation=2, slice_name="c")
    assert devices(case([two, one, newer], [claim()])) == ["new"]


def test_b36_an_incomplete_pool_is_skipped() -> None:
    """Nothing is taken from it, and a complete pool beside it serves."""
    torn = pool(device("torn"), count=2)
    assert devices(case([torn], [claim()])) == []
    assert devices(case([torn, pool(device("whole"), name="pool-2")], [claim()])) == ["whole"]


def test_b37_one_device_name_twice_makes_the_pool_unusable_not_the_node() -> None:
    """Another pool still serves; only when nothing fits the node gets the error."""
    twice = [pool(device("x"), count=2, slice_name="a"), pool(device("x"), count=2, slice_name="b")]
    assert error(case(twice, [claim()])) == INVALID
    assert devices(case([*twice, pool(device("y"), name="pool-2")], [claim()])) == ["y"]


def faulty(fault: str) -> list[dict[str, Any]]:
    """Slices of a pool with a fault: [the one at fault, others ...]."""
    bad = device("bad", "1")
    consumed = bad["consumesCounters"][0]
    if fault == "unknown set":
        consumed["counterSet"] = "none"
    elif fault == "unknown counter":
        consumed["counters"] = {"none": {"value": "1"}}
    if fault == "set of another pool":
        # The pool itself has no counters; another one of the driver has.
        return [pool(bad, count=1), counters("4", name="pool-2")]
    if fault == "set twice":
        sets = [counters("4"), counters("4")]
        for slice_ in sets:
            slice_["spec"]["pool"]["resourceSliceCount"] = 3
        return [sets[0], sets[1], pool(bad, count=3)]
    return [pool(bad, count=2), counters("4")]


@pytest.mark.parametrize("fault", ["unknown set", "unknown counter", "set of another pool", "set twice"])
@pytest.mark.parametrize("where", [NODE, "node-2"])
def test_b38_a_fault_in_counters_makes_the_pool_invalid_wherever_the_slice_is(fault: str, where: str) -> None:
    """The slice at fault may target another node: as long as the pool has a part here, it is invalid here."""
    at_fault, *others = faulty(fault)
    at_fault["spec"]["nodeName"] = where
    good = pool(device("good"), nodeName=NODE, slice_name="z-good")
    slices = [at_fault, *others, good]
    for slice_ in slices:
        if slice_["spec"]["pool"]["name"] == "pool-1":
            slice_["spec"]["pool"]["resourceSliceCount"] = sum(s["spec"]["pool"]["name"] == "pool-1" for s in slices)
    assert error(case(slices, [claim()])) == INVALID


OFF: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "binding conditions": (
        {"DeviceBindingAndStatus": False},
        {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]},
    ),
    "compatibility groups": (
        {},
        {
            "consumesCounters": [
                {"counterSet": "set", "counters": {"mem": {"value": "1"}}, "compatibilityGroups": ["g"]}
            ]
        },
    ),
    "counters": (
        {"PartitionableDevices": False},
        {"consumesCounters": [{"counterSet": "set", "counters": {"mem": {"value": "1"}}}]},
    ),
}


@pytest.mark.parametrize(
    ("feature", "one", "all_"),
    [
        ("binding conditions", ["plain"], ["plain"]),
        ("compatibility groups", [], "being updated"),
        # The slice with the counter sets is skipped, so the pool is short of one slice.
        ("counters", ["plain"], []),
    ],
)
def test_b40_a_device_that_needs_a_feature_that_is_off(feature: str, one: list[str], all_: object) -> None:
    """Binding conditions: not selectable. Groups: the whole slice is skipped. Counters: refused when taken."""
    gates, fields = OFF[feature]
    slices = [pool(device("plain"), device("special", **fields))]
    if feature == "compatibility groups":
        slices = [pool(device("plain"), device("special", **fields), count=2), counters("4")]
    assert devices(case(slices, [claim()], features=gates)) == one
    if all_ == "being updated":
        assert "currently being updated" in error(case(slices, [claim(every())], features=gates))[1]
    else:
        assert devices(case(slices, [claim(every())], features=gates)) == all_


def test_b44_tolerations_are_copied_into_every_result() -> None:
    """Eviction reads them there: of the request, and of the alternative in use."""
    tolerations = [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}]
    tainted = pool(*(device(name, taints=[{"key": "k", "effect": "NoExecute"}]) for name in ("a", "b", "c")))
    wish = first_of("s", sub("other"), sub("mine", tolerations=tolerations))
    found = results(case([tainted], [claim(exactly("r", count=2, tolerations=tolerations), wish)]))
    assert [(result["request"], result["tolerations"]) for result in found] == [
        ("r", tolerations),
        ("r", tolerations),
        ("s/mine", tolerations),
    ]


def test_b48_effects_mode_all_and_admin_access_on_tainted_devices() -> None:
    """None only informs; All needs every device untainted or tolerated; admin access is not exempt."""
    taint = [{"key": "k", "effect": "NoSchedule"}]
    slices = [pool(device("clean"), device("tainted", taints=taint))]
    informing = [pool(device("noted", taints=[{"key": "k", "effect": "None"}]))]
    tolerating: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
    assert devices(case(informing, [claim()])) == ["noted"]
    assert devices(case(slices, [claim(every())])) == []
    assert devices(case(slices, [claim(every(**tolerating))])) == ["clean", "tainted"]
    assert devices(case([pool(device("tainted", taints=taint))], [claim(exactly(adminAccess=True))])) == []


def test_b46_a_rule_counts_like_a_taint_of_the_slice() -> None:
    """Selector {} takes every device, a device name one, no selector none; without the gate rules do nothing."""
    slices = [pool(device("a"), device("b"))]

    def rule(**spec: Any) -> dict[str, Any]:
        return {"metadata": {"name": "rule"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}, **spec}}

    assert devices(case(slices, [claim()], rules=[rule(deviceSelector={})])) == []
    assert devices(case(slices, [claim()], rules=[rule(deviceSelector={"device": "a"})])) == ["b"]
    assert devices(case(slices, [claim()], rules=[rule()])) == ["a"]
    off = {"DeviceTaintRules": False}
    assert devices(case(slices, [claim()], rules=[rule(deviceSelector={})], features=off)) == ["a"]


def test_b83_partitions_fill_one_device_before_the_next() -> None:
    """Two devices of seven slots: seven small ones go to the first, a larger and a smaller fit on the second."""
    slices = []
    for number in (0, 1):
        name = f"gpu-{number}"
        slots = [{"name": "set", "counters": {f"slot-{s}": {"value": "1"} for s in range(7)}}]
        slices.append(pool(count=2, name=name, sharedCounters=slots))
        parts = [device(f"{name}-1g-{s}", **slots_of(s, 1)) for s in range(7)]
        parts += [device(f"{name}-3g-0", **slots_of(0, 3)), device(f"{name}-4g-3", **slots_of(3, 4))]
        slices.append(pool(*parts, count=2, name=name))
    seven = devices(case(slices, [claim(exactly(count=7))]))
    assert seven == [f"gpu-0-1g-{s}" for s in range(7)]
    used = held(*seven, pool_name="gpu-0")
    large = [{"cel": {"expression": 'device.attributes["gpu.example.com"].slots > 1'}}]
    assert devices(case(slices, [claim(exactly(count=2, selectors=large))], allocated=[used])) == [
        "gpu-1-3g-0",
        "gpu-1-4g-3",
    ]
    freed = held(*(name for name in seven if name[-1] not in "234"), pool_name="gpu-0")
    assert devices(case(slices, [claim()], allocated=[freed])) == ["gpu-0-1g-2"]


def slots_of(first: int, size: int) -> dict[str, Any]:
    """What a partition takes, and its size as an attribute."""
    taken = {f"slot-{slot}": {"value": "1"} for slot in range(first, first + size)}
    return {
        "consumesCounters": [{"counterSet": "set", "counters": taken}],
        "attributes": {"slots": {"int": size}},
    }


def test_b84_references_to_nothing_are_answers() -> None:
    """A missing class, a device that has left, a rule and a counter without target: an answer each, no exception."""
    gone = claim(exactly(deviceClassName="none"))
    assert error(case([], [gone])) == (
        "fatal",
        "claim default/claim, request req: could not retrieve device class none: deviceclass.resource.k8s.io "
        '"none" not found',
    )
    world = case(
        [pool(device("x"))],
        [claim()],
        allocated=[held("left", "x-gone", pool_name="nowhere"), held("left")],
        rules=[
            {
                "metadata": {"name": "r"},
                "spec": {"deviceSelector": {"pool": "nowhere"}, "taint": {"key": "k", "effect": "NoSchedule"}},
            }
        ],
    )
    assert devices(world) == ["x"]
    assert answer(case([], []))["allocated"] is True
