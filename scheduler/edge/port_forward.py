"""A port of a Pod as a port on this machine, through the API server, as ``kubectl port-forward`` does it.

One WebSocket per connection, in the protocol "v4.channel.k8s.io" of the kubelets' streaming server: each message
begins with a byte that names the channel, 0 for data and 1 for errors; the first message of each channel is the port
as two bytes, the smaller first. Needs the right to create pods/portforward.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote

import aiohttp
from yarl import URL

from scheduler.edge.client import mapped_errors
from scheduler.edge.credentials import Access
from scheduler.edge.errors import api_error
from scheduler.errors import ClusterError

PROTOCOL = "v4.channel.k8s.io"
CONNECT_TIMEOUT_S = 15.0
_DATA, _ERROR = 0, 1
_CHUNK_BYTES = 32 * 1024


class PortForward:
    """Listens on a free loopback port. ``trouble``: what the other end last complained about, "" when nothing."""

    def __init__(self, access: Access, namespace: str, pod: str, port: int) -> None:
        self._access, self._port = access, port
        path = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward"
        self._url = URL(f"{access.server}{path}?ports={port}", encoded=True)
        self._call = f"GET {path}"
        self._session: aiohttp.ClientSession | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.trouble = ""

    async def check(self) -> None:
        """Open and close one connection: raises ApiError with the server's words, ApiUnavailable or AnswerLost."""
        async with self._tunnel():
            pass

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        """The local port, until the block ends."""
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._access.tls or True), trust_env=False
        ) as session:
            self._session = session
            await self.check()
            server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            try:
                yield int(server.sockets[0].getsockname()[1])
            finally:
                server.close()
                for task in list(self._tasks):
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)
                await server.wait_closed()
                self._session = None

    @asynccontextmanager
    async def _tunnel(self) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
        assert self._session is not None  # only used while listening
        authorization = self._access.authorization()
        with mapped_errors(self._call):
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    socket = await self._session.ws_connect(
                        self._url,
                        protocols=(PROTOCOL,),
                        headers={"Authorization": authorization} if authorization else {},
                        proxy=self._access.proxy,
                        server_hostname=self._access.server_name,
                        max_msg_size=0,
                    )
            except aiohttp.WSServerHandshakeError as error:
                raise api_error(error.status, b"", self._call, "") from error
        try:
            if socket.protocol != PROTOCOL:
                raise ClusterError(f"{self._call}: the node does not speak {PROTOCOL}")
            yield socket
        finally:
            await socket.close()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of our own: asyncio's one complains aloud when it is cancelled (Python 3.11).
        task = asyncio.get_running_loop().create_task(self._carry(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with self._tunnel() as socket:
                sending = asyncio.create_task(_send(reader, socket))
                try:
                    await self._receive(socket, writer)
                finally:
                    sending.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
        except (ClusterError, OSError, aiohttp.ClientError) as error:
            self.trouble = str(error)
        finally:
            writer.close()
            with suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        begun = {_DATA: False, _ERROR: False}
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data or message.data[0] not in begun:
                continue
            channel, content = message.data[0], message.data[1:]
            if not begun[channel]:
                begun[channel] = True
                if content[:2] == struct.pack("<H", self._port):
                    content = content[2:]
            if not content:
                continue
            if channel == _ERROR:
                self.trouble = f"port {self._port} of the Pod: {content.decode('utf-8', 'replace')}"
                return
            writer.write(content)
            await writer.drain()


async def _send(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    """What this side says. When it has said everything the other may still answer."""
    while chunk := await reader.read(_CHUNK_BYTES):
        await socket.send_bytes(bytes((_DATA,)) + chunk)
