"""What devices there are, which are used, free or tainted, and what is wrong with claims and pools. Counts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from scheduler.api.taints import NO_EXECUTE, NO_SCHEDULE
from scheduler.dra.amounts import amount_text
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey, SliceInfo
from scheduler.explain.attempts import ended
from scheduler.explain.inventory_claims import note_claims
from scheduler.explain.inventory_facts import ClaimNote, Inventory, Line, fragmentation
from scheduler.state.cluster import ClusterState

__all__ = ["ClaimNote", "Inventory", "Line", "inventory_steps", "take_inventory"]

GROUPINGS = ("driver", "model", "pool", "node", "device")
STATES = ("free", "used", "shared", "tainted", "blocked")
"""How a device stands; each is in one of them, but a shared one with room left is free as well."""
ANYWHERE = "(any node)"
DEVICES_PER_STEP = 200
# Attributes that tell what kind of device it is, by the names drivers use; the first one wins.
_MODEL_NAMES = ("productName", "model", "type", "family")


_Counters = dict[PoolKey, dict[tuple[str, str], int]]
"""Pool → (counter set, counter) → nano units."""
Charge = tuple[tuple[tuple[str, str], int], ...]


@dataclass(frozen=True, slots=True)
class _Counted:
    """One device with its place and standing; ``charge``: what it takes of its pool's counters, in nano units."""

    info: DeviceInfo
    node: str
    model: str
    used: bool
    shared: bool
    tainted: bool
    blocked: bool
    charge: Charge

    @property
    def free(self) -> bool:
        return not (self.used or self.tainted or self.blocked)


def take_inventory(state: ClusterState, by: str, now: float, *, pods_known: bool = True) -> Inventory:
    """``inventory_steps`` in one go."""
    return ended(inventory_steps(state, by, now, pods_known=pods_known))


def inventory_steps(
    state: ClusterState, by: str, now: float, *, pods_known: bool = True
) -> Generator[None, None, Inventory]:
    """Count everything, in slices of some milliseconds. Reads only: ``state`` may be a running scheduler's.

    A state that moves between the steps is counted partly before and partly after; nothing breaks. ``by``: one of
    GROUPINGS; ``now``: Unix seconds; without ``pods_known`` no claim is leaked. Cost: O(devices and claims).
    """
    found = Inventory()
    counted: list[_Counted] = []
    left: _Counters = {}
    totals: _Counters = {}
    pools: dict[PoolKey, list[SliceInfo]] = {}
    for info in state.devices.slices.infos():
        pools.setdefault(info.key, []).append(info)
    seen = 0
    for key, slices in pools.items():
        current, problem = current_slices(slices)
        if problem:
            found.pools[str(key)] = problem
            continue
        left[key] = counters_left(state, current)
        totals[key] = _counters(current)
        before = len(counted)
        counted.extend(_counted(state, current, left[key]))
        seen += len(counted) - before
        if seen >= DEVICES_PER_STEP:
            seen = 0
            yield
    yield from _lines(found, state, counted, left, totals, by)
    published = {info.key: info for slices in pools.values() for info in _devices(slices)}
    yield
    _note_twice(found, state, counted)
    yield from note_claims(found, state, published, now, pods_known)
    return found


def _note_twice(found: Inventory, state: ClusterState, counted: Iterable[_Counted]) -> None:
    """Devices with two holders that exclude each other: they are counted once, and worth a look."""
    holdings = (state.devices.ledger.holding(one.info.key) for one in counted if one.used or one.shared)
    twice = 0
    for holding in holdings:
        if holding is not None and holding.exclusive:
            twice += len({*holding.exclusive, *(uid for uid, _ in holding.shares)}) > 1
    if twice:
        what = f"{twice} device{' is' if twice == 1 else 's are'} held by more than one claim at the same time"
        found.caveats.append(f"{what}: dra-scheduler doctor tells by which, and what heals it")


