"""Places for work that runs side by side, and the wait for several of them to be free at once."""

from __future__ import annotations

import asyncio
from types import TracebackType

FILL_WAIT_S = 0.02
"""How long the first free places wait for more: some of the others may be taken for long."""


class Slots:
    """``count`` places, taken by ``async with``; first come, first served."""

    def __init__(self, count: int) -> None:
        self.free = count
        self._count, self._wanted = count, 1
        self._places = asyncio.Semaphore(count)
        self._enough = asyncio.Event()

    async def acquire(self) -> None:
        """Take a place, once there is one."""
        await self._places.acquire()
        self.free -= 1

    def release(self) -> None:
        """Give a place back."""
        self.free += 1
        self._places.release()
        if self.free >= self._wanted:
            self._enough.set()

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def room(self, wanted: int) -> int:
        """How many places are free, at least one, at most ``wanted``. For one caller at a time.

        When none is, waits for ``wanted`` of them, but not much longer than for the first one.
        """
        if not self.free:
            await self._until(1)
            try:
                async with asyncio.timeout(FILL_WAIT_S):
                    await self._until(min(wanted, self._count))
            except TimeoutError:
                pass
        return max(1, min(wanted, self.free))

    async def _until(self, wanted: int) -> None:
        while self.free < wanted:
            self._wanted = wanted
            self._enough.clear()
            await self._enough.wait()
