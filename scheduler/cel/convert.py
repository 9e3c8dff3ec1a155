"""Conversions between the basic types, with Go's idea of which texts are numbers."""

from __future__ import annotations

import math
import re
from typing import Any, Final

from scheduler.cel.errors import CelError
from scheduler.cel.floats import format_float
from scheduler.cel.timing import (
    MAX_UNIX_S,
    MIN_UNIX_S,
    TIMESTAMP_OVERFLOW,
    format_duration,
    format_timestamp,
    parse_duration,
    parse_timestamp,
)
from scheduler.cel.values import INT_MAX, INT_MIN, UINT_MAX, Duration, Timestamp, Uint, type_name

_INT: Final = re.compile(r"[+-]?[0-9]+")
_UINT: Final = re.compile(r"[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|inf|infinity|nan)", re.IGNORECASE)
_HEX_FLOAT: Final = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_BOOLS: Final = {
    **dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True),
    **dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False),
}
_LONG_NAMES: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}


def convert(value: Any, target: str) -> Any:
    """``target(value)``. Raises CelError with upstream's text where the value has no such form."""
    kind = type_name(value)
    if kind == _LONG_NAMES.get(target, target):
        return value
    function = _CONVERSIONS.get((kind, target))
    result = None if function is None else function(value)
    if result is None:
        raise CelError(f"type conversion error from '{kind}' to '{_LONG_NAMES.get(target, target)}'")
    return result


def _text_to_int(text: str) -> int | None:
    # Longer digit strings cannot fit, and Python refuses to convert the very long ones.
    if not _INT.fullmatch(text) or len(text.lstrip("+-").lstrip("0")) > 19:
        return None
    value = int(text)
    return value if INT_MIN <= value <= INT_MAX else None


def _text_to_uint(text: str) -> Uint | None:
    if not _UINT.fullmatch(text) or len(text.lstrip("0")) > 20:
        return None
    value = int(text)
    return Uint(value) if value <= UINT_MAX else None


def _text_to_double(text: str) -> float | None:
    if _HEX_FLOAT.fullmatch(text):
        try:
            return float.fromhex(text)
        except OverflowError:
            return None
    if not _FLOAT.fullmatch(text):
        return None
    value = float(text)
    if math.isinf(value) and "n" not in text.lower():
        return None
    return value


def _double_to_int(value: float) -> int:
    if not float(INT_MIN) < value < float(INT_MAX):
        raise CelError("integer overflow")
    return int(value)


def _double_to_uint(value: float) -> Uint:
    if not 0 <= value < float(UINT_MAX):
        raise CelError("unsigned integer overflow")
    return Uint(int(value))


def _int_to_uint(value: int) -> Uint:
    if value < 0:
        raise CelError("unsigned integer overflow")
    return Uint(value)


def _uint_to_int(value: int) -> int:
    if value > INT_MAX:
        raise CelError("integer overflow")
    return int(value)


def _int_to_timestamp(value: int) -> Timestamp:
    if not MIN_UNIX_S <= value <= MAX_UNIX_S:
        raise CelError(TIMESTAMP_OVERFLOW)
    return Timestamp(value * 1_000_000_000)


def _bytes_to_text(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None


def _duration_to_int(value: Duration) -> int:
    return value.nanos


def _timestamp_to_int(value: Timestamp) -> int:
    return value.nanos // 1_000_000_000


_CONVERSIONS: Final[dict[tuple[str, str], Any]] = {
    ("string", "bool"): _BOOLS.get,
    ("string", "bytes"): str.encode,
    ("string", "int"): _text_to_int,
    ("string", "uint"): _text_to_uint,
    ("string", "double"): _text_to_double,
    ("string", "duration"): parse_duration,
    ("string", "timestamp"): parse_timestamp,
    ("bool", "string"): lambda value: "true" if value else "false",
    ("bytes", "string"): _bytes_to_text,
    ("int", "uint"): _int_to_uint,
    ("int", "double"): float,
    ("int", "string"): str,
    ("int", "timestamp"): _int_to_timestamp,
    ("uint", "int"): _uint_to_int,
    ("uint", "double"): float,
    ("uint", "string"): str,
    ("double", "int"): _double_to_int,
    ("double", "uint"): _double_to_uint,
    ("double", "string"): format_float,
    (_LONG_NAMES["duration"], "int"): _duration_to_int,
    (_LONG_NAMES["duration"], "string"): format_duration,
    (_LONG_NAMES["timestamp"], "int"): _timestamp_to_int,
    (_LONG_NAMES["timestamp"], "string"): format_timestamp,
}
