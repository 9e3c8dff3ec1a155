"""Cases on which a plain depth-first search explodes: each has a short right answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"
EXPERIMENTAL = {"default": True, "ListTypeAttributes": True}


def case(name: str, devices: list[Json], claims: list[Json], features: Json | None = None, **spec: Any) -> Json:
    """One node, one pool, one class."""
    slices = []
    counters = spec.pop("sharedCounters", None)
    chunks = [devices[start : start + 64] for start in range(0, len(devices), 64)]
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": len(chunks) + bool(counters)}
    for number, chunk in enumerate(chunks):
        slice_spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": chunk} | spec
        slices.append({"metadata": {"name": f"slice-{number}"}, "spec": slice_spec})
    if counters:
        slice_spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "sharedCounters": counters}
        slices.append({"metadata": {"name": "slice-counters"}, "spec": slice_spec})
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    result: Json = {
        "name": name,
        "node": {"metadata": {"name": "node-1"}},
        "classes": [{"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}],
        "slices": slices,
        "claims": claims,
    }
    return result | ({"features": features} if features else {})


def claim(name: str, requests: list[Json], constraints: list[Json] | None = None) -> Json:
    """A claim in namespace default."""
    devices: Json = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def asked(count: int = 1, selector: str = "") -> Json:
    """The part of a request behind its name."""
    fields: Json = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}
    if selector:
        fields["selectors"] = [{"cel": {"expression": selector}}]
    return fields


def exactly(name: str, count: int = 1, selector: str = "") -> Json:
    """A request for a number of devices."""
    return {"name": name, "exactly": asked(count, selector)}


def one_too_few() -> Json:
    """32 wanted, 31 there."""
    return case("one-too-few", [{"name": f"d{i}"} for i in range(31)], [claim("a", [exactly("r", 32)])])


def two_groups() -> Json:
    """9 on one root wanted, two roots of 8."""
    devices = [{"name": f"d{i}", "attributes": {"root": {"int": i % 2}}} for i in range(16)]
    return case("two-groups", devices, [claim("a", [exactly("r", 9)], [{"matchAttribute": f"{DRIVER}/root"}])])


def overlapping_lists() -> Json:
    """64 devices, each on two neighbouring rings of 32: no ring has 5."""
    devices = [{"name": f"d{i}", "attributes": {"ring": {"ints": [i % 32, (i + 1) % 32]}}} for i in range(64)]
    requests = [exactly("r", 5)]
    return case(
        "overlapping-lists", devices, [claim("a", requests, [{"matchAttribute": f"{DRIVER}/ring"}])], EXPERIMENTAL
    )


def overlapping_lists_split() -> Json:
    """The same over five requests."""
    devices = [{"name": f"d{i}", "attributes": {"ring": {"ints": [i % 32, (i + 1) % 32]}}} for i in range(64)]
    requests = [exactly(f"r{i}") for i in range(5)]
    constraint = {"matchAttribute": f"{DRIVER}/ring"}
    return case("overlapping-lists-split", devices, [claim("a", requests, [constraint])], EXPERIMENTAL)


def prioritized_lists() -> Json:
    """Five claims, each with a list of four alternatives and a constraint over two requests; the last cannot fit."""
    devices = [{"name": f"d{i}", "attributes": {"kind": {"int": i % 4}, "root": {"int": i // 4}}} for i in range(16)]
    claims = []
    for number in range(5):
        subs = [
            asked(2 + place, f'device.attributes["{DRIVER}"].kind == {place}') | {"name": f"s{place}"}
            for place in range(4)
        ]
        requests = [{"name": "list", "firstAvailable": subs}, exactly("one")]
        claims.append(claim(f"c{number}", requests, [{"matchAttribute": f"{DRIVER}/root", "requests": ["list"]}]))
    return case("prioritized-lists", devices, claims)


def prioritized_lists_late() -> Json:
    """As above with constraints that only fail in the last claim."""
    devices = [{"name": f"d{i}", "attributes": {"kind": {"int": i % 4}, "root": {"int": i // 4}}} for i in range(24)]
    claims = []
    for number in range(5):
        subs = [
            asked(1, f'device.attributes["{DRIVER}"].kind == {place}') | {"name": f"s{place}"} for place in range(4)
        ]
        requests = [{"name": "list", "firstAvailable": subs}, exactly("one")]
        constraints = [{"matchAttribute": f"{DRIVER}/root"}]
        if number == 4:
            constraints.append({"matchAttribute": f"{DRIVER}/missing"})
        claims.append(claim(f"c{number}", requests, constraints))
    return case("prioritized-lists-late", devices, claims)


def partition_packing() -> Json:
    """One GPU of 16 units in overlapping partitions of 1 to 8; 4 of size 4 and 1 of size 1 do not fit together."""
    devices = []
    for size in (1, 2, 4, 8):
        for start in range(0, 16, size):
            counters = {f"u{unit}": {"value": "1"} for unit in range(start, start + size)}
            devices.append(
                {
                    "name": f"p{size}-{start}",
                    "attributes": {"size": {"int": size}},
                    "consumesCounters": [{"counterSet": "units", "counters": counters}],
                }
            )
    requests = [
        exactly(f"r{number}", 1, f'device.attributes["{DRIVER}"].size == {size}')
        for number, size in enumerate((1, 4, 4, 4, 4))
    ]
    shared = [{"name": "units", "counters": {f"u{unit}": {"value": "1"} for unit in range(16)}}]
    return case("partition-packing", devices, [claim("a", requests)], sharedCounters=shared)


def partition_fits() -> Json:
    """The small ones asked first and badly placed by a greedy search: 3x1 2x2 1x8 fit after backtracking."""
    packing = partition_packing()
    requests = [
        exactly(f"r{number}", 1, f'device.attributes["{DRIVER}"].size == {size}')
        for number, size in enumerate((1, 1, 1, 2, 2, 8))
    ]
    return packing | {"name": "partition-fits", "claims": [claim("a", requests)]}


def interchangeable() -> Json:
    """6 equal requests over 40 equal devices that must all differ in an attribute which is the same everywhere."""
    devices = [{"name": f"d{i}", "attributes": {"root": {"int": 7}}} for i in range(40)]
    requests = [exactly(f"r{i}") for i in range(6)]
    constraint = {"distinctAttribute": f"{DRIVER}/root", "requests": ["r4", "r5"]}
    return case("interchangeable", devices, [claim("a", requests, [constraint])])


def serial_numbers() -> Json:
    """The same with an attribute that differs on every device and one that allows five values only."""
    devices = [
        {"name": f"d{i}", "attributes": {"serial": {"string": f"s{i}"}, "root": {"int": i % 5}}} for i in range(40)
    ]
    requests = [exactly(f"r{i}") for i in range(6)]
    constraints = [{"distinctAttribute": f"{DRIVER}/root"}, {"distinctAttribute": f"{DRIVER}/serial"}]
    return case("serial-numbers", devices, [claim("a", requests, constraints)])


CASES: dict[Callable[[], Json], bool] = {
    one_too_few: False,
    two_groups: False,
    overlapping_lists: False,
    overlapping_lists_split: False,
    prioritized_lists: False,
    prioritized_lists_late: False,
    partition_packing: False,
    partition_fits: True,
    interchangeable: False,
    serial_numbers: False,
}
