"""Questions run in slices, one after the other, share answers, and give way when there is work."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Generator, Hashable
from itertools import count
from typing import Any

import pytest

from scheduler.edge import asking
from scheduler.edge.asking import Asking, TooBusyError
from scheduler.edge.forks import ChildError
from scheduler.errors import UserError


class Clock:
    """Each look costs a slice."""

    def __init__(self, step_s: float = asking.SLICE_S) -> None:
        self.now, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now += self.step_s
        return self.now


class World:
    """Counts refreshes; ``changed`` makes the next refresh, or the next news, find something.

    A question is a function with its arguments, which gives the steps of the answer.
    """

    def __init__(self, step_s: float = asking.SLICE_S, forking: bool = False) -> None:
        self.busy = self.changed = False
        self.refreshes = self.version = self.count = 0
        self.learnt: list[Any] = []
        self.followed: list[bool] = []
        self.slices: list[float] = []
        self.clock = Clock(step_s)
        self.asking = Asking(
            self,
            lambda question: question[0](*question[1:]),
            lambda: self.busy,
            clock=self.clock,
            on_slice=self.slices.append,
            forking=forking,
        )

    async def ask(self, *question: Any) -> Any:
        return await self.asking.ask(question)

    def refresh_steps(self) -> Generator[None, None, Hashable]:
        self.refreshes += 1
        self.version += self.changed
        yield
        return self.version

    def follow(self) -> None:
        self.followed.append(True)

    def follow_no_more(self) -> None:
        self.followed.append(False)

    def news_count(self) -> int:
        return self.count

    def news(self, most: int) -> tuple[Hashable, Any]:
        self.count = max(0, self.count - most)
        self.version += self.changed
        return ("news", self.version), self.version

    def learn(self, news: Any) -> None:
        self.learnt.append(news)


@pytest.fixture
async def forked() -> AsyncIterator[World]:
    """A world whose questions are answered by a helper."""
    world = World(step_s=asking.SLICE_S / 100, forking=True)
    yield world
    await world.asking.close()


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
    assert await world.ask(answering, "a", 50) == "a"
    task.cancel()
    assert turns >= 50
    assert len(world.slices) >= 50


async def test_questions_wait_for_each_other() -> None:
    """Two questions never mix their steps: each has the state for itself."""
    world, log = World(), []

    def noting(answer: str) -> Generator[None, None, str]:
        return answering(answer, 3, log)

    first, second = (asyncio.create_task(world.ask(noting, name)) for name in ("a", "b"))
    assert (await first, await second) == ("a", "b")
    assert log == ["a 0", "a 1", "a 2", "a closed", "b 0", "b 1", "b 2", "b closed"]


def counting() -> Callable[[], Generator[None, None, int]]:
    """One question, each time another answer."""
    numbers = count(1)
    return lambda: answering(next(numbers))


async def test_equal_questions_share_an_answer() -> None:
    """For two seconds, or ten while nothing has changed, the kept answer is told; afterwards it is looked for anew."""
    world, question = World(step_s=asking.SLICE_S / 100), counting()
    world.changed = True
    assert await world.ask(question) == 1
    assert await world.ask(question) == 1, "two seconds have not passed"
    world.clock.now += asking.KEPT_S
    assert await world.ask(question) == 2
    world.changed = False
    world.clock.now += asking.KEPT_S
    assert await world.ask(question) == 2, "nothing has changed"
    world.clock.now += asking.UNCHANGED_S
    assert await world.ask(question) == 3, "it tells ages"
    assert await world.ask(answering, 5) == 5
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
    await world.ask(answering, "a", 10)
    spent = sum(world.slices)
    assert spent > 0
    assert sum(rests) >= spent * (1 / asking.BUSY_SHARE - 1) * 0.999
    rests.clear()
    world.slices.clear()
    world.busy = False
    await world.ask(answering, "quiet", 10)
    assert sum(rests) == pytest.approx(sum(world.slices) * (1 / asking.QUIET_SHARE - 1))


async def test_too_many_and_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Past the bounds a question is refused, and what it had tried is taken back."""
    monkeypatch.setattr(asking, "QUEUED_MAX", 1)
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.05)
    world, log = World(), []
    endless = asyncio.create_task(world.ask(lambda: answering("a", 10**9, log)))
    await asyncio.sleep(0)
    with pytest.raises(TooBusyError, match="too many"):
        await world.ask(answering, "b")
    with pytest.raises(TooBusyError, match="no answer within"):
        await endless
    assert world.asking._server is not None
    await world.asking._server
    assert log[-1] == "a closed"
    monkeypatch.setattr(asking, "TIMEOUT_S", 30.0)
    assert await world.ask(answering, "b") == "b"


