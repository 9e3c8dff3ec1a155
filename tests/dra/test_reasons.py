"""Why devices were refused: every reason with its facts, only when somebody asks."""

from __future__ import annotations

from typing import Any

from scheduler.dra.allocator import Allocation
from scheduler.dra.rejections import Reason, Rejection
from scheduler.dra.reporter import Collector

from .hard_cases import DRIVER, Json, asked, case, claim, exactly
from .test_search import setting


def reasons(given: Json) -> dict[str, Rejection]:
    """Device name (or slice or pool) → rejection."""
    plan, view, usage, features = setting(given)
    collector = Collector()
    holders: dict[Any, str] = {}
    for other in given.get("allocated", ()):
        for result in other["status"]["allocation"]["devices"]["results"]:
            holders[(result["driver"], result["pool"], result["device"])] = other["metadata"]["name"]
    Allocation(plan, view, usage, features, collector, lambda key: (holders[key],) if key in holders else ()).run()
    return {r.device.device if r.device else r.request: r for r in collector.rejections.values()}


def held(device: str, **fields: Any) -> Json:
    """A claim of somebody else holding a device."""
    result = {"request": "r", "driver": DRIVER, "pool": "node-1", "device": device} | fields
    return {
        "metadata": {"name": f"holds-{device}", "namespace": "default", "uid": f"holds-{device}"},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def test_selector_use_and_taint() -> None:
    """A false selector is quoted, a holder is named, a taint is shown."""
    devices = [
        {"name": "small", "attributes": {"kind": {"string": "small"}}},
        {"name": "used", "attributes": {"kind": {"string": "big"}}},
        {
            "name": "tainted",
            "attributes": {"kind": {"string": "big"}},
            "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
        },
    ]
    selector = f'device.attributes["{DRIVER}"].kind == "big"'
    found = reasons(case("c", devices, [claim("a", [exactly("r", 1, selector)])]) | {"allocated": [held("used")]})
    assert {name: (r.reason, dict(r.detail)) for name, r in found.items()} == {
        "small": (Reason.SELECTOR_FALSE, {"selector": f"request selector #0: {selector}"}),
        "used": (Reason.IN_USE, {"claim": "holds-used"}),
        "tainted": (Reason.TAINTED, {"taint": "k=v:NoSchedule"}),
    }
    assert found["used"].words() == f"{DRIVER}/node-1/used: in use by claim (claim holds-used)"


def test_b16_capacity_says_what_was_asked_and_what_is_free() -> None:
    """B16: request, capacity, asked, free and total per device."""
    devices = [
        {
            "name": f"d{i}",
            "allowMultipleAllocations": True,
            "capacity": {"mem": {"value": "16Gi"}, "cores": {"value": "8"}},
        }
        for i in range(2)
    ]
    request = {"name": "r", "exactly": asked() | {"capacity": {"requests": {"mem": "12Gi", "cores": "1"}}}}
    share = {"shareID": "s", "consumedCapacity": {"mem": "6Gi", "cores": "2"}}
    too_big = {"name": "r", "exactly": asked() | {"capacity": {"requests": {"mem": "20Gi"}}}}
    found = reasons(
        case("c", devices, [claim("a", [request, exactly("s")])])
        | {"allocated": [held("d0", **share), held("d1", **share)]}
    )
    assert dict(found["d0"].detail) == {
        "capacity": "mem",
        "asked": "12Gi",
        "free": "10Gi",
        "total": "16Gi",
        "taken by": "holds-d0",
    }
    assert (found["d1"].reason, found["d1"].request) == (Reason.CAPACITY_SHORT, "r")
    found = reasons(case("c", devices, [claim("a", [too_big])]))
    assert dict(found["d0"].detail) == {
        "capacity": "mem",
        "because": "20Gi asked, 16Gi in total",
        "asked": "20Gi",
        "total": "16Gi",
    }


def test_b10_an_admin_request_for_a_partition_names_the_counter() -> None:
    """B10: counters apply to admin requests, and the reason names the one that is short."""
    counters = [{"name": "set", "counters": {"mem": {"value": "4Gi"}}}]
    consumes = [{"counterSet": "set", "counters": {"mem": {"value": "4Gi"}}}]
    devices = [{"name": "held", "consumesCounters": consumes}, {"name": "other", "consumesCounters": consumes}]
    request = {"name": "r", "exactly": asked() | {"adminAccess": True}}
    given = case("c", devices, [claim("a", [request])], sharedCounters=counters) | {"allocated": [held("held")]}
    found = reasons(given)
    assert dict(found["other"].detail) == {"counter": "set/mem", "asked": "4Gi", "free": "0", "total": "4Gi"}
    assert found["other"].reason is Reason.COUNTER_SHORT


def test_b20_constraints_name_the_attribute_and_the_value() -> None:
    """B20: a device without the attribute is told apart from one with another value."""
    devices = [
        {"name": "a", "attributes": {"root": {"string": "r1"}}},
        {"name": "b", "attributes": {"root": {"string": "r2"}}},
        {"name": "c"},
    ]
    found = reasons(case("c", devices, [claim("a", [exactly("r", 2)], [{"matchAttribute": f"{DRIVER}/root"}])]))
    assert (found["b"].reason, dict(found["b"].detail)) == (
        Reason.MATCH_BROKEN,
        {"attribute": f"{DRIVER}/root", "value": "r2", "against": "r=a (r1)"},
    )
    assert (found["c"].reason, dict(found["c"].detail)) == (Reason.ATTRIBUTE_MISSING, {"attribute": f"{DRIVER}/root"})


def test_pools_and_slices_that_cannot_be_used() -> None:
    """B36, B37, B41: incomplete pools with seen and expected, invalid ones and ignored slices with the cause."""
    given = case("c", [{"name": "d"}], [claim("a", [exactly("r")])])
    given["slices"][0]["spec"]["pool"]["resourceSliceCount"] = 3
    found = reasons(given)
    assert found[f"pool {DRIVER}/node-1"].reason is Reason.POOL_INCOMPLETE
    assert dict(found[f"pool {DRIVER}/node-1"].detail) == {"seen": "1 of 3 slices", "generation": "1"}
    found = reasons(case("c", [{"name": "d"}, {"name": "d"}], [claim("a", [exactly("r")])]))
    assert dict(found[f"pool {DRIVER}/node-1"].detail) == {"because": "duplicate device name d"}
    grouped = [{"name": "d", "consumesCounters": [{"counterSet": "s", "compatibilityGroups": ["g"]}]}]
    found = reasons(case("c", grouped, [claim("a", [exactly("r")])]))
    assert found["slice slice-0"].reason is Reason.NOT_SUPPORTED
    assert "DRADeviceCompatibilityGroups" in found["slice slice-0"].detail["because"]


def test_a_device_elsewhere_is_not_on_this_node() -> None:
    """A device of a slice with per-device node selection that selects another node."""
    devices = [{"name": "here", "nodeName": "node-1"}, {"name": "there", "nodeName": "node-2"}]
    given = case("c", devices, [claim("a", [exactly("r", 2)])])
    spec = given["slices"][0]["spec"]
    del spec["nodeName"]
    spec["perDeviceNodeSelection"] = True
    found = reasons(given)
    assert found["there"].reason is Reason.NOT_ON_NODE


def test_b22_an_error_comes_with_the_guard_to_add() -> None:
    """B22: the reason of a failing selector holds upstream's words and what would have avoided it."""
    selector = f'device.attributes["{DRIVER}"].mode == "x"'
    found = reasons(case("c", [{"name": "d"}], [claim("a", [exactly("r", 1, selector)])]))
    assert found["d"].reason is Reason.SELECTOR_ERROR
    assert "no such key: mode" in found["d"].detail["error"]
    assert "mode" in found["d"].detail["guard"]


def test_b43_a_node_without_slices_says_so() -> None:
    """B43: until a driver publishes something the reason is that there is nothing on the node."""
    found = reasons(case("c", [], [claim("a", [exactly("r")])]) | {"slices": []})
    assert found["node node-1"].reason is Reason.NOT_ON_NODE


def test_a_limit_is_a_reason() -> None:
    """An alternative of more than 32 devices gives way, and says why."""
    subs = [asked(33) | {"name": "many"}, asked(1) | {"name": "one"}]
    found = reasons(case("c", [{"name": "d"}], [claim("a", [{"name": "r", "firstAvailable": subs}])]))
    assert found["r/many"].reason is Reason.LIMIT
