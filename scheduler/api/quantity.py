"""Kubernetes resource quantities: exact decimals with upstream's parsing, rounding and printing rules.

A quantity is a mantissa times a power of ten and the format it was written in. Upstream keeps small values in
an int64 and everything else in a big decimal; the choice is visible (CEL's ``isInteger``), so it is kept here
as ``big``. Source of the rules: k8s.io/apimachinery 0.37, pkg/api/resource.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache, total_ordering
from typing import Final

_INT64_MAX: Final = 2**63 - 1
_NANO: Final = -9
_INT64_DIGITS: Final = 18
# Powers of ten beyond this are compared by magnitude instead of being written out.
_MAX_EXPANDED_POWER: Final = 2000
# Longer texts are refused: reading n digits takes n² steps, and no amount of anything has as many.
_MAX_TEXT: Final = 4000
# Python prints no larger integers at once.
_PRINTED: Final = 10**4000


class Format(Enum):
    """The way a quantity is written; arithmetic keeps it."""

    BINARY_SI = "BinarySI"
    DECIMAL_SI = "DecimalSI"
    DECIMAL_EXPONENT = "DecimalExponent"


_DECIMAL_SUFFIXES: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
_BINARY_SUFFIXES: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_BY_POWER: Final = {power: suffix for suffix, power in _DECIMAL_SUFFIXES.items()}
_BINARY_BY_POWER: Final = {power // 10: suffix for suffix, power in _BINARY_SUFFIXES.items()}

_FORMAT_MESSAGE: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_NUMERIC_MESSAGE: Final = "unable to parse numeric part of quantity"
_LENGTH_MESSAGE: Final = f"quantities must not have more than {_MAX_TEXT} characters"
_SHOWN: Final = 60
_SUFFIX_MESSAGE: Final = "unable to parse quantity's suffix"


class QuantityError(ValueError):
    """A text is not a quantity. The message is upstream's; ``text`` is what was given, cut where it is long."""

    def __init__(self, text: str, message: str) -> None:
        super().__init__(message)
        self.text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        self.message = message


