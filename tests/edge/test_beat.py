"""Clocks that a jump of the wall clock does not move."""

from __future__ import annotations

from scheduler.edge.beat import Beat, SteadyClock


def test_a_steady_clock_begins_with_the_wall_clock_and_goes_on_without_it() -> None:
    """Forwards, backwards: only the clock since boot counts."""
    now = {"wall": 1_000_000.0, "boot": 50.0}
    clock = SteadyClock(lambda: now["wall"], lambda: now["boot"])
    assert clock() == 1_000_000.0
    now["boot"] += 7.5
    for jump_s in (3600.0, -7200.0):
        now["wall"] += jump_s
        assert clock() == 1_000_007.5


def test_a_beat_ages_by_the_clock_since_boot() -> None:
    """A machine that slept makes it old."""
    now = [10.0]
    beat = Beat(lambda: now[0])
    now[0] = 15.0
    assert beat.age_s() == 5.0
    beat.touch()
    assert beat.age_s() == 0.0
