"""A client that answers LISTs and WATCHes from a table of raw objects, and takes every write for granted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from scheduler.edge.client import Response
from scheduler.edge.errors import Gone, NotFound, StatusDetails


class FeedClient:
    """Stands for an ApiClient. ``objects``: collection path → key → raw JSON of one object; ``places``: path of one
    object → its collection and key.

    ``show`` sends one watch event; ``relist`` makes the watcher list again. ``idle`` is true once everything sent has
    been taken in and every watcher waits for more.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {}
        self.places: dict[str, tuple[str, str]] = {}
        self.revision = 1
        self.pages: dict[str, bytes] = {}
        self._streams: dict[str, asyncio.Queue[bytes | None]] = {}
        self._waiting: set[str] = set()

    def show(self, path: str, event_type: str, raw: bytes) -> None:
        """One line of the watch on ``path``."""
        self._waiting.discard(path)
        line = b'{"type":"' + event_type.encode() + b'","object":' + raw.replace(b"\n", b" ") + b"}\n"
        self._streams[path].put_nowait(line)

    def relist(self, path: str) -> None:
        """End the watch on ``path`` with 410 Gone."""
        self._waiting.discard(path)
        self._streams[path].put_nowait(None)

    def idle(self) -> bool:
        """True when every watcher waits."""
        return self._waiting >= self._streams.keys()

    async def call(self, method: str, path: str, *_: object, **__: object) -> Response:
        """A page with all objects of ``path``, or that of ``pages`` once, or one object; ``{}`` for every write."""
        if method != "GET" or path in self.places:
            return await self.request(method, path)
        if path in self.pages:
            return Response(200, self.pages.pop(path))
        items = b",".join(self.objects.get(path, {}).values())
        meta = b'{"resourceVersion":"' + str(self.revision).encode() + b'"}'
        return Response(200, b'{"metadata":' + meta + b',"items":[' + items + b"]}")

    async def request(self, method: str, path: str, *_: object, **__: object) -> Response:
        """One object as it is now. Raises NotFound, in the API server's words; ``{}`` for every write."""
        if method != "GET":
            return Response(200, b"{}")
        collection, key = self.places.get(path, ("", ""))
        raw = self.objects.get(collection, {}).get(key)
        if raw is None:
            raise NotFound(404, "NotFound", f"{path} not found", StatusDetails(name=path.rpartition("/")[2]))
        return Response(200, raw)

    @asynccontextmanager
    async def stream(self, path: str, query: Mapping[str, str], **_: object) -> AsyncIterator[AsyncIterator[bytes]]:
        """What ``show`` and ``relist`` put in."""
        queue = self._streams.setdefault(path, asyncio.Queue())
        yield self._chunks(path, queue)

    async def _chunks(self, path: str, queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
        while True:
            if queue.empty():
                self._waiting.add(path)
            chunk = await queue.get()
            if chunk is None:
                raise Gone(410, "Expired", "the fuzzer wants a new LIST")
            yield chunk
