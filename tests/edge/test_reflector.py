"""The reflector: pages, bookmarks, gaps, cut and silent streams, bad objects."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from scheduler.api.changes import Change
from scheduler.api.kinds import DEVICE_TAINT_RULE, NODE, convert
from scheduler.edge.bad_objects import BadObject
from scheduler.edge.client import ApiClient
from scheduler.edge.lines import LineSplitter
from scheduler.edge.reflector import Reflector

from .scripted import ScriptedServer, Sleeps, reply, status


def node(name: str, revision: int, uid: str = "", **fields: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or f"uid-{name}", "resourceVersion": str(revision)}, **fields}


def page(revision: int, *items: dict[str, Any], token: str = "") -> web.Response:
    return reply({"metadata": {"resourceVersion": str(revision), "continue": token}, "items": list(items)})


def event(kind: str, thing: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": thing}).encode() + b"\n"


def bookmark(revision: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(revision)}})


EXPIRED = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})


class Watches:
    """Answers LISTs and watches from two queues; a watch without a script stays silent."""

    def __init__(self, server: ScriptedServer) -> None:
        self.lists: list[web.Response] = []
        self.streams: list[list[bytes | float]] = []
        server.script = self

    async def __call__(self, request: web.Request, body: bytes) -> web.StreamResponse:
        if "watch" not in request.query:
            return self.lists.pop(0) if self.lists else status(500, "InternalError", "no more lists")
        answer = web.StreamResponse()
        await answer.prepare(request)
        for part in self.streams.pop(0) if self.streams else [30.0]:
            if isinstance(part, float):
                await asyncio.sleep(part)
            elif part == b"CUT":
                assert request.transport is not None
                request.transport.abort()
            else:
                await answer.write(part)
        return answer


class Received:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[Change]] = []
        self.revisions: list[int] = []
        self.bad: list[BadObject] = []
        self.trouble: list[str] = []

    def deliver(self, batch: list[Change], revision: int) -> None:
        self.batches.append(batch)
        self.revisions.append(revision)

    def told(self) -> list[str]:
        """``+name`` added, ``-name`` deleted, ``~name`` changed, in order; ``!`` marks those found by a LIST."""
        words = []
        for change in (change for batch in self.batches for change in batch):
            mark = "+" if change.old is None else "-" if change.new is None else "~"
            words.append(mark + (change.new or change.old).metadata.name + ("!" if change.by_list else ""))
        return words


@asynccontextmanager
async def running(
    client: ApiClient, sink: Received, sleeps: Sleeps | None = None, **options: Any
) -> AsyncIterator[Reflector]:
    reflector = Reflector(
        client,
        options.pop("kind", NODE),
        sink,
        by_watch=options.pop("by_watch", False),
        on_bad_object=sink.bad.append,
        on_trouble=sink.trouble.append,
        rng=random.Random(1),
        sleep=sleeps or Sleeps(),
        **options,
    )
    task = asyncio.create_task(reflector.run())
    try:
        yield reflector
    finally:
        assert not task.done(), task.exception()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def reached(reflector: Reflector, revision: int) -> None:
    assert await reflector.wait_revision(revision, 5.0), f"stopped at {reflector.revision}"


async def test_list_in_pages_then_watch(server: ScriptedServer, client: ApiClient) -> None:
    """Pages are followed, the watch starts at the list's revision with bookmarks, changes arrive in order."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(0, node("a", 3), token="next"), page(7, node("b", 5))]
    moved = node("a", 8, metadata_extra=1)
    watches.streams = [[event("MODIFIED", moved) + event("DELETED", node("b", 9)), bookmark(20), 30.0]]
    async with running(client, sink, field_selector="spec.x=1") as reflector:
        await reached(reflector, 20)
        assert reflector.synced.is_set()
        assert set(reflector.store) == {"a"}
    assert sink.told() == ["+a!", "+b!", "~a", "-b"]
    assert sink.revisions[0] == 7
    assert sink.revisions[-1] == 20
    first, second, watch = server.requests[:3]
    assert first.query == {"limit": "500", "fieldSelector": "spec.x=1"}
    assert second.query["continue"] == "next"
    assert watch.query["resourceVersion"] == "7"
    assert watch.query["allowWatchBookmarks"] == "true"
    assert 300 <= int(watch.query["timeoutSeconds"]) <= 600
    assert watch.query["fieldSelector"] == "spec.x=1"


