"""IP addresses and CIDR prefixes: parsing as Go's net/netip, and their functions (apiserver 0.37, cel/library)."""

from __future__ import annotations

import ipaddress
from typing import Any, Final

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.registry import Library
from scheduler.cel.semver import go_quote
from scheduler.cel.values import Opaque

_HEX: Final = frozenset("0123456789abcdefABCDEF")


class AddressError(ValueError):
    """A text is no address or prefix; the message is Go's."""


class IP(Opaque):
    """An address: 4 or 16 bytes, and a zone that no CEL function lets through."""

    __slots__ = ("packed", "zone")
    type_name = "net.IP"

    def __init__(self, packed: bytes, zone: str = "") -> None:
        self.packed = packed
        self.zone = zone

    @property
    def size_bytes(self) -> int:
        """Length for the cost tables."""
        return len(self.packed)

    def same(self, other: Any) -> bool:
        """Same family and bits."""
        return bool(self.packed == other.packed)

    def __str__(self) -> str:
        if len(self.packed) == 4:
            return ".".join(map(str, self.packed))
        groups = [int.from_bytes(self.packed[at : at + 2]) for at in range(0, 16, 2)]
        start, end = _longest_zeros(groups)
        if start == end:
            return ":".join(f"{group:x}" for group in groups)
        left = ":".join(f"{group:x}" for group in groups[:start])
        right = ":".join(f"{group:x}" for group in groups[end:])
        return f"{left}::{right}"


