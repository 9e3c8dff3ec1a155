"""The serving certificate of the secure port: given as files (reloaded when they change), or made in memory."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from scheduler.errors import ConfigError

VALID_DAYS = 365
_VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_TLS13 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


class ServingCertificate:
    """A TLS context for a server. ``reload`` picks up rotated files; a self-signed certificate never changes."""

    def __init__(
        self,
        certificate_file: str = "",
        key_file: str = "",
        min_version: str = "VersionTLS12",
        cipher_suites: Sequence[str] = (),
    ) -> None:
        if bool(certificate_file) != bool(key_file):
            raise ConfigError("tls", "give both --tls-cert-file and --tls-private-key-file, or neither")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = _VERSIONS[min_version]
        if cipher_suites:
            _choose_ciphers(self.context, cipher_suites)
        self._files = (Path(certificate_file), Path(key_file)) if certificate_file else None
        self._stamp: tuple[int, ...] = ()
        if self._files is None:
            _load_self_signed(self.context)
        else:
            self.reload()

    def reload(self) -> bool:
        """Load the files again when they changed; True when they did. Raises ConfigError when they cannot be used."""
        if self._files is None:
            return False
        try:
            stamp = tuple(file.stat().st_mtime_ns for file in self._files)
            if stamp == self._stamp:
                return False
            self.context.load_cert_chain(*self._files)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError("tls", f"{self._files[0]}: {error}") from error
        self._stamp = stamp
        return True


def _choose_ciphers(context: ssl.SSLContext, names: Sequence[str]) -> None:
    """``names`` are IANA's; those of TLS 1.3 are always on, as in Go. Raises ConfigError for one that is unknown."""
    chosen = []
    for name in names:
        if name in _TLS13:
            continue
        openssl = name.removeprefix("TLS_").replace("_WITH_", "_")
        openssl = openssl.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_", "-")
        openssl = openssl.replace("-CBC-SHA", "-SHA").replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
        chosen.append(openssl.removeprefix("RSA-") if openssl.startswith("RSA-AES") else openssl)
    for name, openssl in zip((name for name in names if name not in _TLS13), chosen, strict=True):
        try:
            context.set_ciphers(openssl)
        except ssl.SSLError as error:
            raise ConfigError("--tls-cipher-suites", f"{name} not supported or doesn't exist") from error
    if chosen:
        context.set_ciphers(":".join(chosen))


def _load_self_signed(context: ssl.SSLContext) -> None:
    """A fresh key and certificate. ssl reads only files: they exist for a moment, in a folder only we can open."""
    key = ec.generate_private_key(ec.SECP256R1())
    host = socket.gethostname()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{host[:50]}@dra-scheduler")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.DNSName("localhost"), x509.DNSName(host), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
            ),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "serving.pem"
        file.touch(mode=0o600)
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(file)
