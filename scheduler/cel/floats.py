"""Doubles as Go prints them."""

from __future__ import annotations

import math


def format_float(value: float) -> str:
    """A double as Go's %v / %g prints it (shortest form, exponent from 1e6 or below 1e-4)."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(value)
    mantissa, _, exponent = text.partition("e")
    digits = mantissa.lstrip("-").replace(".", "")
    point = mantissa.lstrip("-").find(".")
    power = int(exponent) if exponent else 0
    whole = point if point >= 0 else len(digits)
    stripped = digits.lstrip("0")
    magnitude = whole + power - (len(digits) - len(stripped)) - 1 if stripped else 0
    stripped = stripped.rstrip("0") or "0"
    sign = "-" if math.copysign(1.0, value) < 0 else ""
    if magnitude < -4 or magnitude >= 6:
        fraction = f".{stripped[1:]}" if len(stripped) > 1 else ""
        return f"{sign}{stripped[0]}{fraction}e{'-' if magnitude < 0 else '+'}{abs(magnitude):02d}"
    return sign + _plain_digits(stripped, magnitude)


def format_float_plain(value: float) -> str:
    """A double without exponent, as short as possible (Go's 'f', -1)."""
    text = format_float(value)
    if "e" not in text:
        return text
    sign = "-" if text.startswith("-") else ""
    mantissa, _, exponent = text.lstrip("-").partition("e")
    return sign + _plain_digits(mantissa.replace(".", ""), int(exponent))


def _plain_digits(digits: str, magnitude: int) -> str:
    if magnitude < 0:
        return "0." + "0" * (-magnitude - 1) + digits
    if len(digits) <= magnitude + 1:
        return digits + "0" * (magnitude + 1 - len(digits))
    return digits[: magnitude + 1] + "." + digits[magnitude + 1 :]
