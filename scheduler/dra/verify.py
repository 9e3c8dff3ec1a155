"""Did we win? The check after our allocation was written and every earlier write has been seen.

Order between two allocations is the order of the revisions at which each was first seen allocated. What we took is
compared with every other stored allocation: exclusive devices, sums of shared capacity, counter sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from scheduler.dra.devices import DeviceKey, PoolKey
from scheduler.dra.ledger import Ledger
from scheduler.dra.pools import PoolView

CapacityOf = Callable[[DeviceKey], Mapping[str, int] | None]
PoolOf = Callable[[PoolKey], PoolView | None]


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another claim that holds what we hold. ``what`` is a device or a pool's counter, in words."""

    claim: str
    uid: str
    device: DeviceKey
    what: str


@dataclass(frozen=True, slots=True)
class Won:
    """Nobody else has it."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another allocation was there first, or may have been: give ours back."""

    conflict: Conflict


@dataclass(frozen=True, slots=True)
class WonPair:
    """Others wrote later: we keep ours, and the pairs are reported."""

    conflicts: tuple[Conflict, ...]


Verdict = Won | Lost | WonPair


def verify_allocation(
    ledger: Ledger, uid: str, revision: int, capacity_of: CapacityOf, pool_of: PoolOf, bound: bool = False
) -> Verdict:
    """Compare what claim ``uid`` got in our write at ``revision`` with all other stored allocations.

    ``capacity_of``: totals of a device in nano units, None for a device that is gone; ``pool_of``: a pool with its
    counters from any node's view, None without counters. ``bound``: the Pod is bound already, so an unknown order
    counts as won. Cost: O(holds on our devices and in their pools).
    """
    entry = ledger.entry(uid)
    if entry is None:
        return Won()
    conflicts: list[Conflict] = []
    pools: dict[PoolKey, DeviceKey] = {}
    for hold in entry.holds:
        pools.setdefault(PoolKey(hold.device.driver, hold.device.pool), hold.device)
        conflicts += _exclusive_conflicts(ledger, uid, hold.device, bool(hold.share_id))
        if hold.share_id:
            conflicts += _capacity_conflicts(ledger, uid, revision, hold.device, capacity_of(hold.device) or {})
    for key, device in pools.items():
        pool = pool_of(key)
        if pool is not None and pool.consumers:
            conflicts += _counter_conflicts(ledger, uid, revision, device, pool)
    unique = list({(c.uid, c.device): c for c in conflicts}.values())
    if not unique:
        return Won()
    for conflict in unique:
        if _earlier(ledger, conflict.uid, revision, bound):
            return Lost(conflict)
    return WonPair(tuple(unique))


def _earlier(ledger: Ledger, uid: str, revision: int, bound: bool) -> bool:
    first = ledger.first_allocated_revision(uid)
    return not bound if first is None else first < revision


def _stored_key(ledger: Ledger, uid: str, other: str) -> str | None:
    """The key of another claim whose allocation is stored; None for ourselves and for what is only in flight."""
    if other == uid:
        return None
    entry = ledger.entry(other)
    return entry.key if entry is not None and entry.stored is not None else None


def _exclusive_conflicts(ledger: Ledger, uid: str, device: DeviceKey, shared: bool) -> Iterable[Conflict]:
    holding = ledger.holding(device)
    if holding is None:
        return
    others = set(holding.exclusive)
    if not shared:
        others |= {other for other, _ in holding.shares}
    for other in sorted(others):
        key = _stored_key(ledger, uid, other)
        if key is not None:
            yield Conflict(key, other, device, f"device {device}")


def _in_order(ledger: Ledger, uid: str, revision: int, others: Iterable[str]) -> list[str]:
    """Claims by the revision of their allocation, unknown ones first, ours in its place."""

    def position(other: str) -> tuple[int, int]:
        if other == uid:
            return revision, 1
        first = ledger.first_allocated_revision(other)
        return (-1, 0) if first is None else (first, 0)

    return sorted({*others, uid}, key=lambda other: (position(other), other))


def _capacity_conflicts(
    ledger: Ledger, uid: str, revision: int, device: DeviceKey, totals: Mapping[str, int]
) -> Iterable[Conflict]:
    holding = ledger.holding(device)
    if holding is None:
        return
    per_claim: dict[str, dict[str, int]] = {}
    for (other, _), consumed in holding.shares.items():
        if other == uid or _stored_key(ledger, uid, other) is not None:
            sums = per_claim.setdefault(other, {})
            for name, amount in consumed:
                sums[name] = sums.get(name, 0) + amount
    yield from _overflow(ledger, uid, revision, device, per_claim, totals, f"capacity of device {device}")


def _counter_conflicts(
    ledger: Ledger, uid: str, revision: int, device: DeviceKey, pool: PoolView
) -> Iterable[Conflict]:
    totals = {f"{set_}/{counter}": total for (set_, counter), total in zip(pool.counters, pool.totals, strict=True)}
    names = list(totals)
    per_claim: dict[str, dict[str, int]] = {}
    for key, charge, _ in pool.consumers:
        holding = ledger.holding(key)
        if holding is None:
            continue
        holders = {*holding.exclusive, *(other for other, _ in holding.shares)}
        stored = [h for h in holders if h == uid or _stored_key(ledger, uid, h) is not None]
        if not stored:
            continue
        # The first holder pays for the device, as the allocator charges a shared device once.
        payer = _in_order(ledger, uid, revision, stored)[0] if uid in stored else _first(ledger, stored)
        sums = per_claim.setdefault(payer, {})
        for place, amount in charge:
            sums[names[place]] = sums.get(names[place], 0) + amount
    yield from _overflow(ledger, uid, revision, device, per_claim, totals, f"counters of pool {pool.key}")


def _first(ledger: Ledger, uids: Iterable[str]) -> str:
    return min(uids, key=lambda other: (ledger.first_allocated_revision(other) or -1, other))


def _overflow(
    ledger: Ledger,
    uid: str,
    revision: int,
    device: DeviceKey,
    per_claim: Mapping[str, Mapping[str, int]],
    totals: Mapping[str, int],
    what: str,
) -> Iterable[Conflict]:
    """Claims that, with ours and in order of writing, take more than there is of something we take."""
    mine = per_claim.get(uid)
    if not mine:
        return
    sums: dict[str, int] = {}
    before = True
    for other in _in_order(ledger, uid, revision, per_claim):
        over = []
        for name, amount in per_claim.get(other, {}).items():
            sums[name] = sums.get(name, 0) + amount
            if name in mine and name in totals and sums[name] > totals[name] and (amount or other == uid):
                over.append(name)
        if other == uid:
            before = False
            if over:
                earlier = [u for u in _in_order(ledger, uid, revision, per_claim) if u != uid]
                first = next((u for u in earlier if any(per_claim[u].get(name) for name in over)), None)
                key = None if first is None else _stored_key(ledger, uid, first)
                if first is not None and key is not None:
                    yield Conflict(key, first, device, what)
        elif over and not before:
            key = _stored_key(ledger, uid, other)
            if key is not None:
                yield Conflict(key, other, device, what)
