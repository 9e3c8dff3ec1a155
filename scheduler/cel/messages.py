"""Message literals: the few protobuf messages the environment knows, and the device type that cannot be built."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from scheduler.cel.attributes import Closure
from scheduler.cel.errors import CelError
from scheduler.cel.frame import Frame
from scheduler.cel.native import NativeError, to_native
from scheduler.cel.nodes import StructExpr
from scheduler.cel.values import INT_MAX, INT_MIN, Duration, MapValue, OptionalValue, Timestamp, Uint, type_name

Fields = list[tuple[str, Closure, bool]]
Values = dict[str, Any]

# The wrapper messages: Go type and zero value of their field.
_WRAPPERS: Final[dict[str, tuple[str, Any]]] = {
    "BoolValue": ("bool", False),
    "BytesValue": ("[]uint8", b""),
    "DoubleValue": ("float64", 0.0),
    "FloatValue": ("float32", 0.0),
    "Int32Value": ("int32", 0),
    "Int64Value": ("int64", 0),
    "StringValue": ("string", ""),
    "UInt32Value": ("uint32", Uint(0)),
    "UInt64Value": ("uint64", Uint(0)),
}
_VALUE_FIELDS: Final = {"number_value": "float64", "string_value": "string", "bool_value": "bool"}


def build_message(node: StructExpr, fields: Fields, cost: int) -> Closure:
    """The closure for a message literal."""
    make = _MAKERS.get(node.name.rpartition(".")[2], _impossible)

    def evaluate(frame: Frame) -> Any:
        values: Values = {}
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


def _impossible(node: StructExpr, _values: Values) -> Any:
    raise CelError(f"unknown type '{node.name}'", node)


def _field(node: StructExpr, values: Values, name: str, target: str, zero: Any) -> Any:
    if name not in values:
        return zero
    try:
        return to_native(values[name], target)
    except NativeError as error:
        raise CelError(f"field type conversion error for {node.name}.{name} value type: {error}", node) from None


def _container(node: StructExpr, values: Values, name: str, kind: type, empty: Any) -> Any:
    value = values.get(name, empty)
    if not isinstance(value, kind):
        raise CelError(f"unsupported field type for {node.name}.{name}: {type_name(value)}", node)
    return value


def _wrapper(node: StructExpr, values: Values) -> Any:
    target, zero = _WRAPPERS[node.name.rpartition(".")[2]]
    value = _field(node, values, "value", target, zero)
    if target != "float32":
        return value
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def _nanos(node: StructExpr, values: Values) -> int:
    seconds: int = _field(node, values, "seconds", "int64", 0)
    nanos: int = _field(node, values, "nanos", "int32", 0)
    return seconds * 1_000_000_000 + nanos


def _duration(node: StructExpr, values: Values) -> Any:
    # Go's conversion stops at the ends of the range.
    return Duration(min(max(_nanos(node, values), INT_MIN), INT_MAX))


def _timestamp(node: StructExpr, values: Values) -> Any:
    return Timestamp(_nanos(node, values))


def _value(node: StructExpr, values: Values) -> Any:
    name = next(reversed(values), "")
    if name in _VALUE_FIELDS:
        return _field(node, values, name, _VALUE_FIELDS[name], None)
    return values.get(name)


_MAKERS: Final[dict[str, Callable[[StructExpr, Values], Any]]] = {
    **dict.fromkeys(_WRAPPERS, _wrapper),
    "Duration": _duration,
    "Timestamp": _timestamp,
    "ListValue": lambda node, values: _container(node, values, "values", list, []),
    "Struct": lambda node, values: _container(node, values, "fields", MapValue, MapValue({})),
    "Value": _value,
}
