"""Runs questions beside the loop: in slices of some milliseconds, one after the other, on a state of their own.

While Pods are being decided or written, questions get a small part of the time only; a quiet scheduler answers as fast
as it can. Equal questions share an answer while nothing has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from typing import Any, TypeVar

from scheduler.edge.mirror import Mirror

SLICE_S = 0.002
BUSY_SHARE, QUIET_SHARE = 0.05, 0.5
"""The part of the time that questions take while there are Pods to decide or write, and while there are none: a Pod
that comes then should not have to wait for one slice after the other."""
KEPT_S = 1.0
"""How old an answer may be although something has changed since."""
KEPT_MAX = 256
QUEUED_MAX = 64
TIMEOUT_S = 30.0

T = TypeVar("T")
Steps = Generator[None, None, T]
Refresh = Callable[[Mirror], Generator[None, None, None]]


class TooBusyError(Exception):
    """Too many questions wait, or this one took too long; try again later."""


class Asking:
    """``ask`` is for any number of tasks of the loop. ``busy``: whether the scheduler has Pods to decide or write.

    ``clock`` counts seconds. ``on_slice`` is told how long each slice took.
    """

    def __init__(
        self,
        mirror: Mirror,
        refresh: Refresh,
        busy: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_slice: Callable[[float], None] = lambda seconds: None,
    ) -> None:
        self.mirror = mirror
        self._refresh, self._busy, self._clock, self._on_slice = refresh, busy, clock, on_slice
        self._turn = asyncio.Lock()
        self._queued = 0
        self._kept: OrderedDict[Hashable, tuple[int, float, Any]] = OrderedDict()

    async def ask(self, question: Hashable, steps: Callable[[], Steps[T]]) -> T:
        """The answer that ``steps`` gives on the refreshed mirror, or a kept one to the same question.

        A kept one is not older than KEPT_S, or nothing has changed since. Raises TooBusyError and what the steps raise.
        """
        if self._queued >= QUEUED_MAX:
            raise TooBusyError("too many questions wait for their answer")
        self._queued += 1
        try:
            async with asyncio.timeout(TIMEOUT_S), self._turn:
                kept = self._kept.get(question)
                if kept is not None and self._clock() - kept[1] < KEPT_S:
                    answer: T = kept[2]
                    return answer
                await self.run(self._refresh(self.mirror))
                if kept is not None and kept[0] == self.mirror.version:
                    answer = kept[2]
                    return self._keep(question, answer)
                return self._keep(question, await self.run(steps()))
        except TimeoutError as error:
            raise TooBusyError(f"no answer within {TIMEOUT_S:.0f} s: the scheduler has much to do") from error
        finally:
            self._queued -= 1

    def _keep(self, question: Hashable, answer: T) -> T:
        self._kept[question] = (self.mirror.version, self._clock(), answer)
        self._kept.move_to_end(question)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return answer

    async def run(self, steps: Steps[T]) -> T:
        """Drive ``steps`` with pauses; closed when this is cancelled, so that what they tried is taken back."""
        began = self._clock()
        try:
            while True:
                try:
                    next(steps)
                except StopIteration as stop:
                    result: T = stop.value
                    return result
                spent_s = self._clock() - began
                if spent_s >= SLICE_S:
                    self._on_slice(spent_s)
                    share = BUSY_SHARE if self._busy() else QUIET_SHARE
                    await asyncio.sleep(spent_s * (1 / share - 1))
                    began = self._clock()
        finally:
            steps.close()
