"""An HTTP extender with a policy one can read off: for kube-scheduler, for us and for tests."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Object = dict[str, Any]
Bind = Callable[[Object], Awaitable[str]]


@dataclass
class PolicyExtender:
    """What it answers. ``refused``/``impossible``: node → text; ``scores``: node → 0 to 10; victims pass on one node.

    ``errors``: verb → text in the answer; ``codes``: verb → HTTP code. ``bind`` makes the Binding and answers with an
    error text, "" for none. ``asked`` keeps (verb, request) in order.
    """

    refused: Mapping[str, str] = field(default_factory=dict)
    impossible: Mapping[str, str] = field(default_factory=dict)
    scores: Mapping[str, int] = field(default_factory=dict)
    only_victims_on: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    codes: Mapping[str, int] = field(default_factory=dict)
    bind: Bind | None = None
    asked: list[tuple[str, Object]] = field(default_factory=list)

    def verbs(self) -> list[str]:
        """The verbs asked for so far, in order."""
        return [verb for verb, _ in self.asked]

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one POST."""
        verb = request.path.strip("/").split("/")[-1]
        body: Object = await request.json()
        self.asked.append((verb, body))
        if verb in self.codes:
            return web.Response(status=self.codes[verb])
        if verb == "bind":
            text = self.errors.get("bind", "")
            if not text and self.bind is not None:
                text = await self.bind(body)
            return web.json_response({"Error": text})
        answers = {"filter": self._filter, "prioritize": self._prioritize, "preempt": self._preempt}
        return web.json_response(answers[verb](body))

    def _filter(self, body: Object) -> Object:
        names = body["NodeNames"]
        items = None if body["Nodes"] is None else body["Nodes"]["items"]
        if names is None:
            names = [item["metadata"]["name"] for item in items or ()]
        kept = [name for name in names if name not in self.refused and name not in self.impossible]
        answer: Object = {
            "FailedNodes": {name: text for name, text in self.refused.items() if name in names},
            "FailedAndUnresolvableNodes": {name: text for name, text in self.impossible.items() if name in names},
            "Error": self.errors.get("filter", ""),
        }
        if items is None:
            return answer | {"NodeNames": kept}
        return answer | {"Nodes": {"items": [item for item in items if item["metadata"]["name"] in kept]}}

    def _prioritize(self, body: Object) -> list[Object]:
        names = body["NodeNames"] or [item["metadata"]["name"] for item in (body["Nodes"] or {}).get("items", ())]
        return [{"Host": name, "Score": self.scores.get(name, 0)} for name in names]

    def _preempt(self, body: Object) -> Object:
        meta = body["NodeNameToMetaVictims"]
        if meta is None:
            meta = {
                node: {
                    "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims["Pods"]],
                    "NumPDBViolations": victims["NumPDBViolations"],
                }
                for node, victims in body["NodeNameToVictims"].items()
            }
        kept = {node: victims for node, victims in meta.items() if node == self.only_victims_on}
        return {"NodeNameToMetaVictims": kept}


@asynccontextmanager
async def serving(extender: PolicyExtender, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Serve on a free port of this machine, over HTTPS with ``tls``; gives the URL prefix."""
    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{tail:.*}", extender.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    try:
        yield f"{'http' if tls is None else 'https'}://127.0.0.1:{runner.addresses[0][1]}/scheduler"
    finally:
        await runner.cleanup()
