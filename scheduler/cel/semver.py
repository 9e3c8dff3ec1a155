"""Semantic versions as blang/semver v4 reads and orders them, and their functions."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.registry import Library
from scheduler.cel.values import UINT_MAX, Opaque

_DIGITS: Final = frozenset("0123456789")
_ALPHANUM: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789")


class SemverError(ValueError):
    """A text is not a semantic version."""


class Semver(Opaque):
    """A version. Equality and order ignore build metadata."""

    __slots__ = ("build", "key", "major", "minor", "patch", "pre", "text")
    type_name = "kubernetes.Semver"

    def __init__(self, major: int, minor: int, patch: int, pre: tuple[int | str, ...], build: tuple[str, ...]) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        self.pre = pre
        self.build = build
        # Numbers sort before words, a release after all its pre-releases, a longer list after its prefix.
        order = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in pre)
        shown = f"{major}.{minor}.{patch}" + ("-" + ".".join(map(str, pre)) if pre else "")
        self.text = shown + ("+" + ".".join(build) if build else "")
        self.key = (major, minor, patch, 0 if pre else 1, order)

    @classmethod
    def parse(cls, text: str, *, normalize: bool = False) -> Semver:
        """Strict, or after completing a short form. Raises SemverError; results for equal text are shared."""
        return _parse(_normalized(text) if normalize else text)

    def same(self, other: Any) -> bool:
        """Equal but for build metadata."""
        return bool(self.key == other.key)

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        return (self.key > other.key) - (self.key < other.key)

    def __str__(self) -> str:
        return self.text


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for index, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[index] = stripped if stripped and stripped[0] in _DIGITS else "0" + stripped
    if len(parts) < 3:
        if any(mark in parts[-1] for mark in "+-"):
            raise SemverError("short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


@lru_cache(maxsize=1024)
def _parse(text: str) -> Semver:
    if not text:
        raise SemverError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise SemverError("No Major.Minor.Patch elements found")
    major = _number(parts[0], "major", "Major")
    minor = _number(parts[1], "minor", "Minor")
    rest, plus, build_text = parts[2].partition("+")
    patch_text, minus, pre_text = rest.partition("-")
    patch = _number(patch_text, "patch", "Patch")
    pre = tuple(_pre_release(part) for part in pre_text.split(".")) if minus else ()
    build = tuple(build_text.split(".")) if plus else ()
    for part in build:
        if not part:
            raise SemverError("Build meta data is empty")
        if not _ALPHANUM.issuperset(part):
            raise SemverError(f"Invalid character(s) found in build meta data {go_quote(part)}")
    return Semver(major, minor, patch, pre, build)


def _number(text: str, name: str, title: str) -> int:
    if not _DIGITS.issuperset(text):
        raise SemverError(f"Invalid character(s) found in {name} number {go_quote(text)}")
    if len(text) > 1 and text[0] == "0":
        raise SemverError(f"{title} number must not contain leading zeroes {go_quote(text)}")
    return _uint64(text)


def _uint64(text: str) -> int:
    if not text:
        raise SemverError('strconv.ParseUint: parsing "": invalid syntax')
    if len(text) > 20 or int(text) > UINT_MAX:
        raise SemverError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return int(text)


def _pre_release(text: str) -> int | str:
    if not text:
        raise SemverError("Prerelease is empty")
    if _DIGITS.issuperset(text):
        if len(text) > 1 and text[0] == "0":
            raise SemverError(f"Numeric PreRelease version must not contain leading zeroes {go_quote(text)}")
        return _uint64(text)
    if not _ALPHANUM.issuperset(text):
        raise SemverError(f"Invalid character(s) found in prerelease {go_quote(text)}")
    return text


_ESCAPES: Final = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\",
    '"': '\\"',
}  # fmt: skip


def go_quote(text: str) -> str:
    """The text as Go's %q prints it."""
    return '"' + "".join(map(_quoted_character, text)) + '"'


def _quoted_character(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _semver(text: Any, normalize: Any = False) -> Semver:
    if type(text) is not str or type(normalize) is not bool:
        raise no_such_overload()
    try:
        return Semver.parse(text, normalize=normalize)
    except SemverError as error:
        raise CelError(str(error)) from None


def _is_semver(text: Any, normalize: Any = False) -> bool:
    try:
        Semver.parse(text, normalize=normalize)
    except SemverError:
        return False
    return True


def _int64(number: int) -> int:
    # Go converts the unsigned number without a check.
    return number - 2**64 if number >= 2**63 else number


LIBRARY: Final = Library(
    table="""
semver         string_to_semver        (string) Semver
semver         string_bool_to_semver   (string, bool) Semver
isSemver       is_semver_string        (string) bool
isSemver       is_semver_string_bool   (string, bool) bool
isGreaterThan  semver_is_greater_than  Semver.(Semver) bool
isLessThan     semver_is_less_than     Semver.(Semver) bool
compareTo      semver_compare_to       Semver.(Semver) int
major          semver_major            Semver.() int
minor          semver_minor            Semver.() int
patch          semver_patch            Semver.() int
""",
    implementations={
        "string_to_semver": _semver,
        "string_bool_to_semver": _semver,
        "is_semver_string": _is_semver,
        "is_semver_string_bool": _is_semver,
        "semver_is_greater_than": lambda left, right: left.key > right.key,
        "semver_is_less_than": lambda left, right: left.key < right.key,
        "semver_compare_to": Semver.compare,
        "semver_major": lambda version: _int64(version.major),
        "semver_minor": lambda version: _int64(version.minor),
        "semver_patch": lambda version: _int64(version.patch),
    },
)
