"""The inventory counts each device once, and finds what leaks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.explain.inventory import GROUPINGS, take_inventory
from scheduler.explain.inventory_facts import Inventory
from scheduler.explain.inventory_metrics import GAUGES, PREFIX, metric_samples
from scheduler.explain.inventory_text import inventory_lines
from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import DRIVER, NOW, Object, device, held, request, slice_of, snapshot, want
from tests.explain.test_consistency import clusters


def inventory(items: list[Object], by: str = "model", *, pods_known: bool = True) -> Inventory:
    return take_inventory(snapshot(items).state, by, NOW, pods_known=pods_known)


def cluster() -> list[Object]:
    taint = {"key": "k", "effect": "NoSchedule"}
    devices = [device("a"), device("b"), device("c", model="H100"), device("d", taints=[taint])]
    user = pod("user", claim="h", nodeName="n1")
    return [node("n1"), node("n2"), gpu_class(), slice_of("n1", devices), slice_of("n2", [device("a")]),
            held("h", "n1", "a", pod="user"), user]  # fmt: skip


def test_devices_are_counted_by_model() -> None:
    """Used, tainted and free add up; the largest request is what one node has."""
    a100, h100 = inventory(cluster()).lines
    assert (a100.model, a100.total, a100.used, a100.tainted, a100.free, a100.largest) == ("A100", 4, 1, 1, 2, 1)
    assert a100.fragmentation == 0.5
    assert (h100.model, h100.total, h100.free, h100.largest, h100.fragmentation) == ("H100", 1, 1, 1, 0.0)


@pytest.mark.parametrize("by", ["driver", "model", "pool", "node"])
def test_every_grouping_counts_every_device_once(by: str) -> None:
    """Sums do not depend on the grouping, and the text shows a row for each group."""
    found = inventory(cluster(), by)
    assert (sum(line.total for line in found.lines), sum(line.used for line in found.lines)) == (5, 1)
    text = list(inventory_lines(found, by))
    assert len([line for line in text if line.startswith("  ")]) >= len(found.lines) + 2


def test_a_claim_for_a_pod_that_is_gone_leaks() -> None:
    """Only when the Pods are known; a Pod that exists keeps its claim."""
    items = [*cluster(), held("ghost", "n2", "a", pod="gone")]
    found = inventory(items)
    assert [(note.claim, note.devices) for note in found.leaked] == [("default/ghost", [f"{DRIVER}/n2/a"])]
    assert found.troubled
    assert inventory(items, pods_known=False).leaked == []


def test_lost_devices_waiting_claims_and_bad_pools() -> None:
    """A device no slice lists, a claim that has waited for an hour, a pool that is incomplete."""
    old = want(request())
    old["metadata"]["creationTimestamp"] = "2027-01-15T07:00:00Z"
    young = want(request(), name="young")
    young["metadata"]["creationTimestamp"] = "2027-01-15T07:59:00Z"
    items = [node("n1"), slice_of("n1", [device("a")]), slice_of("n2", [device("a")], count=2),
             held("h", "n1", "nowhere"), old, young]  # fmt: skip
    found = inventory(items)
    assert [note.devices for note in found.lost] == [[f"{DRIVER}/n1/nowhere"]]
    assert [(note.claim, note.age_s) for note in found.waiting] == [("default/want", 3600.0)]
    assert found.pools == {f"{DRIVER}/n2": "incomplete: 1 of 2 slices of generation 1 are published"}
    assert found.namespaces == {"default": {DRIVER: 1}}


def test_shared_devices_show_what_is_left() -> None:
    """A device that may be shared stays free with a share on it, and its capacity shrinks."""
    share = held("h", "n1", "a", shareID="s1", consumedCapacity={"memory": "10Gi"})
    items = [node("n1"), slice_of("n1", [device("a", allowMultipleAllocations=True)]), share]
    (line,) = inventory(items).lines
    assert (line.used, line.shared, line.free, line.remainder) == (0, 1, 1, {"memory": "30Gi"})
    assert "memory 30Gi" in "\n".join(inventory_lines(inventory(items), "model"))


def test_partitions_are_limited_by_their_counters() -> None:
    """Four quarters and a whole on one counter: four fit together, and with one in use the whole does not."""

    def charged(name: str, value: str) -> Object:
        counters = {"counterSet": "set", "counters": {"memory": {"value": value}}}
        return {"name": name, "consumesCounters": [counters]}

    counters = slice_of("n1", [], name="counters", count=2)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "40Gi"}}}]
    del counters["spec"]["devices"]
    parts = [charged("whole", "40Gi"), *(charged(f"q{n}", "10Gi") for n in range(4))]
    items = [node("n1"), counters, slice_of("n1", parts, count=2)]
    (line,) = inventory(items).lines
    assert (line.total, line.free, line.largest) == (5, 5, 4)
    (line,) = inventory([*items, held("h", "n1", "q0")]).lines
    assert (line.used, line.blocked, line.free, line.largest) == (1, 1, 3, 3)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(["free", "held", "tainted"]), max_size=12), st.integers(1, 3))
def test_standings_add_up(standings: list[str], nodes: int) -> None:
    """However devices stand, total = used + tainted + free, and no request can get more than is free."""
    items: list[Object] = []
    for number in range(nodes):
        name = f"n{number}"
        devices = []
        for place, standing in enumerate(standings):
            taints = [{"key": "k", "effect": "NoExecute"}] if standing == "tainted" else []
            devices.append(device(f"d{place}", taints=taints))
            if standing == "held":
                items.append(held(f"h{number}-{place}", name, f"d{place}"))
        items += [node(name), slice_of(name, devices)]
    for line in inventory(items, "driver").lines:
        assert line.total == line.used + line.tainted + line.free == nodes * len(standings)
        assert line.largest == line.free // nodes


def test_by_device_tells_who_has_it() -> None:
    """Each device by name with its state and the claim and Pod that hold it."""
    found = inventory(cluster(), "device")
    assert {(line.node, line.device): line.holders for line in found.lines if line.holders} == {
        ("n1", "a"): ["claim default/h (pod default/user)"]
    }
    rows = [line.split() for line in inventory_lines(found, "device") if DRIVER in line]
    states = {(row[1], row[2]): row[5] for row in rows if len(row) > 5}
    assert states == {
        ("n1", "a"): "used", ("n1", "b"): "free", ("n1", "c"): "free", ("n1", "d"): "tainted", ("n2", "a"): "free",
    }  # fmt: skip


def test_claims_on_devices_that_became_tainted() -> None:
    """Named with taint and Pods; one whose request tolerates the taint is left out."""
    taint = {"key": "broken", "value": "yes", "effect": "NoExecute"}
    devices = [device("a", taints=[taint]), device("b", taints=[taint])]
    tolerant = held("calm", "n1", "b", tolerations=[taint | {"operator": "Equal"}])
    items = [node("n1"), slice_of("n1", devices), held("h", "n1", "a", pod="u"), tolerant,
             pod("u", claim="h", nodeName="n1")]  # fmt: skip
    found = inventory(items)
    assert [(note.claim, note.because) for note in found.on_tainted] == [
        ("default/h", "tainted broken=yes:NoExecute; used by pod default/u")
    ]
    assert found.troubled


def test_what_namespaces_take_of_shared_devices() -> None:
    """Shares are summed by namespace and capacity; the largest share still to be had is that of one device."""
    shares = [
        held("h", "n1", "a", shareID="s1", consumedCapacity={"memory": "10Gi"}),
        held("i", "n1", "b", shareID="s2", consumedCapacity={"memory": "25Gi"}),
    ]
    shared = [device("a", allowMultipleAllocations=True), device("b", allowMultipleAllocations=True)]
    found = inventory([node("n1"), slice_of("n1", shared), *shares])
    assert found.shares == {"default": {f"{DRIVER}/memory": "35Gi"}}
    assert (found.lines[0].remainder, found.lines[0].largest_share) == ({"memory": "45Gi"}, {"memory": "30Gi"})


def test_metrics_say_what_the_inventory_says() -> None:
    """Every gauge is there, each series once, capacities in base units."""
    share = held("h", "n1", "a", shareID="s1", consumedCapacity={"memory": "10Gi"})
    items = [node("n1"), slice_of("n1", [device("a", allowMultipleAllocations=True), device("b")]), share]
    samples = list(metric_samples(inventory(items)))
    values = {(sample.name.removeprefix(PREFIX), sample.labels): sample.value for sample in samples}
    assert len(values) == len(samples)
    assert {name for name, _ in values} == set(GAUGES)
    kind = (("driver", DRIVER), ("model", "A100"))
    assert values["devices", (*kind, ("state", "shared"))] == 1
    assert values["devices", (*kind, ("state", "free"))] == 2
    assert values["capacity_left", (*kind, ("capacity", "memory"))] == 30 * 2**30
    assert (
        values["namespace_capacity", (("namespace", "default"), ("driver", DRIVER), ("capacity", "memory"))]
        == 10 * 2**30
    )
    assert values["claims_leaked", ()] == 0


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_totals_equal_the_ledger(items: list[Object]) -> None:
    """Devices that are used or shared are those that the allocator's own ledger says are held; by any grouping."""
    state = snapshot(items).state
    published = {info.key for one in state.devices.slices.infos() for info in one.devices}
    held_now = {key for key in published if state.devices.ledger.holding(key) is not None}
    for by in GROUPINGS:
        lines = take_inventory(state, by, NOW).lines
        assert sum(line.used + line.shared for line in lines) == len(held_now)
        assert sum(line.total for line in lines) == len(published)
    by_device = {(line.driver, line.pool, line.device) for line in lines if line.used or line.shared}
    assert by_device == {(key.driver, key.pool, key.device) for key in held_now}


