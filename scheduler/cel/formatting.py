"""``string.format``: the clauses, and the check of constant format strings (cel-go 0.29, ext/formatting.go)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

from scheduler.cel.convert import convert
from scheduler.cel.errors import CelError, CostExceededError
from scheduler.cel.semver import go_quote
from scheduler.cel.values import Duration, MapValue, Timestamp, TypeValue, Uint, type_name
from scheduler.cel.work import check_result, visit

_DEFAULT_PRECISION: Final = 6
# Digits beyond what any double has; upstream would print zeros without end.
_MAX_PRECISION: Final = 100_000
_EXCEPTIONS: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_NUMBER: Final = re.compile(r"[+-]?[0-9]+")

Formatter = Callable[[Any], str]
Clauses = Callable[[str, int | None], Formatter | None]


def format_text(template: str, arguments: list[Any]) -> str:
    """Fill in a format string. Raises CelError with upstream's text."""
    try:
        return interpret(template, len(arguments), lambda index: arguments[index], _clause)
    except FormatError as error:
        raise CelError(str(error)) from None


class FormatError(Exception):
    """A format string and its arguments do not fit."""


def interpret(template: str, count: int, argument: Callable[[int], Any], clauses: Clauses) -> str:
    """Walk over a format string; ``clauses`` gives the formatter of a verb. Raises FormatError."""
    parts: list[str] = []
    at = 0
    used = length = 0
    while at < len(template):
        percent = template.find("%", at)
        if percent < 0:
            parts.append(template[at:])
            break
        parts.append(template[at:percent])
        if template[percent + 1 : percent + 2] == "%":
            parts.append("%")
            at = percent + 2
            continue
        if used >= count:
            raise FormatError(f"index {used} out of range")
        if percent + 1 >= len(template):
            raise FormatError("unexpected end of string")
        formatter, at = _parse_clause(template, percent + 1, clauses)
        try:
            parts.append(formatter(argument(used)))
            length += len(parts[-1])
            check_result(length)
        except FormatError as error:
            raise FormatError(f"error during formatting: {error}") from None
        used += 1
    return "".join(parts)


def _parse_clause(template: str, at: int, clauses: Clauses) -> tuple[Formatter, int]:
    prefix = "could not parse formatting clause: "
    precision: int | None = None
    if template[at] == ".":
        end = at + 1
        while end < len(template) and template[end] in "0123456789":
            end += 1
        if end >= len(template):
            raise FormatError(prefix + "error while parsing precision: could not find end of precision specifier")
        digits = template[at + 1 : end]
        if not digits:
            raise FormatError(
                prefix + "error while parsing precision: error while converting precision to integer:"
                ' strconv.Atoi: parsing "": invalid syntax'
            )
        if len(digits) > 18:
            raise FormatError(
                prefix + "error while parsing precision: error while converting precision to integer:"
                f' strconv.Atoi: parsing "{digits}": value out of range'
            )
        precision = int(digits)
        at = end
    formatter = clauses(template[at], precision)
    if formatter is None:
        raise FormatError(f'{prefix}unrecognized formatting clause "{template[at]}"')
    return formatter, at + 1


def _clause(verb: str, precision: int | None) -> Formatter | None:
    digits = _DEFAULT_PRECISION if precision is None else precision
    return {
        "s": format_value,
        "d": _decimal,
        "f": lambda value: _fixed(value, digits),
        "e": lambda value: _scientific(value, digits),
        "b": _binary,
        "x": _hexadecimal,
        "X": lambda value: _hexadecimal(value).upper(),
        "o": _octal,
    }.get(verb)


def format_value(value: Any) -> str:
    """``%s``"""
    kind = type(value)
    if kind is list:
        return _list(value)
    if isinstance(value, MapValue):
        return _map(value)
    if value is None:
        return "null"
    if kind is TypeValue:
        return str(value.name)
    if kind in (int, Uint, float, bool, str, bytes, Timestamp, Duration):
        return value if kind is str else _to_text(value)
    raise FormatError(
        "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
        f" timestamps, was given {type_name(value)}"
    )


def _to_text(value: Any) -> str:
    try:
        return str(convert(value, "string"))
    except CelError as error:
        raise FormatError(f"could not convert argument {go_quote(error.message)} to string") from None


def _decimal(value: Any) -> str:
    if type(value) is int or type(value) is Uint:
        return str(int(value))
    raise FormatError(f"decimal clause can only be used on integers, was given {type_name(value)}")


def _double(value: Any, clause: str) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _EXCEPTIONS:
        return float(value.replace("Infinity", "inf"))
    raise FormatError(f"{clause} clause can only be used on doubles, was given {type_name(value)}")


def _special(value: float) -> str | None:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    return None


def _fixed(value: Any, digits: int) -> str:
    number = _double(value, "fixed-point")
    if digits > _MAX_PRECISION:
        raise CostExceededError
    return _special(number) or f"{number + 0.0:,.{digits}f}"


def _scientific(value: Any, digits: int) -> str:
    number = _double(value, "scientific")
    if digits > _MAX_PRECISION:
        raise CostExceededError
    text = _special(number)
    if text is None:
        mantissa, _, exponent = f"{number + 0.0:.{_DEFAULT_PRECISION}e}".partition("e")
        sign = "-" if exponent.startswith("-") else ""
        text = f"{mantissa}×10{(sign + exponent[1:]).translate(_SUPERSCRIPT)}"
    # Upstream hands the precision on as a width; the digits are always six.
    return text.rjust(digits)


def _binary(value: Any) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) is int or type(value) is Uint:
        return f"{int(value):b}"
    raise FormatError(f"only integers and bools can be formatted as binary, was given {type_name(value)}")


def _hexadecimal(value: Any) -> str:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) is int or type(value) is Uint:
        return f"{int(value):x}"
    raise FormatError(f"only integers, byte buffers, and strings can be formatted as hex, was given {type_name(value)}")


def _octal(value: Any) -> str:
    if type(value) is int or type(value) is Uint:
        return f"{int(value):o}"
    raise FormatError(f"octal clause can only be used on integers, was given {type_name(value)}")


def _member(value: Any) -> str:
    """An element of a list or map: quoted where CEL would quote it."""
    kind = type(value)
    if kind is float:
        number = _special(value)
        if number is not None:
            return go_quote({"∞": "+Inf", "-∞": "-Inf"}.get(number, number))
        return f"{value:.{_DEFAULT_PRECISION}f}"
    if kind is str:
        return go_quote(value)
    if kind is bytes:
        return "b" + go_quote(_to_text(value))
    if kind is Timestamp or kind is Duration:
        return f"{'timestamp' if kind is Timestamp else 'duration'}({go_quote(_to_text(value))})"
    if kind in (int, Uint, bool, list, TypeValue) or value is None or isinstance(value, MapValue):
        return format_value(value)
    raise FormatError(f"no formatting function for {type_name(value)}")


def _list(values: list[Any]) -> str:
    visit(len(values))
    text = "[" + ", ".join(map(_member, values)) + "]"
    check_result(len(text))
    return text


def _map(entries: MapValue) -> str:
    shown: list[tuple[str, str]] = []
    visit(len(entries))
    for key, value in entries.items():
        if type(key) not in (str, bool, int, Uint):
            raise FormatError(f"no formatting function for map key of type {type_name(key)}")
        shown.append((_member(key), _member(value)))
    return "{" + ", ".join(f"{key}:{value}" for key, value in sorted(shown, key=lambda pair: pair[0])) + "}"
