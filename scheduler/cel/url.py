"""URLs: parsing as Go's net/url does for requests, and their functions (apiserver 0.37, cel/library/urls.go)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from scheduler.cel.errors import CelError
from scheduler.cel.network import AddressError, parse_address
from scheduler.cel.registry import Library
from scheduler.cel.semver import go_quote
from scheduler.cel.values import MapValue, Opaque

_UNRESERVED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~")
_PATH: Final = _UNRESERVED | frozenset(b"$&+,/:;=@")
_HOST: Final = _UNRESERVED | frozenset(b"!$&'()*+,;=:[]<>\"")
# What an already escaped path may hold besides: left as it is when shown again.
_PATH_AS_GIVEN: Final = _PATH | frozenset(b"!'()*[]%")
_USER: Final = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+\-.]*:")
_PORT: Final = re.compile(r"(?::[0-9]*)?")


class UrlError(ValueError):
    """A text is no URL; the message is Go's."""


@dataclass(slots=True)
class _Parts:
    scheme: str = ""
    opaque: str = ""
    user: str | None = None
    host: str = ""
    path: str = ""
    raw_path: str = ""
    query: str = ""
    force_query: bool = False
    omit_host: bool = False
    fragment: str = ""


class URL(Opaque):
    """A parsed URL. Texts hold undecodable bytes as surrogates."""

    __slots__ = ("parts",)
    type_name = "kubernetes.URL"

    def __init__(self, parts: _Parts) -> None:
        self.parts = parts

    def same(self, other: Any) -> bool:
        """Equal when written out."""
        return str(self) == str(other)

    def host_and_port(self) -> tuple[str, str]:
        """Host name without brackets, and the port's digits."""
        host, port = self.parts.host, ""
        colon = host.rfind(":")
        if colon >= 0 and _PORT.fullmatch(host[colon:]):
            host, port = host[:colon], host[colon + 1 :]
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        return host, port

    def escaped_path(self) -> str:
        """The path as it was written if that is a valid form of it, else escaped."""
        raw = self.parts.raw_path
        if raw and all(byte in _PATH_AS_GIVEN for byte in _bytes(raw)):
            return raw
        return "*" if self.parts.path == "*" else _escape(self.parts.path, _PATH)

    def query(self) -> dict[str, list[str]]:
        """Decoded query parameters; malformed ones are left out."""
        found: dict[str, list[str]] = {}
        for pair in self.parts.query.split("&"):
            if not pair or ";" in pair:
                continue
            name, _, value = pair.partition("=")
            try:
                found.setdefault(_unescape_query(name), []).append(_unescape_query(value))
            except UrlError:
                continue
        return {name: values for name, values in found.items() if values}

    def __str__(self) -> str:
        parts = self.parts
        text = f"{parts.scheme}:" if parts.scheme else ""
        if parts.opaque:
            text += parts.opaque
        else:
            if not (parts.omit_host and not parts.host and parts.user is None) and (
                parts.host or parts.user is not None or (parts.scheme and parts.path)
            ):
                text += "//"
            text += f"{parts.user}@" if parts.user is not None else ""
            text += _escape(parts.host, _HOST)
            text += self.escaped_path()
        text += f"?{parts.query}" if parts.query or parts.force_query else ""
        return text + (f"#{parts.fragment}" if parts.fragment else "")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def _escape(text: str, allowed: frozenset[int]) -> str:
    return "".join(chr(byte) if byte in allowed else f"%{byte:02X}" for byte in _bytes(text))


def _unescape(text: str, *, host: bool = False, zone: bool = False) -> str:
    data = _bytes(text)
    out = bytearray()
    at = 0
    while at < len(data):
        if data[at] == ord("%"):
            code = data[at + 1 : at + 3]
            if not re.fullmatch(rb"[0-9A-Fa-f]{2}", code):
                raise UrlError(f"invalid URL escape {go_quote(_text(data[at : at + 3]))}")
            value = int(code, 16)
            # In a host only what is not ASCII may be escaped, and the percent sign itself before a zone.
            refused_in_host = host and value < 0x80 and code != b"25"
            refused_in_zone = zone and code != b"25" and value != 0x20 and value < 0x80 and value not in _HOST
            if refused_in_host or refused_in_zone:
                raise UrlError(f"invalid URL escape {go_quote(_text(data[at : at + 3]))}")
            out.append(value)
            at += 3
            continue
        if (host or zone) and data[at] < 0x80 and data[at] not in _HOST:
            raise UrlError(f"invalid character {go_quote(chr(data[at]))} in host name")
        out.append(data[at])
        at += 1
    return _text(bytes(out))


def _unescape_query(text: str) -> str:
    return _unescape(text.replace("+", " "))


