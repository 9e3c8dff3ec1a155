"""Constraints, attributes and prioritized lists: what went wrong elsewhere (docs/cases.md)."""

from __future__ import annotations

import pytest

from .cases import (
    answer,
    attribute,
    case,
    cel,
    claim,
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


def on_numa(*nodes: int) -> dict[str, object]:
    """A pool of devices dev-0, dev-1 ... on these NUMA nodes."""
    return pool(*(device(f"dev-{place}", attributes=attribute(numa=node)) for place, node in enumerate(nodes)))


@pytest.mark.parametrize(("count", "expected"), [(2, ["dev-0", "dev-1"]), (3, ["dev-0", "dev-1", "dev-3"]), (4, [])])
def test_b17_distinct_compares_with_every_earlier_device(count: int, expected: list[str]) -> None:
    """Devices on NUMA 1, 2, 1, 3: three different ones exist, four do not."""
    distinct = [{"distinctAttribute": "gpu.example.com/numa"}]
    assert devices(case([on_numa(1, 2, 1, 3)], [claim(exactly(count=count), constraints=distinct)])) == expected


@pytest.mark.parametrize(
    ("same", "other"), [("x", "y"), (1, 2), (True, False), ("1.0.0", "1.0.1")], ids=["string", "int", "bool", "version"]
)
def test_b18_distinct_compares_values_of_every_kind(same: str | int, other: str | int) -> None:
    """The first two devices share the value: the third is taken, or nothing when there is none."""
    distinct = [{"distinctAttribute": "gpu.example.com/v"}]
    parts = [device(f"dev-{place}", attributes=attribute(v=value)) for place, value in enumerate((same, same, other))]
    two = claim(exactly("r0"), exactly("r1"), constraints=distinct)
    assert devices(case([pool(*parts)], [two])) == ["dev-0", "dev-2"]
    assert devices(case([pool(*parts[:2])], [two])) == []


ROOT = "resource.kubernetes.io/pcieRoot"
BARE = {"pcieRoot": {"string": "pci0"}}


def test_b20_an_attribute_of_another_domain_is_another_attribute() -> None:
    """Driver A publishes the bare name, B the qualified one: matchAttribute on the latter cannot be satisfied."""
    slices = [
        pool(device("a", attributes=BARE), driver="a.example.com"),
        pool(device("b", attributes={ROOT: {"string": "pci0"}}), driver="b.example.com"),
    ]
    world = case(slices, [claim(exactly(count=2), constraints=[{"matchAttribute": ROOT}])])
    assert answer(world) | {"elapsed_ms": 0} == {"name": "case", "allocated": False, "elapsed_ms": 0}


def test_b20_a_bare_name_belongs_to_the_drivers_own_domain() -> None:
    """The constraint names driver/pcieRoot; bare and qualified spelling of that driver are the same attribute."""
    parts = [device("a", attributes=BARE), device("b", attributes={"gpu.example.com/pcieRoot": {"string": "pci0"}})]
    world = case(
        [pool(*parts)], [claim(exactly(count=2), constraints=[{"matchAttribute": "gpu.example.com/pcieRoot"}])]
    )
    assert devices(world) == ["a", "b"]


def test_b22_a_missing_attribute_is_an_error_of_the_attempt() -> None:
    """The text names claim, selector, device and the guard; an unknown domain is an empty map."""
    strategy = 'device.attributes["gpu.example.com"].sharingStrategy == "mps"'
    parts = [device("bare"), device("full", attributes=attribute(sharingStrategy="mps"))]
    kind, text = error(case([pool(*parts)], [claim(exactly(selectors=cel(strategy)))]))
    assert kind == "fatal"
    assert text == (
        "claim default/claim: selector #0 on device gpu.example.com/pool-1/bare: CEL runtime error: no such key: "
        "sharingStrategy. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with "
        "has() for optional fields"
    )
    guarded = f'"sharingStrategy" in device.attributes["gpu.example.com"] && {strategy}'
    assert devices(case([pool(*parts)], [claim(exactly(selectors=cel(guarded)))])) == ["full"]
    unknown = 'size(device.attributes["nobody.example.com"]) == 0'
    assert devices(case([pool(*parts)], [claim(exactly(selectors=cel(unknown)))])) == ["bare"]


def test_b24_an_expression_over_the_limit_ends_the_attempt_naming_its_place() -> None:
    """The second selector of the claim costs more than 1,000,000: the text says which one."""
    endless = "lists.range(2000).all(x, lists.range(2000).all(y, x + y >= 0))"
    selectors = [*cel("true"), *cel(endless)]
    kind, text = error(case([pool(device("a"))], [claim(exactly(selectors=selectors))]))
    assert kind == "fatal"
    assert text == (
        "claim default/claim: selector #1 on device gpu.example.com/pool-1/a: CEL runtime error: operation cancelled: "
        "actual cost limit exceeded"
    )


def kinds(*names: str, **fields: object) -> list[dict[str, object]]:
    """Devices big-0, big-1, small-2 ... with their kind as an attribute."""
    return [
        device(f"{kind}-{place}", attributes=attribute(kind=kind, place=place), **fields)
        for place, kind in enumerate(names)
    ]


BIG = cel('device.attributes["gpu.example.com"].kind == "big"')
SMALL = cel('device.attributes["gpu.example.com"].kind == "small"')
WISH = first_of("r", sub("big", allocationMode="All", selectors=BIG), sub("small", selectors=SMALL))


@pytest.mark.parametrize("cause", ["used", "tainted"])
def test_b25_nothing_of_a_failed_alternative_remains(cause: str) -> None:
    """All of class big fails on its second device; one small device is the fallback, and big-0 is free again."""
    parts = kinds("big", "big", "small")
    if cause == "tainted":
        parts[1]["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    allocated = [held("big-1")] if cause == "used" else []
    asked = [claim(WISH), claim(exactly(selectors=BIG), name="after")]
    assert devices(case([pool(*parts)], asked, allocated=allocated)) == ["small-2", "big-0"]


def test_b25_mode_all_against_a_constraint_is_an_error_even_with_a_fallback() -> None:
    """Upstream ends the attempt there."""
    constraints = [{"matchAttribute": "gpu.example.com/place"}]
    kind, text = error(case([pool(*kinds("big", "big", "small"))], [claim(WISH, constraints=constraints)]))
    assert kind == "fatal"
    assert text == (
        "claim default/claim, request big: cannot add device gpu.example.com/pool-1/big-1 because a claim constraint "
        "would not be satisfied"
    )


def configs(*requests: str) -> list[dict[str, object]]:
    """A claim configuration for these requests."""
    return [{"requests": list(requests), "opaque": {"driver": "gpu.example.com", "parameters": {"a": 1}}}]


@pytest.mark.parametrize(
    ("named", "copied"),
    [
        (("req0/a", "req0/b"), [["req0/a", "req0/b"]]),
        (("req0/b",), []),
        (("req0", "req1"), [None]),
        (("req0/a", "req1"), [None]),
    ],
    ids=["both alternatives", "the other alternative", "all requests", "all by the alternative"],
)
def test_b26_a_configuration_keeps_its_scope(named: tuple[str, ...], copied: list[object]) -> None:
    """As many alternatives as requests do not make it the whole claim's; only full coverage does."""
    wish = first_of("req0", sub("a"), sub("b"))
    world = case([pool(device("x"), device("y"))], [claim(wish, exactly("req1"), config=configs(*named))])
    allocation = answer(world)["results"][0]["devices"]
    assert [result["request"] for result in allocation["results"]] == ["req0/a", "req1"]
    assert [entry.get("requests") for entry in allocation.get("config", ())] == copied


def test_b26_class_configuration_comes_before_the_claims() -> None:
    """Sources in order: class entries first, each with the names of the requests that use the class."""
    opaque = {"opaque": {"driver": "gpu.example.com", "parameters": {"of": "class"}}}
    gpu = {"metadata": {"name": "gpu"}, "spec": {"config": [opaque]}}
    wish = first_of("req0", sub("a", deviceClassName="gpu"), sub("b"))
    world = case(
        [pool(device("x"), device("y"))],
        [claim(wish, exactly("req1"), config=configs("req1"))],
        classes=[gpu],
    )
    entries = answer(world)["results"][0]["devices"]["config"]
    assert [(entry["source"], entry["requests"]) for entry in entries] == [
        ("FromClass", ["req0/a"]),
        ("FromClaim", ["req1"]),
    ]


MANY = [pool(*(device(f"d{number}") for number in range(40)))]


def test_b27_a_claim_may_have_32_devices_and_not_more() -> None:
    """32 are given; 33, and a number near 2^63, are errors before any search."""
    assert len(devices(case(MANY, [claim(exactly(count=32))]))) == 32
    assert error(case(MANY, [claim(exactly(count=33))])) == (
        "fatal",
        "claim default/claim, request req: adding 33 devices exceeds the claim limit of 32, with 0 already accounted "
        "for",
    )
    kind, text = error(case(MANY, [claim(exactly("a"), exactly("b", count=2**63 - 1))]))
    assert kind == "fatal"
    assert "adding 9223372036854775807 devices exceeds the claim limit of 32, with 1 already accounted for" in text


def test_b27_an_alternative_over_the_limit_gives_way_to_the_next() -> None:
    """33 of the first alternative cannot be, one of the second can."""
    assert [result["request"] for result in results(case(MANY, [claim(first_of("r", sub("a", 33), sub("b")))]))] == [
        "r/b"
    ]


@pytest.mark.parametrize(
    ("named", "chosen", "expected"),
    [
        ("req0", "a", ["dev-0", "dev-2"]),
        ("req0", "b", ["dev-0", "dev-2"]),
        ("req0/a", "a", ["dev-0", "dev-2"]),
        ("req0/a", "b", ["dev-0", "dev-1"]),
    ],
)
def test_b29_a_constraint_names_the_request_or_one_alternative(named: str, chosen: str, expected: list[str]) -> None:
    """ "req0" covers whichever alternative is chosen; "req0/a" only a."""
    never = cel("false")
    subs = [sub(name, selectors=[] if name == chosen else never) for name in ("a", "b")]
    constraint = {"requests": [named, "req1"], "matchAttribute": "gpu.example.com/numa"}
    world = case([on_numa(0, 1, 0)], [claim(first_of("req0", *subs), exactly("req1"), constraints=[constraint])])
    assert devices(world) == expected


def test_b34_mode_all_needs_a_device() -> None:
    """No slices, a slice of another node, no matching device: nothing; a further alternative is the way out."""
    nothing = claim(every(selectors=cel("false")))
    assert devices(case([], [claim(every())])) == []
    assert devices(case([pool(device("x"), nodeName="node-2")], [claim(every())])) == []
    assert devices(case([pool(device("x"))], [nothing])) == []
    wish = first_of("r", sub("all", allocationMode="All", selectors=cel("false")), sub("one"))
    assert devices(case([pool(device("x"))], [claim(wish)])) == ["x"]


def test_b80_counting_proves_that_nothing_fits() -> None:
    """32 of 31 devices, and 9 on one of two NUMA nodes with 8 each: a plain search would not end."""
    assert devices(case([pool(*(device(f"d{n}") for n in range(31)))], [claim(exactly(count=32))])) == []
    same_numa = [{"matchAttribute": "gpu.example.com/numa"}]
    two_groups = [on_numa(*(place // 8 for place in range(16)))]
    assert devices(case(two_groups, [claim(exactly(count=9), constraints=same_numa)])) == []
    assert len(devices(case(two_groups, [claim(exactly(count=8), constraints=same_numa)]))) == 8


def test_b80_a_shortcut_hides_no_error() -> None:
    """Upstream meets the device in error before it can know that there are too few: so do we."""
    parts = [device(f"d{n}", attributes=attribute(kind="big")) for n in range(31)] + [device("bare")]
    kind, text = error(case([pool(*parts)], [claim(exactly(count=32, selectors=BIG))]))
    assert kind == "fatal"
    assert "gpu.example.com/pool-1/bare: CEL runtime error: no such key: kind" in text
