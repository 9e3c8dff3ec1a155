"""How to reach the API server: address, TLS, and who we are.

kubeconfig (tokens, client certificates, exec plugins, OIDC, basic) and in-cluster settings are read by
kubernetes-asyncio; the connection itself is ours (``edge.client``, ``edge.leader``).
"""

from __future__ import annotations

import asyncio
import os
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scheduler.edge.kubeconfig_library import kubeconfig_library
from scheduler.errors import ConfigError

TOKEN_REREAD_S = 60.0


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
        self._refresh: Callable[[], Any] | None = None

    def authorization(self) -> str:
        """The Authorization header now, "" for none. A token file that cannot be read keeps the last token."""
        if self._token_file is not None and self._clock() - self._read_at_s >= TOKEN_REREAD_S:
            self._read_at_s = self._clock()
            try:
                token = self._token_file.read_text("utf-8").strip()
            except OSError:
                token = ""
            if token:
                self._authorization = f"Bearer {token}"
        return self._authorization

    def set_authorization(self, header: str) -> None:
        """Replace the header (renewed by an exec plugin)."""
        self._authorization = header

    def forget_token(self) -> None:
        """Read the token file again at the next request: the server answered 401."""
        self._read_at_s = float("-inf")

    def renew_with(self, refresh: Callable[[], Any]) -> None:
        """``refresh`` is a coroutine function that returns a fresh header; see ``renew``."""
        self._refresh = refresh

    @property
    def renewable(self) -> bool:
        """True when ``renew`` has something to do."""
        return self._refresh is not None

    async def renew(self) -> None:
        """Ask the exec plugin or identity provider again; it answers from its cache until the token expires."""
        if self._refresh is not None:
            header = await self._refresh()
            if header:
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
    return Access(
        server,
        tls=_tls(configuration) if server.startswith("https") else None,
        authorization=str(configuration.api_key.get("BearerToken", "")).strip(),
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
        raise ConfigError("kubeconfig", f"{name}: {error}") from error
    _renewal(loader, access)
    return access


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
        raise ConfigError("kubeconfig", f"not inside a cluster, and no kubeconfig was given: {error}") from error


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