def test_a_fleet_that_nobody_uses_is_not_fragmented() -> None:
    """However many nodes it has: one request gets all that a node has, and never could get more."""
    names = [f"n{number}" for number in range(5)]
    devices = [device(f"d{number}") for number in range(4)]
    free = [*map(node, names), gpu_class(), *(slice_of(name, devices) for name in names)]
    (line,) = inventory(free).lines
    assert (line.free, line.largest, line.largest_empty, line.fragmentation) == (20, 4, 4, 0.0)
    three = [held(f"h-{name}", name, "d0", "d1", "d2") for name in names]
    (line,) = inventory([*free, *three]).lines
    assert (line.free, line.largest, line.largest_empty, line.fragmentation) == (5, 1, 4, 0.75)
    (line,) = inventory([*free, *three, *(held(f"i-{name}", name, "d3") for name in names[1:])]).lines
    assert (line.free, line.largest, line.fragmentation) == (1, 1, 0.0), "one free device cannot be scattered"


def test_partitions_of_free_devices_are_not_fragmented() -> None:
    """A whole device and its two halves are three devices, of which two can be had at once."""
    counters = {"counterSets": [{"name": "s", "counters": {"part": {"value": "2"}}}]}
    sizes = {"whole": "2", "half-0": "1", "half-1": "1"}
    parts = [
        device(name, consumesCounters=[{"counterSet": "s", "counters": {"part": {"value": size}}}])
        for name, size in sizes.items()
    ]
    shared = slice_of("n1", [], name="counters", count=2, sharedCounters=counters["counterSets"])
    (line,) = inventory([node("n1"), gpu_class(), shared, slice_of("n1", parts, count=2)]).lines
    assert (line.free, line.largest, line.largest_empty, line.fragmentation) == (3, 2, 2, 0.0)


def test_a_device_with_two_holders_is_told_once_and_the_doctor_named() -> None:
    """It counts as one used device; what to do about it is another command's answer."""
    items = [node("n1"), gpu_class(), slice_of("n1", [device("a"), device("b")])]
    found = inventory([*items, held("one", "n1", "a"), held("two", "n1", "a")])
    assert (found.lines[0].used, found.lines[0].free) == (1, 1)
    assert found.caveats == [
        "1 device is held by more than one claim at the same time: dra-scheduler doctor tells by which, and what "
        "heals it"
    ]
    assert inventory([*items, held("one", "n1", "a")]).caveats == []
