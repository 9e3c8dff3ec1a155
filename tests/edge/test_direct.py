"""Small writes over the library's own connections look to the server, and fail, as its general requests do."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from scheduler.edge.errors import AnswerLost, Conflict, NotLeading
from scheduler.edge.timeslices import Turns

from .scripted import ScriptedServer, Sleeps, client_for, cut, hang, reply, status

NOISE = {"Accept-Encoding"}


async def test_the_server_sees_the_same_request_either_way(server: ScriptedServer, sleeps: Sleeps) -> None:
    server.answers(reply({"a": 1}), reply({"a": 1}))
    async with client_for(server, sleeps) as client:
        for _ in range(2):
            answer = await client.request("PATCH", "/api/v1/pods/ä b", b'{"x": 1}', query={"fieldManager": "m n"})
            assert (answer.status, answer.body) == (200, b'{"a": 1}')
    first, later = server.requests
    assert (first.method, first.path, first.query, first.body) == (later.method, later.path, later.query, later.body)
    assert {k: v for k, v in first.headers.items() if k not in NOISE} == later.headers


async def test_connections_are_used_again(server: ScriptedServer, sleeps: Sleeps) -> None:
    peers: list[object] = []

    async def note(request: web.Request, body: bytes) -> web.StreamResponse:
        peers.append(request.transport.get_extra_info("peername") if request.transport else None)
        return reply({})

    server.answers(note)
    async with client_for(server, sleeps) as client:
        for _ in range(5):
            await client.request("POST", "/x", b"{}")
    assert len(peers) == 5
    assert len(set(peers)) == 1


async def test_answers_that_arrive_together_take_turns(
    server: ScriptedServer, sleeps: Sleeps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals, too: so many writes answered at once do not hold the loop in one piece."""
    taken: list[int] = []

    class Counted(Turns):
        async def take(self) -> None:
            taken.append(1)
            await super().take()

    monkeypatch.setattr("scheduler.edge.timeslices.Turns", Counted)
    server.answers(reply({}), reply({}), status(409, "Conflict", "changed"))
    async with client_for(server, sleeps) as client:
        await client.request("POST", "/x", b"{}")
        await client.request("POST", "/x", b"{}")
        with pytest.raises(Conflict, match="changed"):
            await client.request("POST", "/x", b"{}")
    assert len(taken) == 2  # the first one went the library's way


async def test_a_refusal_keeps_the_connection_and_its_answer(server: ScriptedServer, sleeps: Sleeps) -> None:
    server.answers(reply({}), status(409, "Conflict", "changed"), reply({"b": 2}))
    async with client_for(server, sleeps) as client:
        await client.request("POST", "/x", b"{}")
        with pytest.raises(Conflict, match="changed"):
            await client.request("POST", "/x", b"{}")
        assert (await client.request("POST", "/x", b"{}")).body == b'{"b": 2}'


async def half(request: web.Request, body: bytes) -> web.StreamResponse:
    """The head of an answer and a part of its body."""
    answer = web.StreamResponse(headers={"Content-Length": "100"})
    await answer.prepare(request)
    await answer.write(b"{")
    await asyncio.sleep(30)
    return answer


@pytest.mark.parametrize("script", [cut, hang, half])
async def test_after_a_lost_answer_the_next_request_has_its_own(
    server: ScriptedServer, sleeps: Sleeps, script: object
) -> None:
    """An answer that comes too late, or never, is not taken for that of the next request."""
    server.answers(reply({}), script, reply({"c": 3}))  # type: ignore[arg-type]  # both are scripts
    async with client_for(server, sleeps) as client:
        await client.request("POST", "/x", b"{}")
        with pytest.raises(AnswerLost):
            await client.request("POST", "/x", b"{}", timeout_s=0.05)
        assert (await client.request("POST", "/x", b"{}")).body == b'{"c": 3}'


async def test_a_caller_that_gives_up_leaves_no_answer_behind(server: ScriptedServer, sleeps: Sleeps) -> None:
    server.answers(reply({}), hang, reply({"d": 4}))
    async with client_for(server, sleeps) as client:
        await client.request("POST", "/x", b"{}")
        task = asyncio.create_task(client.request("POST", "/x", b"{}"))
        while len(server.requests) < 2:  # noqa: ASYNC110 - the server has no event to wait for
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert (await client.request("POST", "/x", b"{}")).body == b'{"d": 4}'


async def test_a_write_that_waited_for_a_connection_asks_the_gate_again(server: ScriptedServer, sleeps: Sleeps) -> None:
    class Gate:
        open = True

        def check(self) -> None:
            if not self.open:
                raise NotLeading("the lease is lost")

    arrived, go_on = asyncio.Event(), asyncio.Event()

    async def held(request: web.Request, body: bytes) -> web.StreamResponse:
        arrived.set()
        await go_on.wait()
        return reply({})

    server.answers(reply({}), held, reply({}))
    gate = Gate()
    async with client_for(server, sleeps, gate=gate, connections_max=1) as client:
        await client.request("POST", "/warm", b"{}")
        first = asyncio.create_task(client.request("POST", "/first", b"{}"))
        await arrived.wait()
        second = asyncio.create_task(client.request("POST", "/second", b"{}"))
        await asyncio.sleep(0)
        gate.open = False
        go_on.set()
        assert (await first).status == 200
        with pytest.raises(NotLeading):
            await second
    assert [seen.path for seen in server.requests] == ["/warm", "/first"]


async def test_a_line_break_in_a_header_is_not_sent(server: ScriptedServer, sleeps: Sleeps) -> None:
    server.answers(reply({}))
    async with client_for(server, sleeps) as client:
        await client.request("POST", "/x", b"{}")
        with pytest.raises(Exception, match="line break"):
            await client.request("POST", "/x", b"{}", "application/json\r\nX-Evil: 1")
    assert len(server.requests) == 1
