"""The pretended kubelet's requests: what an answer means."""

from __future__ import annotations

import aiohttp
import pytest
from aiohttp import web

from scheduler.embedded.kubelet_http import GoneError, KubeletHttp


@pytest.mark.parametrize(
    ("status", "text", "error"),
    [
        (404, "", GoneError),
        (409, "", GoneError),
        (422, 'Pod "a" is invalid: metadata.uid: Invalid value: "1": field is immutable', GoneError),
        (422, 'Pod "a" is invalid: spec: Invalid value', RuntimeError),
    ],
)
async def test_a_pod_that_was_made_again_is_gone(status: int, text: str, error: type[Exception]) -> None:
    """A uid of the Pod before is refused with 409 or, by the real API server, with 422; other refusals are faults."""

    async def refuse(request: web.Request) -> web.Response:
        return web.Response(status=status, text=text)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", refuse)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        base = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession(base) as session:
            with pytest.raises(error):
                await KubeletHttp(session).patch("/api/v1/namespaces/default/pods/a/status", {"metadata": {"uid": "1"}})
    finally:
        await runner.cleanup()
