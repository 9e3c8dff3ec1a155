"""Fixtures of the edge: a scripted server and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
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


@pytest.fixture
async def client(server: ScriptedServer, sleeps: Sleeps) -> AsyncIterator[ApiClient]:
    async with client_for(server, sleeps) as made:
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
