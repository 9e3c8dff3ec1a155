"""The loop's pauses are measured as everything that waits for the loop meets them."""

from __future__ import annotations

import asyncio

import pytest

from scheduler.edge.metrics import Metrics
from scheduler.edge.pauses import TICK_S, TICKS_MISSED_MAX, Pauses, each_tick


def seen(*late_s: float) -> list[float]:
    """What is observed when ticks come so late."""
    found: list[float] = []
    for one in late_s:
        each_tick(found.append, one)
    return found


def test_a_long_pause_counts_for_every_tick_that_was_due_in_it() -> None:
    """One second of ticks a hundredth apart: a hundred of them waited, from a second down to nothing."""
    found = seen(1.0)
    assert len(found) == pytest.approx(1.0 / TICK_S, abs=2)
    assert max(found) == 1.0
    assert sum(late > 0.5 for late in found) == pytest.approx(0.5 / TICK_S, abs=2)


def test_a_tick_in_time_counts_once_and_an_early_one_as_in_time() -> None:
    """Timers may ring a little early."""
    assert seen(0.0, 0.004, -0.001) == [0.0, 0.004, 0.0]


def test_a_hang_of_hours_costs_no_more_than_its_first_seconds() -> None:
    """A laptop that slept must not be counted tick by tick."""
    assert len(seen(10 * 3600.0)) == TICKS_MISSED_MAX + 1


async def test_the_timer_tells_how_late_it_rang() -> None:
    """The sleep of this test takes 50 ms longer than asked for, by the test's clock; the loop works for 15 of them."""
    now, used, found, own = [0.0], [0.0], list[float](), list[float]()

    async def sleep(pause_s: float) -> None:
        now[0] += pause_s + 0.05
        used[0] += 0.015
        await asyncio.sleep(0)

    pauses = Pauses(found.append, own.append, lambda: now[0], lambda: used[0], sleep)
    task = asyncio.create_task(pauses.run())
    while len(found) < 6:  # noqa: ASYNC110  # turns of this loop are all that it waits for
        await asyncio.sleep(0)
    task.cancel()
    assert found[:6] == pytest.approx([0.05, 0.04, 0.03, 0.02, 0.01, 0.0], abs=1e-9)
    assert own[:2] == pytest.approx([0.015, 0.005], abs=1e-9)


def test_the_pauses_are_a_histogram() -> None:
    """Under our own prefix; 20 ms, the bound that is promised, is a bucket."""
    metrics = Metrics()
    metrics.loop_pause.observe((), 0.015)
    text = metrics.render()[0].decode()
    assert 'dra_scheduler_loop_pause_seconds_bucket{le="0.02"} 1.0' in text
    assert 'dra_scheduler_loop_pause_seconds_bucket{le="0.01"} 0.0' in text
