"""A helper made by fork: it sees the whole state of that moment, is told what changes, and answers on another core.

That is how a process can think for long while its loop goes on: as a database that saves itself in the background.
The helper is for pure computing on Python objects: it closes every other file and socket at once, uses no event loop,
and leaves without any clean-up. It gives way to its parent (nice), and ends with it, or when one message takes too
long. It lives for many messages, for a fork holds the parent's loop, makes each page that the parent touches afterwards
cost a copy, and everything that was computed in a helper is computed anew in the next.
"""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import signal
import socket
import struct
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from scheduler.errors import UserError

NICE = 10
LIFETIME_S = 40
"""So long one message may take."""
REAP_S = 0.5
_HEAD = struct.Struct("<IQ")
_END = 0xFFFFFFFF
"""The number of a frame after which nothing more is said about a message."""

Work = Callable[[], Any]
Respond = Callable[[Any], Iterable[Work]]
_reapings: set[asyncio.Task[None]] = set()
"""Children that have said everything and are not quite gone."""


class ChildError(Exception):
    """The work raised something unforeseen, or the child ended without an answer; the text says which."""


class HelperGoneError(ChildError):
    """The child ended before it said anything: it may have been gone already."""


_GONE = "the process that looked for it ended without an answer"


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


class Helper:
    """Begun by forking: raises OSError when the system makes no child.

    ``respond`` is called in the child with each message and gives the work to do, in order. ``idle_only``: the child
    gets a core only while nobody else wants one, which may be never; else a small share. ``on_fork`` is told how long
    the fork itself took, in seconds: that long nothing else happened here.
    """

    def __init__(
        self, respond: Respond, on_fork: Callable[[float], None] = lambda seconds: None, *, idle_only: bool = False
    ) -> None:
        self.idle_only = idle_only
        self._socket, other = socket.socketpair()
        began = time.perf_counter()
        try:
            with warnings.catch_warnings():
                # Other threads (lease, executor) stay behind; the child takes none of their locks.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pid = os.fork()
            if self._pid == 0:
                _child(respond, other, idle_only)
        except OSError:
            self._socket.close()
            raise
        finally:
            other.close()
        on_fork(time.perf_counter() - began)
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.alive = True

    async def ask(self, message: bytes, count: int, on_outcome: Callable[[int, Outcome], None]) -> None:
        """Have a pickled message responded to; each outcome is told once it is there, by its number below ``count``.

        Answers have to be picklable. A helper that ends in between tells so as the outcome of what is missing; raises
        HelperGoneError when it has told nothing.
        A cancelled call ends it, for what it says afterwards would be nobody's.
        """
        told: set[int] = set()
        ended = False
        try:
            if self._streams is None:
                self._streams = await asyncio.open_unix_connection(sock=self._socket)
            reader, writer = self._streams
            writer.write(_HEAD.pack(0, len(message)))
            writer.write(message)
            await writer.drain()
            while True:
                number, size = _HEAD.unpack(await reader.readexactly(_HEAD.size))
                if number == _END:
                    break
                outcome = pickle.loads(await reader.readexactly(size))  # from our own child, over a socket only it has
                told.add(number)
                on_outcome(number, outcome)
            ended = True
        except (OSError, EOFError):  # IncompleteReadError is an EOFError: it has died
            if not told:
                raise HelperGoneError(_GONE) from None
            for number in range(count):
                if number not in told:
                    on_outcome(number, Outcome(problem=_GONE))
        finally:
            if not ended:
                await self.end()

    async def end(self) -> None:
        """End the child at once, whatever it does."""
        if not self.alive:
            return
        self.alive = False
        if self._streams is not None:
            self._streams[1].close()
        else:
            self._socket.close()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        # Giving its memory back may take a while where it gets no core.
        reaping = asyncio.create_task(asyncio.to_thread(_reap, self._pid))
        _reapings.add(reaping)
        reaping.add_done_callback(_reapings.discard)
        await asyncio.wait({reaping}, timeout=REAP_S)


async def in_child(work: Work) -> Outcome:
    """What becomes of one piece of work in a helper of its own. Raises OSError when the system makes no child."""
    outcomes: list[Outcome] = []
    helper = Helper(lambda message: [work])
    try:
        await helper.ask(pickle.dumps(None), 1, lambda number, outcome: outcomes.append(outcome))
    finally:
        await helper.end()
    return outcomes[0]


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


# in the child


def _child(respond: Respond, here: socket.socket, idle_only: bool) -> None:
    """Never returns, whatever happens: the parent's code above must not run twice."""
    try:
        # A collection of what is there already would touch, and so copy, every page.
        gc.freeze()
        with suppress(ValueError, OSError):  # signals are the main thread's
            signal.set_wakeup_fd(-1)
            for caught in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
                signal.signal(caught, signal.SIG_DFL)
        _give_way(idle_only)
        # Sockets that stay open here would look alive to others when the parent has died.
        os.closerange(3, here.fileno())
        os.closerange(here.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        with suppress(OSError):  # when memory runs out, the answer goes and not the scheduler
            score = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            os.write(score, b"1000")
            os.close(score)
        while True:
            signal.alarm(0)
            head = _received(here, _HEAD.size)
            signal.alarm(LIFETIME_S)
            message = pickle.loads(_received(here, _HEAD.unpack(head)[1]))  # from our parent
            for number, one in enumerate(respond(message)):
                frame = _frame(one)
                here.sendall(_HEAD.pack(number, len(frame)) + frame)
            here.sendall(_HEAD.pack(_END, 0))
    except BaseException:  # there is nobody to tell but the parent, which sees the socket close
        pass
    finally:
        os._exit(0)


def _give_way(idle_only: bool) -> None:
    with suppress(OSError):
        os.nice(NICE)
    if idle_only and hasattr(os, "SCHED_IDLE"):
        with suppress(OSError):  # a sandbox may not allow it
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _received(here: socket.socket, size: int) -> bytes:
    """Exactly so many bytes. Raises EOFError when the parent is gone."""
    data = bytearray()
    while len(data) < size:
        chunk = here.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _frame(work: Work) -> bytes:
    try:
        return pickle.dumps(Outcome(work()), pickle.HIGHEST_PROTOCOL)
    except UserError as error:
        return pickle.dumps(Outcome(user_error=(error.subject, error.field, error.problem)))
    except Exception as error:
        return pickle.dumps(Outcome(problem=f"{type(error).__name__}: {error}"))
