"""Long work in the event loop lets others be served in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.api.changes import Change
from scheduler.api.kinds import NODE
from scheduler.edge import reflector as reflector_module
from scheduler.edge.client import ApiClient
from scheduler.edge.reflector import EVENTS_AT_ONCE
from scheduler.edge.timeslices import SLICE_S, TURN_S, TimeSlices
from scheduler.edge.timeslices import Turns as TurnsOfLoop

from .scripted import ScriptedServer
from .test_reflector import EXPIRED, Received, Watches, event, node, page, reached, running


async def test_a_slice_is_over_after_its_time_and_a_rest_begins_the_next() -> None:
    """By the clock that is given; a rest is one turn of the loop."""
    now = [0.0]
    slices = TimeSlices(lambda: now[0])
    assert not slices.over
    now[0] = SLICE_S
    assert slices.over
    turned: list[bool] = []
    asyncio.get_running_loop().call_soon(turned.append, True)
    await slices.rest()
    assert turned == [True]
    assert not slices.over


async def test_what_is_ready_all_at_once_is_spread_over_turns_in_order() -> None:
    """Ten answers of 1 ms each: a turn takes as many as it has time for, the rest goes first in the next one."""
    now = [0.0]
    turns = TurnsOfLoop(lambda: now[0])
    turn = 0
    done: list[tuple[int, int]] = []

    async def answer(number: int) -> None:
        await turns.take()
        done.append((number, turn))
        now[0] += 0.001

    tasks = [asyncio.create_task(answer(number)) for number in range(10)]
    for turn in range(20):  # noqa: B007  # read by the answers
        await asyncio.sleep(0)
    await asyncio.gather(*tasks)
    each = round(TURN_S / 0.001)
    assert [number for number, _ in done] == list(range(10))
    counts = [sum(1 for _, at in done if at == turn) for turn in sorted({at for _, at in done})]
    assert counts == [each, each, 10 - 2 * each]


async def test_an_answer_that_comes_alone_is_not_put_off() -> None:
    """However late it is; and one that was cancelled while it waited holds nobody up."""
    now = [0.0]
    turns = TurnsOfLoop(lambda: now[0])
    for _ in range(3):
        await asyncio.wait_for(turns.take(), 1.0)
        now[0] += 10.0
        await asyncio.sleep(0)
    await turns.take()
    now[0] += 10.0
    put_off = asyncio.create_task(turns.take())
    await asyncio.sleep(0)
    put_off.cancel()
    await asyncio.wait_for(turns.take(), 1.0)


class Turns(Received):
    """Remembers at which turn of the loop each batch came."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = 0
        self.turns: list[int] = []

    def deliver(self, batch: list[Change], revision: int) -> None:
        super().deliver(batch, revision)
        self.turns.append(self.turn)

    async def count(self) -> None:
        while True:
            await asyncio.sleep(0)
            self.turn += 1


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Turns:
    """A sink, and slices that are over at once."""
    monkeypatch.setattr(reflector_module, "TimeSlices", lambda: TimeSlices(slice_s=0.0))
    return Turns()


async def told(sink: Turns, watches: Watches, client: ApiClient, revision: int, **options: Any) -> list[str]:
    """What was told until ``revision``, the loop's turns counted meanwhile."""
    counting = asyncio.create_task(sink.count())
    try:
        async with running(client, sink, **options) as found:
            await reached(found, revision)
    finally:
        counting.cancel()
    return sink.told()


async def test_a_first_list_is_delivered_in_slices(server: ScriptedServer, client: ApiClient, counted: Turns) -> None:
    """Everything once and in order, the revision is told with the last part, the loop turns between two parts."""
    watches = Watches(server)
    watches.lists = [page(7, *(node(f"n{index:03}", 1) for index in range(5 * EVENTS_AT_ONCE)))]
    found = await told(counted, watches, client, 7, kind=NODE)
    assert found == [f"+n{index:03}!" for index in range(5 * EVENTS_AT_ONCE)]
    assert len(counted.batches) == 5
    assert counted.revisions == [0, 0, 0, 0, 7]
    assert len(set(counted.turns[:4])) == 4


async def test_a_later_list_is_delivered_in_one_piece(
    server: ScriptedServer, client: ApiClient, counted: Turns
) -> None:
    """Half of it could show a device with its old and its new holder."""
    watches = Watches(server)
    names = [f"n{index:03}" for index in range(5 * EVENTS_AT_ONCE)]
    watches.lists = [page(7), page(9, *(node(name, 8) for name in names))]
    watches.streams = [[EXPIRED]]
    assert await told(counted, watches, client, 9) == [f"+{name}!" for name in names]
    assert len([batch for batch in counted.batches if batch]) == 1


async def test_many_events_at_once_are_taken_in_slices(
    server: ScriptedServer, client: ApiClient, counted: Turns
) -> None:
    """A chunk of a busy watch is no pause of the loop either; nothing of it is lost or told twice."""
    watches = Watches(server)
    count = 4 * EVENTS_AT_ONCE
    watches.lists = [page(7)]
    watches.streams = [[b"".join(event("ADDED", node(f"n{i:03}", 10 + i)) for i in range(count)), 30.0]]
    assert await told(counted, watches, client, 9 + count) == [f"+n{index:03}" for index in range(count)]
    turns = counted.turns[-4:]
    assert len(set(turns)) == 4
