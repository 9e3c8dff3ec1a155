"""Finding the API server: kubeconfig with tokens, certificates and exec plugins, in-cluster files, plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import datetime
import ssl
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from kubernetes_asyncio.config import incluster_config

from scheduler.edge.credentials import Access, find_access, from_kubeconfig
from scheduler.edge.errors import ApiUnavailable
from scheduler.errors import ConfigError


def self_signed_authority() -> bytes:
    """A certificate that can serve as an authority, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now)
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )


def write_kubeconfig(path: Path, user: dict[str, Any], server: str = "https://host:6443/prefix") -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
                "users": [{"name": "u", "user": user}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return path


@pytest.fixture(autouse=True)
def _no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)


async def test_token_and_address(tmp_path: Path) -> None:
    """Address with path prefix, TLS settings and bearer token come from the file."""
    access = await find_access(str(write_kubeconfig(tmp_path / "k", {"token": "abc"})))
    assert access.server == "https://host:6443/prefix"
    assert access.authorization() == "Bearer abc"
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_NONE


async def test_plain_http_without_credentials(tmp_path: Path) -> None:
    """The embedded server needs neither TLS nor a user."""
    access = await find_access(str(write_kubeconfig(tmp_path / "k", {}, "http://127.0.0.1:1234")))
    assert access.tls is None
    assert access.authorization() == ""


async def test_exec_plugin_is_run_and_renewed(tmp_path: Path) -> None:
    """The plugin's token is used; once it has expired, renewal asks again."""
    counter = tmp_path / "count"
    plugin = tmp_path / "plugin.py"
    plugin.write_text(
        "import json, pathlib\n"
        f"file = pathlib.Path({str(counter)!r})\n"
        "n = int(file.read_text()) + 1 if file.exists() else 1\n"
        "file.write_text(str(n))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1', 'kind': 'ExecCredential',\n"
        "  'status': {'token': f't{n}', 'expirationTimestamp': '2020-01-01T00:00:00Z'}}))\n"
    )
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(plugin)],
            "interactiveMode": "Never",
        }
    }
    access = await from_kubeconfig(str(write_kubeconfig(tmp_path / "k", user)))
    assert access.authorization() == "Bearer t1"
    assert access.renewable
    await access.renew()
    assert access.authorization() == "Bearer t2"
    plugin.write_text("raise SystemExit(3)")
    said: list[str] = []
    task = asyncio.create_task(access.keep_renewed(0.01, said.append))
    for _ in range(500):
        await asyncio.sleep(0.01)
        if said:
            break
    task.cancel()
    assert "not renewed" in said[0]
    assert access.authorization() == "Bearer t2"


async def test_broken_client_certificate(tmp_path: Path) -> None:
    """Certificate data that is no certificate is a clear error about the kubeconfig."""
    wrong = {"client-certificate-data": base64.b64encode(b"no pem").decode(), "client-key-data": "bm8="}
    with pytest.raises(ConfigError, match="kubeconfig"):
        await from_kubeconfig(str(write_kubeconfig(tmp_path / "k", wrong)))


async def test_inside_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address from the environment, authority and token from the mounted files; the rotated token is picked up."""
    token, authority = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    authority.write_bytes(self_signed_authority())
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = await find_access()
    assert access.server == "https://10.0.0.1:443"
    assert access.tls is not None
    assert access.tls.verify_mode == ssl.CERT_REQUIRED
    assert len(access.tls.get_ca_certs()) == 1
    assert access.authorization() == "Bearer first"
    token.write_text("second")
    access.forget_token()
    assert access.authorization() == "Bearer second"


async def test_neither_file_nor_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The error says that both were looked for."""
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "none"))
    with pytest.raises(ConfigError, match="not inside a cluster"):
        await find_access()


async def test_missing_and_broken_files(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(ConfigError, match="does not exist"):
        await find_access(str(tmp_path / "none"))
    broken = tmp_path / "broken"
    broken.write_text("a: [")
    with pytest.raises(ConfigError, match="broken"):
        await find_access(str(broken))


def test_token_file_is_read_again(tmp_path: Path) -> None:
    """A rotated token is used after a minute, or at once after a 401; a missing file keeps the old one."""
    file, now_s = tmp_path / "token", [0.0]
    file.write_text("one\n")
    access = Access("https://host", token_file=file, clock=lambda: now_s[0])
    assert access.authorization() == "Bearer one"
    file.write_text("two")
    assert access.authorization() == "Bearer one"
    access.forget_token()
    assert access.authorization() == "Bearer two"
    file.unlink()
    now_s[0] = 61.0
    assert access.authorization() == "Bearer two"


@pytest.mark.parametrize(
    "content",
    [
        b"s3cr3t\nmore\n",
        b"s3cr3t more",
        b"s3cr3t\xff",
        "s3cr3t\u20ac".encode(),
        b"s3cr3t\x00",
        b"\xef\xbb\xbfs3cr3t",
        b" \n",
    ],
)
def test_a_file_that_holds_no_token_is_named_and_not_shown(tmp_path: Path, content: bytes) -> None:
    """Without a token there is an error each time; the error and all that caused it tell nothing of the file."""
    file = tmp_path / "token"
    file.write_bytes(content)
    access = Access("https://host", token_file=file)
    for _ in range(2):
        with pytest.raises(ApiUnavailable, match="one line of visible ASCII") as caught:
            access.authorization()
        assert str(file) in str(caught.value)
        assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))
    file.write_text("  good\n")
    assert access.authorization() == "Bearer good"


