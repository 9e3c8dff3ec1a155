"""Conversion of values to Go's basic types, as upstream does it for results and message fields."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.quantity import Quantity
from scheduler.cel.values import Opaque, OptionalValue, QuantitySum, Uint, type_name

_TARGETS: Final[dict[str, type]] = {
    "bool": bool,
    "int32": int,
    "int64": int,
    "uint32": Uint,
    "uint64": Uint,
    "float32": float,
    "float64": float,
    "string": str,
    "[]uint8": bytes,
}
# How upstream words a refusal, by the value's type; {target} is the Go type.
_REFUSALS: Final = {
    "bool": "type conversion error from bool to '{target}'",
    "string": "unsupported native conversion from string to '{target}'",
    "int": "unsupported type conversion from 'int' to {target}",
    "uint": "unsupported type conversion from 'uint' to {target}",
    "double": "type conversion error from Double to '{target}'",
    "bytes": "type conversion error from Bytes to '{target}'",
    "list": "type conversion error from list to '{target}'",
    "map": "type conversion error from map to '{target}'",
    "type": "type conversion not supported for 'type'",
    "google.protobuf.Duration": "type conversion error from 'Duration' to '{target}'",
    "google.protobuf.Timestamp": "type conversion error from 'Timestamp' to '{target}'",
    "kubernetes.Semver": "type conversion error from 'Semver' to '{target}'",
    "kubernetes.Quantity": "type conversion error from 'Quantity' to '{target}'",
    "kubernetes.URL": "type conversion error from 'URL' to '{target}'",
    "kubernetes.NamedFormat": "type conversion error from 'Format' to '{target}'",
    "net.IP": "type conversion error from 'IP' to '{target}'",
    "net.CIDR": "type conversion error from 'CIDR' to '{target}'",
}


class NativeError(Exception):
    """A value has no form in the wanted Go type; the message is upstream's."""


def to_native(value: Any, target: str) -> Any:
    """The value as the Go type ``target``. Optionals are looked through. Raises NativeError."""
    while type(value) is OptionalValue:
        if not value.present:
            raise NativeError("optional.none() dereference")
        value = value.value
    if type(value) is _TARGETS[target]:
        return _in_range(value, target)
    name = type_name(value)
    if target == "string" and isinstance(value, (Opaque, Quantity)) and name != "kubernetes.NamedFormat":
        return str(value.quantity if type(value) is QuantitySum else value)
    refusal = _REFUSALS.get(name, f"type conversion error from '{name}' to '{{target}}'")
    raise NativeError(refusal.format(target=target))


def _in_range(value: Any, target: str) -> Any:
    if target == "int32" and not -(2**31) <= value < 2**31:
        raise NativeError("integer overflow")
    if target == "uint32" and value >= 2**32:
        raise NativeError("unsigned integer overflow")
    return value
