"""Devices in use, counters and capacity: what went wrong elsewhere, seen by the allocator alone (docs/cases.md)."""

from __future__ import annotations

import pytest

from .cases import (
    answer,
    attribute,
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

SHARE = {"shareID": "00000000-0000-4000-8000-000000000001"}
ONE = {"mem": "1"}


def shared(name: str, mem: str = "", total: str = "2", **fields: object) -> dict[str, object]:
    """A device that many may share."""
    return device(name, mem, allowMultipleAllocations=True, capacity={"mem": {"value": total}}, **fields)


@pytest.mark.parametrize("fields", [{}, SHARE, SHARE | {"consumedCapacity": ONE}], ids=["whole", "share", "capacity"])
def test_b4_counters_of_a_device_in_use_are_used_however_it_is_held(fields: dict[str, object]) -> None:
    """State is built from claims only: the overlapping partition is refused, a disjoint one granted."""
    partitions = [shared("a", "3"), device("overlaps", "2"), device("fits", "1")]
    world = case([pool(*partitions, count=2), counters("4")], [claim()], allocated=[held("a", **fields)])
    world["claims"][0]["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [
        {"cel": {"expression": "!device.allowMultipleAllocations"}}
    ]
    assert devices(world) == ["fits"]


def test_b6_the_second_share_of_a_device_pays_no_counters() -> None:
    """Two requests of capacity 1 both go to the shared device that uses 3 of 4."""
    asked = {"capacity": {"requests": ONE}}
    world = case(
        [pool(shared("device1", "3"), shared("device2", "4"), count=2), counters("4")],
        [claim(exactly("r0", **asked), exactly("r1", **asked))],
    )
    assert devices(world) == ["device1", "device1"]


def test_b6_a_preferred_device_that_no_longer_fits_gives_way_to_a_share() -> None:
    """Devices take 2, 4 and 2 of 4; the preferred "4" cannot be had, what is left on device1 can."""
    named = [
        shared(f"device{n}", mem, attributes=attribute(size=int(mem))) for n, mem in ((1, "2"), (2, "4"), (3, "2"))
    ]
    big = [{"cel": {"expression": 'device.attributes["gpu.example.com"].size == 4'}}]
    asked = {"capacity": {"requests": ONE}}
    wish = first_of("r", sub("big", selectors=big, **asked), sub("small", **asked))
    holder = held("device1", **SHARE, consumedCapacity=ONE)
    world = case([pool(*named, count=2), counters("4")], [claim(wish)], allocated=[holder])
    assert [(result["request"], result["device"]) for result in results(world)] == [("r/small", "device1")]


@pytest.mark.parametrize("used", ["a.example.com", "b.example.com"])
def test_b7_pools_of_one_name_in_two_drivers_count_apart(used: str) -> None:
    """One driver's counters are used up; the other's device is still given, with equal set names in both."""
    slices = []
    for driver in ("a.example.com", "b.example.com"):
        slices += [pool(device(f"one-{driver[0]}", "2"), device(f"two-{driver[0]}", "2"), driver=driver, count=2)]
        slices += [counters("2", driver=driver)]
    world = case(slices, [claim()], allocated=[held(f"one-{used[0]}", driver=used)])
    other = "b" if used[0] == "a" else "a"
    assert devices(world) == [f"one-{other}"]


def test_b8_a_refused_candidate_gives_its_counters_back_taint() -> None:
    """The first candidate is tainted; the second needs the same counter."""
    tainted = device("first", "1", taints=[{"key": "k", "effect": "NoSchedule"}])
    world = case([pool(tainted, device("second", "1"), count=2), counters("1")], [claim()])
    assert devices(world) == ["second"]


def test_b8_a_refused_candidate_gives_its_counters_back_constraint() -> None:
    """The first candidate breaks matchAttribute; the second needs the same counter."""
    parts = [
        device("plain", attributes=attribute(numa=1)),
        device("wrong", "1", attributes=attribute(numa=0)),
        device("right", "1", attributes=attribute(numa=1)),
    ]
    world = case(
        [pool(*parts, count=2), counters("1")],
        [claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/numa"}])],
    )
    assert devices(world) == ["plain", "right"]


def test_b8_an_undone_share_gives_its_counters_back() -> None:
    """A shared device is accepted and undone, because the next request finds nothing; then another way works."""
    parts = [
        shared("shared", "1", attributes=attribute(numa=0)),
        device("other", "1", attributes=attribute(numa=1)),
        device("mate", attributes=attribute(numa=1)),
    ]
    world = case(
        [pool(*parts, count=2), counters("1")],
        [
            claim(
                exactly("r0"),
                exactly("r1", selectors=[{"cel": {"expression": "!device.allowMultipleAllocations"}}]),
                constraints=[{"matchAttribute": "gpu.example.com/numa"}],
            )
        ],
    )
    assert devices(world) == ["other", "mate"]


def test_b10_admin_access_needs_counters_and_uses_none() -> None:
    """Refused while the partition is held; granted on a free one, after which a normal claim still gets it."""
    slices = [pool(device("a", "2"), device("b", "2"), count=2), counters("2")]
    watching = claim(exactly(adminAccess=True), name="watching")
    assert devices(case(slices, [watching], allocated=[held("a")])) == []
    assert devices(case(slices, [watching])) == ["a"]
    assert devices(case(slices, [claim()], allocated=[held("a", adminAccess=True)])) == ["a"]


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("used", [0, 1, 3])
def test_b11_admin_access_to_several_devices_gets_different_ones(count: int, used: int) -> None:
    """One request never takes a device twice, whether or not others use it."""
    names = ["a", "b", "c"]
    world = case(
        [pool(*map(device, names))],
        [claim(exactly(count=count, adminAccess=True))],
        allocated=[held(*names[:used])] if used else [],
    )
    assert devices(world) == names[:count]


def test_b12_mode_all_over_devices_with_counters() -> None:
    """All are given when the counters suffice, none when they do not; nothing breaks."""
    parts = pool(device("a", "1"), device("b", "1"), count=2)
    assert devices(case([parts, counters("2")], [claim(every())])) == ["a", "b"]
    assert answer(case([parts, counters("1")], [claim(every())]))["allocated"] is False


@pytest.mark.parametrize("names", [("device1", "device2"), ("device2", "device1")])
@pytest.mark.parametrize("left", [0, 1])
def test_b13_a_full_device_does_not_end_the_search(names: tuple[str, str], left: int) -> None:
    """device1 is full or nearly so; a request for 2 goes to device2, whatever the order."""
    used = held("device1", **SHARE, consumedCapacity={"mem": str(2 - left)})
    world = case(
        [pool(*(shared(name) for name in names))],
        [claim(exactly(capacity={"requests": {"mem": "2"}}))],
        allocated=[used],
    )
    assert devices(world) == ["device2"]


RANGE = {"default": "2Gi", "validRange": {"min": "2Gi", "step": "2Gi", "max": "8Gi"}}
DECIMAL = {"default": "1G", "validRange": {"min": "1G", "step": "1G"}}
VALUES = {"default": "1", "validValues": ["1", "2", "4"]}


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        (RANGE, "3Gi", "4Gi"),
        (RANGE, "1Gi", "2Gi"),
        (RANGE, None, "2Gi"),
        (RANGE, "9Gi", None),
        (DECIMAL, "1500M", "2G"),
        (DECIMAL, "1Gi", "2G"),
        (VALUES, "3", "4"),
        (VALUES, "5", None),
        ({"default": "2"}, "3", "3"),
        ({"default": "1", "validRange": {"min": "1"}}, "1500m", "1500m"),
        (None, "3", "3"),
        (None, None, "16Gi"),
    ],
)
def test_b15_requests_are_rounded_by_the_policy(policy: object, asked: str | None, consumed: str | None) -> None:
    """Up to the next step or value, at least the minimum, the default when nothing is asked; too much is refused."""
    capacity: dict[str, object] = {"value": "16Gi"}
    if policy is not None:
        capacity["requestPolicy"] = policy
    part = device("a", allowMultipleAllocations=True, capacity={"mem": capacity, "cores": {"value": "0"}})
    fields = {} if asked is None else {"capacity": {"requests": {"mem": asked}}}
    found = results(case([pool(part)], [claim(exactly(**fields))]))
    expected = [] if consumed is None else [{"mem": consumed, "cores": "0"}]
    assert [result["consumedCapacity"] for result in found] == expected


def test_b15_values_near_the_int64_limit_are_upstreams_error() -> None:
    """A request that integers cannot hold ends the attempt with upstream's words."""
    part = device("a", allowMultipleAllocations=True, capacity={"mem": {"value": "16Gi", "requestPolicy": RANGE}})
    kind, text = error(case([pool(part)], [claim(exactly(capacity={"requests": {"mem": "9223372036854775807"}}))]))
    assert kind == "fatal"
    assert text == (
        "claim default/claim, request req: checking capacity for device gpu.example.com/pool-1/a: capacity "
        '"mem": capacity request cannot be represented in the device\'s range arithmetic: rounding request '
        "9223372036854775807 up to the next step passes MaxInt64"
    )
