"""Waiting for the cluster: polls with a bound, and says what never happened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class NeverHappenedError(AssertionError):
    """A condition stayed false for the whole time; an assertion, so that it fails the test."""


async def eventually(
    check: Callable[[], Awaitable[bool]], what: str, *, timeout_s: float = 20.0, interval_s: float = 0.05
) -> None:
    """Poll until the check is true; raises NeverHappenedError that names ``what``."""
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                if await check():
                    return
                await asyncio.sleep(interval_s)
    except TimeoutError:
        raise NeverHappenedError(f"never happened within {timeout_s} s: {what}") from None