def failing(how: str) -> Generator[None, None, None]:
    yield
    raise UserError("pod x", "", "not found") if how == "user" else KeyError(how)


async def test_a_question_that_fails_leaves_the_next_alone() -> None:
    """What the steps raise is the asker's; nothing is kept of it."""
    world = World()
    with pytest.raises(KeyError):
        await world.ask(failing, "odd")
    assert await world.ask(answering, 7) == 7
    with pytest.raises(KeyError):
        await world.ask(failing, "odd")


async def test_kept_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Questions about ever new Pods do not fill the memory."""
    monkeypatch.setattr(asking, "KEPT_MAX", 3)
    world = World()
    for number in range(10):
        await world.ask(answering, number, 1)
    assert len(world.asking._kept) == 3
    world.clock.now += asking.UNCHANGED_S
    await world.ask(answering, "last", 1)
    assert len(world.asking._kept) == 1, "what is too old to be told goes"


# with a helper

_seen: list[str] = []


def looking(name: str) -> Generator[None, None, tuple[str, int, bool]]:
    _seen.append(name)  # in the helper only
    yield
    return name, os.getpid(), gc.get_freeze_count() > 0


async def test_a_helper_answers_what_waits(forked: World) -> None:
    """Questions that came together are one message, answered from the state as it was; nothing changes here."""
    answers = await asyncio.gather(*(forked.ask(looking, name) for name in ("a", "b")))
    assert [answer[0] for answer in answers] == ["a", "b"]
    assert answers[0][1] == answers[1][1] != os.getpid()
    assert answers[0][2], "the collector does not walk through what the parent has"
    assert (_seen, forked.refreshes, forked.learnt) == ([], 0, [])
    assert len(forked.slices) == 2, "the fork and the message are the time that the loop was held"


def history(world_id: int) -> Generator[None, None, tuple[int, list[Any], int]]:
    world = _worlds[world_id]
    yield
    return os.getpid(), world.learnt, world.refreshes


_worlds: dict[int, World] = {}


async def test_a_helper_stays_and_learns_what_changes(forked: World) -> None:
    """The next questions are answered by the same process, told what is new and refreshed once per message."""
    _worlds[0] = forked
    forked.changed = True
    first = await forked.ask(history, 0)
    forked.clock.now += asking.KEPT_S
    second = await forked.ask(history, 0)
    assert first[0] == second[0] != os.getpid()
    assert (first[1:], second[1:]) == (([1], 1), ([1, 2], 2))
    assert len(forked.slices) == 3, "one fork, two messages"
    forked.changed = False
    forked.clock.now += asking.KEPT_S
    assert await forked.ask(history, 0) == second, "nothing has changed"
    assert forked.followed == [True]


async def test_much_news_is_told_in_parts(forked: World) -> None:
    """So that the loop is not held for all of it; the state is refreshed once, before the answer."""
    _worlds[0] = forked
    forked.changed = True
    await forked.ask(history, 0)
    forked.count = 2 * asking.NEWS_AT_ONCE + 1
    forked.clock.now += asking.KEPT_S
    assert (await forked.ask(history, 0))[1:] == ([1, 2, 3, 4], 2)


async def test_a_helper_that_is_old_or_has_missed_much_is_replaced(forked: World) -> None:
    """Its memory has become its own, or a fork costs less than telling it everything."""
    pids = [(await forked.ask(looking, "a"))[1]]
    forked.clock.now += asking.HELPER_LIFE_S
    pids.append((await forked.ask(looking, "b"))[1])
    forked.count = asking.NEWS_MAX + 1
    pids.append((await forked.ask(looking, "c"))[1])
    forked.count = 0
    pids.append((await forked.ask(looking, "d"))[1])
    assert len(set(pids)) == 3
    assert pids[2] == pids[3]
    for pid in pids[:2]:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


async def test_a_helper_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch, forked: World) -> None:
    """And nothing is noted for it any more; the next question makes another."""
    monkeypatch.setattr(asking, "HELPER_UNUSED_S", 0.01)
    pid = (await forked.ask(looking, "a"))[1]
    assert forked.asking._server is not None
    await forked.asking._server
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert forked.followed == [True, False]
    assert (await forked.ask(looking, "b"))[1] != pid


async def test_closing_ends_the_helper_and_refuses_who_waits() -> None:
    """At once, whatever it does."""
    world = World(forking=True)
    pid = (await world.ask(looking, "a"))[1]
    waits = asyncio.create_task(world.ask(hanging))
    await asyncio.sleep(0.05)
    await world.asking.close()
    with pytest.raises(TooBusyError, match="is ending"):
        await waits
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def dying() -> Generator[None, None, None]:
    yield
    os._exit(1)


async def test_what_goes_wrong_in_a_helper_is_told(forked: World) -> None:
    """A user's mistake as such, our own as its text, a helper that dies as that; the next question is answered."""
    with pytest.raises(UserError, match="pod x: not found"):
        await forked.ask(failing, "user")
    with pytest.raises(ChildError, match="KeyError: 'odd'"):
        await forked.ask(failing, "odd")
    with pytest.raises(ChildError, match="without an answer"):
        await forked.ask(dying)
    assert await forked.ask(answering, 1) == 1


