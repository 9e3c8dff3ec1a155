"""How to reach the API server: address, TLS, and who we are.

kubeconfig (tokens, client certificates, exec plugins, OIDC, basic) and in-cluster settings are read by
kubernetes-asyncio; the connection itself is ours (``edge.client``, ``edge.leader``).
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.edge.errors import ApiUnavailable
from scheduler.edge.kubeconfig_library import kubeconfig_library
from scheduler.errors import ConfigError

TOKEN_REREAD_S = 60.0
_UNSENDABLE = "the credentials are not one line of ASCII characters"
_TOKEN = re.compile(r"[!-~]+")


class Access:
    """Where the API server is and how to speak to it. Shared by the loop's client and the election thread.

    ``server`` is a URL without trailing slash; ``tls`` is None for plain http. ``authorization()`` may be called from
    any thread; it re-reads a projected token file at most once a minute (the kubelet rotates it).
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        authorization: str = "",
        token_file: Path | None = None,
        server_name: str | None = None,
        proxy: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server.rstrip("/")
        self.tls, self.server_name, self.proxy = tls, server_name, proxy
        self._authorization = authorization
        self._token_file, self._clock = token_file, clock
        self._read_at_s = float("-inf")
        self._refused = False
        self._refresh: Callable[[], Any] | None = None

    def authorization(self) -> str:
        """The Authorization header now, "" for none.

        A token file that cannot be used keeps the last token. Raises ApiUnavailable, which names the file and shows
        nothing of it, when there is no token yet or the server has refused it; and for credentials that no header can
        hold, which must not reach a server either: its answer may show them.
        """
        if self._token_file is not None and self._clock() - self._read_at_s >= TOKEN_REREAD_S:
            try:
                token = _token_in(self._token_file)
            except ApiUnavailable:
                if self._refused or not self._authorization:
                    raise
            else:
                self._authorization, self._refused = f"Bearer {token}", False
            self._read_at_s = self._clock()
        if not _sendable(self._authorization):
            raise ApiUnavailable(_UNSENDABLE)
        return self._authorization

    def set_authorization(self, header: str) -> None:
        """Replace the header (renewed by an exec plugin)."""
        self._authorization = header

    def forget_token(self) -> None:
        """Read the token file again at the next request: the server answered 401."""
        self._read_at_s, self._refused = float("-inf"), True

    def renew_with(self, refresh: Callable[[], Any]) -> None:
        """``refresh`` is a coroutine function that returns a fresh header; see ``renew``."""
        self._refresh = refresh

    @property
    def renewable(self) -> bool:
        """True when ``renew`` has something to do."""
        return self._refresh is not None

    async def renew(self) -> None:
        """Ask the exec plugin or identity provider again; it answers from its cache until the token expires.

        Raises ApiUnavailable for an answer that no header can hold, and whatever they raise.
        """
        if self._refresh is not None:
            header = await self._refresh()
            if header:
                if not _sendable(header):
                    raise ApiUnavailable(_UNSENDABLE)
                self._authorization = header

    async def keep_renewed(
        self, interval_s: float = TOKEN_REREAD_S, report: Callable[[str], None] = lambda text: None
    ) -> None:
        """Renew for ever, every ``interval_s``. A failure is reported and tried again; the old header stays."""
        while self.renewable:
            await asyncio.sleep(interval_s)
            try:
                await self.renew()
            except asyncio.CancelledError:
                raise
            except Exception as error:  # whatever a foreign plugin raises must not end the scheduler
                report(f"credentials were not renewed: {error}")


def _sendable(header: str) -> bool:
    return header.isascii() and header.isprintable()


