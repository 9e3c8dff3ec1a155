"""The doctor's checks of devices: given twice, given beyond what they have, gone, or open to two schedulers."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from scheduler.api.resource import ResourceClaim
from scheduler.dra.amounts import amount_text
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey
from scheduler.dra.ledger import Hold
from scheduler.dra.limits import DeviceLimit
from scheduler.explain.doctor_facts import DoctorFinding, Look, allocated_at
from scheduler.explain.doctor_heal import cautions, free

_TWICE = (
    "both may use the device at once: jobs fail for lack of memory or read each other's data. Two schedulers gave it "
    "away at the same time"
)
K = TypeVar("K", bound=Hashable)
_BEYOND = "those who share it get less than was promised, or fail"


def check_devices(look: Look) -> Iterator[DoctorFinding]:
    """Everything about devices. Cost: O(holds and devices)."""
    held = sorted({hold.device for claim in look.claims for hold in _holds(look, claim)})
    for key in held:
        yield from _held_twice(look, key)
        yield from _beyond_capacity(look, key)
    for pool in sorted(look.pools):
        yield from _beyond_counters(look, pool)
    for claim in look.claims:
        yield from _gone(look, claim)
    yield from _overlaps(look)


def _holds(look: Look, claim: ResourceClaim) -> tuple[Hold, ...]:
    entry = look.ledger.entry(claim.uid)
    return () if entry is None else entry.holds


def _held_twice(look: Look, key: DeviceKey) -> Iterator[DoctorFinding]:
    holding = look.ledger.holding(key)
    if holding is None or not holding.exclusive:
        return
    holders = look.by_age({*holding.exclusive, *(uid for uid, _ in holding.shares)})
    names = [claim.key for claim in holders]
    identity = ("device-held-twice", str(key), *(claim.uid for claim in holders))
    if len(holders) < 2:
        if max(holding.exclusive.values()) > 1:
            yield DoctorFinding(
                "error", "device-held-twice", f"Device {key}", f"claim {names[0]} names it more than once", _TWICE,
                free(look, holders), cautions(look, holders), None, identity,
            )  # fmt: skip
        return
    first, later = holders[0], holders[1:]
    advice = cautions(look, later) or f"the commands let the later claim{'s' if len(later) > 1 else ''} go"
    who = f"{first.key} had it first"
    # Times are whole seconds, and older versions of the API have none.
    if not all(allocated_at(first) < allocated_at(one) < float("inf") for one in later):
        who = "it is not known which of them had it first"
        choice = f"choose who keeps it: the commands let {', '.join(one.key for one in later)} go"
        advice = "; ".join(filter(None, (choice, cautions(look, later))))
    what = f"is held by claims {', '.join(names)} at the same time; {who}"
    yield DoctorFinding(
        "error", "device-held-twice", f"Device {key}", what, _TWICE, free(look, later), advice, None, identity
    )


def _beyond_capacity(look: Look, key: DeviceKey) -> Iterator[DoctorFinding]:
    holding, info = look.ledger.holding(key), look.device(key)
    if holding is None or info is None:
        return
    over = {
        name: (taken, info.capacities[name].nano)
        for name, taken in sorted(holding.consumed.items())
        if name in info.capacities and taken > info.capacities[name].nano
    }
    if not over:
        return
    amounts: dict[str, dict[str, int]] = {}
    for (uid, _), consumed in holding.shares.items():
        mine = amounts.setdefault(uid, {})
        for name, amount in consumed:
            mine[name] = mine.get(name, 0) + amount
    later = _last_over(look, amounts, {name: total for name, (_, total) in over.items()})
    said = ", ".join(
        f"{name}: {amount_text(taken)} given of {amount_text(total)}" for name, (taken, total) in over.items()
    )
    yield DoctorFinding(
        "error", "capacity-exceeded", f"Device {key}", f"more is given away than it has: {said}", _BEYOND,
        free(look, later), cautions(look, later), None, ("capacity-exceeded", str(key), *sorted(amounts)),
    )  # fmt: skip


def _beyond_counters(look: Look, pool: PoolKey) -> Iterator[DoctorFinding]:
    current, complete = look.current(pool)
    if not complete or look.unreadable(pool):
        return
    totals = {
        (name, counter): value
        for info in current
        for name, values in info.counter_sets
        for counter, value in values.items()
    }
    amounts: dict[str, dict[tuple[str, str], int]] = {}
    for info in current:
        for device in info.devices:
            _charge(look, device, amounts)
    sums: dict[tuple[str, str], int] = {}
    for mine in amounts.values():
        for counter, amount in mine.items():
            sums[counter] = sums.get(counter, 0) + amount
    over = {
        counter: totals[counter] for counter in sorted(sums) if counter in totals and sums[counter] > totals[counter]
    }
    if not over:
        return
    later = _last_over(look, amounts, over)
    said = ", ".join(
        f"{'/'.join(counter)}: {amount_text(sums[counter])} of {amount_text(total)}" for counter, total in over.items()
    )
    yield DoctorFinding(
        "error", "counters-exceeded", f"Pool {pool}", f"devices that overlap are given away together: {said}",
        "parts of one device are used twice: jobs fail or disturb each other", free(look, later), cautions(look, later),
        None, ("counters-exceeded", str(pool), *sorted(uid for uid, mine in amounts.items() if set(mine) & set(over))),
    )  # fmt: skip


def _charge(look: Look, device: DeviceInfo, amounts: dict[str, dict[tuple[str, str], int]]) -> None:
    """Count what a held device takes of its pool's counters to the claim that had it first."""
    holding = look.ledger.holding(device.key) if device.consumption else None
    if holding is None:
        return
    payer = look.by_age({*holding.exclusive, *(uid for uid, _ in holding.shares)})[0]
    mine = amounts.setdefault(payer.uid, {})
    for consumed in device.consumption:
        for name, amount in consumed.counters:
            mine[consumed.counter_set, name] = mine.get((consumed.counter_set, name), 0) + amount