async def test_first_lists_take_turns_and_later_ones_do_not(server: ScriptedServer, client: ApiClient) -> None:
    """A kind begins when another has finished beginning; closing a gap waits for nobody."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(3, node("a", 1)), page(9)]
    watches.streams = [[EXPIRED], [30.0]]
    turn = asyncio.Semaphore(1)
    await turn.acquire()
    async with running(client, sink, beginning=turn) as reflector:
        await asyncio.sleep(0.05)
        assert not server.requests
        turn.release()
        await reached(reflector, 3)
        await turn.acquire()  # never given back: the second LIST comes all the same
        await reached(reflector, 9)
    assert sink.told() == ["+a!", "-a!"]


async def test_gone_inside_a_stream_sees_deletions_in_the_gap(server: ScriptedServer, client: ApiClient) -> None:
    """A 410 in a 200 stream lists again; what vanished, changed or was replaced in the gap is told, once each."""
    watches, sink = Watches(server), Received()
    same, gone = node("same", 1), node("gone", 2)
    watches.lists = [
        page(10, same, gone, node("changed", 3), node("twin", 4, uid="first")),
        page(50, same, node("changed", 30), node("twin", 40, uid="second"), node("new", 45)),
    ]
    watches.streams = [[EXPIRED]]
    async with running(client, sink) as reflector:
        await reached(reflector, 50)
        assert set(reflector.store) == {"same", "changed", "twin", "new"}
    told = sink.told()
    assert sorted(told[:4]) == ["+changed!", "+gone!", "+same!", "+twin!"]
    assert sorted(told[4:6]) == ["-gone!", "-twin!"]
    assert told[6:] == ["~changed!", "+twin!", "+new!"]


async def test_gone_as_status_lists_again(server: ScriptedServer, client: ApiClient) -> None:
    """A 410 as HTTP status means the same as one inside the stream."""
    sink = Received()
    server.answers(page(10, node("a", 1)), status(410, "Expired", "too old"), page(20), page(30))
    async with running(client, sink) as reflector:
        await reached(reflector, 20)
    assert sink.told()[:2] == ["+a!", "-a!"]


async def test_gone_in_the_middle_of_a_list_restarts_it(server: ScriptedServer, client: ApiClient) -> None:
    """An expired continue token restarts the list; the third try asks for everything in one answer."""
    expired = status(410, "Expired", "the continue parameter is too old")
    expired_again = status(410, "Expired", "the continue parameter is too old")
    sink = Received()
    server.answers(
        page(1, node("a", 1), token="t"),
        expired,
        page(2, node("a", 1), token="t"),
        expired_again,
        page(3, node("b", 3)),
    )
    async with running(client, sink) as reflector:
        await reached(reflector, 3)
    assert sink.told() == ["+b!"]
    assert "limit" not in server.requests[4].query


async def test_cut_in_the_middle_of_a_line_resumes(server: ScriptedServer, client: ApiClient) -> None:
    """Half a line is dropped, the watch goes on from the last complete event, nothing is lost or told twice."""
    watches, sink = Watches(server), Received()
    whole = event("ADDED", node("b", 11))
    watches.lists = [page(10, node("a", 1))]
    watches.streams = [[event("ADDED", node("c", 10 + 0)) + whole[:20], 0.05, b"CUT"], [whole, 30.0]]
    async with running(client, sink) as reflector:
        await reached(reflector, 11)
    assert sink.told() == ["+a!", "+c", "+b"]
    assert [seen.query["resourceVersion"] for seen in server.requests if "watch" in seen.query] == ["10", "10"]
    assert reflector.counters.lists == 1


async def test_silent_stream_is_dropped(server: ScriptedServer, client: ApiClient) -> None:
    """A stream without any bytes for longer than the limit is abandoned and opened again."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10)]
    watches.streams = [[30.0], [bookmark(12), 30.0]]
    async with running(client, sink, silence_timeout_s=0.1) as reflector:
        await reached(reflector, 12)
    assert reflector.counters.failures >= 1
    assert reflector.counters.lists == 1


async def test_server_that_closes_at_once_is_no_hot_loop(server: ScriptedServer, client: ApiClient) -> None:
    """Watches that end at once are opened again after 0.8 s and more, doubling up to 30 s."""
    watches, sink, sleeps = Watches(server), Received(), Sleeps()
    watches.lists = [page(10)]
    watches.streams = [[] for _ in range(8)] + [[bookmark(11), 30.0]]
    async with running(client, sink, sleeps) as reflector:
        await reached(reflector, 11)
    assert len(sleeps.pauses_s) == 8
    for pause_s, least_s in zip(sleeps.pauses_s, (0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30, 30), strict=True):
        assert least_s <= pause_s <= 2 * least_s


