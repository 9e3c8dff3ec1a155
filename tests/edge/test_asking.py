"""Questions run in slices, one after the other, share answers, and give way when there is work."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import time
from collections.abc import Generator
from typing import Any

import pytest

from scheduler.dra.features import Features
from scheduler.edge import asking
from scheduler.edge.asking import Asking, TooBusyError
from scheduler.edge.forks import ChildError
from scheduler.edge.mirror import Mirror
from scheduler.errors import UserError


class Clock:
    """Each look costs a slice."""

    def __init__(self, step_s: float = asking.SLICE_S) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


class World:
    """Counts refreshes; ``changed`` makes the next refresh find something."""

    def __init__(self, step_s: float = asking.SLICE_S, forking: bool = False) -> None:
        self.busy = self.changed = False
        self.refreshes = 0
        self.slices: list[float] = []
        self.clock = Clock(step_s)
        self.asking = Asking(
            Mirror(Features()),
            self.refresh,
            lambda: self.busy,
            clock=self.clock,
            on_slice=self.slices.append,
            forking=forking,
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
    """For a second, or ten while nothing has changed, the kept answer is told; afterwards it is looked for anew."""
    world = World(step_s=asking.SLICE_S / 100)
    world.changed = True
    assert await world.asking.ask("q", lambda: answering(1)) == 1
    assert await world.asking.ask("q", lambda: answering(2)) == 1, "a second has not passed"
    world.clock.now += asking.KEPT_S
    assert await world.asking.ask("q", lambda: answering(3)) == 3
    world.changed = False
    world.clock.now += asking.KEPT_S
    assert await world.asking.ask("q", lambda: answering(4)) == 3, "nothing has changed"
    world.clock.now += asking.UNCHANGED_S
    assert await world.asking.ask("q", lambda: answering(4)) == 4, "it tells ages"
    assert await world.asking.ask("another", lambda: answering(5)) == 5
    assert world.refreshes == 5


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
    assert world.asking._server is not None
    await world.asking._server
    assert log[-1] == "a closed"
    monkeypatch.setattr(asking, "TIMEOUT_S", 30.0)
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


async def test_a_child_answers_what_waits() -> None:
    """Questions that came together are answered by one child, from the state as it was; nothing changes here."""
    world = World(step_s=asking.SLICE_S / 100, forking=True)
    seen: list[str] = []

    def looking(name: str) -> Generator[None, None, tuple[str, int, bool]]:
        seen.append(name)  # in the child only
        yield
        return name, os.getpid(), gc.isenabled()

    answers = await asyncio.gather(*(world.asking.ask(name, lambda name=name: looking(name)) for name in ("a", "b")))
    assert [answer[0] for answer in answers] == ["a", "b"]
    assert answers[0][1] == answers[1][1] != os.getpid()
    assert not answers[0][2]
    assert (seen, world.refreshes) == ([], 1)
    assert len(world.slices) == 1, "the fork is the time that the loop was held"


async def test_a_child_brings_itself_up_to_date_while_there_is_work() -> None:
    """Then the loop pays for the fork alone."""
    world = World(forking=True)
    world.busy = True

    def refreshed() -> Generator[None, None, int]:
        yield
        return world.refreshes

    assert await world.asking.ask("q", refreshed) == 1
    assert world.refreshes == 0


async def test_what_goes_wrong_in_a_child_is_told() -> None:
    """A user's mistake as such, our own as its text, a child that dies as that; the next question is answered."""
    world = World(forking=True)

    def failing(error: Exception) -> Generator[None, None, None]:
        yield
        raise error

    def dying() -> Generator[None, None, None]:
        yield
        os._exit(1)

    with pytest.raises(UserError, match="pod x: not found"):
        await world.asking.ask("user", lambda: failing(UserError("pod x", "", "not found")))
    with pytest.raises(ChildError, match="KeyError: 'odd'"):
        await world.asking.ask("bug", lambda: failing(KeyError("odd")))
    with pytest.raises(ChildError, match="without an answer"):
        await world.asking.ask("dead", dying)
    assert await world.asking.ask("q", lambda: answering(1)) == 1


async def test_a_large_answer_passes_the_pipe() -> None:
    """Megabytes, in one piece."""
    world = World(forking=True)
    text = "x" * 3_000_000
    assert await world.asking.ask("q", lambda: answering(text)) == text


async def test_without_a_child_slices_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that makes no more processes costs time, not the answer."""
    world = World(forking=True)

    def no_fork() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", no_fork)
    before = len(os.listdir("/proc/self/fd"))
    assert await world.asking.ask("q", lambda: answering("a")) == "a"
    assert len(os.listdir("/proc/self/fd")) == before, "no pipe is left"


async def test_a_child_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bound the asker is told so, the child is gone and nothing is left of it."""
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.3)
    world = World(forking=True)
    pids: list[int] = []
    fork = os.fork

    def noted() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(os, "fork", noted)

    def hanging() -> Generator[None, None, None]:
        yield
        signal.pause()

    with pytest.raises(TooBusyError):
        await world.asking.ask("q", hanging)
    assert world.asking._server is not None
    await world.asking._server
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    monkeypatch.setattr(asking, "TIMEOUT_S", 30.0)
    assert await world.asking.ask("next", lambda: answering(1)) == 1


async def test_a_child_takes_idle_cores_first_and_a_share_where_none_is_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first child makes way for everybody; what it has not answered in time a second one answers."""
    world = World(forking=True)
    policies = {"q": lambda: _policy(0.0), "slow": lambda: _policy(0.5)}
    assert await world.asking.ask("q", policies["q"]) == os.SCHED_IDLE
    monkeypatch.setattr(asking, "IDLE_S", 0.2)
    quick, slow = await asyncio.gather(
        world.asking.ask("quick", policies["q"]), world.asking.ask("slow", policies["slow"])
    )
    assert (quick, slow) == (os.SCHED_IDLE, os.SCHED_OTHER)


def _policy(idle_takes_s: float) -> Generator[None, None, int]:
    yield
    policy = os.sched_getscheduler(0)
    if policy == os.SCHED_IDLE:
        time.sleep(idle_takes_s)  # in the child: as if it got no core
    return policy


async def test_a_child_keeps_no_socket_open() -> None:
    """A port that the parent lets go can be taken again although a child still thinks."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    world = World(forking=True)

    def sockets() -> Generator[None, None, list[str]]:
        yield
        return [name for name in os.listdir("/proc/self/fd") if _is_socket(name)]

    assert await world.asking.ask("q", sockets) == []
    listener.close()
    socket.create_server(("127.0.0.1", port)).close()


def _is_socket(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:
        return False
