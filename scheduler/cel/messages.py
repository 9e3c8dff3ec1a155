"""Message literals: the few protobuf messages the environment knows, and the device type that cannot be built."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from scheduler.cel.attributes import Closure
from scheduler.cel.errors import CelError
from scheduler.cel.frame import Frame
from scheduler.cel.nodes import StructExpr
from scheduler.cel.values import INT_MAX, INT_MIN, Duration, MapValue, OptionalValue, Timestamp, Uint, type_name

Fields = list[tuple[str, Closure, bool]]

_ZERO: Final[dict[str, Any]] = {
    "BoolValue": False, "BytesValue": b"", "DoubleValue": 0.0, "FloatValue": 0.0, "Int32Value": 0, "Int64Value": 0,
    "StringValue": "", "UInt32Value": Uint(0), "UInt64Value": Uint(0),
}  # fmt: skip


def build_message(node: StructExpr, fields: Fields, cost: int) -> Closure:
    """The closure for a message literal."""
    make = _MAKERS.get(node.name.rpartition(".")[2], _impossible)

    def evaluate(frame: Frame) -> Any:
        values: dict[str, Any] = {}
        try:
            for name, value_of, optional in fields:
                value = value_of(frame)
                if optional:
                    if type(value) is not OptionalValue:
                        raise CelError(
                            f"cannot initialize optional entry '{name}' from non-optional value {value}", node
                        )
                    if not value.present:
                        values.pop(name, None)
                        continue
                    value = value.value
                values[name] = value
        finally:
            frame.cost += cost
        return make(node, values)

    return evaluate


def _impossible(node: StructExpr, _values: dict[str, Any]) -> Any:
    raise CelError(f"unknown type '{node.name}'", node)


def _field_error(node: StructExpr, field: str, reason: str) -> CelError:
    return CelError(f"field type conversion error for {node.name}.{field} value type: {reason}", node)


def _wrapper(node: StructExpr, values: dict[str, Any]) -> Any:
    short = node.name.rpartition(".")[2]
    zero = _ZERO[short]
    value = values.get("value", zero)
    if type(value) is not type(zero):
        wanted = _NATIVE_NAMES[type(zero)]
        given = type_name(value)
        reason = f"unsupported native conversion from {given} to '{wanted}'"
        if given in ("int", "uint"):
            reason = f"unsupported type conversion from '{given}' to {wanted}"
        raise _field_error(node, "value", reason)
    if short == "Int32Value" and not -(2**31) <= value < 2**31:
        raise _field_error(node, "value", "integer overflow")
    if short == "UInt32Value" and value >= 2**32:
        raise _field_error(node, "value", "unsigned integer overflow")
    return struct.unpack("f", struct.pack("f", value))[0] if short == "FloatValue" else value


_NATIVE_NAMES: Final = {bool: "bool", int: "int64", Uint: "uint64", float: "float64", str: "string", bytes: "[]uint8"}


def _nanos(node: StructExpr, values: dict[str, Any]) -> int:
    nanos: int = values.get("nanos", 0)
    if not -(2**31) <= nanos < 2**31:
        raise _field_error(node, "nanos", "integer overflow")
    return int(values.get("seconds", 0)) * 1_000_000_000 + nanos


def _duration(node: StructExpr, values: dict[str, Any]) -> Any:
    # Go's conversion stops at the ends of the range.
    return Duration(min(max(_nanos(node, values), INT_MIN), INT_MAX))


def _timestamp(node: StructExpr, values: dict[str, Any]) -> Any:
    return Timestamp(_nanos(node, values))


def _value(_node: StructExpr, values: dict[str, Any]) -> Any:
    return next(reversed(values.values()), None)


_MAKERS: Final[dict[str, Callable[[StructExpr, dict[str, Any]], Any]]] = {
    **dict.fromkeys(_ZERO, _wrapper),
    "Duration": _duration,
    "Timestamp": _timestamp,
    "ListValue": lambda _node, values: values.get("values", []),
    "Struct": lambda _node, values: values.get("fields", MapValue({})),
    "Value": _value,
}
