"""Answers questions beside the loop, on a state of their own.

Questions that wait are answered together by a helper made by fork (``edge.forks``), which stays while questions come
and is told what has changed: the loop pays for a fork now and then and for telling the changes, the rest happens on
another core. Where no helper can be made they are answered here, in slices of some milliseconds; while Pods are being
decided or written slices get a small part of the time only. Equal questions share an answer for two seconds, or for
ten while nothing has changed.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import time
from collections import OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from scheduler.edge.forks import Helper, HelperGoneError, Outcome, can_fork
from scheduler.explain.attempts import ended

SLICE_S = 0.002
BUSY_SHARE, QUIET_SHARE = 0.05, 0.5
"""The part of the time that slices take while there are Pods to decide or write, and while there are none: a Pod that
comes then should not have to wait for one slice after the other."""
KEPT_S = 2.0
"""How old an answer may be although something has changed since."""
UNCHANGED_S = 10.0
"""How old an answer may be while nothing changes: it tells ages."""
KEPT_MAX = 256
QUEUED_MAX = 64
TIMEOUT_S = 30.0
IDLE_S = 15.0
"""So long a helper makes do with cores that nobody else wants: then it costs the scheduler's Pods nothing. On a machine
that is never idle another one with a share of its own begins anew.
"""
HELPER_UNUSED_S = 30.0
"""How long a helper without questions stays."""
HELPER_LIFE_S = 120.0
"""How long a helper stays although there are questions: little by little its memory becomes its own."""
NEWS_MAX = 1000
"""More changes than this are not told (some 20 µs each): a new fork knows them."""
NEWS_AT_ONCE = 100

T = TypeVar("T")
Steps = Generator[None, None, T]


class Knowledge(Protocol):
    """What answers are made from: the state of the cluster, here and in a helper, which has its own after the fork."""

    def refresh_steps(self) -> Steps[Hashable]:
        """Bring the state of this process up to date; returns its version."""
        ...

    def follow(self) -> None:
        """A helper has just been made: what changes from now on is news to it."""
        ...

    def follow_no_more(self) -> None:
        """There is no helper any more."""
        ...

    def news_count(self) -> int:
        """How much has changed since ``follow`` or the last ``news``."""
        ...

    def news(self, most: int) -> tuple[Hashable, Any]:
        """The version of the state by now, and what the helper needs to learn of it: ``most`` changes at a time."""
        ...

    def learn(self, news: Any) -> None:
        """In the helper: bring its state up to date."""
        ...


class TooBusyError(Exception):
    """Too many questions wait, or this one took too long; try again later."""


@dataclass(slots=True)
class _Waiting:
    """A question with everybody who asked it."""

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
    """``ask`` is for any number of tasks of the loop.

    ``answer_steps`` finds the answer to a question, on what ``knowledge`` holds in the process it runs in. ``busy``:
    whether the scheduler has Pods to decide or write.
    ``clock`` counts seconds. ``on_slice`` is told how long the loop was held at a time. ``forking`` False: only slices.
    """

    def __init__(
        self,
        knowledge: Knowledge,
        answer_steps: Callable[[Any], Steps[Any]],
        busy: Callable[[], bool],
        *,
        clock: Callable[[], float] = time.perf_counter,
        on_slice: Callable[[float], None] = lambda seconds: None,
        forking: bool = True,
    ) -> None:
        self._knowledge, self._answer_steps, self._busy = knowledge, answer_steps, busy
        self._clock, self._on_slice = clock, on_slice
        self._forking = forking and can_fork()
        self._waiting: dict[Hashable, _Waiting] = {}
        self._woken = asyncio.Event()
        self._server: asyncio.Task[None] | None = None
        self._helper: Helper | None = None
        self._helper_since = 0.0
        self._kept: OrderedDict[Hashable, tuple[Hashable, float, Any]] = OrderedDict()

    async def ask(self, question: Hashable) -> Any:
        """The answer to ``question``, which must be picklable, or a kept one to the same question.

        A kept one is not older than KEPT_S, or UNCHANGED_S while nothing has changed. Raises TooBusyError, and what
        the answer raises.
        """
        kept = self._kept.get(question)
        if kept is not None and self._clock() - kept[1] < KEPT_S:
            return kept[2]
        waiting = self._waiting.get(question)
        if waiting is None:
            if len(self._waiting) >= QUEUED_MAX:
                raise TooBusyError("too many questions wait for their answer")
            waiting = self._waiting[question] = _Waiting()
        asker: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        waiting.askers.append(asker)
        self._woken.set()
        if self._server is None or self._server.done():
            self._server = asyncio.create_task(self._serve())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await asker
        except TimeoutError as error:
            raise TooBusyError(f"no answer within {TIMEOUT_S:.0f} s: the scheduler has much to do") from error

    async def close(self) -> None:
        """End the helper, and refuse whoever waits."""
        if self._server is not None:
            self._server.cancel()
            await asyncio.gather(self._server, return_exceptions=True)
        for one in self._waiting.values():
            one.settle(_raising(TooBusyError("the scheduler is ending")))
        self._waiting.clear()

    async def _serve(self) -> None:
        """Until nobody has asked for a while."""
        try:
            while True:
                while self._waiting:
                    batch = {question: one for question, one in self._waiting.items() if one.wanted}
                    self._waiting.clear()
                    await self._serve_batch(batch)
                if self._helper is None:
                    return
                self._woken.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(HELPER_UNUSED_S):
                        await self._woken.wait()
                if not self._waiting:
                    await self._end_helper()  # somebody may ask meanwhile
        finally:
            await self._end_helper()

    async def _serve_batch(self, batch: dict[Hashable, _Waiting]) -> None:
        try:
            await self._answer(batch)
        except Exception as error:  # a refresh that breaks is everybody's; the next questions try again
            for one in batch.values():
                one.settle(_raising(error))
        finally:
            for one in batch.values():  # cancelled: nobody shall wait for nothing
                one.settle(_raising(TooBusyError("the scheduler is ending")))

    async def _answer(self, batch: dict[Hashable, _Waiting]) -> None:
        if self._forking:
            try:
                await self._by_helper(batch)
                return
            except TimeoutError:  # which is an OSError
                raise
            except OSError:
                pass  # no memory or too many processes for a helper: then here
        for question, one in batch.items():
            if one.wanted:
                await self._in_slices(question, one)

    def _settle_unchanged(self, batch: dict[Hashable, _Waiting], version: Hashable) -> None:
        for question in list(batch):
            kept = self._kept.get(question)
            if kept is not None and kept[0] == version and self._clock() - kept[1] < UNCHANGED_S:
                batch.pop(question).settle(partial(_same, kept[2]))

    async def _by_helper(self, batch: dict[Hashable, _Waiting]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            helper = await self._current_helper()
            if helper.idle_only:
                with suppress(TimeoutError):
                    async with asyncio.timeout(IDLE_S):
                        await self._told(helper, batch)
            if batch:
                await self._told(helper if helper.alive else await self._new_helper(idle_only=False), batch)

    async def _told(self, helper: Helper, batch: dict[Hashable, _Waiting]) -> None:
        """What is answered leaves ``batch``. A helper that is gone may have been for long: another one, once."""
        try:
            await self._told_by(helper, batch)
        except HelperGoneError:
            await self._told_by(await self._new_helper(idle_only=helper.idle_only), batch)

    async def _told_by(self, helper: Helper, batch: dict[Hashable, _Waiting]) -> None:
        while self._knowledge.news_count() > NEWS_AT_ONCE:
            began = self._clock()
            message = _packed(self._knowledge.news(NEWS_AT_ONCE)[1], [])
            self._on_slice(self._clock() - began)
            await helper.ask(message, 0, lambda number, outcome: None)
        began = self._clock()
        version, news = self._knowledge.news(NEWS_AT_ONCE)
        self._settle_unchanged(batch, version)
        if not batch:
            return
        questions = list(batch)
        message = _packed(news, questions)

        def tell(number: int, outcome: Outcome) -> None:
            batch.pop(questions[number]).settle(outcome.result)
            if not outcome.problem and outcome.user_error is None:
                self._keep(questions[number], version, began, outcome.answer)

        self._on_slice(self._clock() - began)
        await helper.ask(message, len(questions), tell)

    async def _current_helper(self) -> Helper:
        """The one there is, or a new one where it has ended, is old or has missed too much."""
        helper = self._helper
        if helper is not None and helper.alive:
            old = self._clock() - self._helper_since >= HELPER_LIFE_S
            if not old and self._knowledge.news_count() <= NEWS_MAX:
                return helper
        return await self._new_helper(idle_only=True)

    async def _new_helper(self, *, idle_only: bool) -> Helper:
        await self._end_helper()
        self._helper = Helper(self._respond, self._on_slice, idle_only=idle_only)
        self._helper_since = self._clock()
        self._knowledge.follow()
        return self._helper

    async def _end_helper(self) -> None:
        helper, self._helper = self._helper, None
        if helper is not None:
            self._knowledge.follow_no_more()
            await helper.end()

    def _respond(self, message: tuple[Any, list[Any]]) -> Iterator[Callable[[], Any]]:
        """In the helper: its state is brought up to date once per message, then the answers."""
        news, questions = message
        try:
            self._knowledge.learn(news)
            if questions:
                ended(self._knowledge.refresh_steps())
        except Exception as error:  # its state may be half of it: everybody is told, and it ends
            yield from [_raising(error)] * len(questions)
            os._exit(1)
        yield from (partial(self._whole, question) for question in questions)

    def _whole(self, question: Any) -> Any:
        return ended(self._answer_steps(question))

    async def _in_slices(self, question: Hashable, one: _Waiting) -> None:
        try:
            version, began = await self.run(self._knowledge.refresh_steps()), self._clock()
            alone = {question: one}
            self._settle_unchanged(alone, version)
            if alone:
                async with asyncio.timeout(TIMEOUT_S):
                    answer = await self.run(self._answer_steps(question))
                one.settle(partial(_same, self._keep(question, version, began, answer)))
        except Exception as error:  # as for a helper: it belongs to those who asked
            one.settle(_raising(error))

    def _keep(self, question: Hashable, version: Hashable, asked_s: float, answer: T) -> T:
        self._kept[question] = (version, asked_s, answer)
        self._kept.move_to_end(question)
        now = self._clock()
        while len(self._kept) > KEPT_MAX or now - next(iter(self._kept.values()))[1] >= UNCHANGED_S:
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


def _packed(news: Any, questions: list[Hashable]) -> bytes:
    return pickle.dumps((news, questions), pickle.HIGHEST_PROTOCOL)


def _raising(error: Exception) -> Callable[[], Any]:
    def result() -> Any:
        raise error

    return result
