"""The demo's world: API server in memory, scheduler and pretended kubelet in one process, and what they show."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from scheduler.api.versions import ResourceKinds
from scheduler.app.answers import Answers
from scheduler.app.meters import ServiceMeter
from scheduler.app.service import Service
from scheduler.app.snapshot import from_items, list_items
from scheduler.config import load_config
from scheduler.dra.features import Features
from scheduler.edge.callers import EverybodyMay
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.edge.dashboard import Dashboard, read_assets
from scheduler.edge.local_server import LocalServer
from scheduler.edge.logging import get_logger
from scheduler.edge.metrics import Metrics
from scheduler.edge.questions import Questions
from scheduler.embedded.kubelet import PretendedKubelet
from scheduler.embedded.server import EmbeddedServer
from scheduler.explain.facts import Explanation
from scheduler.explain.hints import find_hints
from scheduler.explain.pods import explain_pod

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One Pod: what it uses and where it stands. ``reason`` is the PodScheduled condition's text while it waits."""

    pod: str
    phase: str
    node: str
    claims: tuple[str, ...]
    devices: tuple[str, ...]
    reason: str


class DemoWorld:
    """A running world. ``rows`` reads everything back from the API server, as kubectl would.

    ``dashboard``: the URL at which the scheduler shows itself.
    """

    def __init__(self, server: EmbeddedServer, service: Service, client: ApiClient, dashboard: str) -> None:
        self.server, self.service, self._client, self.dashboard = server, service, client, dashboard

    async def apply(self, objects: Iterable[Object]) -> None:
        """Create Pods one after the other, as ``kubectl apply`` does."""
        for item in objects:
            path = f"/api/v1/namespaces/{item['metadata']['namespace']}/pods"
            await self._client.call("POST", path, msgspec.json.encode(item))

    async def rows(self, namespace: str) -> list[Row]:
        """Every Pod of the namespace, by name."""
        pods = await self._list(f"/api/v1/namespaces/{namespace}/pods")
        claims = await self._list(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims")
        by_name = {claim["metadata"]["name"]: claim for claim in claims}
        return [_row(pod, by_name) for pod in pods]

    async def _list(self, path: str) -> list[Object]:
        answer = await self._client.call("GET", path)
        items: list[Object] = msgspec.json.decode(answer.body)["items"]
        return items

    async def why(self, namespace: str, name: str) -> Explanation:
        """Why a Pod waits, asked of a snapshot as ``dra-scheduler explain`` asks, hints included."""
        items, _ = await list_items(self._client, ResourceKinds(), Features())
        snapshot = from_items(items, load_config(""), {}, time.time(), live=True)
        pod = snapshot.pod(namespace, name)
        profile, _ = snapshot.profile_for(pod)
        found = explain_pod(profile, pod, snapshot.state, snapshot.now)
        if found.phase == "waiting":
            find_hints(profile, pod, snapshot.state, snapshot.now, found)
        return found


def _row(pod: Object, claims: dict[str, Object]) -> Row:
    status = pod.get("status", {})
    generated = {s["name"]: s.get("resourceClaimName") for s in status.get("resourceClaimStatuses") or []}
    names = [e.get("resourceClaimName") or generated.get(e["name"]) for e in pod["spec"].get("resourceClaims") or []]
    devices = [
        f"{result['pool']}/{result['device']}"
        for name in names
        if name in claims
        for result in (claims[name].get("status", {}).get("allocation") or {}).get("devices", {}).get("results", [])
    ]
    condition: Object = next((c for c in status.get("conditions") or [] if c["type"] == "PodScheduled"), {})
    return Row(
        pod["metadata"]["name"],
        status.get("phase", ""),
        pod["spec"].get("nodeName", ""),
        tuple(name for name in names if name),
        tuple(devices),
        condition.get("message", "") if condition.get("status") == "False" else "",
    )


@asynccontextmanager
async def demo_world(
    objects: list[Object], kubeconfig: Path | None = None, dashboard_port: int = 0
) -> AsyncIterator[DemoWorld]:
    """Start everything on loopback, load ``objects``, give it to the caller, stop everything.

    ``dashboard_port`` 0: a free one, as for the rest. Raises OSError when it is taken.
    """
    server = EmbeddedServer()
    url = await server.start()
    try:
        server.load(objects)
        if kubeconfig is not None:
            server.write_kubeconfig(kubeconfig)
        async with (
            ApiClient(insecure(url)) as client,
            ApiClient(insecure(url), user_agent="demo") as reader,
            aiohttp.ClientSession(url) as session,
            PretendedKubelet(session),
        ):
            service = Service(
                load_config(""),
                client,
                ServiceMeter(Metrics()),
                get_logger("demo"),
                clock=time.time,
                instance=lambda name: f"{name}-demo",
                verify_caches=True,
            )
            service.start()
            await service.wait_synced()
            questions = Questions(Answers(service, verify=True), EverybodyMay())
            pages = LocalServer((questions.mount, Dashboard(read_assets(), open_to_all=True).mount), dashboard_port)
            running = asyncio.create_task(service.run())
            try:
                yield DemoWorld(server, service, reader, f"{await pages.start()}/dashboard/")
            finally:
                await pages.stop()
                service.stop()
                await running
                await service.close(drain=False)
    finally:
        await server.stop()