def _token_in(file: Path) -> str:
    """The token in ``file``. Raises ApiUnavailable; no error, not even the cause of one, holds any of the content."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ApiUnavailable(f"token file {file}: {error.strerror or type(error).__name__}") from error
    token = content.strip().decode("latin-1")
    if not _TOKEN.fullmatch(token):
        raise ApiUnavailable(f"token file {file}: it does not hold one line of visible ASCII characters")
    return token


def insecure(server: str) -> Access:
    """Plain access without TLS or credentials, for a server on this machine."""
    return Access(server)


def _tls(configuration: Any) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        # Cluster authorities made by hand often lack key identifiers, which the strict flag (on since 3.13) demands.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context


def _from_configuration(configuration: Any, token_file: Path | None = None) -> Access:
    server = str(configuration.host)
    authorization = str(configuration.api_key.get("BearerToken", "")).strip()
    if token_file is not None and not _TOKEN.fullmatch(authorization.removeprefix("Bearer ")):
        authorization = f"Bearer {_token_in(token_file)}"
    if not _sendable(authorization):
        raise ApiUnavailable(_UNSENDABLE)
    return Access(
        server,
        tls=_tls(configuration) if server.startswith("https") else None,
        authorization=authorization,
        token_file=token_file,
        server_name=configuration.tls_server_name or None,
        proxy=configuration.proxy or None,
    )


def _kubeconfig_files(path: str) -> str:
    name = path or os.environ.get("KUBECONFIG", "") or str(Path("~/.kube/config").expanduser())
    if not any(Path(part).expanduser().is_file() for part in name.split(os.pathsep) if part):
        raise ConfigError("kubeconfig", f"file {name} does not exist")
    return name


async def from_kubeconfig(path: str = "", context: str = "") -> Access:
    """Access from a kubeconfig: ``path`` or $KUBECONFIG or ~/.kube/config. Raises ConfigError."""
    configuration, config = kubeconfig_library()
    name = _kubeconfig_files(path)
    try:
        loader = await config.load_kube_config(
            config_file=name, context=context or None, client_configuration=configuration
        )
        access = _from_configuration(configuration, _user_token_file(loader, name))
    except Exception as error:  # YAML, certificates, exec plugins: each has its own exceptions
        raise ConfigError("kubeconfig", f"{name}: {_words(error)}") from error
    _renewal(loader, access)
    return access


def _words(error: Exception) -> str:
    """The text of an error, and of one of decoding that it happened: its text shows a byte of a file."""
    return "a token or another file is not UTF-8 text" if isinstance(error, UnicodeError) else str(error)


def _user_token_file(loader: Any, kubeconfig: str) -> Path | None:
    user = loader._user
    value = user.safe_get("tokenFile") if user is not None else None
    if not value:
        return None
    base = Path(kubeconfig.split(os.pathsep)[0]).expanduser().parent
    return base / str(value)


def _renewal(loader: Any, access: Access) -> None:
    """Wire the renewals kubernetes-asyncio knows; the ones of exec plugins return at once while a token is valid."""
    user = loader._user
    if user is not None and "exec" in user:
        load = loader.load_from_exec_plugin
    elif loader.provider == "oidc":
        load = loader._load_oid_token
    elif loader.provider == "gcp":
        load = loader.load_gcp_token
    else:
        return

    async def refresh() -> str:
        await load()
        if access.tls is not None and getattr(loader, "cert_file", None):
            # The plugin issued a client certificate: connections made from now on present the new one.
            access.tls.load_cert_chain(loader.cert_file, keyfile=loader.key_file)
        return str(getattr(loader, "token", ""))

    access.renew_with(refresh)


def in_cluster() -> Access:
    """Access from the ServiceAccount mounted into this Pod. Raises ConfigError outside a cluster."""
    configuration, config = kubeconfig_library()
    try:
        config.load_incluster_config(client_configuration=configuration, try_refresh_token=False)
        return _from_configuration(configuration, Path(config.incluster_config.SERVICE_TOKEN_FILENAME))
    except Exception as error:  # ConfigException, OSError, ssl.SSLError
        text = f"not inside a cluster, and no kubeconfig was given: {_words(error)}"
        raise ConfigError("kubeconfig", text) from error


async def find_access(kubeconfig: str = "", context: str = "", master: str = "") -> Access:
    """Access the way kube-scheduler finds it: the given kubeconfig, else in-cluster, else the user's kubeconfig.

    ``master`` overrides the address. Raises ConfigError with what was tried.
    """
    if kubeconfig or not os.environ.get("KUBERNETES_SERVICE_HOST"):
        if master and not kubeconfig and not os.environ.get("KUBECONFIG"):
            return (
                insecure(master) if master.startswith("http://") else Access(master, tls=ssl.create_default_context())
            )
        access = await from_kubeconfig(kubeconfig, context)
    else:
        access = in_cluster()
    if master:
        access.server = master.rstrip("/")
    return access
