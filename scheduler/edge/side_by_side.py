"""Steps of one commit that run side by side: who runs with whom, and one commit slot for all of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from itertools import groupby
from typing import Any


def groups(plugins: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Consecutive plugins that say ``pre_bind_parallel`` together, every other one alone; the order is kept.

    Source: kube-scheduler 1.37, PreBindPreFlight's AllowParallel (spec 7.1).
    """
    found: list[tuple[Any, ...]] = []
    for parallel, members in groupby(plugins, key=lambda plugin: bool(getattr(plugin, "pre_bind_parallel", False))):
        together = tuple(members)
        found += [together] if parallel else [(member,) for member in together]
    return found


async def run_together(
    works: Sequence[Coroutine[Any, Any, None]], on_failure: Callable[[], None] = lambda: None
) -> None:
    """Run ``works`` side by side until all have ended, then raise the failure that came first.

    Nothing is cut off: a write under way is finished. ``on_failure`` is called once, at the first failure, so that
    the others can stop waiting. Cancelled from outside, all are cancelled.
    """
    if len(works) == 1:
        await works[0]
        return
    failures: list[BaseException] = []

    async def guarded(work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            failures.append(error)
            if len(failures) == 1:
                on_failure()

    await asyncio.gather(*(guarded(work) for work in works))
    if failures:
        raise failures[0]


class SharedAside:
    """Leaves a commit's one slot when the first of its waits begins, takes it back when the last has ended."""

    def __init__(self, aside: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._aside = aside
        self._waits = 0
        self._open: AbstractAsyncContextManager[object] | None = None

    @asynccontextmanager
    async def __call__(self) -> AsyncIterator[None]:
        """One wait."""
        self._waits += 1
        if self._open is None:
            self._open = self._aside()
            await self._open.__aenter__()
        try:
            yield
        finally:
            self._waits -= 1
            if not self._waits and self._open is not None:
                opened, self._open = self._open, None
                await opened.__aexit__(None, None, None)