class CIDR(Opaque):
    """A prefix: an address, not necessarily masked, and a length in bits."""

    __slots__ = ("address", "bits")
    type_name = "net.CIDR"

    def __init__(self, address: IP, bits: int) -> None:
        self.address = address
        self.bits = bits

    @property
    def size_bytes(self) -> int:
        """Length for the cost tables: the prefix in whole bytes."""
        return -(-self.bits // 8)

    def same(self, other: Any) -> bool:
        """Same address, unmasked bits included, and length."""
        return bool(self.address.packed == other.address.packed and self.bits == other.bits)

    def masked(self, bits: int | None = None) -> bytes:
        """The address with everything after the prefix zero."""
        bits = self.bits if bits is None else bits
        packed = self.address.packed
        spare = len(packed) * 8 - bits
        return (int.from_bytes(packed) >> spare << spare).to_bytes(len(packed))

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"


def _longest_zeros(groups: list[int]) -> tuple[int, int]:
    """The first longest run of two or more zero groups, as (start, end); equal if there is none."""
    best = (0, 0)
    at = 0
    while at < 8:
        end = at
        while end < 8 and groups[end] == 0:
            end += 1
        if end - at >= 2 and end - at > best[1] - best[0]:
            best = (at, end)
        at = max(end, at + 1)
    return best


def _address_error(text: str, message: str, at: str = "") -> AddressError:
    place = f" (at {go_quote(at)})" if at else ""
    return AddressError(f"ParseAddr({go_quote(text)}): {message}{place}")


def parse_address(text: str) -> IP:
    """Any address, with zones and IPv4-mapped ones. Raises AddressError."""
    for character in text:
        if character == ".":
            return IP(_parse_ipv4(text, text))
        if character == ":":
            return _parse_ipv6(text)
        if character == "%":
            raise _address_error(text, "missing IPv6 address")
    raise _address_error(text, "unable to parse IP")


def _parse_ipv4(text: str, part: str) -> bytes:
    """The four bytes of ``part``, which lies in ``text``."""
    fields: list[int] = []
    value = 0
    digits = 0
    for at, character in enumerate(part):
        if character in "0123456789":
            if digits == 1 and value == 0:
                raise _address_error(text, "IPv4 field has octet with leading zero")
            value = value * 10 + int(character)
            digits += 1
            if value > 255:
                raise _address_error(text, "IPv4 field has value >255")
        elif character == ".":
            if at in (0, len(part) - 1) or part[at - 1] == ".":
                raise _address_error(text, "IPv4 field must have at least one digit", part[at:])
            if len(fields) == 3:
                raise _address_error(text, "IPv4 address too long")
            fields.append(value)
            value = digits = 0
        else:
            raise _address_error(text, "unexpected character", part[at:])
    if len(fields) < 3:
        raise _address_error(text, "IPv4 address too short")
    return bytes([*fields, value])


def _parse_ipv6(text: str) -> IP:
    rest, percent, zone = text.partition("%")
    if percent and not zone:
        raise _address_error(text, "zone must be a non-empty string")
    packed = bytearray()
    ellipsis = -1
    if rest.startswith("::"):
        ellipsis = 0
        rest = rest[2:]
        if not rest:
            return IP(bytes(16), zone)
    while len(packed) < 16:
        width = _group_width(text, rest)
        if rest[width : width + 1] == ".":
            packed += _embedded_ipv4(text, rest, len(packed), ellipsis)
            rest = ""
            break
        packed += int(rest[:width], 16).to_bytes(2)
        rest = rest[width:]
        if not rest:
            break
        if rest[0] != ":":
            raise _address_error(text, "unexpected character, want colon", rest)
        if len(rest) == 1:
            raise _address_error(text, "colon must be followed by more characters", rest)
        rest = rest[1:]
        if rest[0] == ":":
            if ellipsis >= 0:
                raise _address_error(text, "multiple :: in address", rest)
            ellipsis = len(packed)
            rest = rest[1:]
            if not rest:
                break
    if rest:
        raise _address_error(text, "trailing garbage after address", rest)
    return IP(_expanded(text, bytes(packed), ellipsis), zone)


def _group_width(text: str, rest: str) -> int:
    width = 0
    while width < len(rest) and rest[width] in _HEX:
        width += 1
        if width > 4:
            raise _address_error(text, "each group must have 4 or less digits", rest)
    if width == 0:
        raise _address_error(text, "each colon-separated field must have at least one digit", rest)
    return width


def _embedded_ipv4(text: str, rest: str, filled: int, ellipsis: int) -> bytes:
    if ellipsis < 0 and filled != 12:
        raise _address_error(text, "embedded IPv4 address must replace the final 2 fields of the address", rest)
    if filled + 4 > 16:
        raise _address_error(text, "too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    return _parse_ipv4(text, rest)


def _expanded(text: str, packed: bytes, ellipsis: int) -> bytes:
    if len(packed) < 16:
        if ellipsis < 0:
            raise _address_error(text, "address string too short")
        return packed[:ellipsis] + bytes(16 - len(packed)) + packed[ellipsis:]
    if ellipsis >= 0:
        raise _address_error(text, "the :: must expand to at least one field of zeros")
    return packed


def _is_mapped(address: IP) -> bool:
    return len(address.packed) == 16 and address.packed[:12] == bytes(10) + b"\xff\xff"


def parse_ip(text: str) -> IP:
    """An address as CEL takes it: no zone, not IPv4-mapped. Raises AddressError."""
    try:
        address = parse_address(text)
    except AddressError as error:
        raise AddressError(f"IP Address {go_quote(text)} parse error during conversion from string: {error}") from None
    if address.zone:
        raise AddressError(f"IP address {go_quote(text)} with zone value is not allowed")
    if _is_mapped(address):
        raise AddressError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return address


def parse_cidr(text: str) -> CIDR:
    """A prefix, not IPv4-mapped. Raises AddressError."""
    try:
        prefix = _parse_prefix(text)
    except AddressError as error:
        raise AddressError(f"network address parse error during conversion from string: {error}") from None
    if _is_mapped(prefix.address):
        raise AddressError(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return prefix


def _parse_prefix(text: str) -> CIDR:
    def error(message: str) -> AddressError:
        return AddressError(f"netip.ParsePrefix({go_quote(text)}): {message}")

    address_text, slash, bits_text = text.rpartition("/")
    if not slash:
        raise error("no '/'")
    try:
        address = parse_address(address_text)
    except AddressError as failed:
        raise error(str(failed)) from None
    if address.zone:
        raise error("IPv6 zones cannot be present in a prefix")
    plain = bits_text.isascii() and bits_text.isdecimal()
    if not plain or (len(bits_text) > 1 and bits_text[0] == "0") or len(bits_text) > 18:
        raise error(f"bad bits after slash: {go_quote(bits_text)}")
    if int(bits_text) > len(address.packed) * 8:
        raise error("prefix length out of range")
    return CIDR(address, int(bits_text))


def _ip(text: Any) -> IP:
    try:
        return parse_ip(text)
    except AddressError as error:
        raise CelError(str(error)) from None


def _cidr(text: Any) -> CIDR:
    try:
        return parse_cidr(text)
    except AddressError as error:
        raise CelError(f"network address parse error during conversion from string: {error}") from None


def _parses(parse: Any) -> Any:
    def evaluate(text: str) -> bool:
        try:
            parse(text)
        except AddressError:
            return False
        return True

    return evaluate


def _contains_ip_text(prefix: CIDR, text: str) -> bool:
    try:
        address = parse_ip(text)
    except AddressError:
        # Upstream loses the parse error on the way.
        raise no_such_overload() from None
    return _contains_ip(prefix, address)


def _contains_ip(prefix: CIDR, address: IP) -> bool:
    if type(address) is not IP:
        raise no_such_overload()
    return len(address.packed) == len(prefix.address.packed) and (
        CIDR(address, prefix.bits).masked() == prefix.masked()
    )


def _contains_cidr(prefix: CIDR, other: CIDR) -> bool:
    if len(prefix.address.packed) != len(other.address.packed):
        return False
    # The smaller length decides whether the two overlap; then the outer one must be the shorter.
    bits = min(prefix.bits, other.bits)
    return prefix.masked(bits) == other.masked(bits) and prefix.bits <= other.bits


def _property(name: str) -> Any:
    return lambda address: bool(getattr(ipaddress.ip_address(address.packed), name))


def _link_local_multicast(address: IP) -> bool:
    packed = address.packed
    if len(packed) == 4:
        return packed[:3] == b"\xe0\x00\x00"
    return packed[0] == 0xFF and packed[1] & 0x0F == 0x02


def _global_unicast(address: IP) -> bool:
    parsed = ipaddress.ip_address(address.packed)
    return not (
        parsed.is_unspecified
        or parsed.is_loopback
        or parsed.is_multicast
        or parsed.is_link_local
        or address.packed == b"\xff\xff\xff\xff"
    )


LIBRARY: Final = Library(
    table="""
ip                    string_to_ip               (string) IP
ip                    cidr_ip                    CIDR.() IP
family                ip_family                  IP.() int
ip.isCanonical        ip_is_canonical            (string) bool
isUnspecified         ip_is_unspecified          IP.() bool
isLoopback            ip_is_loopback             IP.() bool
isLinkLocalMulticast  ip_is_link_local_multicast IP.() bool
isLinkLocalUnicast    ip_is_link_local_unicast   IP.() bool
isGlobalUnicast       ip_is_global_unicast       IP.() bool
isIP                  is_ip                      (string) bool
string                ip_to_string               (IP) string
cidr                  string_to_cidr             (string) CIDR
containsIP            cidr_contains_ip_string    CIDR.(string) bool
containsIP            cidr_contains_ip_ip        CIDR.(IP) bool
containsCIDR          cidr_contains_cidr_string  CIDR.(string) bool
containsCIDR          cidr_contains_cidr         CIDR.(CIDR) bool
prefixLength          cidr_prefix_length         CIDR.() int
masked                cidr_masked                CIDR.() CIDR
isCIDR                is_cidr                    (string) bool
string                cidr_to_string             (CIDR) string
""",
    implementations={
        "string_to_ip": _ip,
        "cidr_ip": lambda prefix: prefix.address,
        "ip_family": lambda address: 4 if len(address.packed) == 4 else 6,
        "ip_is_canonical": lambda text: str(_ip(text)) == text,
        "ip_is_unspecified": _property("is_unspecified"),
        "ip_is_loopback": _property("is_loopback"),
        "ip_is_link_local_multicast": _link_local_multicast,
        "ip_is_link_local_unicast": _property("is_link_local"),
        "ip_is_global_unicast": _global_unicast,
        "is_ip": _parses(parse_ip),
        "ip_to_string": str,
        "string_to_cidr": _cidr,
        "cidr_contains_ip_string": _contains_ip_text,
        "cidr_contains_ip_ip": _contains_ip,
        "cidr_contains_cidr_string": lambda prefix, text: _contains_cidr(prefix, _cidr(text)),
        "cidr_contains_cidr": _contains_cidr,
        "cidr_prefix_length": lambda prefix: prefix.bits,
        "cidr_masked": lambda prefix: CIDR(IP(prefix.masked()), prefix.bits),
        "is_cidr": _parses(parse_cidr),
        "cidr_to_string": str,
    },
)
