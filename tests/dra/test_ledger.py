"""The ledger: whatever happens in whatever order, it equals a recomputation from the claims."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.kinds import NODE, RESOURCE_CLAIM, RESOURCE_SLICE, convert
from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.dra.devices import DeviceKey
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger
from scheduler.dra.slices import SliceStore
from scheduler.errors import InternalError

DRIVER = "gpu.example.com"


def claim(uid: str, results: list[dict[str, Any]] | None, revision: int = 1) -> ResourceClaim:
    """A claim with these results allocated, or none."""
    status = {} if results is None else {"allocation": {"devices": {"results": results}}}
    metadata = {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": str(revision)}
    found: ResourceClaim = convert(RESOURCE_CLAIM, {"metadata": metadata, "status": status})
    return found


def result(device: str, share: str = "", **fields: Any) -> dict[str, Any]:
    """One result; with ``share`` a share of the device."""
    held = {"request": "r", "driver": DRIVER, "pool": "p", "device": device} | fields
    return held | ({"shareID": share} if share else {})


def key(device: str) -> DeviceKey:
    """The device's key."""
    return DeviceKey(DRIVER, "p", device)


def allocation(results: list[dict[str, Any]]) -> AllocationResult:
    """The allocation with these results."""
    found = claim("x", results).status.allocation
    assert found is not None
    return found


RESULTS = st.lists(
    st.builds(
        lambda device, share, amount, admin: (
            result(device, share, consumedCapacity={"mem": amount}) if share else result(device, adminAccess=admin)
        ),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["", "s1", "s2"]),
        st.sampled_from(["0", "1", "2Gi", "500m"]),
        st.booleans(),
    ),
    # A device or a share may be named twice: the API server allows it.
    max_size=3,
)
STEPS = st.lists(
    st.tuples(st.sampled_from(["set", "clear", "remove", "fly", "drop", "force"]), st.sampled_from("uvw"), RESULTS),
    max_size=25,
)


@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_equals_a_recomputation(steps: list[tuple[str, str, list[dict[str, Any]]]]) -> None:
    """After any sequence of claim changes and flights the sums equal those computed from scratch."""
    ledger = Ledger()
    view = _view(multi=("a", "b"))
    for revision, (what, uid, results) in enumerate(steps):
        if what == "set":
            ledger.set_claim(claim(uid, results, revision))
        elif what == "clear":
            ledger.set_claim(claim(uid, None, revision))
        elif what == "remove":
            ledger.remove_claim(uid)
        elif what == "fly":
            ledger.set_in_flight(uid, f"ns/{uid}", allocation(results))
        else:
            ledger.drop_in_flight(uid, force=what == "force")
        ledger.usage(view)
        ledger.verify()
    for uid in "uvw":
        ledger.remove_claim(uid)
        ledger.drop_in_flight(uid, force=True)
    assert ledger.state() == {}
    assert ledger.usage(view).used == 0


def _view(multi: tuple[str, ...] = ()) -> Any:
    store = SliceStore(Features())
    devices = [
        {"name": name, "allowMultipleAllocations": name in multi, "capacity": {"mem": {"value": "10Gi"}}}
        for name in "abc"
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": "n",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    store.apply(None, convert(RESOURCE_SLICE, {"metadata": {"name": "s"}, "spec": spec}))
    return store.view(convert(NODE, {"metadata": {"name": "n"}}))


def test_a_device_in_two_claims_is_free_when_both_have_let_go() -> None:
    """25 no. 18: holds are counted per claim."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a")]))
    ledger.set_claim(claim("v", [result("a")]))
    assert ledger.holders(key("a")) == ("ns/u", "ns/v")
    ledger.set_claim(claim("u", None, 2))
    assert ledger.holders(key("a")) == ("ns/v",)
    ledger.remove_claim("v")
    assert ledger.holding(key("a")) is None


def test_an_update_from_one_allocation_to_another_counts() -> None:
    """25 no. 18: coalesced watch events may change an allocation without showing the gap."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a")], 5))
    ledger.set_claim(claim("u", [result("b")], 9))
    assert ledger.holding(key("a")) is None
    assert ledger.holders(key("b")) == ("ns/u",)
    assert ledger.first_allocated_revision("u") == 9


