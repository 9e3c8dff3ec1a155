"""Durations in Go's form."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config.durations import DurationError, format_duration, format_seconds, go_quote, parse_duration

_SECOND = 1_000_000_000


@pytest.mark.parametrize(
    ("text", "expected_ns"),
    [
        ("0", 0),
        ("-0", 0),
        ("15s", 15 * _SECOND),
        ("5m0s", 300 * _SECOND),
        ("1h15m30.918273645s", 4530_918273645),
        ("1.5h", 5400 * _SECOND),
        (".5s", _SECOND // 2),
        ("1.s", _SECOND),
        ("-10ms", -10_000_000),
        ("+3us", 3_000),
        ("3µs", 3_000),
        ("3μs", 3_000),
        ("1.9ns", 1),
        ("9223372036854775807ns", 2**63 - 1),
    ],
)
def test_a_go_duration_is_read(text: str, expected_ns: int) -> None:
    """Every form that Go accepts gives Go's nanoseconds."""
    assert parse_duration(text) == expected_ns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'time: invalid duration ""'),
        ("-", 'time: invalid duration "-"'),
        ("3", 'time: missing unit in duration "3"'),
        ("1x", 'time: unknown unit "x" in duration "1x"'),
        ("1d2h", 'time: unknown unit "d" in duration "1d2h"'),
        (".s", 'time: invalid duration ".s"'),
        (" 1s", 'time: invalid duration " 1s"'),
        ("1s-2s", 'time: unknown unit "s-" in duration "1s-2s"'),
        ("9223372036854775808ns", 'time: invalid duration "9223372036854775808ns"'),
        ("٣s", 'time: invalid duration "٣s"'),
    ],
)
def test_nonsense_is_refused_in_gos_words(text: str, message: str) -> None:
    """A text that is no duration raises DurationError with Go's message."""
    with pytest.raises(DurationError) as caught:
        parse_duration(text)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("duration_ns", "expected"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (3_300_000_000, "3.3s"),
        (300 * _SECOND, "5m0s"),
        (305_001_000_000, "5m5.001s"),
        (3600 * _SECOND, "1h0m0s"),
        (-90 * _SECOND, "-1m30s"),
    ],
)
def test_a_duration_prints_as_go_prints_it(duration_ns: int, expected: str) -> None:
    """The printed form is that of Go's Duration.String."""
    assert format_duration(duration_ns) == expected


@given(st.integers(min_value=-(2**63) + 1, max_value=2**63 - 1))
def test_printing_and_reading_are_inverse(duration_ns: int) -> None:
    """What is printed reads back as the same number of nanoseconds."""
    assert parse_duration(format_duration(duration_ns)) == duration_ns


def test_seconds_print_without_float_noise() -> None:
    """0.1 s is 100ms although the float is not exact."""
    assert format_seconds(0.1) == "100ms"


def test_quoting_escapes_what_go_escapes() -> None:
    """Quotes, backslashes and control characters are escaped, printable Unicode is kept."""
    assert go_quote('a"\\\n\x01é\u200b') == '"a\\"\\\\\\n\\x01é\\u200b"'
