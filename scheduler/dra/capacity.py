"""Consumable capacity: what a request takes of a device's capacities after its policies, and whether it fits.

Source: kube-scheduler 1.37, structured allocator, consumable capacity (effective values, range rounding, refusals).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from scheduler.api.quantity import Quantity
from scheduler.dra.amounts import nano
from scheduler.dra.devices import Capacity, CapacityPolicy, DeviceInfo

_INT64_MAX = 2**63 - 1
_UNREPRESENTABLE = "capacity request cannot be represented in the device's range arithmetic: "


class Effective(NamedTuple):
    """What one share takes of one capacity: the amount to write down and in nano units."""

    name: str
    amount: Quantity
    nano: int


@dataclass(frozen=True, slots=True)
class CapacityAnswer:
    """The static answer for one device and one request.

    ``fatal`` ends the attempt, ``refused`` names the capacity that rules the device out (with ``detail``), else
    ``effective`` lists every capacity of the device.
    """

    effective: tuple[Effective, ...] = ()
    refused: str = ""
    detail: str = ""
    asked: str = ""
    total: str = ""
    fatal: str = ""


_NOTHING = CapacityAnswer()


class RangeError(ValueError):
    """A request that upstream's integer arithmetic cannot hold."""


def static_answer(info: DeviceInfo, requests: Mapping[str, Quantity], fractional: bool) -> CapacityAnswer:
    """What ``requests`` take of the device, policies applied, not looking at what others use.

    A requested name the device lacks refuses; all values are resolved before any refusal, so a fatal value wins.
    """
    if not requests and not info.capacities:
        return _NOTHING
    for name in requests:
        if name not in info.capacities:
            return CapacityAnswer(refused=name, detail="the device has no such capacity")
    effective: list[Effective] = []
    for name, capacity in info.capacities.items():
        try:
            amount = _effective(capacity, requests.get(name), fractional)
        except RangeError as error:
            return CapacityAnswer(fatal=f'capacity "{name}": {_UNREPRESENTABLE}{error}')
        if amount.mantissa < 0:
            return CapacityAnswer(fatal=f'capacity "{name}": capacity value is negative')
        effective.append(Effective(name, amount, nano(amount)))
    for share in effective:
        capacity = info.capacities[share.name]
        broken = _violates(share.amount, share.nano, capacity, fractional)
        if broken:
            return CapacityAnswer(refused=share.name, detail=broken)
        if share.nano > capacity.nano:
            asked, total = str(share.amount), str(capacity.value)
            detail = f"{asked} asked, {total} in total"
            return CapacityAnswer(refused=share.name, detail=detail, asked=asked, total=total)
    return CapacityAnswer(tuple(effective))


def _effective(capacity: Capacity, request: Quantity | None, fractional: bool) -> Quantity:
    policy = capacity.policy
    if request is None:
        return policy.default if policy is not None and policy.default is not None else capacity.value
    if policy is None:
        return request
    if policy.minimum is not None:
        return _round_to_range(request, policy, fractional)
    if policy.valid_values:
        fitting = [value for value in policy.valid_values if value >= request]
        return min(fitting) if fitting else request
    return request


def _exact_milli(quantity: Quantity) -> int | None:
    """The amount in thousandths when an int64 holds it exactly."""
    amount, rest = divmod(nano(quantity), 10**6)
    return amount if not rest and -_INT64_MAX - 1 <= amount <= _INT64_MAX else None


def _whole(quantity: Quantity) -> int:
    """The amount rounded up to an integer, unbounded."""
    return -(-nano(quantity) // 10**9)


def _milli_range(policy: CapacityPolicy) -> tuple[int, int] | None:
    """minimum and step in thousandths when all given bounds are exact in them."""
    if policy.minimum is None or policy.step is None:
        return None
    minimum, step = _exact_milli(policy.minimum), _exact_milli(policy.step)
    maximum = 0 if policy.maximum is None else _exact_milli(policy.maximum)
    return None if minimum is None or step is None or maximum is None else (minimum, step)


def _round_to_range(request: Quantity, policy: CapacityPolicy, fractional: bool) -> Quantity:
    minimum, step = policy.minimum, policy.step
    assert minimum is not None
    if request < minimum:
        return minimum
    if step is None:
        return request
    milli = _milli_range(policy) if fractional else None
    if milli is not None:
        asked = _exact_milli(request)
        if asked is None:
            raise RangeError(f"request {request} is not a representable milli value")
        low, step_milli = milli
        rounded = low + step_milli * -(-(asked - low) // step_milli) if step_milli else asked
        if rounded > _INT64_MAX:
            raise RangeError(f"rounding request {request} up to the next step passes the milli-value range")
        if rounded % 1000 == 0:
            return Quantity(rounded // 1000, 0, step.format)
        return Quantity(rounded, -3, step.format)
    whole = _whole(request)
    if whole > _INT64_MAX:
        raise RangeError(f"request {request} exceeds MaxInt64")
    low, step_whole = _whole(minimum), _whole(step)
    rounded = low + step_whole * -(-(whole - low) // step_whole) if step_whole else whole
    if rounded > _INT64_MAX:
        raise RangeError(f"rounding request {request} up to the next step passes MaxInt64")
    return Quantity(rounded, 0, step.format)


def _violates(amount: Quantity, amount_nano: int, capacity: Capacity, fractional: bool) -> str:
    """Which rule of the policy ``amount`` breaks, "" for none. The default is always accepted."""
    policy = capacity.policy
    if policy is None or (policy.default is not None and nano(policy.default) == amount_nano):
        return ""
    if policy.minimum is not None:
        if policy.maximum is not None and amount > policy.maximum:
            return f"{amount} is more than the policy's maximum {policy.maximum}"
        if policy.step is not None and not _on_step(amount, policy, fractional):
            return f"{amount} is not a step of {policy.step} above {policy.minimum}"
        return ""
    if policy.valid_values and all(nano(value) != amount_nano for value in policy.valid_values):
        return f"{amount} is not among the policy's valid values"
    return ""


def _on_step(amount: Quantity, policy: CapacityPolicy, fractional: bool) -> bool:
    assert policy.minimum is not None
    assert policy.step is not None
    milli = _milli_range(policy) if fractional else None
    if milli is not None:
        value = _exact_milli(amount)
        return value is not None and (not milli[1] or (value - milli[0]) % milli[1] == 0)
    step = _whole(policy.step)
    return not step or (_whole(amount) - _whole(policy.minimum)) % step == 0