def test_admin_access_holds_nothing() -> None:
    """A result with adminAccess takes nothing from others."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a", adminAccess=True)]))
    assert ledger.holding(key("a")) is None


def test_a_claim_in_flight_and_stored_counts_once() -> None:
    """B1: the hand-over from in flight to stored has no gap and counts nothing twice."""
    ledger = Ledger()
    held = [result("a", "s1", consumedCapacity={"mem": "2Gi"})]
    ledger.set_in_flight("u", "ns/u", allocation(held))
    ledger.set_claim(claim("u", held))
    holding = ledger.holding(key("a"))
    assert holding is not None
    assert holding.consumed == {"mem": 2 * 2**30 * 10**9}
    assert ledger.drop_in_flight("u", force=True)
    assert ledger.holders(key("a")) == ("ns/u",)
    assert not ledger.drop_in_flight("u")


def test_sharers_of_a_flight_leave_one_by_one() -> None:
    """B52: a flight ends with its last sharer, or by force."""
    ledger = Ledger()
    ledger.set_in_flight("u", "ns/u", allocation([result("a")]))
    ledger.set_in_flight("u", "ns/u", allocation([result("a")]))
    assert not ledger.drop_in_flight("u")
    assert ledger.holding(key("a")) is not None
    assert ledger.drop_in_flight("u")
    assert ledger.holding(key("a")) is None


def test_the_order_of_allocations_is_unknown_after_a_list() -> None:
    """first_allocated_revision is where the watch showed the allocation first; after a LIST nobody knows."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a")], 7))
    ledger.set_claim(claim("u", [result("a")], 12))
    assert ledger.first_allocated_revision("u") == 7
    ledger.set_claim(claim("v", [result("b")], 8), source="list")
    assert ledger.first_allocated_revision("v") is None
    assert ledger.first_allocated_revision("w") is None


def test_without_the_gate_shares_count_as_whole_devices() -> None:
    """8.3: with DRAConsumableCapacity off a share is an exclusive hold."""
    ledger = Ledger(consumable_capacity=False)
    ledger.set_claim(claim("u", [result("a", "s1", consumedCapacity={"mem": "1"})]))
    holding = ledger.holding(key("a"))
    assert holding is not None
    assert (list(holding.exclusive), holding.shares) == (["u"], {})


def test_shares_of_a_device_that_is_not_shared_any_more_keep_others_out() -> None:
    """25 no. 24: also a share without capacity counts."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a", "s1")]))
    assert ledger.usage(_view(multi=("a",))).used == 0
    assert ledger.usage(_view()).used == 1


def test_verify_finds_a_wrong_hold() -> None:
    """verify compares with the claims: a hold that nobody has is an internal error."""
    ledger = Ledger()
    ledger.set_claim(claim("u", [result("a")]))
    holding = ledger.holding(key("a"))
    assert holding is not None
    holding.exclusive["ghost"] = 1
    with pytest.raises(InternalError, match="differs from its claims"):
        ledger.verify()


def test_a_share_named_twice_takes_both_amounts_and_goes_at_once() -> None:
    """The API server lets one allocation name a share twice: the sums add up, and nothing is left afterwards."""
    ledger = Ledger()
    share = result("a", "s1", consumedCapacity={"mem": "1"})
    ledger.set_claim(claim("u", [share, share]))
    assert ledger.state()[key("a")] == ({}, {("u", "s1"): (("mem", 2 * 10**9),)}, {"mem": 2 * 10**9})
    ledger.remove_claim("u")
    assert ledger.state() == {}
