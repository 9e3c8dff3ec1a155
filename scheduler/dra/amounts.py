"""Quantities as exact integers of nano units: what counters and capacities are added up and compared in."""

from __future__ import annotations

from scheduler.api.quantity import Format, Quantity

NANO_POWER = 9
# Nothing real is larger; it bounds the integers that a hostile exponent could ask for.
_MAX_POWER = 1000


def nano(quantity: Quantity) -> int:
    """The amount in units of 10**-9, exact: parsing has already rounded what is finer."""
    return quantity.mantissa * 10 ** min(quantity.power + NANO_POWER, _MAX_POWER) if quantity.mantissa else 0


def value_text(value: object) -> str:
    """An attribute's value for people: booleans as CEL writes them, lists with commas."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def amount_text(units: int) -> str:
    """An amount in nano units for people: binary suffixes where they come out even, as in 4Gi."""
    whole, rest = divmod(units, 10**NANO_POWER)
    if not rest and whole and whole % 1024 == 0:
        return str(Quantity(whole, 0, Format.BINARY_SI))
    return str(Quantity(units, -NANO_POWER, Format.DECIMAL_SI))
