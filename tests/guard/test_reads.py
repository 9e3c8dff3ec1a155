"""Reads past the watches: whose word counts, and when what was admitted and never stored is let go."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import web

from scheduler.api.resource import ResourceClaim
from scheduler.api.versions import ResourceKinds
from scheduler.dra.admissions import Admissions
from scheduler.guard.reads import Reads
from tests.dra.guard_world import allocation, book, claim, published, result
from tests.edge.scripted import ScriptedServer, client_for, reply


class World:
    """A guard's book in which claim ns/old holds device a, and an API server that answers as scripted."""

    def __init__(self, server: ScriptedServer, reads: Reads, admissions: Admissions, told: list[str]) -> None:
        self.server, self.reads, self.book, self.told = server, reads, admissions, told

    def held(self) -> bool:
        """Whether device a is refused to another claim."""
        return bool(self.book.judge(claim("new"), allocation(result("a"))))


def gone(name: str = "old", **details: str) -> web.Response:
    """The API server's own word that a claim is not there."""
    about = {"group": "resource.k8s.io", "kind": "resourceclaims", "name": name, **details}
    return reply({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found", "details": about}, 404)


def stored(uid: str, revision: int, *devices: str) -> web.Response:
    """Claim ns/UID as the API server has it."""
    results = [result(name) for name in devices]
    item: dict[str, Any] = {
        "metadata": {"name": uid, "namespace": "ns", "uid": uid, "resourceVersion": str(revision)},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        "status": {"allocation": {"devices": {"results": results}}} if results else {},
    }
    return reply(item)


@pytest.fixture
async def world() -> Any:
    server, admissions, told = ScriptedServer(), book(published("a", "b")), list[str]()
    await server.start()
    admissions.take(claim("old", result("a")))
    async with client_for(server) as client:
        yield World(server, Reads(client, admissions, ResourceKinds(), on_trouble=told.append), admissions, told)
    await server.stop()


@pytest.mark.parametrize(
    "answer",
    [
        web.Response(status=404, text="404 page not found"),
        reply({"message": "no such route"}, 404),
        reply({"kind": "Status", "code": 404, "reason": "NotFound", "message": "no such resource", "details": {}}, 404),
        gone("another"),
    ],
    ids=["a server in the way", "a gateway", "the kind is not served", "another claim"],
)
async def test_not_every_404_means_that_a_holder_is_gone(world: World, answer: web.Response) -> None:
    """A load balancer, or an API server in the middle of its upgrade, must not set a device free."""
    world.server.answers(answer)
    await world.reads.claims(["old"])
    assert world.held()
    assert "claim ns/old could not be read again" in world.told[0]


async def test_a_holder_that_is_gone_holds_nothing(world: World) -> None:
    """The API server's word about this very claim; and another claim of the name is another claim."""
    world.server.answers(gone())
    await world.reads.claims(["old"])
    assert not world.held()
    world.book.take(claim("older", result("a"), name="old"))
    assert world.held()
    world.server.answers(stored("old", 9))
    world.book.take(claim("x"))
    await world.reads.claims(["older"])
    assert not world.held()


async def test_a_claim_that_no_watch_has_shown_is_looked_for(world: World) -> None:
    """It counts when it is there with the UID that the review named."""
    world.server.answers(stored("young", 3))
    assert await world.reads.unknown(claim("young", revision=3))
    world.server.answers(stored("young", 3))
    assert not await world.reads.unknown(claim("ghost", name="young"))
    world.server.answers(gone("ghost"))
    assert not await world.reads.unknown(claim("ghost"))
    world.server.answers(web.Response(status=500, text="no"))
    assert not await world.reads.unknown(claim("ghost"))


def admit(world: World, asking: ResourceClaim) -> None:
    """The guard admits device b for a claim, at second 0."""
    world.book.take(asking)
    assert world.book.reserve(asking, allocation(result("b")), 0.0) is not None


async def test_what_was_admitted_and_never_stored_is_let_go_once_the_claim_was_read(world: World) -> None:
    """Another webhook denied the write: its version never comes. Without a fresh look it stays held."""
    admit(world, claim("late", revision=5))
    old = world.book.expired(40.0, 40.0)
    world.server.answers(web.Response(status=503, text="no"))
    await world.reads.settle(old)
    assert len(world.book.reservations()) == 1, "who cannot be asked has settled nothing"
    world.server.answers(stored("late", 5))
    await world.reads.settle(old)
    assert world.book.reservations() == ()
    assert json.loads(world.server.requests[-1].body or b"null") is None


async def test_a_claim_with_several_expired_reservations_is_read_once(world: World) -> None:
    """Otherwise a flood of reviews would be followed by a flood of reads."""
    admit(world, claim("late", revision=5))
    world.book.reserve(claim("late", revision=5), allocation(result("a")), 0.0)
    world.server.answers(stored("late", 5))
    await world.reads.settle(world.book.expired(40.0, 40.0))
    assert world.book.reservations() == ()
    assert len(world.server.requests) == 1


async def test_what_was_stored_after_all_stays_held(world: World) -> None:
    """The watch was late; the fresh look shows the write."""
    admit(world, claim("late", revision=5))
    world.server.answers(stored("late", 6, "b"))
    await world.reads.settle(world.book.expired(40.0, 40.0))
    assert world.book.reservations() == ()
    assert world.book.judge(claim("new"), allocation(result("b")))
