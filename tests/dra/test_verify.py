"""Who won, when two schedulers gave the same thing away."""

from __future__ import annotations

from scheduler.api.kinds import NODE, RESOURCE_SLICE, convert
from scheduler.dra.devices import PoolKey
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger
from scheduler.dra.pools import PoolView
from scheduler.dra.slices import SliceStore
from scheduler.dra.verify import Lost, Verdict, Won, WonPair, verify_allocation

from .test_ledger import DRIVER, claim, key, result


def verdict(ledger: Ledger, revision: int = 10, bound: bool = False, total: int = 4) -> Verdict:
    """The verdict on claim u, written at ``revision``; devices have ``total`` mem in nano units."""
    return verify_allocation(ledger, "u", revision, lambda _: {"mem": total * 10**9}, lambda _: None, bound)


def with_claims(**claims: tuple[int, list[dict[str, object]]]) -> Ledger:
    """A ledger with stored allocations: uid → (revision, results)."""
    ledger = Ledger()
    for uid, (revision, results) in claims.items():
        ledger.set_claim(claim(uid, results, revision))
    return ledger


def test_nobody_else_has_it() -> None:
    """Other devices do not matter."""
    assert verdict(with_claims(u=(10, [result("a")]), v=(9, [result("b")]))) == Won()


def test_b3_the_earlier_allocation_wins() -> None:
    """B3: an allocation first seen before ours makes us lose, a later one is reported."""
    lost = verdict(with_claims(u=(10, [result("a")]), v=(9, [result("a")])))
    assert isinstance(lost, Lost)
    assert (lost.conflict.claim, lost.conflict.device) == ("ns/v", key("a"))
    pair = verdict(with_claims(u=(10, [result("a")]), v=(11, [result("a")])))
    assert isinstance(pair, WonPair)
    assert [conflict.claim for conflict in pair.conflicts] == ["ns/v"]


def test_one_earlier_one_is_enough() -> None:
    """With several others the earlier one decides."""
    ledger = with_claims(u=(10, [result("a")]), v=(11, [result("a")]), w=(3, [result("a")]))
    assert isinstance(verdict(ledger), Lost)


def test_unknown_order_loses_unless_bound() -> None:
    """After a LIST the order is unknown: we give way while our Pod is not bound."""
    ledger = with_claims(u=(10, [result("a")]))
    ledger.set_claim(claim("v", [result("a")], 11), source="list")
    assert isinstance(verdict(ledger), Lost)
    assert isinstance(verdict(ledger, bound=True), WonPair)


def test_what_is_only_in_flight_is_no_conflict() -> None:
    """Our own decisions for other Pods looked at the same ledger; they are written later anyway."""
    ledger = with_claims(u=(10, [result("a")]))
    stored = claim("v", [result("a")]).status.allocation
    assert stored is not None
    ledger.set_in_flight("v", "ns/v", stored)
    assert verdict(ledger) == Won()


def test_shares_conflict_only_beyond_the_capacity() -> None:
    """Shares are added up in the order of writing: whoever goes beyond the capacity is the second."""

    def share(number: int, amount: str) -> list[dict[str, object]]:
        return [result("a", f"s{number}", consumedCapacity={"mem": amount})]

    assert verdict(with_claims(u=(10, share(1, "2")), v=(9, share(2, "2")))) == Won()
    assert isinstance(verdict(with_claims(u=(10, share(1, "2")), v=(9, share(2, "3")))), Lost)
    pair = verdict(with_claims(u=(10, share(1, "2")), v=(9, share(2, "2")), w=(12, share(3, "1"))))
    assert isinstance(pair, WonPair)
    assert [conflict.claim for conflict in pair.conflicts] == ["ns/w"]


def test_a_share_conflicts_with_an_exclusive_hold() -> None:
    """A device given out whole cannot be shared at the same time."""
    ledger = with_claims(u=(10, [result("a", "s1")]), v=(9, [result("a")]))
    assert isinstance(verdict(ledger), Lost)


def test_admin_access_never_conflicts() -> None:
    """Admin results hold nothing."""
    ledger = with_claims(u=(10, [result("a")]), v=(9, [result("a", adminAccess=True)]))
    assert verdict(ledger) == Won()


def partitions() -> PoolView:
    """Pool p: devices a, b, c take 2 each of a counter of 4; a may be shared."""
    store = SliceStore(Features())
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "nodeName": "n", "pool": pool}
    consumes = [{"counterSet": "set", "counters": {"mem": {"value": "2"}}}]
    devices = [{"name": name, "consumesCounters": consumes, "allowMultipleAllocations": name == "a"} for name in "abc"]
    counters = [{"name": "set", "counters": {"mem": {"value": "4"}}}]
    store.apply(None, convert(RESOURCE_SLICE, {"metadata": {"name": "s1"}, "spec": common | {"devices": devices}}))
    store.apply(
        None, convert(RESOURCE_SLICE, {"metadata": {"name": "s2"}, "spec": common | {"sharedCounters": counters}})
    )
    return store.view(convert(NODE, {"metadata": {"name": "n"}})).pools[0]


def counter_verdict(ledger: Ledger) -> Verdict:
    """The verdict on claim u, written at revision 10, in the pool of partitions."""
    pool = partitions()
    return verify_allocation(ledger, "u", 10, lambda _: {}, lambda name: pool if name == PoolKey(DRIVER, "p") else None)


def test_partitions_conflict_through_their_counters() -> None:
    """Different devices of one set: together they may take no more than there is; the second beyond that loses."""
    assert counter_verdict(with_claims(u=(10, [result("a")]), v=(9, [result("b")]))) == Won()
    earlier = with_claims(u=(10, [result("c")]), v=(8, [result("a")]), w=(9, [result("b")]))
    assert isinstance(counter_verdict(earlier), Lost)
    later = counter_verdict(with_claims(u=(10, [result("a")]), v=(9, [result("b")]), w=(12, [result("c")])))
    assert isinstance(later, WonPair)
    assert [conflict.claim for conflict in later.conflicts] == ["ns/w"]


def test_a_shared_partition_pays_its_counters_once() -> None:
    """Two shares of one device and another device: 2 + 2, not 2 + 2 + 2."""
    ledger = with_claims(u=(10, [result("a", "s1")]), v=(9, [result("a", "s2")]), w=(8, [result("b")]))
    assert counter_verdict(ledger) == Won()
