"""A running scheduler that answers questions over HTTP, and callers with different rights."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from scheduler.app.dashboard import dashboard_mounts
from scheduler.edge.local_server import LocalServer
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod
from tests.app.world import World, world

Object = dict[str, Any]
ADMIN, MINE, NOBODY = "admin-token", "mine-token", "nobody-token"


def rights(spec: Object) -> bool:
    """admin may everything; mine what is in namespace default, as a RoleBinding would give it."""
    if spec["user"] == "admin":
        return True
    return bool(spec["user"] == "mine" and spec["resourceAttributes"].get("namespace") == "default")


class Asker:
    """Asks over HTTP."""

    def __init__(self, world: World, url: str, session: aiohttp.ClientSession) -> None:
        self.world, self.url, self.session = world, url, session

    async def get(self, path: str, token: str = ADMIN) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self.session.get(f"{self.url}/questions/v1/{path}", headers=headers) as answer:
            return answer.status, await answer.json()

    async def answer(self, path: str, token: str = ADMIN) -> Any:
        status, body = await self.get(path, token)
        assert status == 200, body
        return body["answer"]


def in_space(space: str, item: Object) -> Object:
    item["metadata"]["namespace"] = space
    return item


@asynccontextmanager
async def asker(extra: list[Object] | None = None, audit_file: str = "") -> AsyncIterator[Asker]:
    """Two nodes with two devices each; team/their-pod has one of them, default/big waits for three."""
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}},
        node("n1"),
        node("n2"),
        gpu_class(),
        gpu_slice("n1", 2),
        gpu_slice("n2", 2),
        in_space("team", claim("their-claim")),
        in_space("team", pod("their-pod", claim="their-claim")),
        claim("much", count=3),
        pod("big", claim="much"),
        *(extra or []),
    ]
    async with world(objects) as running, aiohttp.ClientSession() as session:
        running.server.reviewer.authenticate = {ADMIN: "admin", MINE: "mine", NOBODY: "nobody"}.get
        running.server.reviewer.authorize = rights
        server = LocalServer(dashboard_mounts(running.service, running.client, verify=True, audit_file=audit_file))
        found = Asker(running, await server.start(), session)
        try:

            async def settled() -> bool:
                told = (await running.pod("big")).get("status", {}).get("conditions")
                return bool(told) and "their-pod" in await running.bound("team")

            await running.until(settled, "one Pod is bound, the other is told")
            yield found
        finally:
            await server.stop()
