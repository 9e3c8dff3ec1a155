"""Fixtures of the edge: a scripted server and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
from scheduler.edge.errors import NotFound
from scheduler.embedded import EmbeddedServer

from .scripted import ScriptedServer, Sleeps, client_for


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    scripted = ScriptedServer()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture(params=["first request", "later request"])
async def client(server: ScriptedServer, sleeps: Sleeps, request: pytest.FixtureRequest) -> AsyncIterator[ApiClient]:
    """A client that has asked nothing yet, and one whose small writes take the short way already."""
    async with client_for(server, sleeps) as made:
        if request.param == "later request":
            with pytest.raises(NotFound):
                await made.request("GET", "/warm")
            server.requests.clear()
        yield made


@pytest.fixture
async def embedded() -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer(controllers=False, seed=1)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(embedded: EmbeddedServer, sleeps: Sleeps) -> AsyncIterator[ApiClient]:
    """A client of the embedded server."""
    async with ApiClient(Access(embedded.url), sleep=sleeps) as made:
        yield made
