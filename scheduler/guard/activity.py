"""When a replica may answer: it leads, knows everything, and nothing that a predecessor admitted can still be stored.

A predecessor that ended well gave its Lease back only when all it had admitted was seen. One that died may have
admitted a write a moment before: its successor waits until no request of that time can be alive, then lists the claims
again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from scheduler.errors import ClusterError
from scheduler.guard.reviewer import NotActiveError

RELIST_PAUSE_S = 1.0


class Leads(Protocol):
    """The election, as far as it matters here."""

    @property
    def leading(self) -> bool:
        """True while the Lease is held with a margin."""

    @property
    def handed_over(self) -> bool:
        """True when the Lease had been given back to us."""

    @property
    def holder(self) -> str:
        """Who held the Lease when it was last seen."""


class Activity:
    """``check`` raises NotActiveError unless this replica may answer. ``settle`` makes it so once, after it leads."""

    def __init__(
        self,
        election: Leads,
        synced: Callable[[], bool],
        relist: Callable[[], Awaitable[None]],
        *,
        lifetime_s: float,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._election, self._synced, self._relist = election, synced, relist
        self._lifetime_s, self._sleep, self._tell = lifetime_s, sleep, tell
        self.settled = self.stopping = False

    def why_not(self) -> str:
        """Why this replica does not answer, "" when it does."""
        if self.stopping:
            return "this replica is stopping"
        if not self._synced():
            return "not every kind has been listed yet"
        if not self._election.leading:
            return f"standing by, {self._election.holder or 'nobody'} holds the lease"
        if not self.settled:
            return "waiting until no write that a predecessor admitted can still be stored"
        return ""

    def check(self) -> None:
        """Raise NotActiveError with the reason unless this replica answers for the cluster."""
        reason = self.why_not()
        if reason:
            raise NotActiveError(reason)

    async def settle(self) -> None:
        """Call it when this replica leads. A LIST that fails is tried again."""
        if not self._election.handed_over:
            self._tell(f"the lease was not given back: answering in {self._lifetime_s:g} s")
            await self._sleep(self._lifetime_s)
        while True:
            try:
                await self._relist()
                break
            except ClusterError as error:
                self._tell(f"claims could not be listed: {error}")
                await self._sleep(RELIST_PAUSE_S)
        self.settled = True
        self._tell("answering reviews")
