"""Names and random parts of names, as the API server accepts and makes them."""

from __future__ import annotations

import random
import re

SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_MAX_NAME = 63
_SUFFIX_LENGTH = 5
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")

SUBDOMAIN_TEXT = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


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
