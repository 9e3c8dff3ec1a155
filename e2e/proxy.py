"""A TCP proxy between a scheduler and its API server: cuts connections, also in the middle of a line, and stalls."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

CHUNK_BYTES = 1024


class CuttingProxy:
    """Passes bytes through until told otherwise. An async context manager; ``port`` is its loopback port.

    TLS goes through untouched, so a cut always falls somewhere inside a record: the client sees half a line.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._server: asyncio.Server | None = None
        self._pairs: set[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.cuts = 0
        self.port = 0

    async def __aenter__(self) -> CuttingProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._flowing.set()
        self.cut_all()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut_all(self) -> int:
        """Abort every connection at once, whatever is under way; how many there were."""
        pairs = list(self._pairs)
        for client, server in pairs:
            client.transport.abort()
            server.transport.abort()
        self.cuts += len(pairs)
        return len(pairs)

    def stall(self) -> None:
        """Pass nothing on until ``flow``; connections stay open."""
        self._flowing.clear()

    def flow(self) -> None:
        """Go on after ``stall``."""
        self._flowing.set()

    def kubeconfig(self, original: Path, folder: Path) -> Path:
        """A copy of a kubeconfig that leads through the proxy."""
        document = yaml.safe_load(original.read_text())
        for cluster in document["clusters"]:
            cluster["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "through-proxy.kubeconfig"
        file.write_text(yaml.safe_dump(document))
        return file

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        pair = (writer, far_writer)
        self._pairs.add(pair)
        both = [
            asyncio.create_task(self._pump(reader, far_writer)),
            asyncio.create_task(self._pump(far_reader, writer)),
        ]
        self._tasks.update(both)
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._pairs.discard(pair)
            for end in pair:
                end.transport.abort()
            for task in both:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            self._tasks.difference_update(both)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()


def port_of(kubeconfig: Mapping[str, Any]) -> int:
    """The API server's port in a parsed kubeconfig."""
    return int(str(kubeconfig["clusters"][0]["cluster"]["server"]).rsplit(":", 1)[1])
