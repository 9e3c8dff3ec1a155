"""Durations and timestamps: Go's texts, ranges and calendar fields."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.floats import format_float_plain
from scheduler.cel.registry import Library
from scheduler.cel.values import INT_MAX, INT_MIN, Duration, Timestamp

MIN_UNIX_S: Final = -62135596800
MAX_UNIX_S: Final = 253402300799
TIMESTAMP_OVERFLOW: Final = "timestamp overflow"
_SECOND: Final = 1_000_000_000
_UNIT_NANOS: Final = {
    "ns": 1, "us": 1000, "µs": 1000, "μs": 1000, "ms": 1_000_000, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND,
}  # fmt: skip
_DURATION_PART: Final = re.compile(r"([0-9]*)(?:\.([0-9]*))?(ns|us|µs|μs|ms|s|m|h)(?![a-zµμ])")
_TIMESTAMP: Final = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?(?:Z|([+-])([0-9]{2}):([0-9]{2}))"
)
_EPOCH: Final = date(1970, 1, 1)
_CYCLE_DAYS: Final = 146097
_FIRST_DAY: Final = (date(1, 1, 1) - _EPOCH).days
_LAST_DAY: Final = (date(9999, 12, 31) - _EPOCH).days


def parse_duration(text: str) -> Duration | None:
    """``1h2m3.5s`` and the like; None if it is no duration or does not fit."""
    body = text[1:] if text[:1] in ("+", "-") else text
    if body == "0":
        return Duration(0)
    total = 0
    at = 0
    while at < len(body):
        part = _DURATION_PART.match(body, at)
        if part is None or not (part[1] or part[2]) or len(part[1]) > 19:
            return None
        unit = _UNIT_NANOS[part[3]]
        fraction = (part[2] or "")[:18]
        total += int(part[1] or "0") * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
        if total > INT_MAX + 1:
            return None
        at = part.end()
    if not body:
        return None
    total = -total if text.startswith("-") else total
    return Duration(total) if INT_MIN <= total <= INT_MAX else None


def format_duration(value: Duration) -> str:
    """Seconds as a plain decimal, with ``s``."""
    whole, rest = divmod(abs(value.nanos), _SECOND)
    seconds = whole + rest / 1e9
    return format_float_plain(-seconds if value.nanos < 0 else seconds) + "s"


def parse_timestamp(text: str) -> Timestamp | None:
    """RFC 3339; None if it is no timestamp. CelError outside the years 1 to 9999."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(match[index]) for index in range(1, 7))
    offset_s = 0
    if match[8]:
        if int(match[9]) > 24 or int(match[10]) > 60:
            return None
        offset_s = (int(match[9]) * 3600 + int(match[10]) * 60) * (-1 if match[8] == "-" else 1)
    if hour > 23 or minute > 59 or second > 59:
        return None
    try:
        # Python's calendar has no year 0; Go's has, and finds it out of range afterwards.
        day_count = (date(year or 400, month, day) - _EPOCH).days - (0 if year else _CYCLE_DAYS)
    except ValueError:
        return None
    seconds = day_count * 86400 + hour * 3600 + minute * 60 + second - offset_s
    if not MIN_UNIX_S <= seconds <= MAX_UNIX_S:
        raise CelError(TIMESTAMP_OVERFLOW)
    fraction = (match[7] or "")[:9].ljust(9, "0")
    return Timestamp(seconds * _SECOND + int(fraction), offset_s)


@dataclass(frozen=True, slots=True)
class _Civil:
    """Calendar fields of a moment; the years 0 and 10000 occur at the edges of the range, in other zones."""

    year: int
    month: int
    day: int
    second_of_day: int
    day_of_week: int
    day_of_year: int


