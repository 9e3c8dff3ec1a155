"""Who asks and what they may see: reviews of the API server, kept shortly, never mixed up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.api.bodies import ResourceAttributes, ReviewedUser
from scheduler.edge.callers import ApiReviews, EverybodyMay, UnansweredError
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.embedded.faults import Action, Fault
from scheduler.embedded.server import EmbeddedServer

LIST_PODS = ResourceAttributes("list", "pods", namespace="a")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def asked() -> list[Any]:
    return []


@pytest.fixture
async def server(asked: list[Any]) -> AsyncIterator[EmbeddedServer]:
    server = EmbeddedServer()

    def authenticate(token: str) -> str | None:
        asked.append(token)
        return f"user of {token}" if token.startswith("good") else None

    def authorize(spec: dict[str, Any]) -> bool:
        asked.append(spec)
        return bool(spec["user"] == "user of good-1" and spec["resourceAttributes"].get("namespace") == "a")

    server.reviewer.authenticate, server.reviewer.authorize = authenticate, authorize
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
async def client(server: EmbeddedServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(insecure(server.url)) as client:
        yield client


async def test_a_token_is_reviewed_once_in_ten_seconds(client: ApiClient, asked: list[Any]) -> None:
    """A good and a bad token alike; each token has its own answer."""
    clock = Clock()
    reviews = ApiReviews(client, clock)
    for _ in range(3):
        user = await reviews.user("good-1")
        assert user is not None
        assert user.username == "user of good-1"
        assert await reviews.user("bad") is None
    assert asked == ["good-1", "bad"]
    clock.now = 10.1
    await reviews.user("good-1")
    assert asked == ["good-1", "bad", "good-1"]
    assert await reviews.user("") is None, "nobody is asked about no token"
    assert len(asked) == 3


async def test_tokens_are_not_kept(client: ApiClient) -> None:
    """Only a digest stays in memory."""
    reviews = ApiReviews(client, Clock())
    await reviews.user("good-1")
    assert "good-1" not in repr(list(reviews._kept))


async def test_rights_are_asked_for_the_whole_identity(client: ApiClient, asked: list[Any]) -> None:
    """Two users never share an answer, nor does one user with other groups."""
    reviews = ApiReviews(client, Clock())
    one, other = ReviewedUser("user of good-1"), ReviewedUser("user of good-2")
    assert await reviews.allowed(one, LIST_PODS)
    assert not await reviews.allowed(other, LIST_PODS)
    assert not await reviews.allowed(one, ResourceAttributes("list", "pods", namespace="b"))
    assert await reviews.allowed(one, LIST_PODS)
    assert len(asked) == 3
    await reviews.allowed(ReviewedUser("user of good-1", groups=("g",)), LIST_PODS)
    assert len(asked) == 4
    assert asked[-1]["groups"] == ["g"]
    assert asked[-1]["resourceAttributes"] == {"verb": "list", "resource": "pods", "namespace": "a"}


async def test_no_answer_is_no_right(server: EmbeddedServer, client: ApiClient) -> None:
    """When the API server cannot be asked the question ends; nothing is kept of it."""
    reviews = ApiReviews(client, Clock())
    server.faults.add(Fault(Action.ANSWER, kind="tokenreviews"))
    with pytest.raises(UnansweredError):
        await reviews.user("good-1")
    assert await reviews.user("good-1") is not None


async def test_in_the_demo_everybody_may() -> None:
    """No token is needed there."""
    reviews = EverybodyMay()
    user = await reviews.user("")
    assert user is not None
    assert await reviews.allowed(user, LIST_PODS)
