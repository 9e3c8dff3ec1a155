"""Functions on resource quantities (apiserver 0.37, cel/library/quantity.go)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.quantity import Format, Quantity, QuantityError, parse_quantity
from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.registry import Library
from scheduler.cel.values import QuantitySum


def _quantity(text: Any) -> Quantity:
    if type(text) is not str:
        raise no_such_overload()
    try:
        return parse_quantity(text)
    except QuantityError as error:
        raise CelError(error.message) from None


def _is_quantity(text: str) -> bool:
    try:
        parse_quantity(text)
    except QuantityError:
        return False
    return True


def _plain(value: Any) -> Quantity:
    if type(value) is QuantitySum:
        return value.quantity
    if type(value) is not Quantity:
        raise no_such_overload()
    return value


def _as_integer(value: Any) -> int:
    number = _plain(value).exact_int64()
    if number is None:
        raise CelError("cannot convert value to integer")
    return number


def _compare(left: Any, right: Any) -> int:
    return _plain(left).compare(_plain(right))


def _operand(value: Any) -> Quantity:
    return Quantity(value, 0, Format.DECIMAL_EXPONENT) if type(value) is int else _plain(value)


def _add(left: Any, right: Any) -> QuantitySum:
    return QuantitySum(_plain(left) + _operand(right))


def _sub(left: Any, right: Any) -> QuantitySum:
    return QuantitySum(_plain(left) - _operand(right))


LIBRARY: Final = Library(
    table="""
quantity            string_to_quantity        (string) Quantity
isQuantity          is_quantity_string        (string) bool
sign                quantity_sign             (Quantity) int
isGreaterThan       quantity_is_greater_than  Quantity.(Quantity) bool
isLessThan          quantity_is_less_than     Quantity.(Quantity) bool
compareTo           quantity_compare_to       Quantity.(Quantity) int
asApproximateFloat  quantity_get_float        Quantity.() double
asInteger           quantity_get_int          Quantity.() int
isInteger           quantity_is_integer       Quantity.() bool
add                 quantity_add              Quantity.(Quantity) Quantity
add                 quantity_add_int          Quantity.(int) Quantity
sub                 quantity_sub              Quantity.(Quantity) Quantity
sub                 quantity_sub_int          Quantity.(int) Quantity
""",
    implementations={
        "string_to_quantity": _quantity,
        "is_quantity_string": _is_quantity,
        "quantity_sign": lambda value: _plain(value).sign(),
        "quantity_is_greater_than": lambda left, right: _compare(left, right) == 1,
        "quantity_is_less_than": lambda left, right: _compare(left, right) == -1,
        "quantity_compare_to": _compare,
        "quantity_get_float": lambda value: _plain(value).approximate_float(),
        "quantity_get_int": _as_integer,
        "quantity_is_integer": lambda value: _plain(value).exact_int64() is not None,
        "quantity_add": _add,
        "quantity_add_int": _add,
        "quantity_sub": _sub,
        "quantity_sub_int": _sub,
    },
)
