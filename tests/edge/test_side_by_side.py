"""PreBind plugins side by side: grouping, failures, and one commit slot for all their waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from scheduler.edge.side_by_side import SharedAside, groups, run_together


def test_consecutive_parallel_plugins_run_together() -> None:
    """Neighbours that allow it form one group; the others stay alone and in order."""
    plugins = [SimpleNamespace(name=n, pre_bind_parallel=p) for n, p in zip("abcde", (1, 1, 0, 0, 1), strict=True)]
    found = [[plugin.name for plugin in group] for group in groups(plugins)]
    assert found == [["a", "b"], ["c"], ["d"], ["e"]]


async def test_all_begin_before_any_ends() -> None:
    """Two works that wait for each other both end: they run at the same time."""
    first, second = asyncio.Event(), asyncio.Event()

    async def work(mine: asyncio.Event, other: asyncio.Event) -> None:
        mine.set()
        await other.wait()

    await asyncio.wait_for(run_together([work(first, second), work(second, first)]), 5)


async def test_the_first_failure_is_raised_after_all_have_ended() -> None:
    """A write under way is finished; the failure that came first is the one that is told; the hook is called once."""
    ended: list[str] = []
    failed = asyncio.Event()
    told: list[int] = []

    async def writes() -> None:
        await failed.wait()
        ended.append("write")
        raise ValueError("second")

    async def fails() -> None:
        failed.set()
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await run_together([writes(), fails()], lambda: told.append(1))
    assert ended == ["write"]
    assert told == [1]


async def test_one_slot_is_left_and_taken_back_once() -> None:
    """Two waits of one commit leave its slot when the first begins and take it back when the last has ended."""
    moves: list[str] = []

    @asynccontextmanager
    async def aside() -> AsyncIterator[None]:
        moves.append("left")
        yield
        moves.append("back")

    shared = SharedAside(aside)
    gate = asyncio.Event()

    async def short() -> None:
        async with shared():
            await asyncio.sleep(0)
        assert moves == ["left"]
        gate.set()

    async def long() -> None:
        async with shared():
            await gate.wait()

    await asyncio.gather(long(), short())
    assert moves == ["left", "back"]
    async with shared():
        assert moves == ["left", "back", "left"]
