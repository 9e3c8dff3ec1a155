"""Questions run in slices, one after the other, share answers, and give way when there is work."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from scheduler.dra.features import Features
from scheduler.edge import asking
from scheduler.edge.asking import Asking, TooBusyError
from scheduler.edge.mirror import Mirror


class Clock:
    """Each look costs a slice."""

    def __init__(self, step_s: float = asking.SLICE_S) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


class World:
    """Counts refreshes; ``changed`` makes the next refresh find something."""

    def __init__(self, step_s: float = asking.SLICE_S) -> None:
        self.busy = self.changed = False
        self.refreshes = 0
        self.slices: list[float] = []
        self.clock = Clock(step_s)
        self.asking = Asking(
            Mirror(Features()), self.refresh, lambda: self.busy, clock=self.clock, on_slice=self.slices.append
        )

    def refresh(self, mirror: Mirror) -> Generator[None, None, None]:
        self.refreshes += 1
        mirror.version += self.changed
        yield


def answering(answer: Any, steps: int = 3, log: list[str] | None = None) -> Generator[None, None, Any]:
    try:
        for number in range(steps):
            if log is not None:
                log.append(f"{answer} {number}")
            yield
        return answer
    finally:
        if log is not None:
            log.append(f"{answer} closed")


async def test_others_run_between_the_slices() -> None:
    """A long question lets the event loop turn after every slice."""
    world, turns = World(), 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    assert await world.asking.ask("q", lambda: answering("a", 50)) == "a"
    task.cancel()
    assert turns >= 50
    assert len(world.slices) >= 50


async def test_questions_wait_for_each_other() -> None:
    """Two questions never mix their steps: each has the state for itself."""
    world, log = World(), []
    first, second = (
        asyncio.create_task(world.asking.ask(name, lambda name=name: answering(name, 3, log))) for name in ("a", "b")
    )
    assert (await first, await second) == ("a", "b")
    assert log == ["a 0", "a 1", "a 2", "a closed", "b 0", "b 1", "b 2", "b closed"]


async def test_equal_questions_share_an_answer() -> None:
    """While nothing has changed, or for a second, the kept answer is told; afterwards it is looked for anew."""
    world = World(step_s=asking.SLICE_S / 100)
    world.changed = True
    assert await world.asking.ask("q", lambda: answering(1)) == 1
    assert await world.asking.ask("q", lambda: answering(2)) == 1, "a second has not passed"
    world.clock.now += asking.KEPT_S
    assert await world.asking.ask("q", lambda: answering(3)) == 3
    world.changed = False
    world.clock.now += asking.KEPT_S
    assert await world.asking.ask("q", lambda: answering(4)) == 3, "nothing has changed"
    assert await world.asking.ask("another", lambda: answering(5)) == 5
    assert world.refreshes == 4


async def test_work_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """While Pods are being decided, questions rest long enough to take their share of the time only."""
    rests: list[float] = []
    sleep = asyncio.sleep

    async def rest(seconds: float) -> None:
        rests.append(seconds)
        await sleep(0)

    monkeypatch.setattr(asking.asyncio, "sleep", rest)
    world = World()
    world.busy = True
    await world.asking.ask("q", lambda: answering("a", 10))
    spent = sum(world.slices)
    assert spent > 0
    assert sum(rests) >= spent * (1 / asking.BUSY_SHARE - 1) * 0.999
    rests.clear()
    world.slices.clear()
    world.busy = False
    await world.asking.ask("quiet", lambda: answering("a", 10))
    assert sum(rests) == pytest.approx(sum(world.slices) * (1 / asking.QUIET_SHARE - 1))


async def test_too_many_and_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bounds a question is refused, and what it had tried is taken back."""
    monkeypatch.setattr(asking, "QUEUED_MAX", 1)
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.05)
    world, log = World(), []
    endless = asyncio.create_task(world.asking.ask("q", lambda: answering("a", 10**9, log)))
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError, match="too many"):
        await world.asking.ask("other", lambda: answering("b"))
    with pytest.raises(TooBusyError, match="no answer within"):
        await endless
    assert log[-1] == "a closed"
    assert await world.asking.ask("other", lambda: answering("b")) == "b"


async def test_a_question_that_fails_leaves_the_next_alone() -> None:
    """What the steps raise is the asker's; nothing is kept of it."""
    world = World()

    def failing() -> Generator[None, None, int]:
        yield
        raise KeyError("odd")

    with pytest.raises(KeyError):
        await world.asking.ask("q", failing)
    assert await world.asking.ask("q", lambda: answering(7)) == 7


async def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions about ever new Pods do not fill the memory."""
    monkeypatch.setattr(asking, "KEPT_MAX", 3)
    world = World()
    for number in range(10):
        await world.asking.ask(number, lambda number=number: answering(number, 1))
    assert len(world.asking._kept) == 3
