"""Slots: bounded, first come, first served; the wait for several of them ends although some stay taken."""

from __future__ import annotations

import asyncio

from scheduler.edge.slots import Slots


async def test_no_more_than_the_count_are_taken_and_the_first_to_wait_is_the_next() -> None:
    """Also when a waiter gives up."""
    slots, order = Slots(2), list[int]()
    await slots.acquire()
    await slots.acquire()
    assert slots.free == 0

    async def take(number: int) -> None:
        async with slots:
            order.append(number)

    tasks = [asyncio.create_task(take(number)) for number in range(3)]
    await asyncio.sleep(0)
    tasks[0].cancel()
    await asyncio.sleep(0)
    assert order == []
    slots.release()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [1, 2]
    assert slots.free == 1


async def test_free_places_are_room_at_once() -> None:
    """At most as much as was asked for; few are not waited for."""
    slots = Slots(3)
    assert await slots.room(8) == 3
    await slots.acquire()
    assert await slots.room(8) == 2
    assert await slots.room(1) == 1


async def test_without_a_free_place_several_are_waited_for() -> None:
    """The room is told once as many are free as were asked for."""
    slots = Slots(3)
    for _ in range(3):
        await slots.acquire()
    waiting = asyncio.create_task(slots.room(2))
    await asyncio.sleep(0)
    slots.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiting.done()
    slots.release()
    assert await asyncio.wait_for(waiting, 1.0) == 2


async def test_places_that_stay_taken_do_not_hold_up_the_others() -> None:
    """One place comes free, the others never do: the wait for more is short."""
    slots = Slots(3)
    for _ in range(3):
        await slots.acquire()
    slots.release()
    assert await asyncio.wait_for(slots.room(3), 1.0) == 1
    await slots.acquire()
    waiting = asyncio.create_task(slots.room(3))
    await asyncio.sleep(0)
    slots.release()
    assert await asyncio.wait_for(waiting, 1.0) == 1


async def test_more_than_there_is_can_be_asked_for() -> None:
    """All places are the most one can get."""
    slots = Slots(1)
    await slots.acquire()
    waiting = asyncio.create_task(slots.room(4))
    await asyncio.sleep(0)
    slots.release()
    assert await asyncio.wait_for(waiting, 1.0) == 1
