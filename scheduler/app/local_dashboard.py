"""A running scheduler's dashboard on this machine: the pages are served here, the questions go on with one's own token.

Whoever can open the address sees what the token's owner sees, so it holds a secret that other users of the machine do
not know; and only names of loopback are served.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from aiohttp import web

from scheduler.app.remote import TIMEOUT_S, Remote, reached
from scheduler.edge.client import ApiClient
from scheduler.edge.dashboard import PATH, Dashboard, read_assets
from scheduler.edge.errors import ApiError
from scheduler.edge.local_server import LocalServer
from scheduler.edge.questions import PREFIX
from scheduler.errors import ClusterError


@asynccontextmanager
async def local_dashboard(remote: Remote, port: int = 0) -> AsyncIterator[str]:
    """The address, while the block lasts. Raises like ``remote.reached`` and OSError for a port that is taken.

    The scheduler is asked once before anything listens, so that a wrong token or address is told at once.
    """
    async with reached(remote) as access, ApiClient(access, user_agent="dra-scheduler dashboard") as client:
        await client.call("GET", f"{PREFIX}/me", timeout_s=TIMEOUT_S)
        secret = secrets.token_urlsafe(24)

        async def passed_on(request: web.Request) -> web.Response:
            return await _passed_on(client, request)

        def mount(app: web.Application) -> None:
            inner = web.Application()
            Dashboard(read_assets(), open_to_all=True).mount(inner)
            inner.router.add_get(f"{PREFIX}/{{question:.+}}", passed_on)
            app.add_subapp(f"/{secret}", inner)

        server = LocalServer((mount,), port)
        url = await server.start()
        try:
            yield f"{url}/{secret}{PATH}"
        finally:
            await server.stop()


async def _passed_on(client: ApiClient, request: web.Request) -> web.Response:
    """One question with the token added; refusals as the scheduler worded them."""
    path = f"{PREFIX}/{request.match_info['question']}"
    try:
        answer = await client.request("GET", path, query=dict(request.query), timeout_s=TIMEOUT_S)
        code, body = answer.status, answer.body
    except ApiError as error:
        # 401 would make the page ask for a token, which it has no use for.
        code = 403 if error.status == 401 else error.status
        body = msgspec.json.encode({"kind": "Status", "code": code, "message": error.message or str(error)})
    except ClusterError as error:
        code, body = 503, msgspec.json.encode({"kind": "Status", "code": 503, "message": str(error)})
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    return web.Response(status=code, body=body, content_type="application/json", headers=headers)
