"""Long pieces of work in the event loop, cut so that everything else in it is served in between."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
SLICE_S = 0.003
"""As long as one piece may take: an answer that has arrived, a timer or a probe waits that much longer."""
TURN_S = 0.004
"""As long as answers may be worked on in one turn of the loop; those left over go first in the next one."""


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


class Turns:
    """Spreads work that became ready all at once over turns of the event loop, so that timers are served in between.

    Twenty answers that arrive together are twenty tasks that run one after the other before the loop looks at a timer
    again. Cost: one clock reading each, and a turn of the loop for each that is put off. ``clock``: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, turn_s: float = TURN_S) -> None:
        self._clock, self._turn_s = clock, turn_s
        self._began_s: float | None = None

    async def take(self) -> None:
        """Return when there is time left in this turn of the loop; first come, first served."""
        while True:
            now_s = self._clock()
            if self._began_s is None:
                self._began_s = now_s
                # Runs in the next turn, before everybody who is put off in this one.
                asyncio.get_running_loop().call_soon(self._end)
                return
            if now_s - self._began_s < self._turn_s:
                return
            await asyncio.sleep(0)

    def _end(self) -> None:
        self._began_s = None
