"""The streaming end of a pretended kubelet: port-forwards of Pods lead to ports of this machine.

Speaks the kubelets' WebSocket protocol for port-forwards, v4.channel.k8s.io, behind TLS; the API server dials it by
the address and port in the Node's status.
"""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
from aiohttp import web

PROTOCOL = "v4.channel.k8s.io"


class KubeletStreams:
    """``targets``: ``namespace/pod`` → port on this machine that its port leads to. ``asked``: what was opened."""

    def __init__(self, targets: Mapping[str, int], certificate: tuple[Path, Path]) -> None:
        self._targets = dict(targets)
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._tls.load_cert_chain(*certificate)
        self.asked: list[tuple[str, str]] = []

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """The port, while the block lasts."""
        app = web.Application()
        app.router.add_get("/portForward/{namespace}/{pod}", self._forward)
        app.router.add_get("/portForward/{namespace}/{pod}/{uid}", self._forward)
        runner = web.AppRunner(app, shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
        try:
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        key = f"{request.match_info['namespace']}/{request.match_info['pod']}"
        port = request.query["port"]
        self.asked.append((key, port))
        socket = web.WebSocketResponse(protocols=(PROTOCOL,))
        await socket.prepare(request)
        for channel in (0, 1):
            await socket.send_bytes(bytes((channel,)) + struct.pack("<H", int(port)))
        target = self._targets.get(key)
        if target is None:
            await socket.send_bytes(b"\x01" + f"an error occurred forwarding port {port} to pod {key}".encode())
            await socket.close()
            return socket
        reader, writer = await asyncio.open_connection("127.0.0.1", target)

        async def back() -> None:
            while chunk := await reader.read(32 * 1024):
                await socket.send_bytes(b"\x00" + chunk)
            await socket.close()

        answering = asyncio.create_task(back())
        try:
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data[:1] == b"\x00":
                    writer.write(message.data[1:])
                    await writer.drain()
        finally:
            answering.cancel()
            writer.close()
        return socket
