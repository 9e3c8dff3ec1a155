"""A client that answers LISTs and WATCHes from a table of raw objects, and takes every write for granted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from scheduler.edge.client import Response
from scheduler.edge.errors import Gone, NotFound, StatusDetails


class FeedClient:
    """Stands for an ApiClient. ``objects``: collection path → key → raw JSON of one object; ``places``: path of one
    object → its collection and key. ``torn``: collection path → what stands in the next LIST, of either form, instead.

    ``show`` sends one watch event; ``relist`` makes the watcher list again. ``idle`` is true once everything sent has
    been taken in and every watcher waits for more.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, bytes]] = {}
        self.places: dict[str, tuple[str, str]] = {}
        self.revision = 1
        self.torn: dict[str, bytes] = {}
        self._streams: dict[str, asyncio.Queue[bytes | None]] = {}
        self._waiting: set[str] = set()

    def show(self, path: str, event_type: str, raw: bytes) -> None:
        """One line of the watch on ``path``."""
        self._waiting.discard(path)
        self._streams[path].put_nowait(_line(event_type.encode(), raw))

    def relist(self, path: str) -> None:
        """End the watch on ``path`` with 410 Gone."""
        self._waiting.discard(path)
        self._streams[path].put_nowait(None)

    def idle(self) -> bool:
        """True when every watcher waits."""
        return self._waiting >= self._streams.keys()

    async def call(self, method: str, path: str, *_: object, **__: object) -> Response:
        """A page with all objects of ``path``, or one object; ``{}`` for every write."""
        if method != "GET" or path in self.places:
            return await self.request(method, path)
        meta = b'{"resourceVersion":"' + str(self.revision).encode() + b'"}'
        return Response(200, b'{"metadata":' + meta + b',"items":[' + b",".join(self._listed(path)) + b"]}")

    def _listed(self, path: str) -> list[bytes]:
        if path in self.torn:
            return [self.torn.pop(path)]
        return list(self.objects.get(path, {}).values())

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
        """What ``show`` and ``relist`` put in; before it everything there is, when the query asks for that."""
        queue = self._streams.setdefault(path, asyncio.Queue())
        yield self._chunks(path, queue, self._beginning(path) if "sendInitialEvents" in query else b"")

    def _beginning(self, path: str) -> bytes:
        end = b'"annotations":{"k8s.io/initial-events-end":"true"},"resourceVersion":"%d"' % self.revision
        lines = [_line(b"ADDED", raw) for raw in self._listed(path)]
        return b"".join([*lines, _line(b"BOOKMARK", b'{"metadata":{' + end + b"}}")])

    async def _chunks(self, path: str, queue: asyncio.Queue[bytes | None], beginning: bytes) -> AsyncIterator[bytes]:
        if beginning:
            yield beginning
        while True:
            if queue.empty():
                self._waiting.add(path)
            chunk = await queue.get()
            if chunk is None:
                raise Gone(410, "Expired", "the fuzzer wants a new LIST")
            yield chunk


def _line(event_type: bytes, raw: bytes) -> bytes:
    return b'{"type":"' + event_type + b'","object":' + raw.replace(b"\n", b" ") + b"}\n"
