"""Moves the clocks of one Python process while it runs: on its path, this is imported at start.

A file ``offsets`` beside this one holds two numbers: seconds that are added to the wall clock, and to the clock that
counts since boot (as after the machine was suspended). Read at every look at a clock, so a jump needs no restart.
"""

import time
from pathlib import Path

_FILE = Path(__file__).with_name("offsets")
_time, _clock_gettime = time.time, time.clock_gettime


def _offsets() -> tuple[float, float]:
    try:
        wall, boot = _FILE.read_text().split()
        return float(wall), float(boot)
    except (OSError, ValueError):
        return 0.0, 0.0


def _moved_time() -> float:
    return _time() + _offsets()[0]


def _moved_clock_gettime(clock: int) -> float:
    wall, boot = _offsets()
    return _clock_gettime(clock) + {time.CLOCK_REALTIME: wall, time.CLOCK_BOOTTIME: boot}.get(clock, 0.0)


time.time = _moved_time
time.clock_gettime = _moved_clock_gettime
