"""The embedded server under the behavioural suite."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from e2e.api import Api
from e2e.behaviour.subject import Subject
from scheduler.embedded import EmbeddedServer


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A started embedded server with its controllers, fresh for each test."""
    server = EmbeddedServer(seed=1)
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def api(server: EmbeddedServer) -> AsyncIterator[Subject]:
    """The server as the behavioural suite sees it, with a namespace of the test's own."""
    server.load([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "behaviour"}}])
    async with Api(server.url) as client:
        yield Subject(client, "behaviour")
