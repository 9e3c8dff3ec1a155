"""A LIST by a watch: one request for both; what is cut short or refused comes in pages."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web

from scheduler.edge import reflector as module
from scheduler.edge.client import ApiClient

from .scripted import ScriptedServer, Sleeps, status
from .test_reflector import EXPIRED, Received, Watches, event, node, page, reached, running


def complete(revision: int) -> bytes:
    """The bookmark that ends the beginning, with null where the real server writes it."""
    metadata = {"resourceVersion": str(revision), "annotations": {"k8s.io/initial-events-end": "true"}}
    return event("BOOKMARK", {"metadata": metadata, "spec": {"podCIDRs": None}, "status": {}})


def added(*items: dict[str, Any]) -> bytes:
    return b"".join(event("ADDED", item) for item in items)


def bookmark(revision: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(revision)}})


async def test_list_and_watch_are_one_request(server: ScriptedServer, client: ApiClient) -> None:
    """The beginning is delivered as a LIST, with changes that came meanwhile; the same stream goes on as a watch."""
    watches, sink = Watches(server), Received()
    beginning = added(node("a", 3), node("b", 5), node("c", 6)) + bookmark(6)
    beginning += event("DELETED", node("b", 8)) + event("MODIFIED", node("c", 9)) + complete(9)
    watches.streams = [[beginning[:100], beginning[100:] + event("MODIFIED", node("a", 10)), bookmark(20), 30.0]]
    async with running(client, sink, by_watch=True, field_selector="spec.x=1") as reflector:
        await reached(reflector, 20)
        assert {name: item.metadata.resourceVersion for name, item in reflector.store.items()} == {"a": "10", "c": "9"}
    assert sink.told() == ["+a!", "+c!", "~a"]
    assert sink.revisions[0] == 9
    (watch,) = server.requests
    assert watch.query.pop("timeoutSeconds")
    assert watch.query == {
        "fieldSelector": "spec.x=1",
        "watch": "1",
        "allowWatchBookmarks": "true",
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
    }
    assert (reflector.counters.lists, reflector.counters.watches) == (1, 1)


async def test_nothing_is_delivered_before_the_list_is_complete(server: ScriptedServer, client: ApiClient) -> None:
    """Half a LIST could show a device with its old and its new holder."""
    watches, sink = Watches(server), Received()
    watches.streams = [[added(node("a", 1)), 30.0]]
    async with running(client, sink, by_watch=True) as reflector:
        await asyncio.sleep(0.1)
        assert not reflector.synced.is_set()
        assert not reflector.store
    assert sink.batches == []


async def test_a_gap_is_closed_by_a_watch_that_begins_anew(server: ScriptedServer, client: ApiClient) -> None:
    """What went in the gap is a deletion, what is the same is not told again."""
    watches, sink = Watches(server), Received()
    watches.streams = [
        [added(node("same", 1), node("gone", 2)) + complete(10) + EXPIRED],
        [added(node("same", 1), node("new", 11)) + complete(20), 30.0],
    ]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 20)
    assert sink.told() == ["+same!", "+gone!", "-gone!", "+new!"]
    assert not watches.lists
    assert all("watch" in request.query for request in server.requests)


async def test_a_watch_that_breaks_later_goes_on_without_a_list(server: ScriptedServer, client: ApiClient) -> None:
    """Once the beginning was complete, the next stream starts at the last revision."""
    watches, sink = Watches(server), Received()
    watches.streams = [[added(node("a", 1)) + complete(10), 0.05, b"CUT"], [event("ADDED", node("b", 11)), 30.0]]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 11)
    assert [request.query.get("resourceVersion") for request in server.requests] == [None, "10"]
    assert reflector.counters.lists == 1


@pytest.mark.parametrize("end", [[b"CUT"], [], [30.0]], ids=["cut", "closed", "silent"])
async def test_a_beginning_that_is_not_completed_is_listed_in_pages(
    server: ScriptedServer, client: ApiClient, end: list[bytes | float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server, or a proxy, that never says that it is complete is not asked so twice in a row."""
    monkeypatch.setattr(module, "LIST_TIMEOUT_S", 0.2)
    watches, sink = Watches(server), Received()
    watches.streams = [[added(node("half", 1)), 0.05, *end], [EXPIRED], [added(node("b", 2)) + complete(20), 30.0]]
    watches.lists = [page(10, node("a", 1))]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 20)
    assert sink.told() == ["+a!", "-a!", "+b!"]
    assert "the list was not complete" in sink.trouble[0] or "no answer" in sink.trouble[0]
    assert ["sendInitialEvents" in request.query for request in server.requests] == [True, False, False, True]


