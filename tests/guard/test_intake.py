"""Bodies: read in time, not too large alone or together, and worked on one large one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler.guard.intake import BODY_MAX_BYTES, SMALL_BYTES, SMALL_READ_MAX_BYTES, BodyError, Intake

HALF = b" " * (BODY_MAX_BYTES // 2)
LARGER = b" " * (SMALL_BYTES + 1)


class Stream:
    """A body in pieces; ``open``: more is expected and never comes."""

    def __init__(self, *pieces: bytes, unfinished: bool = False) -> None:
        self.pieces, self.unfinished = pieces, unfinished

    async def iter_any(self) -> AsyncIterator[bytes]:
        """The pieces."""
        for piece in self.pieces:
            yield piece
        if self.unfinished:
            await asyncio.Event().wait()


async def turn() -> None:
    """Let everybody else run until they wait."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_body_is_handed_on_whole() -> None:
    """However it is cut."""
    async with Intake().body(Stream(b"ab", b"", b"c")) as body:
        assert body == b"abc"


async def test_what_does_not_arrive_in_time_is_not_waited_for() -> None:
    """408, and its pieces are gone."""
    intake = Intake(read_max_bytes=3, read_timeout_s=0.0)
    with pytest.raises(BodyError, match="within 0 s") as caught:
        async with intake.body(Stream(b"abc", unfinished=True)):
            raise AssertionError
    assert caught.value.status == 408
    async with Intake(read_max_bytes=3).body(Stream(b"abc")) as body:
        assert body == b"abc"


async def test_no_body_is_too_large_alone_nor_all_together() -> None:
    """413 and 503; what was refused takes no room."""
    intake = Intake(read_max_bytes=2 * BODY_MAX_BYTES)
    with pytest.raises(BodyError) as caught:
        async with intake.body(Stream(HALF, HALF, b"x")):
            raise AssertionError
    assert caught.value.status == 413
    slow = [asyncio.create_task(taken(intake, Stream(HALF, HALF, unfinished=True))) for _ in range(2)]
    await turn()
    with pytest.raises(BodyError, match="together") as caught:
        await taken(intake, Stream(LARGER))
    assert caught.value.status == 503
    assert await taken(intake, Stream(b"x")) == 1, "an ordinary review has room of its own"
    slow[0].cancel()
    await turn()
    assert await taken(intake, Stream(LARGER)) == len(LARGER)
    slow[1].cancel()


async def test_small_bodies_have_a_limit_of_their_own() -> None:
    """Many of them are not little."""
    intake = Intake(read_max_bytes=0)
    count = SMALL_READ_MAX_BYTES // SMALL_BYTES
    slow = [asyncio.create_task(taken(intake, Stream(b" " * SMALL_BYTES, unfinished=True))) for _ in range(count)]
    await turn()
    with pytest.raises(BodyError, match="together"):
        await taken(intake, Stream(b"x"))
    for task in slow:
        task.cancel()


async def taken(intake: Intake, stream: Stream, until: asyncio.Event | None = None) -> int:
    """Take a body in and work on it ``until``; its size."""
    async with intake.body(stream) as body:
        if until is not None:
            await until.wait()
        return len(body)


async def test_as_much_is_worked_on_as_one_of_the_largest_has() -> None:
    """The third half waits for the first, and a large one that came later waits behind it; errors give way, too.

    What is small passes by.
    """
    intake, ends = Intake(), [asyncio.Event() for _ in range(2)]
    first, second = (asyncio.create_task(taken(intake, Stream(HALF), end)) for end in ends)
    await turn()
    third = asyncio.create_task(taken(intake, Stream(HALF)))
    await turn()
    fourth = asyncio.create_task(taken(intake, Stream(LARGER)))
    await turn()
    assert not any(task.done() for task in (first, second, third, fourth))
    assert await taken(intake, Stream(b"x")) == 1
    first.cancel()
    await turn()
    assert (third.done(), fourth.done()) == (True, True)
    ends[1].set()
    assert await second == len(HALF)