@total_ordering
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantity:
    """An exact amount: ``mantissa * 10**power``. Immutable; equal, ordered and hashed by value.

    ``big`` says that upstream would hold the amount as a big decimal; ``text`` is the text it was parsed from
    when upstream prints that text again, else empty.
    """

    mantissa: int
    power: int = 0
    format: Format = Format.DECIMAL_SI
    big: bool = False
    text: str = ""
    _reduced: tuple[int, int] | None = field(default=None, init=False)

    def value(self) -> int:
        """The amount in units, fractions rounded up (away from zero). An int64 overflow gives 0, as upstream."""
        return self._scaled(0)

    def milli_value(self) -> int:
        """The amount in thousandths, rounded as ``value`` does."""
        return self._scaled(-3)

    def exact_int64(self) -> int | None:
        """The amount as int64, or None where upstream's AsInt64 gives up: a big decimal, a fraction, too large."""
        if self.big or self.power < 0 or (self.power > _INT64_DIGITS and self.mantissa):
            return None
        amount = self.mantissa * 10 ** (self.power if self.mantissa else 0)
        return amount if -_INT64_MAX - 1 <= amount <= _INT64_MAX else None

    def approximate_float(self) -> float:
        """The nearest product of a float mantissa and a float power of ten (upstream AsApproximateFloat64)."""
        try:
            base = float(self.mantissa)
        except OverflowError:
            base = float("inf") if self.mantissa > 0 else float("-inf")
        if self.power == 0:
            return base
        if self.power < -323:
            return base * 0.0
        return base * (float(f"1e{self.power}") if self.power <= 308 else float("inf"))

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.mantissa > 0) - (self.mantissa < 0)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1 as this amount is less than, equal to or greater than the other."""
        if self.power == other.power:
            return (self.mantissa > other.mantissa) - (self.mantissa < other.mantissa)
        signs = (self.sign(), other.sign())
        if signs[0] != signs[1]:
            return 1 if signs[0] > signs[1] else -1
        if signs[0] == 0:
            return 0
        if abs(self.power - other.power) > _MAX_EXPANDED_POWER:
            return signs[0] if _magnitude(self) > _magnitude(other) else -signs[0]
        low = min(self.power, other.power)
        left: int = self.mantissa * 10 ** (self.power - low)
        right: int = other.mantissa * 10 ** (other.power - low)
        return (left > right) - (left < right)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __hash__(self) -> int:
        return hash(self._normal())

    def __add__(self, other: Quantity) -> Quantity:
        """The sum. Adding to zero takes the other's format."""
        return self._combine(other, 1)

    def __sub__(self, other: Quantity) -> Quantity:
        """The difference. Subtracting from zero takes the other's format."""
        return self._combine(other, -1)

    def __neg__(self) -> Quantity:
        return Quantity(-self.mantissa, self.power, self.format, self.big)

    def __bool__(self) -> bool:
        return self.mantissa != 0

    def __str__(self) -> str:
        return self.text or self._canonical()

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def _normal(self) -> tuple[int, int]:
        """Mantissa without trailing zeros and the fitting power; equal for equal amounts."""
        if self._reduced is None:
            mantissa, power = _strip_zeros(self.mantissa, 10)
            normal = (mantissa, power + self.power) if mantissa else (0, 0)
            # A cache in a frozen object: it never changes what the object means.
            object.__setattr__(self, "_reduced", normal)
            return normal
        return self._reduced

    def _scaled(self, power: int) -> int:
        shift = self.power - power
        if shift >= 0:
            if shift > _INT64_DIGITS and self.mantissa:
                return 0
            amount = self.mantissa * 10**shift if self.mantissa else 0
            return amount if -_INT64_MAX - 1 <= amount <= _INT64_MAX else 0
        if self.mantissa == 0:
            return 0
        if -shift > _digits(self.mantissa):
            quotient, rest = 0, 1
        else:
            quotient, rest = divmod(abs(self.mantissa), 10**-shift)
        amount = quotient + (1 if rest else 0)
        if amount > _INT64_MAX + (1 if self.mantissa < 0 else 0):
            return 0
        return amount if self.mantissa > 0 else -amount

    def _combine(self, other: Quantity, sign: int) -> Quantity:
        result_format = other.format if self.mantissa == 0 else self.format
        big = self.big or other.big
        if not big:
            if other.mantissa == 0:
                return Quantity(self.mantissa, self.power, result_format)
            if self.mantissa == 0:
                negated = other.mantissa if other.mantissa == -_INT64_MAX - 1 else sign * other.mantissa
                return Quantity(negated, other.power, result_format)
        if abs(self.power - other.power) > _MAX_EXPANDED_POWER:
            # The smaller one is lost in any use a quantity has; writing both out could need gigabytes.
            larger = self if _magnitude(self) >= _magnitude(other) else other
            factor = 1 if larger is self else sign
            return Quantity(factor * larger.mantissa, larger.power, result_format, True)
        low = min(self.power, other.power)
        left = self.mantissa * 10 ** (self.power - low)
        right = other.mantissa * 10 ** (other.power - low)
        added = sign * right
        if sign < 0 and other.mantissa == -_INT64_MAX - 1 and not big and _fit_int64(left, right, left + right):
            # Upstream negates an int64 unchecked, which leaves the least one as it is.
            added = right
        total = left + added
        fits = _fit_int64(left, added, total)
        return Quantity(total, low, result_format, big or not fits)

    def _canonical(self) -> str:
        if self.mantissa == 0:
            return "0"
        if self.format is Format.BINARY_SI and self.power <= _MAX_EXPANDED_POWER:
            unit = self._whole()
            if unit is not None and not -1024 < unit < 1024:
                amount, power = _strip_zeros(unit, 1024)
                suffix = _BINARY_BY_POWER.get(power, "") if power else ""
                return f"{amount}{suffix}"
        mantissa, power = self._normal()
        while power % 3:
            mantissa *= 10
            power -= 1
        if self.format is Format.DECIMAL_EXPONENT:
            return f"{_printed(mantissa)}e{power}" if power else _printed(mantissa)
        return f"{_printed(mantissa)}{_DECIMAL_BY_POWER.get(power, '')}"

    def _whole(self) -> int | None:
        mantissa, power = self._normal()
        return None if power < 0 else int(mantissa * 10**power)


def _fit_int64(*numbers: int) -> bool:
    return all(-_INT64_MAX - 1 <= number <= _INT64_MAX for number in numbers)


def _magnitude(quantity: Quantity) -> int:
    """Decimal digits before the point, of the absolute amount."""
    return _digits(quantity.mantissa) + quantity.power if quantity.mantissa else -(2**40)


def _digits(number: int) -> int:
    """How many decimal digits, the sign left out."""
    number, count = abs(number), 0
    while number >= _PRINTED:
        number //= _PRINTED
        count += 4000
    return count + len(str(number))


def _printed(number: int) -> str:
    """The decimal digits of an integer of any size."""
    if -_PRINTED < number < _PRINTED:
        return str(number)
    high, low = divmod(abs(number), _PRINTED)
    return f"{'-' if number < 0 else ''}{_printed(high)}{low:04000d}"


