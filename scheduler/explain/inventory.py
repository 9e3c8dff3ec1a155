"""What devices there are, which are used, free or tainted, and what is wrong with claims and pools. Counts only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from scheduler.api.resource import ResourceClaim
from scheduler.api.taints import NO_EXECUTE, NO_SCHEDULE
from scheduler.dra.amounts import amount_text
from scheduler.dra.claims import parse_time
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey, SliceInfo
from scheduler.explain.holders import duration
from scheduler.state.cluster import ClusterState

GROUPINGS = ("driver", "model", "pool", "node")
LONG_WAIT_S = 300.0
ANYWHERE = "(any node)"
# Attributes that tell what kind of device it is, by the names drivers use; the first one wins.
_MODEL_NAMES = ("productName", "model", "type", "family")


@dataclass(slots=True)
class Line:
    """Devices counted together. ``used``: given to a claim as a whole; ``shared``: given in part.

    ``tainted``: not used, but kept from requests without toleration; ``free``: what a request could get now, counters
    regarded. ``largest``: the most devices that one request for them could get on one node now. ``fragmentation``:
    the part of the free devices that such a request cannot reach. ``remainder``: what is left of the capacities of
    devices that may be shared.
    """

    driver: str = ""
    model: str = ""
    pool: str = ""
    node: str = ""
    total: int = 0
    used: int = 0
    shared: int = 0
    tainted: int = 0
    free: int = 0
    largest: int = 0
    fragmentation: float = 0.0
    remainder: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ClaimNote:
    """A claim worth a look: ``because`` says why, ``devices`` what it holds."""

    claim: str
    because: str
    devices: list[str] = field(default_factory=list)
    age_s: float | None = None


@dataclass(slots=True)
class Inventory:
    """``leaked``: reserved for Pods that do not exist; ``waiting``: without devices for long; ``lost``: holding devices
    that no driver publishes; ``pools``: those that cannot be used, and why; ``namespaces``: devices by driver.
    """

    lines: list[Line] = field(default_factory=list)
    leaked: list[ClaimNote] = field(default_factory=list)
    waiting: list[ClaimNote] = field(default_factory=list)
    lost: list[ClaimNote] = field(default_factory=list)
    pools: dict[str, str] = field(default_factory=dict)
    namespaces: dict[str, dict[str, int]] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def troubled(self) -> bool:
        """Whether anything needs somebody's attention."""
        return bool(self.leaked or self.lost or self.pools)


@dataclass(frozen=True, slots=True)
class _Counted:
    """One device with its place and standing; ``charge``: what it takes of its pool's counters, in nano units."""

    info: DeviceInfo
    node: str
    model: str
    used: bool
    shared: bool
    tainted: bool
    free: bool
    charge: tuple[tuple[tuple[str, str], int], ...]


def take_inventory(state: ClusterState, by: str, now: float, *, pods_known: bool = True) -> Inventory:
    """Count everything. ``by``: one of GROUPINGS; ``now``: Unix seconds; without ``pods_known`` no claim is leaked.

    Cost: O(devices and claims).
    """
    found = Inventory()
    counted: list[_Counted] = []
    left: dict[PoolKey, dict[tuple[str, str], int]] = {}
    pools: dict[PoolKey, list[SliceInfo]] = {}
    for info in state.devices.slices.infos():
        pools.setdefault(info.key, []).append(info)
    for key, slices in pools.items():
        current, problem = current_slices(slices)
        if problem:
            found.pools[str(key)] = problem
            continue
        left[key] = counters_left(state, current)
        counted.extend(_counted(state, current, left[key]))
    found.lines = list(_lines(state, counted, left, by))
    _note_claims(found, state, {info.key for slices in pools.values() for info in _devices(slices)}, now, pods_known)
    return found


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
    left = {(name, c): value for info in slices for name, values in info.counter_sets for c, value in values.items()}
    for info in _devices(slices):
        if info.consumption and state.devices.ledger.holding(info.key) is not None:
            for counter, amount in _charge(info):
                if counter in left:
                    left[counter] -= amount
    return left


def _devices(slices: Iterable[SliceInfo]) -> Iterator[DeviceInfo]:
    return (device for info in slices for device in info.devices)


def _charge(info: DeviceInfo) -> tuple[tuple[tuple[str, str], int], ...]:
    return tuple(((use.counter_set, name), amount) for use in info.consumption for name, amount in use.counters)


def _counted(state: ClusterState, slices: Sequence[SliceInfo], left: dict[tuple[str, str], int]) -> Iterator[_Counted]:
    for info in _devices(slices):
        holding = state.devices.ledger.holding(info.key)
        used = holding is not None and (bool(holding.exclusive) or not info.multi)
        shared = holding is not None and not used
        tainted = not used and any(taint.effect in (NO_SCHEDULE, NO_EXECUTE) for taint in info.taints)
        charge = _charge(info)
        fits = shared or all(left.get(counter, 0) >= amount for counter, amount in charge)
        yield _Counted(info, where(info), model(info), used, shared, tainted, fits and not used and not tainted, charge)


