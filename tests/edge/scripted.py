"""A server that answers as scripted: each request is recorded and handed to the script."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import Access

Answer = web.StreamResponse
Script = Callable[[web.Request, bytes], Awaitable[Answer]]


class Recorded:
    """One request as it arrived."""

    def __init__(self, request: web.Request, body: bytes) -> None:
        self.method, self.path, self.query = request.method, request.path, dict(request.query)
        self.headers = dict(request.headers)
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.method} {self.path}"


class ScriptedServer:
    """Plain HTTP on a free loopback port; ``script`` may be replaced at any time."""

    def __init__(self) -> None:
        self.requests: list[Recorded] = []
        self.script: Script = self._nothing
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def _nothing(self, request: web.Request, body: bytes) -> Answer:
        return status(404, "NotFound", "nothing is scripted")

    async def _handle(self, request: web.Request) -> Answer:
        body = await request.read()
        self.requests.append(Recorded(request, body))
        return await self.script(request, body)

    async def start(self, port: int = 0) -> str:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        address = self._runner.addresses[0]
        self.url = f"http://127.0.0.1:{address[1]}"
        return self.url

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def answers(self, *answers: Answer | Script) -> None:
        """Answer with these, one per request; the last one repeats when it is a function, else running out fails."""
        waiting = list(answers)

        async def script(request: web.Request, body: bytes) -> Answer:
            if not waiting:
                return status(500, "InternalError", "the script has ended")
            item = waiting[0] if len(waiting) == 1 and callable(waiting[0]) else waiting.pop(0)
            return await item(request, body) if callable(item) else item

        self.script = script


def reply(data: Any, code: int = 200) -> web.Response:
    """``data`` as JSON."""
    return web.Response(body=json.dumps(data).encode(), status=code, content_type="application/json")


def status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> web.Response:
    """A metav1.Status refusal."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.Response(
        body=json.dumps(body).encode(), status=code, content_type="application/json", headers=headers or {}
    )


async def cut(request: web.Request, body: bytes) -> Answer:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


async def hang(request: web.Request, body: bytes) -> Answer:
    """Never answer (ends when the client goes away)."""
    await asyncio.sleep(30)
    return web.Response()


class Sleeps:
    """A sleep that takes no time and remembers what it was asked for."""

    def __init__(self) -> None:
        self.pauses_s: list[float] = []

    async def __call__(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)
        await asyncio.sleep(0)


def client_for(server: ScriptedServer, sleeps: Sleeps | None = None, **options: Any) -> ApiClient:
    """A client of ``server`` whose pauses take no time."""
    return ApiClient(Access(server.url), sleep=sleeps or Sleeps(), rng=random.Random(1), **options)
