"""Faults on demand and the audit: requests that fail, answers that are lost, streams that break."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from e2e.behaviour.subject import Subject, config_map
from scheduler.embedded import Action, EmbeddedServer, Fault


@pytest.mark.parametrize(
    ("code", "reason", "retry_after_s"),
    [
        (409, "Conflict", None),
        (410, "Expired", None),
        (422, "Invalid", None),
        (429, "TooManyRequests", 1),
        (500, "InternalError", None),
        (503, "ServiceUnavailable", None),
    ],
)
async def test_an_answer_fault_refuses_without_effect(
    server: EmbeddedServer, api: Subject, code: int, reason: str, retry_after_s: int | None
) -> None:
    """An ANSWER fault answers its code once, with Retry-After where given, and nothing is written."""
    fault = server.faults.add(
        Fault(Action.ANSWER, verb="create", kind="configmaps", code=code, retry_after_s=retry_after_s)
    )
    answer = await api.post(api.ns("configmaps"), config_map("a"))
    assert (answer.code, answer.reason) == (code, reason)
    assert answer.headers.get("Retry-After") == (None if retry_after_s is None else str(retry_after_s))
    assert (await api.get(api.ns("configmaps", "a"))).code == 404
    assert (await api.post(api.ns("configmaps"), config_map("a"))).code == 201
    assert fault.hits == 1


async def test_a_lost_answer_has_taken_effect(server: EmbeddedServer, api: Subject) -> None:
    """DROP_AFTER closes the connection after the write; DROP_BEFORE before it."""
    server.faults.add(Fault(Action.DROP_AFTER, verb="create", name="", kind="configmaps"))
    with pytest.raises(aiohttp.ClientError):
        await api.post(api.ns("configmaps"), config_map("after"))
    assert (await api.get(api.ns("configmaps", "after"))).code == 200
    server.faults.add(Fault(Action.DROP_BEFORE, verb="create", kind="configmaps"))
    with pytest.raises(aiohttp.ClientError):
        await api.post(api.ns("configmaps"), config_map("before"))
    assert (await api.get(api.ns("configmaps", "before"))).code == 404


async def test_faults_pick_their_requests(server: EmbeddedServer, api: Subject) -> None:
    """Verb, kind, name pattern, skip and times decide who is hit."""
    server.faults.add(Fault(Action.ANSWER, verb="patch", name="b*", skip=1, times=2, code=500))
    for name in ("a", "b1"):
        await api.post(api.ns("configmaps"), config_map(name))
    patch = {"metadata": {"labels": {"x": "y"}}}
    assert (await api.patch(api.ns("configmaps", "a"), patch)).code == 200
    codes = [(await api.patch(api.ns("configmaps", "b1"), patch)).code for _ in range(4)]
    assert codes == [200, 500, 500, 200]


async def test_a_delayed_request_waits(server: EmbeddedServer, api: Subject) -> None:
    """DELAY holds one request while others pass."""
    server.faults.add(Fault(Action.DELAY, verb="create", delay_s=0.2))
    slow = asyncio.create_task(api.post(api.ns("configmaps"), config_map("slow")))
    await asyncio.sleep(0.05)
    assert (await api.post(api.ns("configmaps"), config_map("fast"))).code == 201
    assert not slow.done()
    assert (await slow).code == 201


async def test_the_audit_keeps_the_order_of_writes(server: EmbeddedServer, api: Subject) -> None:
    """Each request is recorded with verb, object, sub-resource, code and revision, in order."""
    await api.post(api.ns("configmaps"), config_map("a"))
    await api.get(api.ns("configmaps", "a"))
    await api.patch(api.ns("configmaps", "a"), {"metadata": {"resourceVersion": "1"}})
    await api.delete(api.ns("configmaps", "a"))
    writes = server.audit.writes(kind="configmaps")
    assert [(entry.call.verb, entry.code) for entry in writes] == [("create", 201), ("patch", 409), ("delete", 200)]
    assert [entry.revision for entry in writes] == sorted(entry.revision for entry in writes)
    assert writes[0].call.user_agent == "e2e"
    assert len(server.audit) == 4


async def test_a_stream_is_cut_in_mid_line(server: EmbeddedServer, api: Subject) -> None:
    """CUT after one event: a whole line, half a line, then a broken connection."""
    server.faults.add(Fault(Action.CUT, verb="watch", kind="configmaps", after_events=1))
    for name in ("a", "b"):
        await api.post(api.ns("configmaps"), config_map(name))
    data = bytearray()

    async def read_all(response: aiohttp.ClientResponse) -> None:
        while chunk := await response.content.readany():
            data.extend(chunk)

    async with aiohttp.ClientSession(server.url) as session:
        response = await session.get(api.ns("configmaps"), params={"watch": "true"})
        with pytest.raises(aiohttp.ClientError):
            await read_all(response)
    whole, half = bytes(data).split(b"\n")
    assert json.loads(whole)["object"]["metadata"]["name"] == "a"
    assert half.startswith(b'{"type":"ADDED"')
    assert not half.endswith(b"}}")


async def test_open_watches_can_be_broken(server: EmbeddedServer, api: Subject) -> None:
    """break_watches ends streams that are open already: properly, or with a 410 in the stream."""
    created = await api.made(api.ns("configmaps"), config_map("a"))
    revision = created["metadata"]["resourceVersion"]
    async with api.watch(api.ns("configmaps"), resourceVersion=revision) as stream:
        assert server.break_watches(Action.CLOSE, "configmaps") == 1
        with pytest.raises(EOFError):
            await stream.next()
    async with api.watch(api.ns("configmaps"), resourceVersion=revision) as stream:
        assert server.break_watches(Action.GONE) == 1
        event_type, status = await stream.next()
        assert (event_type, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
        with pytest.raises(EOFError):
            await stream.next()


async def test_compaction_expires_old_revisions(server: EmbeddedServer, api: Subject) -> None:
    """After compact() a watch from before gets an ERROR event with 410, a continued list 410; a new list works."""
    for name in ("a", "b"):
        await api.post(api.ns("secrets"), {"metadata": {"name": name}})
    first = await api.get(api.ns("secrets"), limit="1")
    await api.post(api.ns("secrets"), {"metadata": {"name": "c"}})
    server.compact("secrets")
    async with api.watch(api.ns("secrets"), resourceVersion=str(first.revision)) as stream:
        event_type, status = await stream.next()
        assert (event_type, status["code"]) == ("ERROR", 410)
        with pytest.raises(EOFError):
            await stream.next()
    token = {"continue": first.body["metadata"]["continue"]}
    answer = await api.get(api.ns("secrets"), limit="1", **token)
    assert (answer.code, answer.reason) == (410, "Expired")
    fresh = await api.get(api.ns("secrets"))
    assert len(fresh.body["items"]) == 3
    async with api.watch(api.ns("secrets"), resourceVersion=str(fresh.revision)) as stream:
        await api.post(api.ns("secrets"), {"metadata": {"name": "d"}})
        assert (await stream.next())[0] == "ADDED"
