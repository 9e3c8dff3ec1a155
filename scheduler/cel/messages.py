"""Message literals: the few protobuf messages the environment knows, and the device type that cannot be built."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scheduler.cel.attributes import Closure
from scheduler.cel.errors import CelError
from scheduler.cel.frame import Frame
from scheduler.cel.nodes import StructExpr
from scheduler.cel.values import Duration, OptionalValue, Timestamp, Uint

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
    raise CelError(f"unknown type: {node.name}", node)


def _wrapper(node: StructExpr, values: dict[str, Any]) -> Any:
    short = node.name.rpartition(".")[2]
    value = values.get("value", _ZERO[short])
    if short in ("Int32Value", "UInt32Value") and not -(2**31) <= value < 2**32:
        raise CelError("integer overflow" if short == "Int32Value" else "unsigned integer overflow", node)
    return value


def _duration(_node: StructExpr, values: dict[str, Any]) -> Any:
    return Duration(values.get("seconds", 0) * 1_000_000_000 + values.get("nanos", 0))


def _timestamp(_node: StructExpr, values: dict[str, Any]) -> Any:
    return Timestamp(values.get("seconds", 0) * 1_000_000_000 + values.get("nanos", 0))


_MAKERS: Final[dict[str, Callable[[StructExpr, dict[str, Any]], Any]]] = {
    **dict.fromkeys(_ZERO, _wrapper),
    "Duration": _duration,
    "Timestamp": _timestamp,
}