async def test_a_helper_that_was_killed_is_replaced(forked: World) -> None:
    """By the kernel, when memory runs out: nobody notices, also where there was much news to tell first."""
    pid = (await forked.ask(looking, "a"))[1]
    while forked.asking._woken.is_set():  # noqa: ASYNC110  # until it has heard that this was all
        await asyncio.sleep(0)
    os.kill(pid, signal.SIGKILL)
    forked.count = 2 * asking.NEWS_AT_ONCE
    assert (await forked.ask(looking, "b"))[0] == "b"
    assert (await forked.ask(looking, "c"))[1] != pid


async def test_a_question_is_answered_while_the_last_helper_is_ending(
    monkeypatch: pytest.MonkeyPatch, forked: World
) -> None:
    """Giving a helper's memory back takes a while; who asks meanwhile gets the next one."""
    monkeypatch.setattr(asking, "HELPER_UNUSED_S", 0.01)
    ending, go_on = asyncio.Event(), asyncio.Event()
    end = asking.Helper.end

    async def slowly(helper: asking.Helper) -> None:
        ending.set()
        await go_on.wait()
        await end(helper)

    monkeypatch.setattr(asking.Helper, "end", slowly)
    first = await forked.ask(looking, "a")
    await ending.wait()
    late = asyncio.create_task(forked.ask(looking, "b"))
    await asyncio.sleep(0)
    go_on.set()
    second = await asyncio.wait_for(late, 10)
    assert (second[0], second[1] != first[1]) == ("b", True)


