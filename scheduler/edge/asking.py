"""Answers questions beside the loop, on a state of their own.

Questions that wait are answered together, in a child made by fork (``edge.forks``): the loop pays for the fork and for
bringing the state up to date, the rest happens on another core. Where no child can be made they run here, in slices of
some milliseconds; while Pods are being decided or written slices get a small part of the time only. Equal questions
share an answer for a second, or for ten while nothing has changed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from scheduler.edge.forks import Outcome, can_fork, in_child
from scheduler.edge.mirror import Mirror
from scheduler.explain.attempts import ended

SLICE_S = 0.002
BUSY_SHARE, QUIET_SHARE = 0.05, 0.5
"""The part of the time that slices take while there are Pods to decide or write, and while there are none: a Pod that
comes then should not have to wait for one slice after the other."""
KEPT_S = 1.0
"""How old an answer may be although something has changed since."""
UNCHANGED_S = 10.0
"""How old an answer may be while nothing changes: it tells ages."""
KEPT_MAX = 256
QUEUED_MAX = 64
TIMEOUT_S = 30.0
IDLE_S = 15.0
"""So long a child makes do with cores that nobody else wants: then it costs the scheduler's Pods nothing. On a machine
that is never idle another child with a share of its own begins anew.
"""

T = TypeVar("T")
Steps = Generator[None, None, T]
Refresh = Callable[[Mirror], Generator[None, None, None]]


class TooBusyError(Exception):
    """Too many questions wait, or this one took too long; try again later."""


@dataclass(slots=True)
class _Waiting:
    """A question with everybody who asked it."""

    steps: Callable[[], Steps[Any]]
    askers: list[asyncio.Future[Any]] = field(default_factory=list)

    @property
    def wanted(self) -> bool:
        return any(not asker.done() for asker in self.askers)

    def settle(self, result: Callable[[], Any]) -> None:
        try:
            answer = result()
        except Exception as error:  # whatever it is, it belongs to those who asked
            for asker in self.askers:
                if not asker.done():
                    asker.set_exception(error)
            return
        for asker in self.askers:
            if not asker.done():
                asker.set_result(answer)


class Asking:
    """``ask`` is for any number of tasks of the loop. ``busy``: whether the scheduler has Pods to decide or write.

    ``clock`` counts seconds. ``on_slice`` is told how long the loop was held at a time. ``forking`` False: only slices.
    """

    def __init__(
        self,
        mirror: Mirror,
        refresh: Refresh,
        busy: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_slice: Callable[[float], None] = lambda seconds: None,
        forking: bool = True,
    ) -> None:
        self.mirror = mirror
        self._refresh, self._busy, self._clock, self._on_slice = refresh, busy, clock, on_slice
        self._forking, self._fresh = forking and can_fork(), False
        self._waiting: dict[Hashable, _Waiting] = {}
        self._server: asyncio.Task[None] | None = None
        self._kept: OrderedDict[Hashable, tuple[int, float, Any]] = OrderedDict()

    async def ask(self, question: Hashable, steps: Callable[[], Steps[T]]) -> T:
        """The answer that ``steps`` gives on the refreshed mirror, or a kept one to the same question.

        A kept one is not older than KEPT_S, or UNCHANGED_S while nothing has changed. Raises TooBusyError, and what
        the steps raise.
        """
        kept = self._kept.get(question)
        if kept is not None and self._clock() - kept[1] < KEPT_S:
            answer: T = kept[2]
            return answer
        waiting = self._waiting.get(question)
        if waiting is None:
            if len(self._waiting) >= QUEUED_MAX:
                raise TooBusyError("too many questions wait for their answer")
            waiting = self._waiting[question] = _Waiting(steps)
        asker: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        waiting.askers.append(asker)
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asker
        except TimeoutError as error:
            raise TooBusyError(f"no answer within {TIMEOUT_S:.0f} s: the scheduler has much to do") from error

    async def _serve(self) -> None:
        """Until nobody waits."""
        while self._waiting:
            batch = {question: one for question, one in self._waiting.items() if one.wanted}
            self._waiting.clear()
            try:
                await self._answer(batch)
            except Exception as error:  # a refresh that breaks is everybody's; the next questions try again
                for one in batch.values():
                    one.settle(_raising(error))

    async def _answer(self, batch: dict[Hashable, _Waiting]) -> None:
        if self._forking:
            if not self._busy():
                await self.run(self._refresh(self.mirror))
                self._settle_unchanged(batch)
            try:
                if batch:
                    await self._in_child(batch)
                return
            except OSError:
                pass  # no memory or too many processes for a child: then here
        for question, one in batch.items():
            if one.wanted:
                await self._in_slices(question, one)

    def _settle_unchanged(self, batch: dict[Hashable, _Waiting]) -> None:
        for question in list(batch):
            kept = self._kept.get(question)
            if kept is not None and kept[0] == self.mirror.version and self._clock() - kept[1] < UNCHANGED_S:
                batch.pop(question).settle(partial(_same, kept[2]))

    async def _in_child(self, batch: dict[Hashable, _Waiting]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S):
                    await self._child(batch, idle_only=True)
            if batch:
                await self._child(batch, idle_only=False)

    async def _child(self, batch: dict[Hashable, _Waiting], *, idle_only: bool) -> None:
        """What is answered leaves ``batch``."""
        questions = list(batch)
        work = [partial(self._whole, one.steps) for one in batch.values()]

        def tell(number: int, outcome: Outcome) -> None:
            batch.pop(questions[number]).settle(outcome.result)
            if not outcome.problem and outcome.user_error is None:
                self._keep(questions[number], outcome.answer)

        await in_child(work, tell, self._on_slice, idle_only=idle_only)

    def _whole(self, steps: Callable[[], Steps[T]]) -> T:
        """In the child: its mirror is brought up to date once, for nothing changes there any more; then the answer."""
        if not self._fresh:
            ended(self._refresh(self.mirror))
            self._fresh = True
        return ended(steps())

    async def _in_slices(self, question: Hashable, one: _Waiting) -> None:
        try:
            await self.run(self._refresh(self.mirror))
            alone = {question: one}
            self._settle_unchanged(alone)
            if alone:
                async with asyncio.timeout(TIMEOUT_S):
                    one.settle(partial(_same, self._keep(question, await self.run(one.steps()))))
        except Exception as error:  # as for a child: it belongs to those who asked
            one.settle(_raising(error))

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


def _same(answer: T) -> T:
    return answer


def _raising(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