def parse_request(text: str) -> URL:
    """Parse as for an HTTP request: absolute, or a path from the root. Raises UrlError."""
    return _parse(text, via_request=True)


def parse_url(text: str) -> URL:
    """Parse what ``parse_request`` accepts, but with the fragment apart. Raises UrlError."""
    parse_request(text)
    address, _, fragment = text.partition("#")
    parsed = _parse(address, via_request=False)
    parsed.parts.fragment = fragment
    if fragment:
        try:
            _unescape(fragment)
        except UrlError as error:
            raise UrlError(f"parse {go_quote(text)}: {error}") from None
    return parsed


def _parse(text: str, *, via_request: bool) -> URL:
    try:
        return URL(_parsed(text, via_request))
    except (UrlError, AddressError) as error:
        raise UrlError(f"parse {go_quote(text)}: {error}") from None


def _parsed(text: str, via_request: bool) -> _Parts:
    if any(character < " " or character == "\x7f" for character in text):
        raise UrlError("net/url: invalid control character in URL")
    if not text and via_request:
        raise UrlError("empty url")
    parts = _Parts()
    if text == "*":
        parts.path = "*"
        return parts
    if text.startswith(":"):
        raise UrlError("missing protocol scheme")
    scheme = _SCHEME.match(text)
    rest = text
    if scheme:
        parts.scheme = scheme[0][:-1].lower()
        rest = text[scheme.end() :]
    rest, _, parts.query = rest.partition("?")
    parts.force_query = not parts.query and text.endswith("?")
    if not rest.startswith("/"):
        if parts.scheme:
            parts.opaque = rest
            return parts
        if via_request:
            raise UrlError("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise UrlError("first path segment in URL cannot contain colon")
    has_authority = parts.scheme or (not via_request and not rest.startswith("///"))
    if has_authority and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        _set_authority(parts, authority)
    elif parts.scheme and rest.startswith("/"):
        parts.omit_host = True
    parts.path = _unescape(rest)
    parts.raw_path = "" if rest == _escape(parts.path, _PATH) else rest
    return parts


def _set_authority(parts: _Parts, authority: str) -> None:
    user, at, host = authority.rpartition("@")
    parts.host = _host(parts.scheme, host)
    if at:
        if not _USER.fullmatch(user):
            raise UrlError("net/url: invalid userinfo")
        name, colon, password = user.partition(":")
        allowed = _UNRESERVED | frozenset(b"$&+,;=")
        parts.user = _escape(_unescape(name), allowed) + (":" + _escape(_unescape(password), allowed) if colon else "")


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise UrlError("invalid IP-literal")
    if bracket == 0:
        return _bracketed(host)
    colon = host.find(":")
    if colon >= 0 and scheme not in ("http", "https"):
        colon = host.rfind(":")
    if colon >= 0 and not _PORT.fullmatch(host[colon:]):
        raise UrlError(f"invalid port {go_quote(host[colon:])} after host")
    return _unescape(host, host=True)


def _bracketed(host: str) -> str:
    close = host.rfind("]")
    if close < 0:
        raise UrlError("missing ']' in host")
    port = host[close + 1 :]
    if not _PORT.fullmatch(port):
        raise UrlError(f"invalid port {go_quote(port)} after host")
    name, percent, zone = host[1:close].partition("%25")
    plain = _unescape(name, host=True) + (_unescape(percent + zone, zone=True) if percent else "")
    try:
        address = parse_address(plain)
    except AddressError as error:
        raise UrlError(f"invalid host: {error}") from None
    if len(address.packed) == 4:
        raise UrlError("invalid IP-literal")
    return f"[{plain}]{port}"


def _url(text: str) -> URL:
    try:
        return parse_url(text)
    except UrlError as error:
        raise CelError(f"URL parse error during conversion from string: {error}") from None


def _is_url(text: str) -> bool:
    try:
        parse_request(text)
    except UrlError:
        return False
    return True


LIBRARY: Final = Library(
    table="""
url             string_to_url         (string) URL
getScheme       url_get_scheme        URL.() string
getHost         url_get_host          URL.() string
getHostname     url_get_hostname      URL.() string
getPort         url_get_port          URL.() string
getEscapedPath  url_get_escaped_path  URL.() string
getQuery        url_get_query         URL.() map(string, list(string))
isURL           is_url_string         (string) bool
""",
    implementations={
        "string_to_url": _url,
        "url_get_scheme": lambda url: url.parts.scheme,
        "url_get_host": lambda url: url.parts.host,
        "url_get_hostname": lambda url: url.host_and_port()[0],
        "url_get_port": lambda url: url.host_and_port()[1],
        "url_get_escaped_path": lambda url: url.escaped_path(),
        "url_get_query": lambda url: MapValue(dict(url.query())),
        "is_url_string": _is_url,
    },
)
