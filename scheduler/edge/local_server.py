"""A plain HTTP server on loopback, for the demo and for a local view of a scheduler elsewhere.

A page of another site must not reach it by letting its own name resolve to 127.0.0.1: only requests that name loopback
are served.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from aiohttp import web

from scheduler.edge.http import Mount

HOST = "127.0.0.1"
_NAMES = ("127.0.0.1", "localhost", "[::1]")

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def only_loopback(request: web.Request, handler: Handler) -> web.StreamResponse:
    """421 for a request that was meant for another name."""
    name, colon, port = request.headers.get("Host", "").rpartition(":")
    if (name if colon and port.isdigit() else request.headers.get("Host", "")) not in _NAMES:
        return web.Response(status=421, text="only loopback names are served here\n")
    return await handler(request)


class LocalServer:
    """``mounts`` add the routes. ``start`` answers with the URL; ``port`` 0 takes any free one."""

    def __init__(self, mounts: Sequence[Mount], port: int = 0) -> None:
        self._mounts, self._port = tuple(mounts), port
        self._runner: web.AppRunner | None = None

    async def start(self) -> str:
        """Listen. Raises OSError when the port is taken."""
        app = web.Application(middlewares=[only_loopback])
        for mount in self._mounts:
            mount(app)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, HOST, self._port).start()
        except OSError:
            await self._runner.cleanup()
            raise
        return f"http://{HOST}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
