"""Bodies of requests: how much of them is in memory at once, whoever sends them.

A decoded body may take thirty times its size, so as many are worked on at once as have the size of one of the largest
together; the others wait, first come first served. An ordinary review has a few kilobytes: those have room of their
own, so that large bodies, or senders that stop in the middle of one, hold up nobody else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from scheduler.errors import ClusterError

BODY_MAX_BYTES = 8 * 1024 * 1024
"""Object and old object, 1.5 MiB at most each in etcd, spelled out as JSON."""
READ_MAX_BYTES = 8 * BODY_MAX_BYTES
SMALL_BYTES = 64 * 1024
SMALL_READ_MAX_BYTES = BODY_MAX_BYTES
"""Room for small ones beside READ_MAX_BYTES, which large ones cannot take."""
READ_TIMEOUT_S = 10.0
"""The API server sends a body at once."""


class BodyError(ClusterError):
    """A body that is not taken in; ``status`` is the HTTP status of the answer."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Content(Protocol):
    """The stream of a request's body (aiohttp.StreamReader)."""

    def iter_any(self) -> AsyncIterator[bytes]:
        """Pieces as they arrive."""


class Intake:
    """``body`` takes one in. ``read_max_bytes``: of all requests together, as they came over the wire."""

    def __init__(self, read_max_bytes: int = READ_MAX_BYTES, read_timeout_s: float = READ_TIMEOUT_S) -> None:
        self._read_max_bytes, self._read_timeout_s = read_max_bytes, read_timeout_s
        self._kept = 0
        self._small, self._large = _Work(), _Work()

    @asynccontextmanager
    async def body(self, content: Content) -> AsyncIterator[bytes]:
        """The whole body, with the right to work on it until the block ends. Raises BodyError."""
        pieces = bytearray()
        try:
            try:
                async with asyncio.timeout(self._read_timeout_s):
                    async for piece in content.iter_any():
                        pieces += piece
                        self._kept += len(piece)
                        self._check(len(pieces))
            except TimeoutError as error:
                raise BodyError(408, f"the body did not arrive within {self._read_timeout_s:g} s") from error
            async with (self._small if len(pieces) <= SMALL_BYTES else self._large).share(len(pieces)):
                yield bytes(pieces)
        finally:
            self._kept -= len(pieces)

    def _check(self, size: int) -> None:
        if size > BODY_MAX_BYTES:
            raise BodyError(413, f"the body is larger than {BODY_MAX_BYTES} bytes")
        small = SMALL_READ_MAX_BYTES if size <= SMALL_BYTES else 0
        if self._kept > self._read_max_bytes + small:
            raise BodyError(503, "the bodies of all requests together are too large")


class _Work:
    """Bodies of BODY_MAX_BYTES together at once; the others wait, first come first served."""

    def __init__(self) -> None:
        self._bytes = 0
        self._next, self._freed = asyncio.Lock(), asyncio.Event()

    @asynccontextmanager
    async def share(self, size: int) -> AsyncIterator[None]:
        async with self._next:
            while self._bytes and self._bytes + size > BODY_MAX_BYTES:
                self._freed.clear()
                await self._freed.wait()
            self._bytes += size
        try:
            yield
        finally:
            self._bytes -= size
            self._freed.set()