def current_slices(slices: Sequence[SliceInfo]) -> tuple[list[SliceInfo], str]:
    """The slices of the newest generation, and why the pool cannot be used ("" when it can)."""
    generation = max(info.generation for info in slices)
    current = [info for info in slices if info.generation == generation]
    expected = current[0].slice_count
    if len(current) != expected:
        return current, f"incomplete: {len(current)} of {expected} slices of generation {generation} are published"
    broken = next((f"slice {info.name}: {info.problem}" for info in current if info.problem), "")
    if broken:
        return current, broken
    names = Counter(info.key.device for info in _devices(current))
    twice = next((name for name, count in names.items() if count > 1), "")
    return current, f"invalid: device name {twice} is used twice" if twice else ""


def counters_left(state: ClusterState, slices: Sequence[SliceInfo]) -> dict[tuple[str, str], int]:
    """(counter set, counter) → what is left of it, nano units; may be negative."""
    left = _counters(slices)
    for info in _devices(slices):
        if info.consumption and state.devices.ledger.holding(info.key) is not None:
            for counter, amount in _charge(info):
                if counter in left:
                    left[counter] -= amount
    return left


def _counters(slices: Sequence[SliceInfo]) -> dict[tuple[str, str], int]:
    return {(name, c): value for info in slices for name, values in info.counter_sets for c, value in values.items()}


def _devices(slices: Iterable[SliceInfo]) -> Iterator[DeviceInfo]:
    return (device for info in slices for device in info.devices)


def _charge(info: DeviceInfo) -> Charge:
    return tuple(((use.counter_set, name), amount) for use in info.consumption for name, amount in use.counters)


def _counted(state: ClusterState, slices: Sequence[SliceInfo], left: dict[tuple[str, str], int]) -> Iterator[_Counted]:
    for info in _devices(slices):
        holding = state.devices.ledger.holding(info.key)
        used = holding is not None and (bool(holding.exclusive) or not info.multi)
        shared = holding is not None and not used
        tainted = not used and is_tainted(info)
        charge = _charge(info)
        fits = used or shared or all(left.get(counter, 0) >= amount for counter, amount in charge)
        yield _Counted(info, where(info), model(info), used, shared, tainted, not fits and not tainted, charge)


def is_tainted(info: DeviceInfo) -> bool:
    """Whether requests without a toleration do not get the device."""
    return any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) for taint in info.taints)


def where(info: DeviceInfo) -> str:
    """The node a device is on, ANYWHERE for one that several nodes reach."""
    return info.slice.slice.spec.nodeName or info.device.nodeName or ANYWHERE


def model(info: DeviceInfo) -> str:
    """What kind of device it is, by the attributes that drivers use for it; "" when none says."""
    by_id = {name.rpartition("/")[2]: value for name, value in info.attributes.items()}
    named = (by_id[name][1] for name in _MODEL_NAMES if name in by_id)
    return next((value for value in named if isinstance(value, str)), "")


_Key = tuple[str, str, str, str, str]
_KEYS: dict[str, Callable[[_Counted], _Key]] = {
    "driver": lambda one: (one.info.key.driver, "", "", "", ""),
    "model": lambda one: (one.info.key.driver, one.model, "", "", ""),
    "pool": lambda one: (one.info.key.driver, "", one.info.key.pool, one.node, ""),
    "node": lambda one: ("", "", "", one.node, ""),
    "device": lambda one: (one.info.key.driver, one.model, one.info.key.pool, one.node, one.info.key.device),
}


