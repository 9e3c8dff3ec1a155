"""May this allocation be stored beside all others? The judgement of the guard, whoever wrote the allocation.

Five rules per device, admin access left out where the claim asks for it: it is in the newest complete generation of its
pool; no taint refuses it; nobody else holds it, unless both hold shares of it; what its shares consume stays within its
capacity; what the held devices of its pool take stays within the pool's counters. Nothing is decided here about
selectors, nodes or constraints: those can hurt only the claim itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal, NamedTuple

from scheduler.api.core import QuantityText
from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import (
    RESULTS_MAX,
    AllocationResult,
    DeviceRequestAllocationResult,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from scheduler.api.taints import Toleration, first_untolerated
from scheduler.dra.amounts import amount_text, nano
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey
from scheduler.dra.features import Features
from scheduler.dra.ledger import Holding, Ledger, holds_of
from scheduler.dra.whole_pools import WholePool

Reason = Literal["pool", "taint", "held", "capacity", "counters", "malformed", "full"]
"""``full``: nothing is wrong with the allocation, but no more can be held (``Admissions.reserve``)."""
_NAMED_MAX = 5
# Source: resource.k8s.io/v1 of Kubernetes 1.37, types and validation. A consumed amount is not validated, but written
# anew by the API server, with at most 19 digits before the point and 9 after it.
_LENGTHS_MAX = {"request": 127, "driver": 63, "pool": 253, "device": 63, "shareID": 36}
_CAPACITIES_MAX, _CAPACITY_NAME_MAX, _AMOUNT_MAX = 32, 96, 64


class Refusal(NamedTuple):
    """One device that must not be given, and why. ``holders``: owners (claim UIDs) that stand in the way."""

    reason: Reason
    device: DeviceKey
    text: str
    holders: tuple[str, ...] = ()


def owner_of(entry: str) -> str:
    """The claim UID behind a ledger entry: reservations are entries named UID/number."""
    return entry.partition("/")[0]


def oversized(allocation: AllocationResult) -> str:
    """What of ``allocation`` is larger than the API lets any be, "" when nothing is. The text quotes none of it.

    The API server validates an update before it calls webhooks (apiserver 1.37, registry Store.Update: BeforeUpdate,
    then updateValidation), so it asks about no such allocation: to refuse one is in nobody's way. Capacities it does
    not validate, but more of them, or longer names, than a device can have are refused by the rules anyway.
    """
    results = allocation.devices.results
    if len(results) > RESULTS_MAX:
        return f"the allocation names {len(results)} devices, the API lets it name {RESULTS_MAX}"
    for place, result in enumerate(results):
        for name, most in _LENGTHS_MAX.items():
            text = getattr(result, name) or ""
            if len(text) > most or not text.isascii():
                return f"{name} of result {place} is not in ASCII, or longer than the {most} characters of the API"
        consumed = result.consumedCapacity or {}
        if len(consumed) > _CAPACITIES_MAX:
            return f"result {place} consumes {len(consumed)} capacities, a device has {_CAPACITIES_MAX} at most"
        for name, amount in consumed.items():
            if len(name) > _CAPACITY_NAME_MAX or not name.isascii() or _long(amount):
                return f"a consumed capacity of result {place} has a name or an amount that no device can have"
    return ""


def _long(amount: QuantityText) -> bool:
    if isinstance(amount, str):
        return len(amount) > _AMOUNT_MAX or not amount.isascii()
    return isinstance(amount, int) and amount.bit_length() > 256


class Judge:
    """Judges allocations against a ledger. Pure; one answer costs O(holders of its devices, consumers of its pools).

    ``pools``: the pool of a key as its newest slices have it. ``describe``: a claim UID in words, with its Pods.
    Source of the rules: kube-scheduler 1.37, structured allocator (in use, taints, counters, consumable capacity).
    """

    def __init__(
        self,
        ledger: Ledger,
        pools: Callable[[PoolKey], WholePool],
        describe: Callable[[str], str],
        features: Features,
    ) -> None:
        self._ledger, self._pools, self._describe, self._features = ledger, pools, describe, features

    def refusals(self, claim: ResourceClaim, allocation: AllocationResult) -> tuple[Refusal, ...]:
        """Everything that forbids ``allocation`` for ``claim``, in the order of its results; () when nothing does."""
        problem = oversized(allocation)
        if problem:
            return (Refusal("malformed", DeviceKey("", "", ""), problem),)
        found = [refusal for result in allocation.devices.results if (refusal := _not_admin(claim, result))]
        results = [result for result in allocation.devices.results if not result.adminAccess]
        seen: dict[DeviceKey, set[str]] = {}
        for result in results:
            key = DeviceKey(result.driver, result.pool, result.device)
            pool = self._pools(PoolKey(result.driver, result.pool))
            refusal = (
                self._named_twice(key, result, seen)
                or self._unpublished(key, pool)
                or self._tainted(claim, key, pool, result)
                or self._held(claim.uid, key, pool.devices[key.device], result)
                or _unreadable(key, result)
            )
            if refusal is not None:
                found.append(refusal)
        if not found:
            found += self._over_capacity(claim.uid, allocation)
            found += self._over_counters(claim.uid, allocation)
        return tuple(found)

    def _named_twice(
        self, key: DeviceKey, result: DeviceRequestAllocationResult, seen: dict[DeviceKey, set[str]]
    ) -> Refusal | None:
        share = (result.shareID or "") if self._features.consumable_capacity else ""
        shares = seen.setdefault(key, set())
        if share in shares:
            what = f"share {share} of device {key}" if share else f"device {key}"
            return Refusal("malformed", key, f"{what} is named twice by this allocation")
        shares.add(share)
        if len(shares) > 1 and "" in shares:
            return Refusal("malformed", key, f"device {key} is named whole and as a share by this allocation")
        return None

    def _unpublished(self, key: DeviceKey, pool: WholePool) -> Refusal | None:
        if pool.problem:
            return Refusal("pool", key, f"device {key}: {pool.problem}")
        if key.device in pool.devices:
            return None
        if key.device in pool.older:
            text = f"device {key} is only in an older generation of its pool, the newest is {pool.generation}"
        else:
            text = f"device {key} is not in its pool (generation {pool.generation})"
        return Refusal("pool", key, text)

    def _tainted(
        self, claim: ResourceClaim, key: DeviceKey, pool: WholePool, result: DeviceRequestAllocationResult
    ) -> Refusal | None:
        taints = pool.devices[key.device].taints if self._features.device_taints else ()
        taint = first_untolerated(taints, _tolerations(claim, result)) if taints else None
        if taint is None:
            return None
        shown = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
        text = f"device {key} has the taint {shown}, which request {result.request} does not tolerate"
        return Refusal("taint", key, text)

    def _held(
        self, uid: str, key: DeviceKey, info: DeviceInfo, result: DeviceRequestAllocationResult
    ) -> Refusal | None:
        share = result.shareID is not None and self._features.consumable_capacity
        if share and not info.multi:
            return Refusal("malformed", key, f"device {key} cannot be shared, but the allocation names a share of it")
        holding = self._ledger.holding(key)
        if holding is None:
            return None
        exclusive = _owners(holding.exclusive, uid)
        sharing = _owners((owner for owner, _ in holding.shares), uid)
        if exclusive:
            return Refusal("held", key, f"device {key} is held by {self._named(exclusive)}", exclusive)
        if sharing and not share:
            text = f"device {key} cannot be had whole: {self._named(sharing)} hold shares of it"
            return Refusal("held", key, text, sharing)
        return None

    def _over_capacity(self, uid: str, allocation: AllocationResult) -> Iterator[Refusal]:
        asked: dict[DeviceKey, dict[str, int]] = {}
        for hold in holds_of(allocation, self._features.consumable_capacity):
            if hold.share_id:
                sums = asked.setdefault(hold.device, {})
                for name, amount in hold.consumed:
                    sums[name] = sums.get(name, 0) + amount
        for key, sums in asked.items():
            info = self._pools(PoolKey(key.driver, key.pool)).devices[key.device]
            others = self._consumed_by_others(uid, self._ledger.holding(key))
            for name, amount in sums.items():
                capacity = info.capacities.get(name)
                if capacity is None:
                    yield Refusal("capacity", key, f"device {key} has no capacity {name}")
                    continue
                holders = {owner: consumed[name] for owner, consumed in others.items() if consumed.get(name)}
                held = sum(holders.values())
                if held + amount > capacity.nano:
                    text = f"device {key} has {capacity.value} of {name}, {amount_text(amount)} asked"
                    if holders:
                        text += f", {amount_text(held)} held by {self._named(tuple(holders))}"
                    yield Refusal("capacity", key, text, tuple(sorted(holders)))

    def _consumed_by_others(self, uid: str, holding: Holding | None) -> Mapping[str, Mapping[str, int]]:
        """Owner → capacity → nano units, the owner's dearest version: of several only one can be stored."""
        entries: dict[str, dict[str, int]] = {}
        for (entry, _), consumed in {} if holding is None else holding.shares.items():
            if owner_of(entry) != uid:
                sums = entries.setdefault(entry, {})
                for name, amount in consumed:
                    sums[name] = sums.get(name, 0) + amount
        owners: dict[str, dict[str, int]] = {}
        for entry, sums in entries.items():
            most = owners.setdefault(owner_of(entry), {})
            for name, amount in sums.items():
                most[name] = max(most.get(name, 0), amount)
        return owners

    def _over_counters(self, uid: str, allocation: AllocationResult) -> Iterator[Refusal]:
        if not self._features.partitionable_devices:
            return
        mine: dict[PoolKey, dict[DeviceKey, None]] = {}
        for hold in holds_of(allocation, self._features.consumable_capacity):
            mine.setdefault(PoolKey(hold.device.driver, hold.device.pool), {})[hold.device] = None
        for key, devices in mine.items():
            view = self._pools(key).view
            if view is None or not view.consumers:
                continue
            left = list(view.totals)
            payers: dict[int, set[str]] = {}
            asked: dict[int, DeviceKey] = {}
            for device, charge, _ in view.consumers:
                owners = self._holders(uid, device)
                if not owners and device not in devices:
                    continue
                for place, amount in charge:
                    left[place] -= amount
                    if owners:
                        payers.setdefault(place, set()).update(owners)
                    elif amount:
                        asked.setdefault(place, device)
            for place, rest in enumerate(left):
                if rest < 0 and place in asked:
                    holders = tuple(sorted(payers.get(place, ())))
                    counter, total = "/".join(view.counters[place]), amount_text(view.totals[place])
                    text = f"device {asked[place]} needs {amount_text(-rest)} more of counter {counter} "
                    text += f"than pool {key} has left of {total}"
                    if holders:
                        text += f", devices that take from it are held by {self._named(holders)}"
                    yield Refusal("counters", asked[place], text, holders)

    def _holders(self, uid: str, device: DeviceKey) -> tuple[str, ...]:
        holding = self._ledger.holding(device)
        if holding is None:
            return ()
        return _owners((*holding.exclusive, *(entry for entry, _ in holding.shares)), uid)

    def _named(self, owners: tuple[str, ...]) -> str:
        shown = sorted(self._describe(owner) for owner in owners)[:_NAMED_MAX]
        more = len(owners) - _NAMED_MAX
        return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _owners(entries: Iterator[str] | Mapping[str, int] | tuple[str, ...], without: str) -> tuple[str, ...]:
    return tuple(sorted({owner_of(entry) for entry in entries} - {without}))