async def test_unreachable_server_is_asked_again_for_ever(server: ScriptedServer, client: ApiClient) -> None:
    """Errors of LIST and WATCH, and refused streams, end in a later success without losing the copy."""
    sink, sleeps = Received(), Sleeps()
    watches = Watches(server)
    watches.lists = [status(403, "Forbidden", "no"), page(5, node("a", 1))]
    watches.streams = [[event("ERROR", {"kind": "Status", "code": 500, "message": "etcd"})], [bookmark(6), 30.0]]
    async with running(client, sink, sleeps) as reflector:
        await reached(reflector, 6)
        assert set(reflector.store) == {"a"}
    assert sink.told() == ["+a!"]
    assert len(sink.trouble) == 2


async def test_server_that_is_away_for_long_is_found_again_soon(
    server: ScriptedServer, client: ApiClient, sleeps: Sleeps
) -> None:
    """While connections are refused the pauses stay below 8 s; the watch goes on where it was."""
    watches, sink, pauses = Watches(server), Received(), Sleeps()
    port = int(server.url.rpartition(":")[2])
    watches.lists = [page(10, node("a", 1))]
    watches.streams = [[0.05], [bookmark(11), 30.0]]
    async with running(client, sink, pauses) as reflector:
        await reached(reflector, 10)
        await server.stop()
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(pauses.pauses_s) >= 12:
                break
        await server.start(port)
        await reached(reflector, 11)
    assert reflector.counters.lists == 1
    assert all(pause_s <= 8.0 for pause_s in pauses.pauses_s)


async def test_one_bad_object_is_reported_and_skipped(server: ScriptedServer, client: ApiClient) -> None:
    """Undecodable objects cost nobody else anything; a good version known before stays, a replaced one goes."""
    watches, sink = Watches(server), Received()
    wrong = {"status": {"allocatable": 5}}
    watches.lists = [page(10, node("good", 1), node("bad", 2, **wrong), node("swap", 3))]
    watches.streams = [
        [
            event("MODIFIED", node("good", 11, **wrong))
            + event("ADDED", node("swap", 12, uid="other", **wrong))
            + event("DELETED", node("bad", 13, **wrong))
            + event("ADDED", node("next", 14)),
            30.0,
        ]
    ]
    async with running(client, sink) as reflector:
        await reached(reflector, 14)
        assert set(reflector.store) == {"good", "next"}
    assert sink.told() == ["+good!", "+swap!", "-swap", "+next"]
    assert [(bad.key, bad.kept) for bad in sink.bad] == [("bad", False), ("good", True), ("swap", False)]
    assert "allocatable" in sink.bad[0].problem


async def test_bad_object_in_a_new_list_keeps_the_good_version(server: ScriptedServer, client: ApiClient) -> None:
    """A relist that shows a known object undecodable is no deletion."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10, node("a", 1)), page(20, node("a", 15, status={"allocatable": 5}))]
    watches.streams = [[EXPIRED]]
    async with running(client, sink) as reflector:
        await reached(reflector, 20)
        assert set(reflector.store) == {"a"}
    assert sink.told() == ["+a!"]


async def test_unreadable_line_lists_again(server: ScriptedServer, client: ApiClient) -> None:
    """A complete line that is no event may have been any change: only a list can tell."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10, node("a", 1)), page(20)]
    watches.streams = [[b"<html>\n"]]
    async with running(client, sink) as reflector:
        await reached(reflector, 20)
    assert sink.told() == ["+a!", "-a!"]


async def test_store_restored_from_a_backup(server: ScriptedServer, client: ApiClient) -> None:
    """A server whose revisions went back is listed again, and the revision follows it."""
    watches, sink = Watches(server), Received()
    behind = {"kind": "Status", "code": 504, "reason": "Timeout", "message": "Too large resource version: 900"}
    watches.lists = [page(900, node("a", 1)), page(40, node("b", 2))]
    watches.streams = [[event("ERROR", behind)]]
    async with running(client, sink) as reflector:
        for _ in range(500):
            await asyncio.sleep(0.01)
            if reflector.revision == 40:
                break
    assert sink.told() == ["+a!", "-a!", "+b!"]


