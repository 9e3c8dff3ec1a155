"""The client: every failure is ours, retries follow the policy, writes ask the gate."""

from __future__ import annotations

import asyncio
import traceback

import aiohttp
import pytest
from aiohttp import web

from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access
from scheduler.edge.errors import (
    AnswerLost,
    ApiError,
    ApiUnavailable,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    NotLeading,
    ServerError,
    TooManyRequests,
)
from scheduler.errors import ClusterError

from .scripted import ScriptedServer, Sleeps, client_for, cut, hang, reply, status


async def test_answers_and_headers(server: ScriptedServer, client: ApiClient) -> None:
    """A request carries our name, the query is encoded, and the body comes back as bytes."""
    server.answers(reply({"a": 1}))
    answer = await client.request("GET", "/api/v1/pods", query={"fieldSelector": "status.phase!=Failed"})
    assert (answer.status, answer.body) == (200, b'{"a": 1}')
    seen = server.requests[0]
    assert seen.query == {"fieldSelector": "status.phase!=Failed"}
    assert seen.headers["User-Agent"].startswith("dra-scheduler/")


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", ApiError),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (410, "Expired", Gone),
        (422, "Invalid", Invalid),
        (429, "TooManyRequests", TooManyRequests),
        (500, "InternalError", ServerError),
        (504, "Timeout", ServerError),
    ],
)
async def test_refusals_are_typed(
    server: ScriptedServer, client: ApiClient, code: int, reason: str, kind: type[ApiError]
) -> None:
    """Each refusal becomes its class, with the server's reason and sentence."""
    server.answers(status(code, reason, "because"))
    with pytest.raises(kind) as caught:
        await client.request("POST", "/x", b"{}")
    assert (caught.value.status, caught.value.reason, str(caught.value)) == (code, reason, "because")


async def test_refusal_that_is_no_status(server: ScriptedServer, client: ApiClient) -> None:
    """A proxy's HTML page as error body is no second failure."""
    server.answers(web.Response(status=502, text="<html>bad gateway"))
    with pytest.raises(ServerError, match="bad gateway"):
        await client.request("GET", "/x")


async def test_connection_refused_is_certainly_not_sent(server: ScriptedServer, sleeps: Sleeps) -> None:
    """A refused connection is ApiUnavailable, repeated 4 times in all with 10 ms, 50 ms, 250 ms between."""
    await server.stop()
    async with client_for(server, sleeps) as client:
        with pytest.raises(ApiUnavailable):
            await client.call("POST", "/x", b"{}")
    assert len(sleeps.pauses_s) == 3
    for pause_s, expected_s in zip(sleeps.pauses_s, (0.01, 0.05, 0.25), strict=True):
        assert expected_s <= pause_s <= expected_s * 1.1