def _unreadable(key: DeviceKey, result: DeviceRequestAllocationResult) -> Refusal | None:
    """A consumed amount that is no quantity or below zero would let others have more than there is."""
    for name, text in (result.consumedCapacity or {}).items():
        try:
            amount = nano(parse_quantity(text))
        except QuantityError as error:
            return Refusal("malformed", key, f"consumedCapacity {name} of device {key}: {error}")
        if amount < 0:
            return Refusal("malformed", key, f"consumedCapacity {name} of device {key} is negative: {text}")
    return None


def _not_admin(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> Refusal | None:
    """Admin access holds nothing, so it must be what the claim asks for and not what the allocation says of itself."""
    if not result.adminAccess:
        return None
    asked = _request_of(claim, result)
    if isinstance(asked, ExactDeviceRequest) and asked.adminAccess:
        return None
    key = DeviceKey(result.driver, result.pool, result.device)
    text = f"device {key} is given with admin access, for which request {result.request} does not ask"
    return Refusal("malformed", key, text)


def _tolerations(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> tuple[Toleration, ...]:
    """Those of the request in the claim's spec; those of the result when the spec does not have the request."""
    asked = _request_of(claim, result)
    return result.tolerations if asked is None else asked.tolerations


def _request_of(
    claim: ResourceClaim, result: DeviceRequestAllocationResult
) -> ExactDeviceRequest | DeviceSubRequest | None:
    """What a result is for, as the claim's spec has it."""
    name, _, sub = result.request.partition("/")
    for request in claim.spec.devices.requests:
        if request.name == name:
            if not sub:
                return request.exactly
            return next((alternative for alternative in request.firstAvailable if alternative.name == sub), None)
    return None