def test_a_broken_rotation_keeps_the_token_until_the_server_refuses_it(tmp_path: Path) -> None:
    """A token that still works is worth more than an error; one that was refused is not."""
    file, now_s = tmp_path / "token", [0.0]
    file.write_text("one")
    access = Access("https://host", token_file=file, clock=lambda: now_s[0])
    assert access.authorization() == "Bearer one"
    file.write_text("two\nlines")
    now_s[0] = 61.0
    assert access.authorization() == "Bearer one"
    access.forget_token()
    with pytest.raises(ApiUnavailable, match="token"):
        access.authorization()
    file.unlink()
    with pytest.raises(ApiUnavailable, match="No such file"):
        access.authorization()
    file.write_text("three")
    assert access.authorization() == "Bearer three"


@pytest.mark.parametrize("content", [b"s3cr3t\nmore\n", b"s3cr3t\xff"])
async def test_a_kubeconfig_with_a_broken_token_file_is_refused(tmp_path: Path, content: bytes) -> None:
    """At the start, without a word of what is in the file."""
    (tmp_path / "token").write_bytes(content)
    path = write_kubeconfig(tmp_path / "k", {"tokenFile": "token"})
    with pytest.raises(ConfigError, match="token") as caught:
        await from_kubeconfig(str(path))
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


async def test_a_kubeconfig_with_a_token_of_two_lines_is_refused(tmp_path: Path) -> None:
    """No header can hold it."""
    path = write_kubeconfig(tmp_path / "k", {"token": "s3cr3t\nmore"})
    with pytest.raises(ConfigError, match="not one line of ASCII") as caught:
        await from_kubeconfig(str(path))
    assert "s3cr3t" not in "".join(traceback.format_exception(caught.value))


async def test_renewed_credentials_that_no_header_can_hold_are_refused() -> None:
    """The old ones stay."""
    access = Access("https://host", authorization="Bearer one")

    async def broken() -> str:
        return "Bearer s3cr3t\nmore"

    access.renew_with(broken)
    with pytest.raises(ApiUnavailable, match="not one line of ASCII") as caught:
        await access.renew()
    assert "s3cr3t" not in str(caught.value)
    assert access.authorization() == "Bearer one"


def in_a_process(code: str, *arguments: str) -> None:
    """Run ``code`` where nothing has been imported yet."""
    subprocess.run([sys.executable, "-c", textwrap.dedent(code), *arguments], check=True, timeout=60)


def test_reading_a_kubeconfig_imports_no_models_and_leaves_the_library_whole(tmp_path: Path) -> None:
    """They cost 0.7 s and 40 MB, kubernetes-validate a second more where it is there; a plugin may import it all."""
    path = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    in_a_process(
        """
        import asyncio, sys
        from scheduler.edge.credentials import from_kubeconfig
        access = asyncio.run(from_kubeconfig(sys.argv[1]))
        assert access.authorization() == "Bearer secret"
        assert not [name for name in sys.modules if name.startswith("kubernetes")]
        assert "rfc3987_syntax" not in sys.modules
        from kubernetes_asyncio import client, config
        assert client.V1Pod(kind="Pod").to_dict()["kind"] == "Pod" and client.CoreV1Api and config.load_kube_config
        """,
        str(path),
    )


def test_the_reduced_library_runs_exec_plugins(tmp_path: Path) -> None:
    """And renews what they give."""
    plugin = tmp_path / "plugin.sh"
    answer = '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"fresh"}}'
    plugin.write_text(f"#!/bin/sh\necho '{answer}'\n")
    plugin.chmod(0o755)
    user = {
        "exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    }
    in_a_process(
        """
        import asyncio, sys
        from scheduler.edge.credentials import from_kubeconfig
        async def both():
            access = await from_kubeconfig(sys.argv[1])
            first = access.authorization()
            access.set_authorization("")
            await access.renew()
            return first, access.authorization()
        assert asyncio.run(both()) == ("Bearer fresh", "Bearer fresh")
        """,
        str(write_kubeconfig(tmp_path / "config", user)),
    )


def test_a_library_that_needs_the_rest_is_imported_whole() -> None:
    """Another version of it may use its models while it is imported."""
    in_a_process(
        """
        import sys
        from scheduler.edge import kubeconfig_library as library
        library._Without.exec_module = lambda self, module: exec("raise ImportError('it is needed')")
        configuration, config = library.kubeconfig_library()
        assert configuration.verify_ssl and config.load_kube_config
        assert hasattr(sys.modules["kubernetes_asyncio.client.models"], "V1Pod")
        """
    )