def _last_over(look: Look, amounts: Mapping[str, Mapping[K, int]], totals: Mapping[K, int]) -> list[ResourceClaim]:
    """The youngest claims without which the rest stays within ``totals``; the oldest are kept."""
    kept: dict[K, int] = {}
    leaving: list[ResourceClaim] = []
    for claim in look.by_age(amounts):
        mine = amounts[claim.uid]
        if any(kept.get(name, 0) + mine.get(name, 0) > total for name, total in totals.items() if mine.get(name)):
            leaving.append(claim)
            continue
        for name, amount in mine.items():
            kept[name] = kept.get(name, 0) + amount
    return leaving


def _gone(look: Look, claim: ResourceClaim) -> Iterator[DoctorFinding]:
    allocation = claim.status.allocation
    if allocation is None or not look.slices_known:
        return
    keys = sorted({DeviceKey(r.driver, r.pool, r.device) for r in allocation.devices.results})
    lost = [key for key in keys if look.device(key) is None and not look.unreadable(PoolKey(key.driver, key.pool))]
    if not lost:
        return
    absent = sorted(
        {str(PoolKey(key.driver, key.pool)) for key in lost if PoolKey(key.driver, key.pool) not in look.pools}
    )
    users = look.pods_of(claim)
    if users:
        means = "running containers may go on, but no new container can start with the claim"
    else:
        means = "a Pod that uses the claim hangs at ContainerCreating; the claim keeps nobody out"
    advice = cautions(look, [claim])
    if absent:
        advice = (
            f"nothing is published for {', '.join(absent)}: if its driver is only restarting, let it come back "
            f"instead{'; ' + advice if advice else ''}"
        )
    yield DoctorFinding(
        "warning", "device-gone", f"ResourceClaim {claim.key}",
        f"holds {', '.join(map(str, lost))}, which no ResourceSlice has", means, free(look, [claim]), advice, None,
        ("device-gone", claim.uid, *map(str, lost)),
    )  # fmt: skip


def _overlaps(look: Look) -> Iterator[DoctorFinding]:
    """Two schedulers that give away devices of one pool, or of one driver without any partition."""
    by_driver: dict[str, dict[str, set[str]]] = {}
    for claim in look.claims:
        allocation = claim.status.allocation
        schedulers = {_one_of_ours(look, pod.spec.schedulerName) for pod in look.pods_of(claim)}
        for result in allocation.devices.results if allocation is not None else ():
            for scheduler in schedulers:
                if not result.adminAccess:
                    by_driver.setdefault(result.driver, {}).setdefault(scheduler, set()).add(result.pool)
    for driver, pools in sorted(by_driver.items()):
        names = sorted(pools)
        for number, one in enumerate(names):
            for other in names[number + 1 :]:
                yield from _overlap(look, driver, one, other, pools)


def _one_of_ours(look: Look, scheduler: str) -> str:
    """All profiles of this scheduler decide with one ledger: they stand together under the first name."""
    return min(look.ours) if scheduler in look.ours else scheduler


def _overlap(look: Look, driver: str, one: str, other: str, pools: Mapping[str, set[str]]) -> Iterator[DoctorFinding]:
    limits = list(look.ours.values())
    mine = next((name for name in (one, other) if name in look.ours), None)
    shared = sorted(pools[one] & pools[other])
    if mine is not None:
        shared = [pool for pool in shared if any(limit.allows(driver, pool) for limit in limits)]
        unlimited = any(limit == DeviceLimit() for limit in limits)
    else:
        unlimited = False
    if not shared and not unlimited:
        return
    if shared:
        what = f"{one} and {other} both give away devices of {_some(shared)}"
    else:
        what = f"{one} and {other} both give away its devices, so far of different pools"
    keep = _keep(driver, pools[mine] - pools[other if mine == one else one]) if mine is not None else ""
    advice = keep or "keep the two to different devices by the selectors of their DeviceClasses, or run the guard"
    yield DoctorFinding(
        "warning" if shared else "note", "schedulers-overlap", f"Driver {driver}", what,
        "nothing in the API server keeps two schedulers from giving one device to two claims: the later of two writes "
        "that cross is found, not prevented", (), advice, None, ("schedulers-overlap", driver, one, other),
    )  # fmt: skip


def _keep(driver: str, own: Iterable[str]) -> str:
    pools = ", ".join(sorted(own)) or "POOL, ..."
    return (
        f"part them: enable the plugin Partition in this scheduler's profile with args "
        f"{{drivers: [{driver}], pools: [{pools}]}} and keep the other scheduler to other pools by the selectors of "
        "its DeviceClasses; or run the guard"
    )


def _some(names: list[str], shown: int = 5) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"pool{'s' if len(names) > 1 else ''} {', '.join(names[:shown])}{more}"
