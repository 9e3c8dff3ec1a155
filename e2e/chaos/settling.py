"""The wait for calm after the faults, and whether what was recorded until then may be judged at all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from typing import Protocol

import msgspec

from e2e.history import Fact
from e2e.history_check import ALLOCATION, RESERVATION, SILENT, Checker, Violation, judge
from e2e.waiting import NeverHappenedError

SETTLE_MAX_S, HANG_S = 60.0, 300.0
"""Seconds after the faults in which a replica is ready: how long a busy machine takes to start one is not ours."""
CATCH_UP_S = 5.0
PAUSE_S = 0.5
_AT_THE_END = (SILENT, RESERVATION, ALLOCATION)


class History(Protocol):
    """What is needed of a Recorder."""

    async def caught_up(self, timeout_s: float) -> None:
        """Until everything that happened is recorded; raises NeverHappenedError."""

    def take_all(self) -> list[Fact]:
        """Everything not handed out yet, sorted by revision."""


class Verdict(msgspec.Struct):
    """All facts and their judge. ``gap``: why the facts are not complete, "" when they are."""

    facts: list[Fact]
    checker: Checker
    gap: str

    @property
    def violations(self) -> list[Violation]:
        """Broken promises; none when the facts are incomplete, since what is missing may be what explains them."""
        return [] if self.gap else self.checker.violations

    @property
    def unjudged(self) -> str:
        """Why there is no verdict, "" when there is one."""
        if not self.gap:
            return ""
        return f"the history is incomplete ({self.gap}); {len(self.checker.violations)} violations in what there is"


async def settle(
    history: History,
    deleted: Collection[str],
    fit_and_wait: Callable[[], Awaitable[bool]],
    ready: Callable[[], Awaitable[bool]],
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Verdict:
    """Wait, bounded, until no Pod that fits waits, nothing is left over, and all of that is known for sure.

    ``deleted``: see Checker.finish; ``ready``: whether a replica is. A verdict with a gap comes only when time is up.
    """
    began = last = clock()
    served_s = 0.0
    facts: list[Fact] = []
    while True:
        waits = await fit_and_wait()
        gap = await _gap(history)
        facts += history.take_all()
        checker = judge(facts, deleted)
        over = any(violation.rule in _AT_THE_END for violation in checker.violations)
        now = clock()
        if not (waits or over or gap) or served_s > SETTLE_MAX_S or now - began > HANG_S:
            return Verdict(facts, checker, gap)
        if await ready():
            served_s += now - last
        last = now
        await pause(PAUSE_S)


async def _gap(history: History) -> str:
    """Why the recorded facts are not all there are, "" when they are."""
    try:
        await history.caught_up(timeout_s=CATCH_UP_S)
    except NeverHappenedError as error:  # somebody writes without a pause, or a watch is late
        return str(error)
    return ""
