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
from scheduler.edge.timeslices import SLICE_S, TimeSlices

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
