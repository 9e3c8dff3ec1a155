"""Exponential back-off with jitter, for streams and writers that must not become hot loops."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from scheduler.edge.errors import AnswerLost, ApiUnavailable, ServerError, TooManyRequests

READ_BACK_MAX_S = 120.0

T = TypeVar("T")


class Backoff:
    """Pauses of 0.8 s, 1.6 s, ... 30 s, each longer by a random part up to its own length. As client-go's reflector."""

    def __init__(
        self, rng: random.Random, first_s: float = 0.8, max_s: float = 30.0, factor: float = 2.0, jitter: float = 1.0
    ) -> None:
        self._rng = rng
        self._first_s, self._max_s, self._factor, self._jitter = first_s, max_s, factor, jitter
        self._next_s = first_s

    def next_s(self) -> float:
        """The pause before the next try, in seconds; each call lengthens the one after it."""
        pause_s = self._next_s
        self._next_s = min(self._next_s * self._factor, self._max_s)
        return pause_s * (1.0 + self._jitter * self._rng.random())

    def reset(self) -> None:
        """Start from the first pause again: something worked."""
        self._next_s = self._first_s


async def read_back(
    read: Callable[[], Awaitable[T]],
    sleep: Callable[[float], Awaitable[None]],
    rng: random.Random,
    max_s: float = READ_BACK_MAX_S,
) -> T:
    """Read the truth after a write whose outcome is unknown, again and again while the server does not answer.

    Until it answers nothing may be undone: the write may have taken effect. Gives up after pauses of ``max_s`` in all
    and raises what the last try raised; refusals (ApiError below 500, but 429) are raised at once.
    """
    backoff, paused_s = Backoff(rng, first_s=0.1, max_s=5.0, jitter=0.2), 0.0
    while True:
        try:
            return await read()
        except (ServerError, ApiUnavailable, AnswerLost, TooManyRequests):
            if paused_s >= max_s:
                raise
        pause_s = backoff.next_s()
        paused_s += pause_s
        await sleep(pause_s)