def _lines(
    found: Inventory,
    state: ClusterState,
    counted: Sequence[_Counted],
    left: _Counters,
    totals: _Counters,
    by: str,
) -> Generator[None, None, None]:
    groups: dict[_Key, list[_Counted]] = {}
    for one in counted:
        groups.setdefault(_KEYS[by](one), []).append(one)
    seen = 0
    for key in sorted(groups):
        devices = groups[key]
        line = Line(*key, total=len(devices))
        line.used = sum(one.used for one in devices)
        line.shared = sum(one.shared for one in devices)
        line.tainted = sum(one.tainted for one in devices)
        line.blocked = sum(one.blocked for one in devices)
        line.free = sum(one.free for one in devices)
        line.largest = _largest(devices, left)
        line.largest_empty = _largest_empty(devices, totals)
        line.fragmentation = fragmentation(line)
        line.remainder, line.largest_share = _remainder(state, devices)
        if by == "device":
            line.holders = holders_of(state, devices[0].info.key)
        found.lines.append(line)
        seen += len(devices)
        if seen >= DEVICES_PER_STEP:
            seen = 0
            yield


def holders_of(state: ClusterState, device: DeviceKey) -> list[str]:
    """Who has a device: ``claim ns/x (pod ns/y)`` for each claim."""
    told = []
    for key in state.devices.ledger.holders(device):
        claim = state.devices.claims.get(key)
        users = () if claim is None else claim.consumers
        pods = [state.pods[user.uid].key for user in users if user.uid in state.pods]
        told.append(f"claim {key}" + (f" (pod {', '.join(pods)})" if pods else ""))
    return told


def _largest(devices: Sequence[_Counted], left: _Counters) -> int:
    """Free devices that one node has at most, those that any node reaches included.

    Partitions are taken smallest first until counters are used up: exact where they are equal or nested in size.
    """
    return _most_together(
        devices, lambda one: one.free, lambda one: () if one.shared else one.charge, left
    )  # a shared device has been paid for


def _largest_empty(devices: Sequence[_Counted], totals: _Counters) -> int:
    """As ``_largest``, if no device were in use; tainted ones stay out of reach."""
    return _most_together(devices, lambda one: not is_tainted(one.info), lambda one: one.charge, totals)


def _most_together(
    devices: Sequence[_Counted],
    counts: Callable[[_Counted], bool],
    charge_of: Callable[[_Counted], Charge],
    left: _Counters,
) -> int:
    by_node: dict[str, list[_Counted]] = {}
    for one in filter(counts, devices):
        by_node.setdefault(one.node, []).append(one)
    everywhere = by_node.pop(ANYWHERE, [])
    sets = ([*here, *everywhere] for here in [*by_node.values(), []])
    return max((_together(together, charge_of, left) for together in sets), default=0)


def _together(devices: Sequence[_Counted], charge_of: Callable[[_Counted], Charge], left: _Counters) -> int:
    spent: dict[Hashable, int] = {}
    number = 0
    for one in sorted(devices, key=lambda device: sum(amount for _, amount in device.charge)):
        pool = PoolKey(one.info.key.driver, one.info.key.pool)
        charge = charge_of(one)
        if any(spent.get((pool, counter), 0) + amount > left[pool].get(counter, 0) for counter, amount in charge):
            continue
        for counter, amount in charge:
            spent[pool, counter] = spent.get((pool, counter), 0) + amount
        number += 1
    return number


def _remainder(state: ClusterState, devices: Sequence[_Counted]) -> tuple[dict[str, str], dict[str, str]]:
    """What is left of the capacities of devices that may be shared: summed, and the most of one device."""
    sums: dict[str, int] = {}
    most: dict[str, int] = {}
    for one in devices:
        if not one.info.multi or one.used:
            continue
        holding = state.devices.ledger.holding(one.info.key)
        for name, capacity in one.info.capacities.items():
            rest = capacity.nano - (0 if holding is None else holding.consumed.get(name, 0))
            sums[name] = sums.get(name, 0) + rest
            if one.free:
                most[name] = max(most.get(name, 0), rest)
    return _shown(sums), _shown(most)


def _shown(amounts: dict[str, int]) -> dict[str, str]:
    return {name: amount_text(amount) for name, amount in sorted(amounts.items())}
