"""Named formats: ``format.dns1123Label().validate(s)`` and its kin (apiserver 0.37, cel/library/format.go)."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final

from scheduler.cel.registry import Library
from scheduler.cel.url import UrlError, parse_request
from scheduler.cel.values import NONE, Opaque, OptionalValue, some

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_KEY: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_KEY})?"
_LABEL_MAX: Final = 63
_SUBDOMAIN_MAX: Final = 253
_UUID: Final = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_BASE64: Final = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_DATE: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
_TIME: Final = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})")
_UUID_PATTERN_LENGTH: Final = 70
_DATE_TIME_PATTERN_LENGTH: Final = 71

Validate = Callable[[str], list[str]]


class NamedFormat(Opaque):
    """A format: equal by name. ``regex_size`` is what validating is charged by."""

    __slots__ = ("name", "regex_size", "validate")
    type_name = "kubernetes.NamedFormat"

    def __init__(self, name: str, validate: Validate, regex_size: int) -> None:
        self.name = name
        self.validate = validate
        self.regex_size = regex_size

    def same(self, other: Any) -> bool:
        """Same name."""
        return bool(self.name == other.name)


def _too_long(limit: int, text: str) -> list[str]:
    return [f"must be no more than {limit} bytes"] if len(text.encode("utf-8", "surrogatepass")) > limit else []


def _mismatch(what: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{what} (e.g. {shown}regex used for validation is '{pattern}')"


def _dns1123_label(text: str) -> list[str]:
    problems = _too_long(_LABEL_MAX, text)
    if not re.fullmatch(_LABEL, text):
        if re.fullmatch(_SUBDOMAIN, text):
            problems.append("must not contain dots")
        else:
            problems.append(
                _mismatch(
                    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must"
                    " start and end with an alphanumeric character",
                    _LABEL,
                    "my-name",
                    "123-abc",
                )
            )
    return problems


def _dns1123_subdomain(text: str) -> list[str]:
    problems = _too_long(_SUBDOMAIN_MAX, text)
    if not re.fullmatch(_SUBDOMAIN, text):
        problems.append(
            _mismatch(
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and"
                " must start and end with an alphanumeric character",
                _SUBDOMAIN,
                "example.com",
            )
        )
    return problems


def _dns1035_label(text: str) -> list[str]:
    problems = _too_long(_LABEL_MAX, text)
    if not re.fullmatch(_LABEL_1035, text):
        problems.append(
            _mismatch(
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic"
                " character, and end with an alphanumeric character",
                _LABEL_1035,
                "my-name",
                "abc-123",
            )
        )
    return problems


_KEY_RULE: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)


def _qualified_name(text: str) -> list[str]:
    problems: list[str] = []
    parts = text.split("/")
    examples = ("MyName", "my.name", "123-abc")
    if len(parts) > 2:
        shown = _mismatch(f"a valid label key {_KEY_RULE}", _KEY, *examples)
        return [f"{shown} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    if len(parts) == 2:
        if not parts[0]:
            problems.append("prefix part must be non-empty")
        else:
            problems += [f"prefix part {problem}" for problem in _dns1123_subdomain(parts[0])]
    name = parts[-1]
    if not name:
        problems.append("name part must be non-empty")
    else:
        problems += [f"name part {problem}" for problem in _too_long(_LABEL_MAX, name)]
    if not re.fullmatch(_KEY, name):
        problems.append(f"name part {_mismatch(_KEY_RULE, _KEY, *examples)}")
    return problems


def _label_value(text: str) -> list[str]:
    problems = _too_long(_LABEL_MAX, text)
    if not re.fullmatch(_VALUE, text):
        problems.append(
            _mismatch(
                "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must"
                " start and end with an alphanumeric character",
                _VALUE,
                "MyValue",
                "my_value",
                "12345",
            )
        )
    return problems


def _as_prefix(validate: Validate) -> Validate:
    """A prefix of generated names may end in a dash; upstream replaces the last two characters by an "a"."""

    def check(text: str) -> list[str]:
        return validate(text[:-2] + "a" if len(text) > 1 and text.endswith("-") else text)

    return check


def _uri(text: str) -> list[str]:
    try:
        parse_request(text)
    except UrlError as error:
        return [str(error)]
    return []


def _is_date(text: str) -> bool:
    match = _DATE.fullmatch(text)
    if match is None:
        return False
    try:
        # Year 0 exists in Go, and is a leap year.
        date(int(match[1]) or 4, int(match[2]), int(match[3]))
    except ValueError:
        return False
    return True


def _is_date_time(text: str) -> bool:
    parts = text.lower().split("t")
    if len(text) < 4 or len(parts) < 2 or not _is_date(parts[0]):
        return False
    match = _TIME.fullmatch(parts[1])
    return match is not None and match[1] <= "23" and match[2] <= "59" and match[3] <= "59"


def _matching(test: Callable[[str], Any], problem: str) -> Validate:
    return lambda text: [] if test(text) else [problem]


FORMATS: Final[dict[str, NamedFormat]] = {
    "dns1123Label": NamedFormat("DNS1123Label", _dns1123_label, 30),
    "dns1123Subdomain": NamedFormat("DNS1123Subdomain", _dns1123_subdomain, 60),
    "dns1035Label": NamedFormat("DNS1035Label", _dns1035_label, 30),
    "qualifiedName": NamedFormat("QualifiedName", _qualified_name, 60),
    "dns1123LabelPrefix": NamedFormat("DNS1123LabelPrefix", _as_prefix(_dns1123_label), 30),
    "dns1123SubdomainPrefix": NamedFormat("DNS1123SubdomainPrefix", _as_prefix(_dns1123_subdomain), 60),
    "dns1035LabelPrefix": NamedFormat("DNS1035LabelPrefix", _as_prefix(_dns1035_label), 30),
    "labelValue": NamedFormat("LabelValue", _label_value, 40),
    "uri": NamedFormat("URI", _uri, 1103),
    "uuid": NamedFormat("uuid", _matching(_UUID.fullmatch, "does not match the UUID format"), _UUID_PATTERN_LENGTH),
    "byte": NamedFormat("byte", _matching(_BASE64.fullmatch, "invalid base64"), 84),
    "date": NamedFormat("date", _matching(_is_date, "invalid date"), _DATE_TIME_PATTERN_LENGTH),
    "datetime": NamedFormat("datetime", _matching(_is_date_time, "invalid datetime"), _DATE_TIME_PATTERN_LENGTH),
}


def _named(name: str) -> OptionalValue:
    found = FORMATS.get(name)
    return NONE if found is None else some(found)


def _validate(named: NamedFormat, text: str) -> OptionalValue:
    problems = named.validate(text)
    return some(problems) if problems else NONE


def _constant(named: NamedFormat) -> Callable[[], NamedFormat]:
    return lambda: named


LIBRARY: Final = Library(
    table="validate format-validate Format.(string) optional(list(string))\n"
    "format.named format-named (string) optional(Format)\n"
    + "\n".join(f"format.{name} format.{name} () Format" for name in FORMATS),
    implementations={
        "format-validate": _validate,
        "format-named": _named,
        **{f"format.{name}": _constant(named) for name, named in FORMATS.items()},
    },
)