def where(info: DeviceInfo) -> str:
    """The node a device is on, ANYWHERE for one that several nodes reach."""
    return info.slice.slice.spec.nodeName or info.device.nodeName or ANYWHERE


def model(info: DeviceInfo) -> str:
    """What kind of device it is, by the attributes that drivers use for it; "" when none says."""
    by_id = {name.rpartition("/")[2]: value for name, value in info.attributes.items()}
    named = (by_id[name][1] for name in _MODEL_NAMES if name in by_id)
    return next((value for value in named if isinstance(value, str)), "")


_KEYS: dict[str, Callable[[_Counted], tuple[str, str, str, str]]] = {
    "driver": lambda one: (one.info.key.driver, "", "", ""),
    "model": lambda one: (one.info.key.driver, one.model, "", ""),
    "pool": lambda one: (one.info.key.driver, "", one.info.key.pool, one.node),
    "node": lambda one: ("", "", "", one.node),
}


def _lines(
    state: ClusterState, counted: Sequence[_Counted], left: dict[PoolKey, dict[tuple[str, str], int]], by: str
) -> Iterator[Line]:
    groups: dict[tuple[str, str, str, str], list[_Counted]] = {}
    for one in counted:
        groups.setdefault(_KEYS[by](one), []).append(one)
    for key in sorted(groups):
        devices = groups[key]
        line = Line(*key, total=len(devices))
        line.used = sum(one.used for one in devices)
        line.shared = sum(one.shared for one in devices)
        line.tainted = sum(one.tainted for one in devices)
        line.free = sum(one.free for one in devices)
        line.largest = _largest(devices, left)
        line.fragmentation = round(1 - line.largest / line.free, 3) if line.free else 0.0
        line.remainder = _remainder(state, devices)
        yield line


def _largest(devices: Sequence[_Counted], left: dict[PoolKey, dict[tuple[str, str], int]]) -> int:
    """Free devices that one node has at most, those that any node reaches included.

    Partitions are taken smallest first until counters are used up: exact where they are equal or nested in size.
    """
    by_node: dict[str, list[_Counted]] = {}
    for one in devices:
        if one.free:
            by_node.setdefault(one.node, []).append(one)
    everywhere = by_node.pop(ANYWHERE, [])
    return max((_together([*here, *everywhere], left) for here in [*by_node.values(), []]), default=0)


def _together(devices: Sequence[_Counted], left: dict[PoolKey, dict[tuple[str, str], int]]) -> int:
    spent: dict[Hashable, int] = {}
    number = 0
    for one in sorted(devices, key=lambda device: sum(amount for _, amount in device.charge)):
        pool = PoolKey(one.info.key.driver, one.info.key.pool)
        charge = () if one.shared else one.charge
        if any(spent.get((pool, counter), 0) + amount > left[pool].get(counter, 0) for counter, amount in charge):
            continue
        for counter, amount in charge:
            spent[pool, counter] = spent.get((pool, counter), 0) + amount
        number += 1
    return number


def _remainder(state: ClusterState, devices: Sequence[_Counted]) -> dict[str, str]:
    """What is left of the capacities of devices that may be shared, summed."""
    sums: dict[str, int] = {}
    for one in devices:
        if not one.info.multi or one.used:
            continue
        holding = state.devices.ledger.holding(one.info.key)
        for name, capacity in one.info.capacities.items():
            taken = 0 if holding is None else holding.consumed.get(name, 0)
            sums[name] = sums.get(name, 0) + capacity.nano - taken
    return {name: amount_text(amount) for name, amount in sorted(sums.items())}


def _note_claims(
    found: Inventory, state: ClusterState, published: set[DeviceKey], now: float, pods_known: bool
) -> None:
    for claim in sorted(state.devices.claims.values(), key=lambda one: one.key):
        allocation = claim.status.allocation
        if allocation is None:
            _note_waiting(found, claim, now)
            continue
        keys = [DeviceKey(r.driver, r.pool, r.device) for r in allocation.devices.results]
        shown = [str(key) for key in keys]
        usage = found.namespaces.setdefault(claim.metadata.namespace, {})
        for result in allocation.devices.results:
            if not result.adminAccess:
                usage[result.driver] = usage.get(result.driver, 0) + 1
        lost = [str(key) for key in keys if key not in published]
        if lost:
            found.lost.append(ClaimNote(claim.key, "no driver publishes what it holds", lost))
        pods = [user for user in claim.consumers if user.resource == "pods" and not user.apiGroup]
        gone = [user.name for user in pods if user.uid not in state.pods]
        if pods_known and gone and len(gone) == len(claim.consumers):
            found.leaked.append(ClaimNote(claim.key, f"reserved for {', '.join(gone)}, which does not run", shown))


def _note_waiting(found: Inventory, claim: ResourceClaim, now: float) -> None:
    created = parse_time(claim.metadata.creationTimestamp) if claim.metadata.creationTimestamp else None
    if created is not None and now - created >= LONG_WAIT_S:
        age_s = now - created
        found.waiting.append(ClaimNote(claim.key, f"without devices for {duration(age_s)}", [], round(age_s, 1)))
