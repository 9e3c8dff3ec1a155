"""Runs work in a child made by fork: it sees the whole state of this moment, and nothing that it does comes back but
its answers.

That is how a process can think for long on the other core while its loop goes on: as a database that saves itself in
the background. The child is for pure computing on Python objects: it closes every file and socket at once, uses no
event loop, and leaves without any clean-up. It gives way to its parent (nice), and ends by itself after a while.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import struct
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scheduler.errors import UserError

NICE = 10
LIFETIME_S = 40
REAP_S = 0.5
_HEAD = struct.Struct("<IQ")
_CHUNK_BYTES = 1 << 18

Work = Callable[[], Any]
_reapings: set[asyncio.Task[None]] = set()
"""Children that have said everything and are not quite gone."""


class ChildError(Exception):
    """The work raised something unforeseen, or the child ended without an answer; the text says which."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An answer, or what went wrong: ``user_error`` has the parts of a UserError, ``problem`` any other's text."""

    answer: Any = None
    user_error: tuple[str, str, str] | None = None
    problem: str = ""

    def result(self) -> Any:
        """The answer. Raises UserError or ChildError."""
        if self.user_error is not None:
            raise UserError(*self.user_error)
        if self.problem:
            raise ChildError(self.problem)
        return self.answer


def can_fork() -> bool:
    """Whether this platform can."""
    return hasattr(os, "fork")


async def in_child(
    work: Sequence[Work],
    on_outcome: Callable[[int, Outcome], None],
    on_fork: Callable[[float], None] = lambda seconds: None,
    *,
    idle_only: bool = False,
) -> None:
    """Run ``work`` in order in one child; each outcome is told as soon as it is there, by its number.

    ``idle_only``: the child gets a core only while nobody else wants one, which may be never; else a small share.
    Answers have to be picklable. ``on_fork`` is told how long the fork itself took, in seconds: that long nothing else
    happened here. Raises OSError when the system makes no child. A cancelled call ends its child.
    """
    reading, writing = os.pipe()
    try:
        began = time.perf_counter()
        with warnings.catch_warnings():
            # Other threads (lease, executor) stay behind; the child takes none of their locks.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _child(work, writing, idle_only)
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    on_fork(time.perf_counter() - began)
    os.close(writing)
    told: set[int] = set()

    def tell(number: int, outcome: Outcome) -> None:
        told.add(number)
        on_outcome(number, outcome)

    ended = False
    try:
        await _read(reading, tell)
        ended = True
    finally:
        os.close(reading)
        if not ended:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # It has said everything or is dead; giving its memory back may take a while where it gets no core.
        reaping = asyncio.create_task(asyncio.to_thread(_reap, pid))
        _reapings.add(reaping)
        reaping.add_done_callback(_reapings.discard)
        await asyncio.wait({reaping}, timeout=REAP_S)
    for number in range(len(work)):
        if number not in told:
            on_outcome(number, Outcome(problem="the process that looked for it ended without an answer"))


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


async def _read(fd: int, tell: Callable[[int, Outcome], None]) -> None:
    """Frames until the other end is closed."""
    loop = asyncio.get_running_loop()
    os.set_blocking(fd, False)
    closed: asyncio.Future[None] = loop.create_future()
    buffer = bytearray()

    def readable() -> None:
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            loop.remove_reader(fd)
            if not closed.done():
                closed.set_result(None)
            return
        buffer.extend(chunk)
        while len(buffer) >= _HEAD.size:
            number, size = _HEAD.unpack_from(buffer)
            if len(buffer) < _HEAD.size + size:
                return
            frame = bytes(buffer[_HEAD.size : _HEAD.size + size])
            del buffer[: _HEAD.size + size]
            tell(number, pickle.loads(frame))  # from our own child, over a pipe that only it has

    loop.add_reader(fd, readable)
    try:
        await closed
    finally:
        loop.remove_reader(fd)


# in the child


def _child(work: Sequence[Work], writing: int, idle_only: bool) -> None:
    """Never returns, whatever happens: the parent's code above must not run twice."""
    try:
        gc.disable()  # a collection would touch, and so copy, every page
        with suppress(ValueError, OSError):  # signals are the main thread's
            signal.set_wakeup_fd(-1)
            for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(caught, signal.SIG_DFL)
            signal.alarm(LIFETIME_S)
        with suppress(OSError):
            os.nice(NICE)
        if idle_only and hasattr(os, "SCHED_IDLE"):
            with suppress(OSError):  # a sandbox may not allow it
                os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        # Sockets that stay open here would look alive to others when the parent has died.
        os.closerange(3, writing)
        os.closerange(writing + 1, os.sysconf("SC_OPEN_MAX"))
        with suppress(OSError):  # when memory runs out, the answer goes and not the scheduler
            score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(score, b"1000")
            os.close(score)
        for number, one in enumerate(work):
            frame = _frame(one)
            _write(writing, _HEAD.pack(number, len(frame)) + frame)
        os.close(writing)  # the parent knows that this is all, long before so much memory is given back
    except BaseException:  # there is nobody to tell but the parent, which sees the pipe close
        pass
    finally:
        os._exit(0)


def _frame(work: Work) -> bytes:
    try:
        return pickle.dumps(Outcome(work()))
    except UserError as error:
        return pickle.dumps(Outcome(user_error=(error.subject, error.field, error.problem)))
    except Exception as error:
        return pickle.dumps(Outcome(problem=f"{type(error).__name__}: {error}"))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
