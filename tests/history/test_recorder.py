"""The recorder on the embedded server: nothing is missed, streams that break go on, a gap is an error."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.api import CLAIMS, PODS, Api
from e2e.history import ClaimFact, PodFact
from e2e.history_recorder import HistoryGapError, recording
from e2e.objects import claim, exactly, pod
from scheduler.embedded import EmbeddedServer
from scheduler.embedded.faults import Action, Fault

NS = "default"


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """An empty cluster."""
    server = EmbeddedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: EmbeddedServer) -> AsyncIterator[Api]:
    """A client of it."""
    async with Api(server.url) as api:
        yield api


async def test_every_change_is_recorded_with_its_revision(api: Api) -> None:
    """Created, bound and deleted; what was there before is part of it; sorted over the kinds."""
    await api.create(CLAIMS, claim("before", exactly("gpu.example.com")), NS)
    async with recording(api) as recorder:
        await api.create(PODS, pod("a", claims={"gpu": "before"}), NS)
        await api.bind(NS, "a", "node-0")
        await api.delete(PODS, "a", NS, grace_period_s=0)
        await recorder.caught_up()
        facts = recorder.take_all()
    assert [fact.revision for fact in facts] == sorted({fact.revision for fact in facts})
    assert isinstance(facts[0], ClaimFact)
    pods = [fact for fact in facts if isinstance(fact, PodFact)]
    states = list(dict.fromkeys((fact.node, fact.gone) for fact in pods))
    assert states == [("", False), ("node-0", False), ("node-0", True)]
    assert pods[0].claims == ("before",)


async def test_a_broken_stream_goes_on_where_it_broke(api: Api, server: EmbeddedServer) -> None:
    """Cut in the middle of a line: what came meanwhile is there, once."""
    async with recording(api) as recorder:
        server.break_watches(Action.CUT)
        for index in range(5):
            await api.create(PODS, pod(f"p{index}"), NS)
        await recorder.caught_up()
        facts = recorder.take_all()
    assert [fact.name for fact in facts] == [f"p{index}" for index in range(5)]


async def test_a_gap_is_an_error(api: Api, server: EmbeddedServer) -> None:
    """410: nobody can tell what happened, so the history must not be judged."""

    async def recorded() -> None:
        async with recording(api) as recorder:
            server.faults.add(Fault(Action.ANSWER, verb="watch", kind="pods", code=410))
            server.break_watches(Action.CUT)
            await api.create(PODS, pod("a"), NS)
            await recorder.caught_up()

    with pytest.raises(HistoryGapError):
        await recorded()