def _local(value: Timestamp, offset_s: int) -> _Civil:
    days, second_of_day = divmod(value.nanos // _SECOND + offset_s, 86400)
    # Python's calendar covers 1 to 9999; the Gregorian one repeats every 400 years.
    shift = 0
    if days < _FIRST_DAY:
        shift = -1
    elif days > _LAST_DAY:
        shift = 1
    shown = _EPOCH + timedelta(days=days - shift * _CYCLE_DAYS)
    return _Civil(
        shown.year + shift * 400,
        shown.month,
        shown.day,
        second_of_day,
        (days + 4) % 7,
        shown.toordinal() - date(shown.year, 1, 1).toordinal(),
    )


def format_timestamp(value: Timestamp) -> str:
    """RFC 3339 with as many fraction digits as needed, in the zone it was written with."""
    local = _local(value, value.offset_s)
    fraction = f"{value.nanos % _SECOND:09d}".rstrip("0")
    zone = "Z"
    if value.offset_s:
        hours, minutes = divmod(abs(value.offset_s) // 60, 60)
        zone = f"{'-' if value.offset_s < 0 else '+'}{hours:02d}:{minutes:02d}"
    minute_of_day, second = divmod(local.second_of_day, 60)
    clock = f"{minute_of_day // 60:02d}:{minute_of_day % 60:02d}:{second:02d}"
    return f"{local.year:04d}-{local.month:02d}-{local.day:02d}T{clock}{'.' + fraction if fraction else ''}{zone}"


def _duration(nanos: int) -> Duration:
    if not INT_MIN <= nanos <= INT_MAX:
        raise CelError("integer overflow")
    return Duration(nanos)


def _timestamp(nanos: int, offset_s: int) -> Timestamp:
    if not MIN_UNIX_S <= nanos // _SECOND <= MAX_UNIX_S:
        raise CelError(TIMESTAMP_OVERFLOW)
    return Timestamp(nanos, offset_s)


def add_times(left: Any, right: Any) -> Any:
    """Duration + duration, duration + timestamp, timestamp + duration."""
    if type(left) is Duration and type(right) is Duration:
        return _duration(left.nanos + right.nanos)
    if type(left) is Duration and type(right) is Timestamp:
        return _timestamp(left.nanos + right.nanos, right.offset_s)
    if type(left) is Timestamp and type(right) is Duration:
        return _timestamp(left.nanos + right.nanos, left.offset_s)
    raise no_such_overload()


def subtract_times(left: Any, right: Any) -> Any:
    """Duration - duration, timestamp - duration, timestamp - timestamp."""
    if type(left) is type(right):
        return _duration(left.nanos - right.nanos)
    if type(left) is Timestamp and type(right) is Duration:
        # Upstream negates first, and the smallest duration has no opposite.
        return _timestamp(left.nanos + negate_duration(right).nanos, left.offset_s)
    raise no_such_overload()


def negate_duration(value: Duration) -> Duration:
    """``-d``"""
    return _duration(-value.nanos)


def _zone_offset_s(value: Timestamp, zone: str) -> int:
    if zone in ("", "UTC", "Local"):
        return 0
    if ".." in zone or zone[0] in "/\\":
        raise CelError("time: invalid location name")
    utc = _local(value, 0)
    # A year in the middle of the range with the same calendar: no overflow when the zone is applied.
    year = utc.year if 1 < utc.year < 9999 else (2000 + utc.year % 400 if utc.year > 9000 else 400 + utc.year)
    moment = datetime(year, utc.month, utc.day, tzinfo=UTC) + timedelta(seconds=utc.second_of_day)
    try:
        offset = moment.astimezone(ZoneInfo(zone)).utcoffset()
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {zone}") from None
    return int(offset.total_seconds()) if offset is not None else 0


def _offset_s(value: Timestamp, zone: str) -> int:
    """Seconds east of UTC of a zone name or a ``+hh:mm`` offset, at that time. Raises CelError."""
    hours_text, colon, minutes_text = zone.partition(":")
    if not colon:
        return _zone_offset_s(value, zone)
    numbers = []
    for part in (hours_text, minutes_text):
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", part):
            raise CelError(f'strconv.Atoi: parsing "{part}": invalid syntax')
        numbers.append(int(part))
    hours, minutes = numbers
    return (hours * 60 + (-minutes if zone.startswith("-") else minutes)) * 60


def _field(read: Any) -> Any:
    def evaluate(value: Timestamp, zone: str = "UTC") -> int:
        return int(read(_local(value, _offset_s(value, zone)), value))

    return evaluate


def _truncated(nanos_per_unit: int) -> Any:
    def evaluate(value: Duration) -> int:
        units = abs(value.nanos) // nanos_per_unit
        return -units if value.nanos < 0 else units

    return evaluate


_FIELDS: Final[dict[str, Any]] = {
    "getFullYear timestamp_to_year": lambda at, _: at.year,
    "getMonth timestamp_to_month": lambda at, _: at.month - 1,
    "getDayOfYear timestamp_to_day_of_year": lambda at, _: at.day_of_year,
    "getDayOfMonth timestamp_to_day_of_month": lambda at, _: at.day - 1,
    "getDate timestamp_to_day_of_month_1_based": lambda at, _: at.day,
    "getDayOfWeek timestamp_to_day_of_week": lambda at, _: at.day_of_week,
    "getHours timestamp_to_hours": lambda at, _: at.second_of_day // 3600,
    "getMinutes timestamp_to_minutes": lambda at, _: at.second_of_day // 60 % 60,
    "getSeconds timestamp_to_seconds": lambda at, _: at.second_of_day % 60,
    "getMilliseconds timestamp_to_milliseconds": lambda _, value: value.nanos % _SECOND // 1_000_000,
}
_DURATION_FIELDS: Final = {
    "getHours duration_to_hours": 3600 * _SECOND,
    "getMinutes duration_to_minutes": 60 * _SECOND,
    "getSeconds duration_to_seconds": _SECOND,
    "getMilliseconds duration_to_milliseconds": 1_000_000,
}

LIBRARY: Final = Library(
    table="\n".join(
        [
            *(f"{names} timestamp.() int" for names in _FIELDS),
            *(f"{names}_with_tz timestamp.(string) int" for names in _FIELDS),
            *(f"{names} duration.() int" for names in _DURATION_FIELDS),
        ]
    ),
    implementations={
        **{names.split()[1]: _field(read) for names, read in _FIELDS.items()},
        **{names.split()[1] + "_with_tz": _field(read) for names, read in _FIELDS.items()},
        **{names.split()[1]: _truncated(unit) for names, unit in _DURATION_FIELDS.items()},
    },
)