@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_that_does_not_list_by_watch_is_never_asked_again(
    server: ScriptedServer, client: ApiClient, code: int
) -> None:
    """A refused query is answered by a LIST in pages at once, now and after every gap; it is no trouble."""
    watches, sink, sleeps = Watches(server), Received(), Sleeps()
    watches.lists = [page(10, node("a", 1)), page(20, node("b", 12))]
    watches.streams = [[EXPIRED], [30.0]]

    async def script(request: web.Request, body: bytes) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            return status(code, "Invalid", "sendInitialEvents is forbidden for watch")
        return await watches(request, body)

    server.script = script
    async with running(client, sink, sleeps, by_watch=True) as reflector:
        await reached(reflector, 20)
    assert sum("sendInitialEvents" in request.query for request in server.requests) == 1
    assert sink.told() == ["+a!", "-a!", "+b!"]
    assert len(sink.trouble) == 1  # the gap
    assert reflector.counters.failures == 0


async def test_bad_objects_in_the_beginning_are_reported_and_skipped(server: ScriptedServer, client: ApiClient) -> None:
    """Also one whose very metadata cannot be read; a good version known before stays."""
    watches, sink = Watches(server), Received()
    wrong = {"status": {"allocatable": 5}}
    nameless = {"metadata": {"name": 7}}
    watches.streams = [
        [added(node("a", 1), node("bad", 2, **wrong), nameless, node("z", 3)) + complete(10) + EXPIRED],
        [added(node("a", 11, **wrong), node("bad", 2, **wrong), node("z", 3)) + complete(20), 30.0],
    ]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 20)
        assert set(reflector.store) == {"a", "z"}
    assert sink.told() == ["+a!", "+z!"]
    assert [(bad.key, bad.kept) for bad in sink.bad] == [("bad", False), ("", False), ("a", True)]


ETCD = event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})


@pytest.mark.parametrize(
    "first", [[added(node("a", 1)) + ETCD], [EXPIRED], [b"<html>\n"], [event("ODD", node("a", 1))]]
)
async def test_after_any_failure_of_the_beginning_the_next_list_is_one_in_pages(
    server: ScriptedServer, client: ApiClient, first: list[bytes | float]
) -> None:
    """A server whose watch cache is broken still lists; the gap after that is closed by a watch again."""
    watches, sink = Watches(server), Received()
    watches.streams = [first, [EXPIRED], [added(node("b", 12)) + complete(20), 30.0]]
    watches.lists = [page(10, node("a", 1))]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 20)
    assert sink.told() == ["+a!", "-a!", "+b!"]
    assert ["sendInitialEvents" in request.query for request in server.requests] == [True, False, False, True]


async def test_a_server_that_only_refuses_such_watches_is_listed_all_the_same(
    server: ScriptedServer, client: ApiClient
) -> None:
    """Every watch that begins with a LIST fails, as status: the kind is complete after one failure."""

    async def script(request: web.Request, body: bytes) -> web.StreamResponse:
        if "sendInitialEvents" in request.query:
            return status(500, "InternalError", "watch cache broken")
        if "watch" in request.query:
            await asyncio.sleep(30)
        return page(10, node("a", 1))

    server.script = script
    sink = Received()
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 10)
    assert reflector.counters.failures == 1


async def test_an_overloaded_server_is_asked_the_same_again(server: ScriptedServer, client: ApiClient) -> None:
    """429 says nothing about the way of listing."""
    watches, sink = Watches(server), Received()
    watches.streams = [[added(node("a", 1)) + complete(10), 30.0]]
    refusals = [status(429, "TooManyRequests", "later")]

    async def script(request: web.Request, body: bytes) -> web.StreamResponse:
        return refusals.pop() if refusals else await watches(request, body)

    server.script = script
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 10)
    assert all("sendInitialEvents" in request.query for request in server.requests)


async def test_bookmarks_do_not_put_off_the_end_of_a_beginning(
    server: ScriptedServer, client: ApiClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come from a server, too, that ignores the query; objects do, however many there are."""
    monkeypatch.setattr(module, "LIST_TIMEOUT_S", 0.3)
    watches, sink = Watches(server), Received()
    objects = [part for number in range(4) for part in (added(node(f"n{number}", 1)), 0.2)]
    trickle = [part for number in range(100) for part in (bookmark(11 + number), 0.1)]
    watches.streams = [[*objects, complete(5) + EXPIRED], [added(node("a", 1)), *trickle]]
    watches.lists = [page(40, node("a", 1))]
    async with running(client, sink, by_watch=True) as reflector:
        await reached(reflector, 5)
        await asyncio.wait_for(reflector.wait_revision(40, 5.0), 2.0)
        assert reflector.revision == 40


async def test_first_lists_by_watch_take_turns(server: ScriptedServer, client: ApiClient) -> None:
    """A kind begins when another has finished beginning, not when its watch has ended."""
    watches, sink = Watches(server), Received()
    watches.streams = [[added(node("a", 1)) + complete(10) + EXPIRED], [complete(20), 30.0]]
    turn = asyncio.Semaphore(1)
    await turn.acquire()
    async with running(client, sink, by_watch=True, beginning=turn) as reflector:
        await asyncio.sleep(0.05)
        assert not server.requests
        turn.release()
        await reached(reflector, 10)
        await turn.acquire()  # free again although the stream goes on; never given back: later LISTs do not wait
        await reached(reflector, 20)
