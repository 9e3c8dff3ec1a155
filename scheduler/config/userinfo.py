"""User and password in a URL: what may be shown of it, and what authenticates.

Source: Go 1.26, net/url (everything up to the last @ of the authority) and net/http (stripPassword of a failed request:
``user:***@``; basic authentication, with an empty password when there is none; a user alone is shown).
"""

from __future__ import annotations

import base64
import re

_SCHEME = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//")
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:\[\]]*)(?::[0-9]+)?")
_ESCAPE = re.compile(rb"%([0-9A-Fa-f]{2})")
_AUTHORITY = re.compile(r"[^/?#]*")


def masked(url: str) -> str:
    """``url`` with ``***`` for its password. What looks like one that should have been percent-encoded is one, too."""
    start, at = _userinfo(url)
    user, colon, _ = url[start : max(at, start)].partition(":")
    return f"{url[:start]}{user}:***{url[at:]}" if colon else url


def login(url: str) -> tuple[str, str]:
    """``url`` without user and password, and the Authorization header they make, "" for none.

    Raises ValueError, which shows nothing of it, for a URL whose password ends the authority.
    """
    start, at = _userinfo(url)
    if at < 0:
        return url, ""
    authority = _AUTHORITY.match(url, start)
    if authority is None or at >= authority.end():
        raise ValueError("invalid port after host; /, ? and # in a password must be percent-encoded")
    user, _, password = url[start:at].partition(":")
    pair = _decoded(user) + b":" + _decoded(password)
    return url[:start] + url[at + 1 :], f"Basic {base64.b64encode(pair).decode()}"


def _decoded(text: str) -> bytes:
    return _ESCAPE.sub(lambda found: bytes.fromhex(found.group(1).decode()), text.encode("utf-8", "surrogatepass"))


def _userinfo(url: str) -> tuple[int, int]:
    """Where user and password begin, and where the @ behind them is; it is -1 when there are none."""
    scheme, at = _SCHEME.match(url), -1
    start = scheme.end() if scheme else 0
    authority = _AUTHORITY.match(url, start)
    if authority is not None:
        at = url.rfind("@", start, authority.end())
        if at < 0 and not _HOST.fullmatch(authority.group()):
            at = url.rfind("@", start)
    return start, at
