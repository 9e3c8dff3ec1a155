"""Who holds which device: from all claims with an allocation, whoever wrote them, and from our writes in flight.

Source: kube-scheduler 1.37, allocated state. Unlike upstream each claim's part is kept apart and added up per device,
so a device named by two claims is free only when both have let go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from scheduler.api.meta import revision_of
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import AllocationResult, DeviceRequestAllocationResult, ResourceClaim
from scheduler.dra.amounts import nano
from scheduler.dra.changes import ChangeLog
from scheduler.dra.devices import DeviceKey, PoolKey
from scheduler.dra.pools import NodeView, PoolView
from scheduler.errors import InternalError

# Devices of one counter set agree on groups: (no member has any, what all members share).
GroupState = tuple[bool, frozenset[str]]


class Hold(NamedTuple):
    """One device in one claim. ``share_id`` "" is an exclusive hold; ``consumed`` in nano units."""

    device: DeviceKey
    share_id: str
    consumed: tuple[tuple[str, int], ...]


@dataclass(slots=True)
class Holding:
    """All holds on one device: claim UID → number of exclusive holds, (UID, share id) → consumed, and the sums."""

    exclusive: dict[str, int] = field(default_factory=dict)
    shares: dict[tuple[str, str], tuple[tuple[str, int], ...]] = field(default_factory=dict)
    consumed: dict[str, int] = field(default_factory=dict)


Source = Literal["watch", "list", "answer"]
"""Where a version of a claim came from: the watch, a LIST, or the answer to a write of ours."""
NOT_SHOWN = 1 << 61


@dataclass(slots=True)
class Entry:
    """What one claim holds.

    ``revision``: where it was first seen allocated, None when the order is unknown, NOT_SHOWN when the watch has not
    come there yet: after all that it has shown.
    """

    key: str
    stored: AllocationResult | None = None
    in_flight: AllocationResult | None = None
    sharers: int = 0
    revision: int | None = None
    holds: tuple[Hold, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """What is taken of one node view, frozen. Bitmaps as in NodeView; amounts in nano units.

    ``used``: devices nobody else may have; ``shared``: devices with at least one share; ``consumed``: position →
    capacity → sum; ``available``: what is left of each counter of a pool, may be negative.
    """

    used: int = 0
    shared: int = 0
    consumed: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    available: Mapping[PoolKey, tuple[int, ...]] = field(default_factory=dict)
    groups: Mapping[PoolKey, Mapping[str, GroupState]] = field(default_factory=dict)


def holds_of(allocation: AllocationResult | None, consumable_capacity: bool) -> tuple[Hold, ...]:
    """What an allocation holds; admin access holds nothing. A quantity that does not parse counts as nothing."""
    if allocation is None:
        return ()
    holds = [_hold(result, consumable_capacity) for result in allocation.devices.results if not result.adminAccess]
    return _merged(holds) if any(hold.share_id for hold in holds) else tuple(holds)


def _merged(holds: Iterable[Hold]) -> tuple[Hold, ...]:
    """One hold per share: the API server lets an allocation name a share twice, and it then takes what both take."""
    merged: list[Hold] = []
    places: dict[tuple[DeviceKey, str], int] = {}
    for hold in holds:
        place = places.get((hold.device, hold.share_id)) if hold.share_id else None
        if place is None:
            places[(hold.device, hold.share_id)] = len(merged)
            merged.append(hold)
            continue
        sums = dict(merged[place].consumed)
        for name, amount in hold.consumed:
            sums[name] = sums.get(name, 0) + amount
        merged[place] = hold._replace(consumed=tuple(sums.items()))
    return tuple(merged)


def _hold(result: DeviceRequestAllocationResult, consumable_capacity: bool) -> Hold:
    key = DeviceKey(result.driver, result.pool, result.device)
    if not consumable_capacity or result.shareID is None:
        return Hold(key, "", ())
    consumed = []
    for name, text in (result.consumedCapacity or {}).items():
        try:
            consumed.append((name, nano(parse_quantity(text))))
        except QuantityError:
            continue
    return Hold(key, result.shareID, tuple(consumed))


class Ledger:
    """The one book of device holds.

    ``version`` grows with each change that matters; ``usage`` answers for one node view, cached until a pool of the
    view changes. ``verify`` recomputes everything.
    """

    def __init__(self, consumable_capacity: bool = True) -> None:
        self.version = 0
        self._consumable_capacity = consumable_capacity
        self._entries: dict[str, Entry] = {}
        # Uids of the entries with an allocation in flight.
        self._flying: dict[str, None] = {}
        self._holdings: dict[DeviceKey, Holding] = {}
        self._pool_versions: dict[PoolKey, int] = {}
        self._usages: dict[str, tuple[NodeView, tuple[int, ...], Usage]] = {}
        # Pools whose holds a change concerned.
        self.changes: ChangeLog[PoolKey] = ChangeLog()

    def set_claim(self, claim: ResourceClaim, source: Source = "watch") -> None:
        """Take over the newest known version of a claim.

        A LIST may have skipped versions: where the claim was allocated is unknown then. The answer to a write comes
        before the watch, and does not tell whether it was that write that allocated.
        """
        allocation = claim.status.allocation
        entry = self._entries.get(claim.uid)
        if entry is None:
            if allocation is None:
                return
            entry = self._entries[claim.uid] = Entry(claim.key)
        entry.key = claim.key
        if allocation is None:
            entry.revision = None
        elif entry.stored is None or not _same(entry.stored, allocation):
            entry.revision = {"watch": _revision(claim), "list": None, "answer": NOT_SHOWN}[source]
        elif entry.revision == NOT_SHOWN and source != "answer":
            entry.revision = None  # what the watch would have shown before was skipped
        entry.stored = allocation
        self._update(claim.uid, entry)

    def note_order(self, claim: ResourceClaim, source: Source) -> None:
        """A version that is not newer than the one taken over: it may tell where the allocation appeared."""
        entry, allocation = self._entries.get(claim.uid), claim.status.allocation
        if entry is None or entry.stored is None:
            return
        if allocation is None or not _same(entry.stored, allocation):
            if source == "watch":
                entry.revision = NOT_SHOWN
        elif entry.revision == NOT_SHOWN:
            entry.revision = _revision(claim) if source == "watch" else None

    def remove_claim(self, uid: str) -> None:
        """The claim is gone from the API."""
        entry = self._entries.get(uid)
        if entry is not None:
            entry.stored, entry.revision = None, None
            self._update(uid, entry)

    def set_in_flight(self, uid: str, claim_key: str, allocation: AllocationResult, sharers: int = 1) -> None:
        """Note an allocation we are about to write. Doing so again adds sharers."""
        entry = self._entries.setdefault(uid, Entry(claim_key))
        if entry.in_flight is None:
            entry.in_flight, entry.sharers = allocation, 0
            self._flying[uid] = None
        entry.sharers += sharers
        self._update(uid, entry)

    def drop_in_flight(self, uid: str, force: bool = False) -> bool:
        """One sharer lets go; the last one, or ``force``, ends the flight. True when it ended now. Idempotent."""
        entry = self._entries.get(uid)
        if entry is None or entry.in_flight is None:
            return False
        entry.sharers -= 1
        if entry.sharers > 0 and not force:
            return False
        entry.in_flight, entry.sharers = None, 0
        self._flying.pop(uid, None)
        self._update(uid, entry)
        return True

    def in_flight(self, uid: str) -> AllocationResult | None:
        """The allocation being written for this claim, None without one."""
        entry = self._entries.get(uid)
        return None if entry is None else entry.in_flight

    def flights(self) -> Iterator[tuple[str, str, AllocationResult]]:
        """Every allocation being written: uid and ``namespace/name`` of its claim, and what it takes."""
        for uid in self._flying:
            entry = self._entries[uid]
            if entry.in_flight is not None:
                yield uid, entry.key, entry.in_flight

    def first_allocated_revision(self, uid: str) -> int | None:
        """The revision at which the stored allocation was first seen; None: not allocated, or order unknown.

        NOT_SHOWN: the watch, which decides, has not come there yet.
        """
        entry = self._entries.get(uid)
        return None if entry is None else entry.revision

    def entry(self, uid: str) -> Entry | None:
        """What is known about one claim; read only."""
        return self._entries.get(uid)

    def holding(self, device: DeviceKey) -> Holding | None:
        """All holds on a device; read only. None when it is free."""
        return self._holdings.get(device)

    def holders(self, device: DeviceKey) -> tuple[str, ...]:
        """ns/name of the claims that hold a device, sorted."""
        holding = self._holdings.get(device)
        if holding is None:
            return ()
        uids = {*holding.exclusive, *(uid for uid, _ in holding.shares)}
        return tuple(sorted(self._entries[uid].key for uid in uids))

    def usage(self, view: NodeView) -> Usage:
        """What is taken of the devices in ``view``. Cost: O(pools) when nothing changed, else O(devices)."""
        versions = tuple([self._pool_versions.get(pool.key, 0) for pool in view.pools])
        cached = self._usages.get(view.node_name)
        if cached is not None and cached[0] is view and cached[1] == versions:
            return cached[2]
        usage = self._usage(view)
        self._usages[view.node_name] = (view, versions, usage)
        return usage

    def forget_node(self, name: str) -> None:
        """Drop what is cached for a node that is gone."""
        self._usages.pop(name, None)

    def verify(self) -> None:
        """Recompute all holds and cached usages from the claims. Raises InternalError on a difference."""
        fresh = Ledger(self._consumable_capacity)
        for uid, entry in self._entries.items():
            copy = fresh._entries[uid] = Entry(entry.key, entry.stored, entry.in_flight, entry.sharers, entry.revision)
            fresh._update(uid, copy)
        flying = {uid for uid, entry in self._entries.items() if entry.in_flight is not None}
        if flying != self._flying.keys():
            raise InternalError(f"allocations in flight are {sorted(flying)}, noted are {sorted(self._flying)}")
        if fresh._holdings != self._holdings:
            different = [
                f"{key}: {self._holdings.get(key)} should be {fresh._holdings.get(key)}"
                for key in {*fresh._holdings, *self._holdings}
                if fresh._holdings.get(key) != self._holdings.get(key)
            ]
            raise InternalError("the device ledger differs from its claims", sorted(different))
        for node, (view, versions, usage) in self._usages.items():
            current = tuple([self._pool_versions.get(pool.key, 0) for pool in view.pools])
            if versions == current and _facts(self._usage(view)) != _facts(usage):
                raise InternalError(f"the device usage of node {node} is stale", (str(usage), str(self._usage(view))))

    def state(self) -> Mapping[DeviceKey, Any]:
        """A copy of all holds, for comparisons in tests."""
        return {
            key: (dict(holding.exclusive), dict(holding.shares), dict(holding.consumed))
            for key, holding in self._holdings.items()
        }

    def _update(self, uid: str, entry: Entry) -> None:
        holds = self._union(entry)
        if holds != entry.holds:
            self.version += 1
            self.changes.add(
                self.version,
                {PoolKey(hold.device.driver, hold.device.pool) for hold in (*entry.holds, *holds)},
            )
            for hold in entry.holds:
                self._take_back(uid, hold)
            for hold in holds:
                self._add(uid, hold)
            entry.holds = holds
        if entry.stored is None and entry.in_flight is None:
            del self._entries[uid]

    def _union(self, entry: Entry) -> tuple[Hold, ...]:
        """Stored and in-flight holds; one that is in both counts once."""
        stored = holds_of(entry.stored, self._consumable_capacity)
        if entry.in_flight is None or entry.in_flight is entry.stored:
            return stored
        known = {(hold.device, hold.share_id) for hold in stored}
        flying = holds_of(entry.in_flight, self._consumable_capacity)
        return stored + tuple(hold for hold in flying if (hold.device, hold.share_id) not in known)

    def _add(self, uid: str, hold: Hold) -> None:
        holding = self._holdings.setdefault(hold.device, Holding())
        if hold.share_id:
            holding.shares[(uid, hold.share_id)] = hold.consumed
            for name, amount in hold.consumed:
                holding.consumed[name] = holding.consumed.get(name, 0) + amount
        else:
            holding.exclusive[uid] = holding.exclusive.get(uid, 0) + 1
        self._touch(hold.device)

    def _take_back(self, uid: str, hold: Hold) -> None:
        holding = self._holdings[hold.device]
        if hold.share_id:
            del holding.shares[(uid, hold.share_id)]
            for name, amount in hold.consumed:
                holding.consumed[name] -= amount
                if not any(name == other for consumed in holding.shares.values() for other, _ in consumed):
                    del holding.consumed[name]
        else:
            holding.exclusive[uid] -= 1
            if not holding.exclusive[uid]:
                del holding.exclusive[uid]
        if not holding.exclusive and not holding.shares:
            del self._holdings[hold.device]
        self._touch(hold.device)

    def _touch(self, device: DeviceKey) -> None:
        pool = PoolKey(device.driver, device.pool)
        self._pool_versions[pool] = self._pool_versions.get(pool, 0) + 1

    def _usage(self, view: NodeView) -> Usage:
        used = shared = 0
        consumed: dict[int, Mapping[str, int]] = {}
        holdings = self._holdings
        for position, info in enumerate(view.devices):
            holding = holdings.get(info.key)
            if holding is None:
                continue
            bit = 1 << position
            if holding.exclusive or not info.multi:
                # Shares of a device that is not shared any more still keep others out.
                used |= bit
            if holding.shares:
                shared |= bit
                if holding.consumed:
                    consumed[position] = dict(holding.consumed)
        counting = [pool for pool in view.pools if pool.consumers and pool.usable]
        return Usage(
            used,
            shared,
            consumed,
            {pool.key: self._available(pool) for pool in counting},
            {pool.key: self._groups(pool) for pool in counting if any(c[2].slice.groups for c in pool.consumers)},
        )

    def _available(self, pool: PoolView) -> tuple[int, ...]:
        left = list(pool.totals)
        for key, charge, _ in pool.consumers:
            if key in self._holdings:
                for counter, amount in charge:
                    left[counter] -= amount
        return tuple(left)

    def _groups(self, pool: PoolView) -> Mapping[str, GroupState]:
        states: dict[str, GroupState] = {}
        for key, _, info in pool.consumers:
            if key in self._holdings:
                for consumed in info.consumption:
                    states[consumed.counter_set] = join_groups(states.get(consumed.counter_set), consumed.groups)
        return states


def admits_groups(state: GroupState | None, groups: frozenset[str]) -> bool:
    """Whether a device with ``groups`` may join the devices of a counter set."""
    if state is None:
        return True
    no_groups, common = state
    if not groups:
        return no_groups
    return not no_groups and bool(common & groups)


def join_groups(state: GroupState | None, groups: frozenset[str]) -> GroupState:
    """The state with one more device; devices that should not be together leave it as it is."""
    if state is None:
        return not groups, groups
    no_groups, common = state
    return state if no_groups or not groups else (False, common & groups)


def _revision(claim: ResourceClaim) -> int | None:
    return revision_of(claim.metadata.resourceVersion)


def _same(one: AllocationResult, other: AllocationResult) -> bool:
    """Whether two allocations hold the same devices, shares included."""
    return one is other or [(r.driver, r.pool, r.device, r.shareID) for r in one.devices.results] == [
        (r.driver, r.pool, r.device, r.shareID) for r in other.devices.results
    ]


def _facts(usage: Usage) -> tuple[Any, ...]:
    return usage.used, usage.shared, dict(usage.consumed), dict(usage.available), dict(usage.groups)