async def test_a_refresh_that_breaks_in_the_helper_is_told_in_its_words(
    monkeypatch: pytest.MonkeyPatch, forked: World
) -> None:
    """To everybody who asked; its state may be half of it, so the next question gets another helper."""

    def breaking() -> Generator[None, None, Hashable]:
        yield
        raise ValueError("the mirror differs")

    pid = (await forked.ask(looking, "a"))[1]
    await forked.asking.close()
    monkeypatch.setattr(forked, "refresh_steps", breaking)
    for answer in await asyncio.gather(forked.ask(looking, "b"), forked.ask(looking, "c"), return_exceptions=True):
        assert isinstance(answer, ChildError)
        assert "ValueError: the mirror differs" in str(answer)
    monkeypatch.undo()
    assert (await forked.ask(looking, "b"))[1] != pid


def _large(size: int) -> Generator[None, None, str]:
    yield
    return "x" * size


async def test_a_large_answer_passes(forked: World) -> None:
    """Megabytes, in one piece, there and back."""
    assert await forked.ask(_large, 3_000_000) == "x" * 3_000_000
    text = "y" * 3_000_000
    assert await forked.ask(answering, text) == text


async def test_without_a_helper_slices_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that makes no more processes costs time, not the answer."""
    world = World(forking=True)

    def no_fork() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", no_fork)
    before = len(os.listdir("/proc/self/fd"))
    assert await world.ask(answering, "a") == "a"
    assert len(os.listdir("/proc/self/fd")) == before, "no socket is left"
    assert world.followed == []


def hanging() -> Generator[None, None, None]:
    yield
    signal.pause()


async def test_a_helper_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch, forked: World) -> None:
    """Past the bound the asker is told so, the helper is gone and nothing is left of it."""
    monkeypatch.setattr(asking, "TIMEOUT_S", 0.3)
    pids: list[int] = []
    fork = os.fork

    def noted() -> int:
        pids.append(fork())
        return pids[-1]

    monkeypatch.setattr(os, "fork", noted)
    with pytest.raises(TooBusyError):
        await forked.ask(hanging)
    await asyncio.sleep(0.05)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    monkeypatch.setattr(asking, "TIMEOUT_S", 30.0)
    assert await forked.ask(answering, 1) == 1


async def test_a_helper_takes_idle_cores_first_and_a_share_where_none_is_idle(
    monkeypatch: pytest.MonkeyPatch, forked: World
) -> None:
    """The first helper makes way for everybody; what it has not answered in time a second one answers, and stays."""
    assert await forked.ask(_policy, 0.0) == os.SCHED_IDLE
    monkeypatch.setattr(asking, "IDLE_S", 0.2)
    quick, slow = await asyncio.gather(forked.ask(_policy, 0.01), forked.ask(_policy, 0.5))
    assert (quick, slow) == (os.SCHED_IDLE, os.SCHED_OTHER)
    assert await forked.ask(_policy, 0.4) == os.SCHED_OTHER


def _policy(idle_takes_s: float) -> Generator[None, None, int]:
    yield
    policy = os.sched_getscheduler(0)
    if policy == os.SCHED_IDLE:
        time.sleep(idle_takes_s)  # in the helper: as if it got no core
    return policy


async def test_a_helper_keeps_no_socket_open(forked: World) -> None:
    """But the one to its parent: a port that the parent lets go can be taken again although a helper still thinks."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    assert await forked.ask(_socket_count) == 1
    listener.close()
    socket.create_server(("127.0.0.1", port)).close()


def _socket_count() -> Generator[None, None, int]:
    yield
    return sum(_is_socket(name) for name in os.listdir("/proc/self/fd"))


def _is_socket(name: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
    except OSError:
        return False


def test_a_helper_ends_with_its_parent() -> None:
    """However the parent goes."""
    program = "import asyncio, os\nfrom tests.edge.test_asking import World, looking\n"
    program += "async def main():\n world = World(forking=True)\n"
    program += " print((await world.ask(looking, 'a'))[1], flush=True)\n os._exit(0)\nasyncio.run(main())"
    told = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, check=True, timeout=30).stdout
    waits_until = time.monotonic() + 10
    while os.path.exists(f"/proc/{int(told)}"):
        assert time.monotonic() < waits_until
        time.sleep(0.01)
