"""Names and random parts of names, as the API server accepts and makes them."""

from __future__ import annotations

import random
import re

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_NAME = 63
_SUFFIX_LENGTH = 5
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
NAME_PART_TEXT = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
LABEL_VALUE_TEXT = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


def is_label_value(value: str) -> bool:
    """A label's value: empty, or at most 63 characters that begin and end with a letter or digit."""
    return len(value) <= 63 and _LABEL_VALUE.fullmatch(value) is not None


def qualified_name_problem(key: str) -> str:
    """What is wrong with a label key, annotation key or controller name (prefix/name), or "" when nothing is."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix.lower()):
        return f"prefix part {SUBDOMAIN_TEXT}"
    if not name:
        return "name part must be non-empty"
    return "" if is_label_value(name) else NAME_PART_TEXT


def is_subdomain(name: str) -> bool:
    """RFC 1123 subdomain, at most 253 characters: names of nearly every kind."""
    return len(name) <= 253 and _SUBDOMAIN.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """RFC 1123 label, at most 63 characters: namespaces, request names, device names."""
    return len(name) <= 63 and _LABEL.fullmatch(name) is not None


def generated(base: str, source: random.Random) -> str:
    """base (cut so that the whole fits 63 characters) and five letters that spell nothing."""
    suffix = "".join(source.choice(SUFFIX_LETTERS) for _ in range(_SUFFIX_LENGTH))
    return base[: _MAX_NAME - _SUFFIX_LENGTH] + suffix