async def test_delete_and_recreate_under_one_name(server: ScriptedServer, client: ApiClient) -> None:
    """The old object's end and the new one's beginning are two changes; a late DELETED of the old is ignored."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10, node("a", 1, uid="old"))]
    watches.streams = [
        [event("ADDED", node("a", 11, uid="new")) + event("DELETED", node("a", 12, uid="old")) + bookmark(13), 30.0]
    ]
    async with running(client, sink) as reflector:
        await reached(reflector, 13)
        assert reflector.store["a"].metadata.uid == "new"
    assert sink.told() == ["+a!", "-a", "+a"]


async def test_wait_revision_is_bounded(server: ScriptedServer, client: ApiClient) -> None:
    """A revision that does not come answers False at the limit; one that is there answers at once."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10)]
    async with running(client, sink) as reflector:
        await reflector.synced.wait()
        assert await reflector.wait_revision(10, 0.0)
        assert not await reflector.wait_revision(11, 0.05)


async def test_kind_the_server_does_not_serve(server: ScriptedServer, client: ApiClient) -> None:
    """An optional kind that is not served counts as empty and is asked for again later."""
    sink, sleeps = Received(), Sleeps()
    server.answers(status(404, "NotFound", "no"), page(5, node("late", 1)), status(404, "NotFound", "no"))
    async with running(client, sink, sleeps, kind=DEVICE_TAINT_RULE, optional=True) as reflector:
        await reflector.synced.wait()
        await reached(reflector, 5)
    assert sleeps.pauses_s[0] == 60.0


async def test_what_is_known_of_an_optional_kind_outlives_a_404_or_two(
    server: ScriptedServer, client: ApiClient
) -> None:
    """A proxy, or an API server that is being upgraded, says 404 for a moment: taint rules must not go with it."""
    sink = Received()
    lists = iter((5, 0, 0, 6, 0, 0, 0))

    async def script(request: web.Request, body: bytes) -> web.StreamResponse:
        if "watch" in request.query:
            return status(410, "Gone", "too old")
        revision = next(lists, 0)
        return page(revision, node("rule", 1)) if revision else status(404, "NotFound", "no")

    server.script = script
    async with running(client, sink, kind=DEVICE_TAINT_RULE, optional=True) as reflector:
        await reached(reflector, 6)
        assert list(reflector.store) == ["rule"]
        for _ in range(1000):
            if not reflector.store:
                break
            await asyncio.sleep(0.01)
    assert sink.told() == ["+rule!", "-rule!"]


async def test_list_all_leaves_the_copy_alone(server: ScriptedServer, client: ApiClient) -> None:
    """The list for the reconcile returns objects and revision, and changes nothing."""
    watches, sink = Watches(server), Received()
    watches.lists = [page(10), page(11, node("a", 11), node("bad", 11, status={"allocatable": 5}))]
    async with running(client, sink) as reflector:
        await reflector.synced.wait()
        objects, revision = await reflector.list_all()
        assert (set(objects), revision) == ({"a"}, 11)
        assert not reflector.store
    assert sink.told() == []


async def test_reconcile_repairs_what_the_watch_lost(server: ScriptedServer, client: ApiClient) -> None:
    """Lost deletions, changes, additions and replacements are delivered; undecodable and newer objects stay."""
    watches, sink = Watches(server), Received()
    wrong = {"status": {"allocatable": 5}}
    names = ("gone", "old", "twin", "bad", "newer")
    watches.lists = [
        page(10, *(node(name, 5) for name in names)),
        page(12, node("old", 11), node("twin", 11, uid="second"), node("bad", 11, **wrong), node("added", 12)),
        page(12, node("old", 11), node("twin", 11, uid="second"), node("bad", 11, **wrong), node("added", 12)),
    ]
    watches.streams = [[bookmark(12), 30.0]]
    async with running(client, sink) as reflector:
        await reached(reflector, 12)
        reflector.store["newer"] = convert(NODE, node("newer", 13))
        assert await reflector.reconcile() == 5
        assert set(reflector.store) == {"old", "twin", "bad", "newer", "added"}
        assert reflector.store["twin"].metadata.uid == "second"
        assert await reflector.reconcile() == 0
    assert sink.told()[5:] == ["-gone!", "~old!", "-twin!", "+twin!", "+added!"]


def test_lines_of_any_size_in_chunks_of_any_size() -> None:
    """Whatever the chunk size, the lines come out whole; a cut tail is never returned."""
    lines = [b"x" * size for size in (1, 10, 100_000, 3)]
    data = b"\n".join(lines) + b"\n\ntail"
    for size in (1, 7, 4096, len(data)):
        splitter = LineSplitter()
        got = [line for start in range(0, len(data), size) for line in splitter.feed(data[start : start + size])]
        assert got == lines
        assert splitter.held_bytes == 4