def _strip_zeros(mantissa: int, base: int) -> tuple[int, int]:
    times = 0
    while mantissa and mantissa % base == 0:
        mantissa //= base
        times += 1
    return mantissa, times


def parse_quantity(text: str | int | float) -> Quantity:
    """Parse a quantity as it stands in an API object (a string, or a JSON number without fraction).

    Finer than nano rounds away from zero; with a binary suffix the amount is capped at 2**63-1.
    Results for equal text are shared. Raises QuantityError with upstream's words.
    """
    return _parse(str(text))


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, text="0")
    negative, value, whole, fraction, suffix = _split(text)
    base, exponent, unit = _interpret(suffix, text)
    precision = _INT64_DIGITS - len(whole) - len(fraction)
    factor = 1
    power = exponent
    if unit is Format.BINARY_SI:
        power = 0
        factor = 1 << exponent
        precision = -1 if fraction else 15 - len(whole) - exponent * 3 // 10 - 1
    power -= len(fraction)
    if precision >= 0 and power >= _NANO:
        digits = whole + fraction
        shown = ""
        if unit is Format.BINARY_SI:
            if int(digits) & 7:
                shown = text
        elif power % 3 == 0 and not digits.endswith("000") and digits[0] != "0":
            shown = text
        mantissa = int(digits) * factor
        if mantissa <= _INT64_MAX:
            return Quantity(-mantissa if negative else mantissa, power, unit, False, shown)
    return _parse_big(text, value, base, exponent, unit, negative)


def _parse_big(text: str, value: str, base: int, exponent: int, unit: Format, negative: bool) -> Quantity:
    whole, _, fraction = value.lstrip("+-").partition(".")
    if not (whole or fraction):
        raise QuantityError(text, _NUMERIC_MESSAGE)
    mantissa, power = int(whole + fraction), -len(fraction)
    if base == 10:
        power += exponent
    else:
        mantissa <<= exponent
    if mantissa:
        shift = power - _NANO
        if shift < 0:
            mantissa = 1 if -shift > _digits(mantissa) else -(-mantissa // 10**-shift)
            power = _NANO
        elif shift <= _MAX_EXPANDED_POWER:
            mantissa, power = mantissa * 10**shift, _NANO
    if unit is Format.BINARY_SI:
        one = 10 ** (-power if power < 0 else 0)
        if mantissa > _INT64_MAX * one:
            mantissa, power = _INT64_MAX, 0
        elif 0 < mantissa < one:
            unit = Format.DECIMAL_SI
    return Quantity(-mantissa if negative else mantissa, power, unit, True)


def _split(text: str) -> tuple[bool, str, str, str, str]:
    """Sign, numeric text, digits before and after the point (leading zeros gone), suffix."""
    if not text:
        raise QuantityError(text, _FORMAT_MESSAGE)
    if len(text) > _MAX_TEXT:
        raise QuantityError(text, _LENGTH_MESSAGE)
    end = len(text)
    negative = text[0] == "-"
    start = 1 if text[0] in "+-" else 0
    while start < end and text[start] == "0":
        start += 1
    if start == end:
        return negative, "0", "0", "", ""
    at = _skip(text, start, "0123456789")
    whole = text[start:at] or "0"
    fraction = ""
    if at < end and text[at] == ".":
        point = at + 1
        at = _skip(text, point, "0123456789")
        fraction = text[point:at]
    value = text[:at]
    suffix_end = _skip(text, at, "eEinumkKMGTP")
    if suffix_end < end and text[suffix_end] in "+-":
        suffix_end += 1
    if _skip(text, suffix_end, "0123456789") != end:
        raise QuantityError(text, _FORMAT_MESSAGE)
    return negative, value, whole, fraction, text[at:]


def _skip(text: str, start: int, allowed: str) -> int:
    while start < len(text) and text[start] in allowed:
        start += 1
    return start


def _interpret(suffix: str, text: str) -> tuple[int, int, Format]:
    """Base, exponent and format a suffix stands for."""
    if suffix in _DECIMAL_SUFFIXES:
        return 10, _DECIMAL_SUFFIXES[suffix], Format.DECIMAL_SI
    if suffix in _BINARY_SUFFIXES:
        return 2, _BINARY_SUFFIXES[suffix], Format.BINARY_SI
    if suffix[:1] in "eE" and len(suffix) > 1:
        digits = suffix[1:]
        if digits.lstrip("+-").isdecimal() and digits.isascii() and len(digits) < 20:
            exponent = int(digits)
            # Upstream narrows to int32 without a check.
            return 10, (exponent + 2**31) % 2**32 - 2**31, Format.DECIMAL_EXPONENT
    raise QuantityError(text, _SUFFIX_MESSAGE)
