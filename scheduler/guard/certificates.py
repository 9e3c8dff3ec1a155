"""The guard's own certificates: an authority, a serving certificate, and when each step of their rotation is due.

Rotation never breaks a connection: the next authority is published beside the present one for as long as it takes every
API server to know it (the overlap), only then it signs; the old one stays published for another overlap.
Pure but for the keys, which are drawn by the cryptography library; the time is an argument.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

BACKDATED = datetime.timedelta(hours=1)
"""Clocks of API servers may be behind ours."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifetimes:
    """How long certificates are valid and how long two authorities are trusted side by side, in seconds."""

    serving_s: float = 90 * 86400.0
    authority_s: float = 365 * 86400.0
    overlap_s: float = 600.0


@dataclass(frozen=True, slots=True)
class CertificateSet:
    """What is stored. ``authority`` signs; ``following`` is published and will sign; ``previous`` is published still.

    ``changed``: when the set of published authorities was changed last, seconds since the epoch.
    """

    authority: Pair
    serving: Pair
    changed: float
    following: Pair | None = None
    previous: bytes = b""

    @property
    def bundle(self) -> bytes:
        """Every authority to be trusted now."""
        following = self.following.certificate if self.following is not None else b""
        return self.authority.certificate + following + self.previous

    def values(self) -> dict[str, bytes]:
        """As the data of a Secret."""
        found = {
            "ca.crt": self.bundle,
            "authority.crt": self.authority.certificate,
            "authority.key": self.authority.key,
            "tls.crt": self.serving.certificate,
            "tls.key": self.serving.key,
            "changed": f"{self.changed:.3f}".encode(),
        }
        if self.following is not None:
            found |= {"following.crt": self.following.certificate, "following.key": self.following.key}
        if self.previous:
            found["previous.crt"] = self.previous
        return found


def from_values(values: Mapping[str, bytes]) -> CertificateSet | None:
    """The set in a Secret's data, None when any part is missing or unreadable."""
    try:
        authority = _checked(values["authority.crt"], values["authority.key"])
        serving = _checked(values["tls.crt"], values["tls.key"])
        following = None
        if "following.crt" in values:
            following = _checked(values["following.crt"], values["following.key"])
        previous = values.get("previous.crt", b"")
        if previous:
            x509.load_pem_x509_certificate(previous)
        return CertificateSet(authority, serving, float(values["changed"]), following, previous)
    except (KeyError, ValueError, TypeError):
        return None


def _checked(certificate: bytes, key: bytes) -> Pair:
    """Raises ValueError or TypeError when the two do not belong together."""
    loaded = x509.load_pem_x509_certificate(certificate)
    private = serialization.load_pem_private_key(key, None)
    if private.public_key() != loaded.public_key():
        raise ValueError("the key is not the certificate's")
    return Pair(certificate, key)


def first_set(hosts: Sequence[str], lifetimes: Lifetimes, now: float) -> CertificateSet:
    """A new authority and a certificate for ``hosts`` (DNS names and addresses)."""
    authority = make_authority(lifetimes.authority_s, now)
    return CertificateSet(authority, sign(authority, hosts, lifetimes.serving_s, now), now)


def due_step(
    stored: CertificateSet, hosts: Sequence[str], lifetimes: Lifetimes, now: float, published: float
) -> tuple[CertificateSet, str] | None:
    """The next set and what was done, None when nothing is due.

    ``published``: since when ``stored.bundle`` is known to stand where those who verify read it.
    """
    rested = now - max(stored.changed, published) >= lifetimes.overlap_s
    if _left_s(stored.authority.certificate, now) <= 0:
        # Nobody trusts it any more: there is nothing to be gentle with.
        return first_set(hosts, lifetimes, now), "the authority had expired, everything is new"
    if stored.following is not None and rested:
        serving = sign(stored.following, hosts, lifetimes.serving_s, now)
        switched = CertificateSet(stored.following, serving, now, None, stored.authority.certificate)
        return switched, "the new authority signs, the old one is still trusted"
    if stored.previous and rested:
        return replace(stored, previous=b"", changed=now), "the old authority is not trusted any more"
    if (
        stored.following is None
        and not stored.previous
        and _left_s(stored.authority.certificate, now) < lifetimes.authority_s / 3
    ):
        following = make_authority(lifetimes.authority_s, now)
        return replace(stored, following=following, changed=now), "a new authority is published beside the present one"
    if _left_s(stored.serving.certificate, now) < lifetimes.serving_s / 3 or hosts_of(stored.serving) != set(hosts):
        serving = sign(stored.authority, hosts, lifetimes.serving_s, now)
        if _left_s(serving.certificate, now) > _left_s(stored.serving.certificate, now) or (
            hosts_of(stored.serving) != set(hosts)
        ):
            return replace(stored, serving=serving), "the serving certificate was renewed"
    return None


def make_authority(lifetime_s: float, now: float) -> Pair:
    """A fresh certificate authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    serial = x509.random_serial_number()
    # A name of its own each: authorities of one name and different keys confuse those who build chains.
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"dra-scheduler-guard-{serial:040x}"[:60])])
    certificate = (
        _builder(name, name, key.public_key(), lifetime_s, now, serial)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def sign(authority: Pair, hosts: Sequence[str], lifetime_s: float, now: float) -> Pair:
    """A serving certificate for ``hosts``; it never outlives its authority."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer = serialization.load_pem_private_key(authority.key, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)  # make_authority makes no other
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "dra-scheduler-guard")])
    lifetime_s = min(lifetime_s, _left_s(authority.certificate, now))
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), lifetime_s, now, x509.random_serial_number())
        .add_extension(x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, hashes.SHA256())
    )
    return _pair(certificate, key)


def expires_at(certificate: bytes) -> float:
    """Seconds since the epoch at which a certificate (PEM) ends."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def hosts_of(pair: Pair) -> set[str]:
    """The names and addresses a serving certificate is good for."""
    certificate = x509.load_pem_x509_certificate(pair.certificate)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    return {str(name.value) for name in names}


def _left_s(certificate: bytes, now: float) -> float:
    return expires_at(certificate) - now


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, lifetime_s: float, now: float, serial: int
) -> x509.CertificateBuilder:
    moment = datetime.datetime.fromtimestamp(now, datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(moment - BACKDATED)
        .not_valid_after(moment + datetime.timedelta(seconds=lifetime_s))
    )


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Pair(certificate.public_bytes(serialization.Encoding.PEM), pem)
