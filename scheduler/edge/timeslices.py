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
"""As long as all pieces together may take in one turn of the loop, before each that is left begins a last small one."""
PUT_OFF_MAX = 5
"""Turns that an answer waits for others at most: a long piece of work begins each turn before it."""


class Turns:
    """Spreads work that is ready all at once over turns of the event loop, so that timers are served in between.

    Twenty answers that arrive together, or three watches and the decisions, are tasks that run one after the other
    before the loop looks at a timer again. Cost: one clock reading each, and a turn of the loop for each that is put
    off. ``clock``: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, turn_s: float = TURN_S) -> None:
        self._clock, self._turn_s = clock, turn_s
        self._began_s: float | None = None

    def begin(self, now_s: float) -> None:
        """Work begins; the first of a turn says when."""
        if self._began_s is None:
            self._began_s = now_s
            # Runs in the next turn, before everybody who is put off in this one.
            asyncio.get_running_loop().call_soon(self._end)

    @property
    def over(self) -> bool:
        """Whether enough was done in this turn."""
        return self._began_s is not None and self._clock() - self._began_s >= self._turn_s

    async def take(self) -> None:
        """Return when there is time left in this turn of the loop; first come, first served."""
        for _ in range(PUT_OFF_MAX):
            if not self.over:
                self.begin(self._clock())
                return
            await asyncio.sleep(0)

    def _end(self) -> None:
        self._began_s = None


_TURNS: list[tuple[asyncio.AbstractEventLoop, Turns]] = []


def turns() -> Turns:
    """Those of the running loop, shared by all its work."""
    loop = asyncio.get_running_loop()
    if not _TURNS or _TURNS[0][0] is not loop:
        _TURNS[:] = [(loop, Turns())]
    return _TURNS[0][1]


class TimeSlices:
    """Asked between two steps of a long piece of work. Cost: two clock readings.

    A slice is over after its own time, or when the turn of the loop is: at least one step is made in each, so that
    everybody gets on. ``clock``: monotonic seconds; with one given, only the slice's own time counts.
    """

    def __init__(self, clock: Callable[[], float] | None = None, slice_s: float = SLICE_S) -> None:
        self._turns = turns() if clock is None else None
        self._clock, self._slice_s = clock or time.monotonic, slice_s
        self._begin()

    def _begin(self) -> None:
        self._began_s = self._clock()
        if self._turns is not None:
            self._turns.begin(self._began_s)

    @property
    def over(self) -> bool:
        """Whether it is time to ``rest``."""
        if self._clock() - self._began_s >= self._slice_s:
            return True
        return self._turns is not None and self._turns.over

    async def rest(self) -> None:
        """Let the loop turn once; the next slice begins then."""
        await asyncio.sleep(0)
        self._begin()


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
