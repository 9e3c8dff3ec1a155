"""How long the event loop keeps waiting whatever becomes due: the pauses that everything else in it notices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler.edge.client import Sleep

TICK_S = 0.01
TICKS_MISSED_MAX = 1000
"""Ticks of one pause that are counted singly: 10 s. A loop that hangs longer has lost its lease anyway."""


class Pauses:
    """A timer that rings every TICK_S and tells how late it rang. Cost: 100 wake-ups a second, about 2 ms of CPU.

    ``observe`` gets the lateness in seconds of every tick that was due, those inside one long pause included: else a
    pause of a second would count like one of a millisecond. ``observe_own`` gets the part of it that this thread was at
    work (``cpu`` counts its CPU seconds); the rest it waited for a core.
    """

    def __init__(
        self,
        observe: Callable[[float], None],
        observe_own: Callable[[float], None],
        clock: Callable[[], float],
        cpu: Callable[[], float],
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._observe, self._observe_own = observe, observe_own
        self._clock, self._cpu, self._sleep = clock, cpu, sleep

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due, used_s = self._clock() + TICK_S, self._cpu()
            await self._sleep(TICK_S)
            late_s = self._clock() - due
            each_tick(self._observe, late_s)
            each_tick(self._observe_own, min(late_s, self._cpu() - used_s))


def each_tick(observe: Callable[[float], None], late_s: float) -> None:
    """A tick came ``late_s`` after it was due; others became due meanwhile and waited less."""
    for missed in range(min(int(max(late_s, 0.0) / TICK_S), TICKS_MISSED_MAX) + 1):
        observe(max(late_s - missed * TICK_S, 0.0))
