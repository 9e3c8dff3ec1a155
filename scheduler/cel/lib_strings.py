"""The string extension, version 2 (cel-go 0.29, ext/strings.go). Positions count characters."""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.errors import CelError
from scheduler.cel.formatting import format_text
from scheduler.cel.registry import Library
from scheduler.cel.work import check_result

# Unicode's White_Space, which is what Go trims; Python would trim a few more.
_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
        '"': '\\"',
    }
)  # fmt: skip


def _out_of_range(index: int) -> CelError:
    return CelError(f"index out of range: {index}")


def _char_at(text: str, index: int) -> str:
    if index < 0 or index > len(text):
        raise _out_of_range(index)
    return text[index : index + 1]


def _index_of(text: str, part: str, offset: int = 0) -> int:
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> int:
    if offset is None:
        if not part:
            return len(text)
        return text.rfind(part)
    if offset < 0:
        raise _out_of_range(offset)
    if not part:
        return min(offset, len(text))
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    if count == 0:
        return text
    found = text.count(old)
    times = found if count < 0 else min(found, count)
    check_result(len(text) + times * (len(new) - len(old)))
    return text.replace(old, new, times)


def _split(text: str, separator: str, count: int = -1) -> list[str]:
    if count == 0:
        return []
    if not separator:
        if count < 0 or count >= len(text):
            return list(text)
        return [*text[: count - 1], text[count - 1 :]]
    return text.split(separator) if count < 0 else text.split(separator, min(count - 1, len(text)))


def _substring(text: str, start: int, end: int | None = None) -> str:
    if end is not None and start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    if not 0 <= start <= len(text):
        raise _out_of_range(start)
    if end is not None and not 0 <= end <= len(text):
        raise _out_of_range(end)
    return text[start:end]


def _join(parts: list[Any], separator: str = "") -> str:
    for part in parts:
        if type(part) is not str:
            raise CelError(f"join: invalid input: {part}")
    check_result(sum(map(len, parts)) + len(separator) * len(parts))
    return separator.join(parts)


LIBRARY: Final = Library(
    table="""
charAt       string_char_at_int               string.(int) string
indexOf      string_index_of_string           string.(string) int
indexOf      string_index_of_string_int       string.(string, int) int
lastIndexOf  string_last_index_of_string      string.(string) int
lastIndexOf  string_last_index_of_string_int  string.(string, int) int
lowerAscii   string_lower_ascii               string.() string
replace      string_replace_string_string     string.(string, string) string
replace      string_replace_string_string_int string.(string, string, int) string
split        string_split_string              string.(string) list(string)
split        string_split_string_int          string.(string, int) list(string)
substring    string_substring_int             string.(int) string
substring    string_substring_int_int         string.(int, int) string
trim         string_trim                      string.() string
upperAscii   string_upper_ascii               string.() string
format       string_format                    string.(list(dyn)) string
strings.quote  strings_quote                  (string) string
join         list_join                        list(string).() string
join         list_join_string                 list(string).(string) string
""",
    implementations={
        "string_char_at_int": _char_at,
        "string_index_of_string": _index_of,
        "string_index_of_string_int": _index_of,
        "string_last_index_of_string": _last_index_of,
        "string_last_index_of_string_int": _last_index_of,
        "string_lower_ascii": lambda text: text.translate(_LOWER),
        "string_replace_string_string": _replace,
        "string_replace_string_string_int": _replace,
        "string_split_string": _split,
        "string_split_string_int": _split,
        "string_substring_int": _substring,
        "string_substring_int_int": _substring,
        "string_trim": lambda text: text.strip(_SPACE),
        "string_upper_ascii": lambda text: text.translate(_UPPER),
        "string_format": format_text,
        "strings_quote": lambda text: '"' + text.translate(_QUOTED) + '"',
        "list_join": _join,
        "list_join_string": _join,
    },
)