async def test_lost_answers_are_unknown(server: ScriptedServer, client: ApiClient) -> None:
    """A connection that breaks after sending, a hanging answer and a cut body are AnswerLost, not repeated."""

    async def half(request: web.Request, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Length": "100"})
        await answer.prepare(request)
        await answer.write(b"{")
        assert request.transport is not None
        request.transport.abort()
        return answer

    for script in (cut, half):
        server.answers(script)
        with pytest.raises(AnswerLost):
            await client.call("PATCH", "/x", b"{}")
    server.answers(hang)
    with pytest.raises(AnswerLost):
        await client.call("PATCH", "/x", b"{}", timeout_s=0.05)
    assert [seen.method for seen in server.requests] == ["PATCH"] * 3


async def test_reads_are_repeated_after_a_lost_answer(server: ScriptedServer, client: ApiClient) -> None:
    """A GET has no effect, so it is simply asked again."""
    server.answers(cut, cut, cut, reply({}))
    # The transport repeats an idempotent request once by itself when a kept connection turns out dead.
    assert (await client.call("GET", "/x")).status == 200


async def test_never_an_exception_of_the_http_library(server: ScriptedServer, client: ApiClient) -> None:
    """No aiohttp class is among our errors' bases, whatever happens."""
    server.answers(cut)
    caught: list[BaseException] = []
    for call in (
        client.request("POST", "/x", b"{}"),
        client_for(server).request("POST", "/x", b"{}", timeout_s=1e-6),
        ApiClient(Access("http://127.0.0.1:1")).request("GET", "/x"),
        ApiClient(Access("http://host.invalid.")).request("GET", "/x"),
        ApiClient(Access("nonsense")).request("GET", "/x"),
    ):
        try:
            await call
        except BaseException as error:  # the test is about what comes out, whatever it is
            caught.append(error)
    assert len(caught) == 5
    for error in caught:
        assert isinstance(error, ClusterError), repr(error)
        assert not isinstance(error, aiohttp.ClientError | OSError | asyncio.TimeoutError)


async def test_server_errors_are_repeated(server: ScriptedServer, client: ApiClient) -> None:
    """500 and 503 are tried 4 times in all; the fourth answer counts."""
    server.answers(status(500, "InternalError", "a"), status(503, "ServiceUnavailable", "b"), reply({}, 201))
    assert (await client.call("POST", "/x", b"{}")).status == 201
    server.answers(*[status(500, "InternalError", "no") for _ in range(4)], reply({}))
    with pytest.raises(ServerError, match="no"):
        await client.call("POST", "/x", b"{}")


async def test_overload_waits_as_told(server: ScriptedServer, client: ApiClient, sleeps: Sleeps) -> None:
    """429 honours Retry-After."""
    server.answers(status(429, "TooManyRequests", "slow down", {"Retry-After": "7"}), reply({}))
    await client.call("POST", "/x", b"{}")
    assert 7.0 <= sleeps.pauses_s[0] <= 7.7


async def test_gate_is_asked_before_every_try_of_a_write(server: ScriptedServer, sleeps: Sleeps) -> None:
    """Once the gate closes, not even the retry of a write that began before is sent; reads pass."""

    class Gate:
        def check(self) -> None:
            if server.requests:
                raise NotLeading("the lease is lost")

    server.answers(status(500, "InternalError", "again"), reply({}))
    async with client_for(server, sleeps, gate=Gate()) as client:
        with pytest.raises(NotLeading):
            await client.call("POST", "/x", b"{}")
        assert len(server.requests) == 1
        assert (await client.call("GET", "/x")).status == 200


async def test_write_that_waited_for_a_connection_asks_again(server: ScriptedServer, sleeps: Sleeps) -> None:
    """All connections busy, the lease ends meanwhile: the write is not sent once a connection is free."""

    class Gate:
        open = True

        def check(self) -> None:
            if not self.open:
                raise NotLeading("the lease is lost")

    async def slow(request: web.Request, body: bytes) -> web.StreamResponse:
        await asyncio.sleep(0.1)
        return reply({})

    server.answers(slow)
    gate = Gate()
    async with client_for(server, sleeps, gate=gate, connections_max=1) as client:
        first = asyncio.create_task(client.request("POST", "/first", b"{}"))
        await asyncio.sleep(0.03)
        second = asyncio.create_task(client.request("POST", "/second", b"{}"))
        await asyncio.sleep(0.03)
        gate.open = False
        assert (await first).status == 200
        with pytest.raises(NotLeading):
            await second
        assert (await client.request("POST", "/review", b"{}", gated=False)).status == 200
    assert [seen.path for seen in server.requests] == ["/first", "/review"]


async def test_missing_rules_are_named_in_plain_words(server: ScriptedServer, client: ApiClient) -> None:
    """403, and the 422 of the synthetic binding permission, end with the rule to add."""
    server.answers(
        status(403, "Forbidden", 'pods is forbidden: User "u" cannot list resource "pods" in API group ""'),
        status(
            422,
            "Invalid",
            "status: Forbidden: changing status.allocation or status.reservedFor requires "
            'resource="resourceclaims/binding", verb="patch" permission: no',
        ),
    )
    with pytest.raises(Forbidden) as plain:
        await client.request("GET", "/api/v1/pods")
    assert plain.value.rule == 'apiGroups [""], resources ["pods"], verbs ["list"]'
    with pytest.raises(Forbidden) as synthetic:
        await client.request("PATCH", "/x", b"{}")
    assert synthetic.value.status == 422
    assert "ClusterRoleBinding" in str(synthetic.value)
    assert 'resources ["resourceclaims/binding"]' in str(synthetic.value)


async def test_a_closed_client_answers_with_our_error(client: ApiClient) -> None:
    """After close there is no request and no foreign exception."""
    await client.close()
    with pytest.raises(ApiUnavailable):
        await client.request("GET", "/x")


async def test_stream_chunks_silence_and_refusal(server: ScriptedServer, client: ApiClient) -> None:
    """Chunks; silence beyond the limit is AnswerLost; a refusal is typed; both are counted."""

    async def one_line(request: web.Request, body: bytes) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"one\n")
        await asyncio.sleep(5)
        return answer

    server.answers(one_line, status(410, "Expired", "too old"))
    got: list[bytes] = []
    client._observe = lambda method, code, duration_s: seen.append((method, code))
    seen: list[tuple[str, int]] = []

    async def read() -> None:
        async with client.stream("/x", {}, silence_timeout_s=0.1) as chunks:
            async for chunk in chunks:
                got.append(chunk)  # noqa: PERF401 (what arrived before the failure counts)

    with pytest.raises(AnswerLost):
        await read()
    assert got == [b"one\n"]
    with pytest.raises(Gone):
        await read()
    assert seen == [("GET", 200), ("GET", 410)]


@pytest.mark.parametrize(
    ("token", "looked_at"),
    [
        ("s3cr3t\nmore", True),
        ("s3cr3t\x00", True),
        ("s3cr3t\r", True),
        ("s3cr3t\u20ac", True),
        ("s3cr3t\nmore", False),
    ],
)
async def test_a_header_that_cannot_be_sent_is_our_error_and_not_shown(
    server: ScriptedServer, client: ApiClient, token: str, looked_at: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reads, writes and watches alike; neither the error nor its traceback holds the token.

    The credentials refuse it; so does the library, in its own words, what has a line break.
    """
    if looked_at:
        client.access.set_authorization(f"Bearer {token}")
    else:
        monkeypatch.setattr(client.access, "authorization", lambda: f"Bearer {token}")
    errors: list[ClusterError] = []
    for body in (None, b"{}"):
        with pytest.raises(ClusterError) as caught:
            await client.request("GET" if body is None else "PATCH", "/x", body)
        errors.append(caught.value)
    with pytest.raises(ClusterError) as caught:
        async with client.stream("/x", {}, silence_timeout_s=1.0):
            pass
    errors.append(caught.value)
    assert not [one for one in errors if "s3cr3t" in "".join(traceback.format_exception(one))]
    assert server.requests == []
