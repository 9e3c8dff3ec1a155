"""Clocks that count since boot, and the heartbeat of the scheduling loop: proof, for other threads, that it turns."""

from __future__ import annotations

import time
from collections.abc import Callable


def boot_clock() -> float:
    """Monotonic seconds that go on while the machine sleeps, so that a lease held across a suspend counts as old."""
    return time.clock_gettime(_BOOT_CLOCK)


_BOOT_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class SteadyClock:
    """Seconds since the epoch, as the wall clock had it at the start and the clock since boot goes on from there.

    For waits, and for the order in which things happened: a wall clock that jumps ends no wait early and makes none
    longer. Dates that others read or wrote are the wall clock's own.
    """

    def __init__(self, wall: Callable[[], float] = time.time, boot: Callable[[], float] = boot_clock) -> None:
        self._boot, self._ahead_s = boot, wall() - boot()

    def __call__(self) -> float:
        """Now."""
        return self._boot() + self._ahead_s


class Beat:
    """The loop calls ``touch`` at least once a second; anybody may ask, from any thread, how long ago that was."""

    def __init__(self, clock: Callable[[], float] = boot_clock) -> None:
        self._clock = clock
        self._touched_at_s = clock()

    def touch(self) -> None:
        """The loop turned. Cost: one clock reading."""
        self._touched_at_s = self._clock()

    def age_s(self) -> float:
        """Seconds since the last turn."""
        return self._clock() - self._touched_at_s
