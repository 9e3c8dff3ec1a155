"""Durations as Go writes and reads them: ``5m0s``, ``1.5s``, ``100ms``. Internally integers, in nanoseconds."""

from __future__ import annotations

import re

NANOSECONDS_PER_SECOND = 1_000_000_000

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5
    "μs": 1_000,  # U+03BC
    "ms": 1_000_000,
    "s": NANOSECONDS_PER_SECOND,
    "m": 60 * NANOSECONDS_PER_SECOND,
    "h": 3600 * NANOSECONDS_PER_SECOND,
}
_LARGEST_NS = 2**63 - 1
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([^0-9.]*)", re.ASCII)


class DurationError(ValueError):
    """The text is not a Go duration; the message is Go's."""


def parse_duration(text: str) -> int:
    """Nanoseconds in ``text``: signed decimal numbers, each with a unit (``1h15m30.918s``), or a bare ``0``.

    Fractions below a nanosecond are cut off. Raises DurationError with the words of Go's time.ParseDuration.
    """
    quoted = go_quote(text)
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    if not rest:
        raise DurationError(f"time: invalid duration {quoted}")
    total_ns = 0
    at = 0
    while at < len(rest):
        match = _PART.match(rest, at)
        if match is None or not (match[1] or match[2]):
            raise DurationError(f"time: invalid duration {quoted}")
        unit = match[3]
        if not unit:
            raise DurationError(f"time: missing unit in duration {quoted}")
        if unit not in _UNITS_NS:
            raise DurationError(f"time: unknown unit {go_quote(unit)} in duration {quoted}")
        unit_ns = _UNITS_NS[unit]
        total_ns += int(match[1] or "0") * unit_ns
        if match[2]:
            total_ns += int(match[2]) * unit_ns // 10 ** len(match[2])
        at = match.end()
    if text[0] == "-":
        total_ns = -total_ns
    if not -_LARGEST_NS - 1 <= total_ns <= _LARGEST_NS:
        raise DurationError(f"time: invalid duration {quoted}")
    return total_ns


def format_duration(duration_ns: int) -> str:
    """``duration_ns`` as Go's Duration.String prints it: ``0s``, ``1.5s``, ``100ms``, ``5m0s``, ``1h0m0s``."""
    if duration_ns == 0:
        return "0s"
    sign = "-" if duration_ns < 0 else ""
    amount = abs(duration_ns)
    if amount < NANOSECONDS_PER_SECOND:
        for unit in ("ms", "µs", "ns"):
            if amount >= _UNITS_NS[unit]:
                return f"{sign}{_decimal(amount, _UNITS_NS[unit])}{unit}"
    minutes, rest = divmod(amount, _UNITS_NS["m"])
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, NANOSECONDS_PER_SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def format_seconds(duration_s: float) -> str:
    """``duration_s`` in Go's form, rounded to the nanosecond."""
    return format_duration(round(duration_s * NANOSECONDS_PER_SECOND))


def go_quote(text: str) -> str:
    """``text`` as Go's ``%q`` prints it: double quotes, the usual escapes, printable Unicode kept."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\a": "\\a", "\b": "\\b"}
    escapes |= {"\f": "\\f", "\v": "\\v"}
    parts = []
    for character in text:
        if character in escapes:
            parts.append(escapes[character])
        elif character.isprintable():
            parts.append(character)
        else:
            code = ord(character)
            parts.append(f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}")
    return '"' + "".join(parts) + '"'


def _decimal(amount: int, unit: int) -> str:
    whole, fraction = divmod(amount, unit)
    if not fraction:
        return str(whole)
    digits = len(str(unit)) - 1
    return f"{whole}.{fraction:0{digits}d}".rstrip("0")
