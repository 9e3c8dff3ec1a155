"""The secure port: /livez, /readyz, /healthz for anybody, /metrics and /configz for who may.

Everybody is checked through ``Authorizer``; a server may be told to trust this machine (loopback). Source:
kube-scheduler 1.37 endpoints (spec 11.4), the text format of the API server's health checks.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
from aiohttp import web

from scheduler.edge.auth import Verdict
from scheduler.edge.certificates import ServingCertificate
from scheduler.edge.pages import DebugPages
from scheduler.edge.slis import HealthSlis
from scheduler.errors import ConfigError

PORT = 10259
ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
RELOAD_S = 60.0

Mount = Callable[[web.Application], None]
"""Adds routes that look after themselves: who may read them, they decide (``edge.questions``, ``edge.dashboard``)."""
Check = Callable[[], str]
"""A health check: "" when all is well, else the reason in a few words."""


def ping() -> str:
    """Always well: the process answers."""
    return ""


class Authorizes(Protocol):
    """Decides about a caller from outside."""

    async def verdict(self, token: str, path: str) -> Verdict:
        """Whether the bearer of ``token`` may get ``path``."""


class HealthServer:
    """HTTPS on ``port`` (0: any free one; whether to serve at all is the caller's choice).

    ``checks`` per endpoint ("livez", "readyz", "healthz"): name to check, in the order they are listed. ``metrics``
    renders text and content type, ``pod_resources`` those of /metrics/resources. ``pages``: /statusz and /flagz, with
    ``debugging`` /debug/flags/v too. ``always_allowed``: paths for everybody. ``authorizer`` None: only loopback may
    read. ``certificate`` None: plain HTTP. ``mounts`` add further routes.
    """

    def __init__(
        self,
        checks: Mapping[str, Mapping[str, Check]],
        metrics: Callable[[], tuple[bytes, str]],
        *,
        host: str = "",
        port: int = PORT,
        certificate: ServingCertificate | None = None,
        authorizer: Authorizes | None = None,
        configuration: Callable[[], object] | None = None,
        pod_resources: Callable[[], tuple[bytes, str]] | None = None,
        pages: DebugPages | None = None,
        debugging: bool = False,
        always_allowed: Sequence[str] = ALWAYS_ALLOWED,
        trust_loopback: bool = True,
        reuse_port: bool = False,
        mounts: Sequence[Mount] = (),
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._checks, self._metrics = checks, metrics
        self._host, self._port, self._certificate = host, port, certificate
        self._authorizer, self._configuration, self._on_trouble = authorizer, configuration, on_trouble
        self._pod_resources, self._pages, self._debugging = pod_resources, pages, debugging
        self._always_allowed, self._reuse_port, self._mounts = tuple(always_allowed), reuse_port, tuple(mounts)
        self._trust_loopback = trust_loopback
        self._slis = HealthSlis()
        self._runner: web.AppRunner | None = None
        self._reloader: asyncio.Task[None] | None = None

    async def start(self) -> int:
        """Listen; returns the port. Raises ConfigError when the port is taken."""
        app = web.Application()
        for endpoint in self._checks:
            app.router.add_get(f"/{endpoint}", self._health)
            app.router.add_get(f"/{endpoint}/{{check}}", self._health)
        app.router.add_get("/metrics", self._serve_metrics)
        app.router.add_get("/metrics/slis", self._serve_slis)
        app.router.add_get("/configz", self._serve_configuration)
        if self._pod_resources is not None:
            app.router.add_get("/metrics/resources", self._serve_pod_resources)
        if self._pages is not None:
            app.router.add_get("/statusz", self._serve_page)
            app.router.add_get("/flagz", self._serve_page)
            if self._debugging:
                app.router.add_route("*", "/debug/flags/v", self._serve_page)
        for mount in self._mounts:
            mount(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        context = self._certificate.context if self._certificate is not None else None
        site = web.TCPSite(
            self._runner, self._host or None, self._port, ssl_context=context, reuse_port=self._reuse_port
        )
        try:
            await site.start()
        except OSError as error:
            await self._runner.cleanup()
            raise ConfigError("--secure-port", f"cannot listen on port {self._port}: {error}") from error
        if self._certificate is not None:
            self._reloader = asyncio.create_task(self._reload_forever(self._certificate))
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening; requests under way get a second."""
        if self._reloader is not None:
            self._reloader.cancel()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _reload_forever(self, certificate: ServingCertificate) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            try:
                await asyncio.to_thread(certificate.reload)
            except ConfigError as error:
                self._on_trouble(f"the old certificate stays in use: {error}")

    async def _health(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        endpoint = request.path.split("/")[1]
        checks = self._checks[endpoint]
        single = request.match_info.get("check")
        if single is not None:
            if single not in checks:
                return web.Response(status=404, text="404 page not found\n")
            checks = {single: checks[single]}
        excluded = set(request.query.getall("exclude", []))
        near, failed, lines = self._trusted(request), False, []
        for name, check in checks.items():
            if name in excluded:
                lines.append(f"[+]{name} excluded: ok")
                continue
            reason = _run(check)
            self._slis.observe(endpoint, name, not reason)
            failed = failed or bool(reason)
            # What is wrong inside concerns nobody outside.
            shown = reason if near else "reason withheld"
            lines.append(f"[-]{name} failed: {shown}" if reason else f"[+]{name} ok")
        if failed:
            return web.Response(status=500, text="\n".join([*lines, f"{endpoint} check failed\n"]))
        if "verbose" in request.query:
            return web.Response(text="\n".join([*lines, f"{endpoint} check passed\n"]))
        return web.Response(text="ok")

    async def _serve_metrics(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        body, content_type = self._metrics()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_slis(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        body, content_type = self._slis.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_pod_resources(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        assert self._pod_resources is not None  # else the path is not served
        body, content_type = self._pod_resources()
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def _serve_page(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        assert self._pages is not None  # else the paths are not served
        if request.path == "/statusz":
            return self._pages.statusz(request)
        if request.path == "/flagz":
            return self._pages.flagz(request)
        return await self._pages.verbosity(request)

    async def _serve_configuration(self, request: web.Request) -> web.Response:
        refusal = await self._refusal(request)
        if refusal is not None:
            return refusal
        if self._configuration is None:
            return web.Response(status=404, text="404 page not found\n")
        body = msgspec.json.encode({"componentconfig": self._configuration()})
        return web.Response(body=body, content_type="application/json")

    async def _refusal(self, request: web.Request) -> web.Response | None:
        """None for who may read, else the answer for who may not."""
        if self._trusted(request) or self._open_to_all(request.path):
            return None
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        verdict: Verdict = "unauthenticated"
        if self._authorizer is not None and scheme.lower() == "bearer":
            verdict = await self._authorizer.verdict(token.strip(), request.path)
        if verdict == "allowed":
            return None
        if verdict == "unauthenticated":
            return web.Response(status=401, text="Unauthorized\n")
        if verdict == "forbidden":
            return web.Response(status=403, text=f"forbidden: {request.path}\n")
        return web.Response(status=503, text="the API server could not be asked\n")

    def _trusted(self, request: web.Request) -> bool:
        """Port-forwards arrive from loopback, too: only who asked for it lets this machine in without a token."""
        return self._trust_loopback and _near(request)

    def _open_to_all(self, path: str) -> bool:
        """A path ending in ``*`` stands for all that begin like it."""
        for allowed in self._always_allowed:
            if path == allowed or (allowed.endswith("*") and path.startswith(allowed[:-1])):
                return True
            if allowed.lstrip("/") in self._checks and path.startswith(allowed + "/"):
                return True  # a single check says less than all of them
        return False


def _run(check: Check) -> str:
    try:
        return check()
    except Exception as error:  # a broken check is a failed check, never a 500 without words
        return f"{type(error).__name__}: {error}"


def _near(request: web.Request) -> bool:
    """True for a client on this machine."""
    if request.transport is None:
        return False
    peer = request.transport.get_extra_info("peername")
    try:
        address = ipaddress.ip_address(peer[0].partition("%")[0])
    except (ValueError, TypeError, IndexError):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback
