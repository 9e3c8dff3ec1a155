"""The guard's judgement: what of an allocation is refused, and that the answer names who holds it."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.dra.slices import SliceStore

from .guard_world import DRIVER, allocation, book, claim, published, result, rule, why

SHARED = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "80Gi"}}}


def share(amount: str, share_id: str = "s1", device: str = "a") -> dict[str, Any]:
    """A share of a device."""
    return result(device, share_id, consumedCapacity={"memory": amount})


def partition(name: str, amount: str) -> dict[str, Any]:
    """A device that takes from the counter slices of set gpu."""
    return {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"slices": {"value": amount}}}]}


COUNTERS = [{"name": "gpu", "counters": {"slices": {"value": "7"}}}]


def test_a_free_device_is_given() -> None:
    """Nothing forbids a published, untainted device that nobody holds."""
    assert why(book(published("a")), claim("new"), result("a")) == []


def test_a_second_holder_is_refused_and_the_first_is_named() -> None:
    """The refusal names device, claim and Pod of the holder."""
    admissions = book(published("a", "b"))
    admissions.take(claim("old", result("a"), pods=("trainer",)))
    assert why(admissions, claim("new"), result("b"), result("a")) == [
        f"held: device {DRIVER}/p/a is held by claim ns/old (for pod trainer)"
    ]
    assert [r.holders for r in admissions.judge(claim("new"), allocation(result("a")))] == [("old",)]


def test_many_holders_are_named_in_part() -> None:
    """Five claims and three Pods are named, the rest is counted."""
    admissions = book(published(SHARED))
    for index in range(7):
        admissions.take(claim(f"c{index}", share("1Gi", f"s{index}"), pods=tuple("wxyz")))
    (text,) = why(admissions, claim("new"), result("a"))
    assert "claim ns/c4 (for pod w, pod x, pod y and 1 more) and 2 more hold shares of it" in text


ADMIN = {"deviceClassName": "c", "adminAccess": True}


def test_admin_access_is_left_out() -> None:
    """Admin access neither holds a device nor is refused one, not even one that is tainted or not there."""
    admissions = book(published({"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}, "b"))
    admissions.take(claim("admin", result("b", adminAccess=True)))
    assert why(admissions, claim("new"), result("b")) == []
    admissions.take(claim("user", result("b"), revision=2))
    other = claim("other", request=ADMIN)
    assert why(admissions, other, result("b", adminAccess=True), result("a", adminAccess=True)) == []
    assert why(admissions, other, result("gone", adminAccess=True)) == []


@pytest.mark.parametrize("request_name", ["r", "r/sub", "other"])
def test_admin_access_that_the_claim_does_not_ask_for_is_refused(request_name: str) -> None:
    """An allocation that lies about itself would hold a device that nobody counts."""
    found = why(book(published("a")), claim("new"), result("a", adminAccess=True, request=request_name))
    text = f"device {DRIVER}/p/a is given with admin access, for which request {request_name} does not ask"
    assert found == [f"malformed: {text}"]


def test_a_claim_does_not_stand_in_its_own_way() -> None:
    """What the claim itself held, or is being given, forbids nothing."""
    admissions = book(published("a"))
    admissions.take(claim("same", result("a")))
    assert why(admissions, claim("same", revision=2), result("a")) == []


def test_a_claim_that_is_being_deleted_still_holds() -> None:
    """Only the deallocation sets a device free."""
    admissions = book(published("a"))
    admissions.take(claim("old", result("a"), deletionTimestamp="2026-11-30T00:00:00Z"))
    assert len(why(admissions, claim("new"), result("a"))) == 1


def test_shares_fit_until_the_capacity_is_used_up() -> None:
    """Shares of several claims are added up; the refusal names amounts and holders."""
    admissions = book(published(SHARED))
    admissions.take(claim("one", share("50Gi")))
    assert why(admissions, claim("two"), share("30Gi", "s2")) == []
    assert why(admissions, claim("two"), share("31Gi", "s2")) == [
        f"capacity: device {DRIVER}/p/a has 80Gi of memory, 31Gi asked, 50Gi held by claim ns/one"
    ]
    assert why(admissions, claim("two"), share("20Gi", "s2"), share("20Gi", "s3")) == [
        f"capacity: device {DRIVER}/p/a has 80Gi of memory, 40Gi asked, 50Gi held by claim ns/one"
    ]
    assert why(admissions, claim("two"), share("90Gi", "s2"))[0].startswith("capacity: ")


def test_a_shared_device_is_not_had_whole_and_a_whole_one_is_not_shared() -> None:
    """Exclusive holds and shares exclude each other, in both orders."""
    admissions = book(published(SHARED))
    admissions.take(claim("one", share("1Gi")))
    assert why(admissions, claim("two"), result("a")) == [
        f"held: device {DRIVER}/p/a cannot be had whole: claim ns/one hold shares of it"
    ]
    admissions = book(published(SHARED))
    admissions.take(claim("one", result("a")))
    assert why(admissions, claim("two"), share("1Gi"))[0].startswith("held: ")


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([result("b", "s1")], "cannot be shared"),
        ([share("-1Gi")], "is negative: -1Gi"),
        ([result("b"), result("b")], "is named twice by this allocation"),
        ([share("1Gi"), result("a")], "is named whole and as a share"),
        ([result("a"), share("1Gi")], "is named whole and as a share"),
        ([share("1Gi"), share("1Gi")], "share s1 of device gpu.example.com/p/a is named twice"),
    ],
)
def test_what_would_spoil_the_sums_is_refused(results: list[dict[str, Any]], text: str) -> None:
    """Shares of unshared devices, amounts below zero, devices and shares named twice."""
    (found,) = why(book(published(SHARED, "b")), claim("new"), *results)
    assert found.startswith("malformed: ")
    assert text in found


LONG = "ü" * 5000


@pytest.mark.parametrize(
    ("results", "text"),
    [
        ([result(f"d{index}") for index in range(33)], "the allocation names 33 devices, the API lets it name 32"),
        ([result("a"), result("d" * 64)], "device of result 1 is not in ASCII, or longer than the 63 characters"),
        ([result("a", driver="d" * 64)], "driver of result 0 is not in ASCII, or longer than the 63"),
        ([result("a", pool="p" * 254)], "pool of result 0 is not in ASCII, or longer than the 253"),
        ([result("a", "s" * 37)], "shareID of result 0 is not in ASCII, or longer than the 36"),
        ([result("a", request="r" * 128)], "request of result 0 is not in ASCII, or longer than the 127"),
        ([result("ü")], "device of result 0 is not in ASCII"),
        ([result(LONG, adminAccess=True)], "device of result 0 is not in ASCII"),
        ([result("a", "s", consumedCapacity={f"c{i}": "1" for i in range(33)})], "result 0 consumes 33 capacities"),
        ([result("a", "s", consumedCapacity={LONG: "1"})], "a consumed capacity of result 0 has a name"),
        ([result("a", "s", consumedCapacity={"memory": "1" * 65})], "a consumed capacity of result 0 has a name"),
        ([result("a", "s", consumedCapacity={"memory": 10**80})], "a consumed capacity of result 0 has a name"),
    ],
)
def test_what_the_api_server_has_no_place_for_is_refused_without_quoting_it(
    results: list[dict[str, Any]], text: str
) -> None:
    """It never asks about such an allocation; whoever else does gets a short answer, and no rule is gone through."""
    admissions = book(published(SHARED))
    admissions.take(claim("old", result("a")))
    (found,) = why(admissions, claim("new"), *results)
    assert found.startswith(f"malformed: {text}")
    assert len(found) < 150


def test_the_largest_allocation_of_the_api_is_judged() -> None:
    """32 devices, and names as long as they may be."""
    names = [f"d{index}".ljust(63, "x") for index in range(32)]
    admissions = book(published(*names, pool="p" * 253))
    largest = [result(name, pool="p" * 253, request=f"{'r' * 63}/{'s' * 63}") for name in names]
    assert why(admissions, claim("new"), *largest) == []


def test_of_several_writes_of_one_claim_the_dearest_counts_once() -> None:
    """Only one of them can be stored: added up they would refuse what fits."""
    admissions = book(published(SHARED))
    for amount, share_id in (("30Gi", "s1"), ("50Gi", "s2"), ("20Gi", "s3")):
        admissions.reserve(claim("one", revision=7), allocation(share(amount, share_id)), 0.0)
    assert len(admissions.reservations()) == 3
    assert why(admissions, claim("two"), share("30Gi", "t1")) == []
    assert why(admissions, claim("two"), share("31Gi", "t1")) == [
        f"capacity: device {DRIVER}/p/a has 80Gi of memory, 31Gi asked, 50Gi held by claim ns/one (being written now)"
    ]


def test_an_unknown_capacity_is_refused() -> None:
    """What the device does not have cannot be consumed."""
    found = why(book(published(SHARED)), claim("new"), result("a", "s", consumedCapacity={"cores": "1"}))
    assert found == [f"capacity: device {DRIVER}/p/a has no capacity cores"]


def test_partitions_take_from_the_counters_of_their_pool() -> None:
    """A partition that needs more than is left is refused; the holders of the others are named."""
    admissions = book(published(partition("a", "4"), partition("b", "3"), partition("c", "4"), sharedCounters=COUNTERS))
    admissions.take(claim("one", result("a")))
    assert why(admissions, claim("two"), result("b")) == []
    (text,) = why(admissions, claim("two"), result("c"))
    assert text == (
        f"counters: device {DRIVER}/p/c needs 1 more of counter gpu/slices than pool {DRIVER}/p has left of 7, "
        "devices that take from it are held by claim ns/one"
    )
    assert why(book(published(partition("a", "8"), sharedCounters=COUNTERS)), claim("x"), result("a")) == [
        f"counters: device {DRIVER}/p/a needs 1 more of counter gpu/slices than pool {DRIVER}/p has left of 7"
    ]


def test_a_shared_partition_pays_its_counters_once() -> None:
    """A second share of a device takes nothing more from the counters."""
    both = {**partition("a", "4"), "allowMultipleAllocations": True}
    admissions = book(published(both, partition("b", "3"), sharedCounters=COUNTERS))
    admissions.take(claim("one", result("a", "s1")))
    assert why(admissions, claim("two"), result("a", "s2"), result("b")) == []


def test_only_the_newest_complete_generation_is_given() -> None:
    """Half a generation, an older one, an unknown pool and an unknown device are refused, each in its words."""
    admissions = book(published("a", generation=2), published("b", index=1))
    assert why(admissions, claim("x"), result("b")) == [
        f"pool: device {DRIVER}/p/b is only in an older generation of its pool, the newest is 2"
    ]
    assert why(admissions, claim("x"), result("nix")) == [
        f"pool: device {DRIVER}/p/nix is not in its pool (generation 2)"
    ]
    half = book(published("a"), published("a", generation=2, slices=2, index=1))
    assert why(half, claim("x"), result("a")) == [
        f"pool: device {DRIVER}/p/a: pool {DRIVER}/p is incomplete: 1 of 2 slices of generation 2"
    ]
    assert why(book(), claim("x"), result("a")) == [
        f"pool: device {DRIVER}/p/a: no slice of pool {DRIVER}/p is published"
    ]
    double = book(published("a", slices=2), published("a", slices=2, index=1))
    assert "is invalid: duplicate device name a" in why(double, claim("x"), result("a"))[0]
    broken = book(published({"name": "a", "capacity": {"m": {"value": "x"}}}))
    assert "slice p-0 of pool gpu.example.com/p cannot be used" in why(broken, claim("x"), result("a"))[0]


def test_devices_without_node_or_on_several_nodes_are_judged_alike() -> None:
    """Where a device is does not matter here: pools over many nodes, selectors and per-device selection."""
    spread = book(
        published("a", slices=2, nodeName=None, allNodes=True),
        published({"name": "b", "nodeName": "m"}, slices=2, index=1, nodeName=None, perDeviceNodeSelection=True),
    )
    assert why(spread, claim("x"), result("a"), result("b")) == []


def test_a_taint_refuses_unless_the_request_tolerates_it() -> None:
    """Taints of slices and of rules; what the result claims to tolerate beyond its request does not count."""
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    admissions = book(published({"name": "a", "taints": [taint]}, "b"))
    refused = f"taint: device {DRIVER}/p/a has the taint k=v:NoSchedule, which request r does not tolerate"
    assert why(admissions, claim("x"), result("a")) == [refused]
    toleration = {"key": "k", "operator": "Exists"}
    assert why(admissions, claim("x"), result("a", tolerations=[toleration])) == [refused]
    tolerant = claim("x", request={"deviceClassName": "c", "tolerations": [toleration]})
    assert why(admissions, tolerant, result("a")) == []
    admissions.apply_rule(None, rule("r", {"key": "broken", "effect": "NoExecute"}, device="b"))
    assert "the taint broken:NoExecute" in why(admissions, tolerant, result("b"))[0]
    admissions.apply_rule(rule("r", {"key": "broken", "effect": "NoExecute"}, device="b"), None)
    assert why(admissions, tolerant, result("b")) == []
    assert why(book(published({"name": "a", "taints": [taint]}), device_taints=False), claim("x"), result("a")) == []


def test_an_alternative_has_its_own_tolerations() -> None:
    """A result of req/sub is judged by that alternative."""
    admissions = book(published({"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]}))
    asking = claim("x")
    alternatives = [{"name": "no"}, {"name": "yes", "tolerations": [{"key": "k", "operator": "Exists"}]}]
    spec = {"devices": {"requests": [{"name": "r", "firstAvailable": alternatives}]}}
    from scheduler.api.kinds import RESOURCE_CLAIM, convert

    asking = convert(RESOURCE_CLAIM, {"metadata": {"name": "x", "uid": "x"}, "spec": spec})
    assert why(admissions, asking, result("a", request="r/yes")) == []
    assert len(why(admissions, asking, result("a", request="r/no"))) == 1


def test_fresher_slices_may_be_handed_in() -> None:
    """A refusal over slices is asked again with what a LIST just said."""
    admissions = book(published("a"))
    fresh = SliceStore(admissions.features)
    fresh.apply(None, published("a", "new", generation=2))
    assert admissions.judge(claim("x"), allocation(result("new")))
    assert admissions.judge(claim("x"), allocation(result("new")), fresh) == ()
