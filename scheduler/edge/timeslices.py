"""Long pieces of work in the event loop, cut so that everything else in it is served in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
SLICE_S = 0.003
"""As long as one piece may take: an answer that has arrived, a timer or a probe waits that much longer."""


class TimeSlices:
    """Asked between two steps of a long piece of work. Cost: one clock reading.

    ``clock``: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, slice_s: float = SLICE_S) -> None:
        self._clock, self._slice_s = clock, slice_s
        self._began_s = clock()

    @property
    def over(self) -> bool:
        """Whether it is time to ``rest``."""
        return self._clock() - self._began_s >= self._slice_s

    async def rest(self) -> None:
        """Let the loop turn once; the next slice begins then."""
        await asyncio.sleep(0)
        self._began_s = self._clock()


async def in_slices(steps: Generator[None, None, T]) -> T:
    """What ``steps`` returns; each step should take much less than a slice."""
    slices = TimeSlices()
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
        if slices.over:
            await slices.rest()
