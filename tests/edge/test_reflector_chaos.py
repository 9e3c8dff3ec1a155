"""The reflector under random faults on the embedded server: the copy ends equal to the server, changes add up."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from scheduler.api.changes import Change
from scheduler.api.kinds import NODE, POD, Kind
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
from scheduler.edge.errors import ApiError
from scheduler.edge.reflector import Reflector
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


class Ledger:
    """A sink that applies changes and insists that each fits what it knows."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.revision = 0

    def deliver(self, batch: list[Change], revision: int) -> None:
        for change in batch:
            if change.old is not None:
                assert self.known.pop(change.old.metadata.key) is change.old, "the old object is not the one delivered"
            if change.new is not None:
                key = change.new.metadata.key
                assert key not in self.known, f"{key} added twice"
                if change.old is not None:
                    assert change.old.metadata.uid == change.new.metadata.uid
                self.known[key] = change.new
        assert revision >= self.revision
        self.revision = revision


class Quick:
    """A sleep a thousand times faster, so that back-offs do not make the test slow."""

    async def __call__(self, pause_s: float) -> None:
        await asyncio.sleep(pause_s / 1000)


async def act(server: EmbeddedServer, client: ApiClient, kind: Kind, rng: random.Random) -> None:
    """One random write, or one random misdeed."""
    name = f"o{rng.randrange(12)}"
    namespace = "default" if kind is POD else ""
    spec = {"containers": [{"name": "c", "image": "i"}]} if kind is POD else {}
    thing = {"apiVersion": "v1", "kind": kind.name, "metadata": {"name": name}, "spec": spec}
    dice = rng.random()
    faults = server.faults
    try:
        if dice < 0.40:
            await client.request("POST", kind.path(namespace), json.dumps(thing).encode())
        elif dice < 0.60:
            body = b'{"metadata":{"labels":{"n":"%d"}}}' % rng.randrange(10**6)
            await client.request("PATCH", kind.path(namespace, name), body, "application/merge-patch+json")
        elif dice < 0.75:
            await client.request("DELETE", kind.path(namespace, name))
        elif dice < 0.80 and kind is POD:
            body = b'{"status":{"phase":"%s"}}' % rng.choice([b"Succeeded", b"Running"])
            await client.request("PATCH", kind.path(namespace, name, "status"), body, "application/merge-patch+json")
        elif dice < 0.85:
            server.break_watches(rng.choice([Action.CUT, Action.CLOSE, Action.GONE]))
        elif dice < 0.89:
            server.compact()
            server.break_watches(Action.CLOSE)
        elif dice < 0.93:
            faults.add(
                Fault(Action.ANSWER, verb="watch", user_agent="reflector", code=rng.choice([410, 429, 500, 503]))
            )
        elif dice < 0.96:
            faults.add(Fault(Action.DROP_BEFORE, verb=rng.choice(["list", "watch"]), user_agent="reflector"))
        else:
            faults.add(
                Fault(
                    rng.choice([Action.CUT, Action.GONE, Action.CLOSE]),
                    verb="watch",
                    user_agent="reflector",
                    after_events=rng.randrange(3),
                )
            )
    except ApiError as error:
        if error.status not in (404, 409):
            raise


@pytest.mark.parametrize("by_watch", [True, False], ids=["by-watch", "in-pages"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("kind", [NODE, POD], ids=["nodes", "pods"])
async def test_copy_equals_server_after_any_faults(
    embedded: EmbeddedServer, seed: int, kind: Kind, by_watch: bool
) -> None:
    """Random writes among cut, closed, compacted and refused watches: nothing is lost, nothing told twice."""
    rng = random.Random(seed)
    ledger = Ledger()
    writer = ApiClient(Access(embedded.url))
    reader = ApiClient(Access(embedded.url), user_agent="reflector", sleep=Quick())
    selector = RUNNING if kind is POD else ""
    reflector = Reflector(
        reader, kind, ledger, field_selector=selector, rng=rng, sleep=Quick(), page_limit=3, by_watch=by_watch
    )
    task = asyncio.create_task(reflector.run())
    async with writer, reader:
        for _ in range(250):
            await act(embedded, writer, kind, rng)
            if rng.random() < 0.2:
                await asyncio.sleep(0.005)
        embedded.faults.clear()
        expected, revision = await reflector.list_all()
        body = b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"last"}}'
        if kind is POD:
            body = b'{"kind":"Pod","metadata":{"name":"last"},"spec":{"containers":[{"name":"c","image":"i"}]}}'
        await writer.request("POST", kind.path("default" if kind is POD else ""), body)
        assert await reflector.wait_revision(revision + 1, 10.0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def versions(objects: dict[str, Any]) -> dict[str, str]:
        return {key: thing.metadata.resourceVersion for key, thing in objects.items() if thing.metadata.name != "last"}

    assert versions(reflector.store) == versions(expected)
    assert ledger.known == reflector.store
    assert reflector.counters.lists > 1
