"""What the suites of DRA features share: a cluster with one driver, a scheduler and a kubelet that judges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, EVENTS, PODS, Api, Object
from e2e.driver import Pool, PretendedDriver, add_node
from e2e.objects import claim_template, device_class, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

CLASS = "gpu.example.com"
NS = "default"
BINDING_TIMEOUT_S = 6


class Cluster:
    """The API, one driver, and a scheduler that runs; a kubelet judges what was bound."""

    def __init__(self, api: Api, kubelet: PretendedKubelet) -> None:
        self.api, self.kubelet = api, kubelet
        self.driver = PretendedDriver(api, CLASS)

    async def node(self, name: str, *devices: Object, extended: dict[str, str] | None = None, **spec: Any) -> None:
        """A node with these devices (none: no pool); spec: further fields of its slice."""
        await add_node(self.api, name, extended=extended)
        if devices:
            await self.driver.publish(Pool(name, list(devices), {"nodeName": name}, extra=spec))

    async def pod(self, name: str, *requests: Object, **fields: Any) -> None:
        """A Pod with a claim of these requests, made from a template of its name."""
        if requests:
            constraints = fields.pop("constraints", ())
            await self.api.create(CLAIM_TEMPLATES, claim_template(name, *requests, constraints=constraints), NS)
            fields["templates"] = {"gpu": name}
        await self.api.create(PODS, pod(name, **fields), NS)

    async def bound(self, name: str, timeout_s: float = 20.0) -> str:
        """Wait until the kubelet runs the Pod; its node."""

        async def runs() -> bool:
            return f"{NS}/{name}" in self.kubelet.running

        await eventually(runs, f"pod {name} runs", timeout_s=timeout_s)
        node_name: str = (await self.api.get(PODS, name, NS))["spec"]["nodeName"]
        return node_name

    async def refused(self, name: str, text: str, timeout_s: float = 20.0) -> None:
        """Wait until the Pod's condition says this."""

        async def told() -> bool:
            return text in condition(await self.api.get(PODS, name, NS)).get("message", "")

        await eventually(told, f"pod {name} is told {text!r}", timeout_s=timeout_s)

    async def told(self, name: str, note: str, timeout_s: float = 20.0) -> None:
        """Wait for an Event of the Pod that says this."""

        async def seen() -> bool:
            events = await self.api.list(EVENTS, NS)
            return any(note in event.get("note", "") and event["regarding"]["name"] == name for event in events)

        await eventually(seen, f"an Event of pod {name} says {note!r}", timeout_s=timeout_s)

    async def claim_of(self, name: str) -> Object:
        """The claim that is reserved for the Pod."""
        for item in await self.api.list(CLAIMS, NS):
            if any(consumer["name"] == name for consumer in item.get("status", {}).get("reservedFor") or []):
                return item
        raise AssertionError(f"no claim is reserved for {name}")

    async def results(self, name: str) -> list[Object]:
        """The results of the Pod's claim."""
        found: list[Object] = (await self.claim_of(name))["status"]["allocation"]["devices"]["results"]
        return found

    async def delete(self, name: str) -> None:
        """The Pod goes."""
        await self.api.delete(PODS, name, NS)


@asynccontextmanager
async def device_cluster(
    api: Api, folder: Path, kubeconfig: Path, arguments: Sequence[str] = ()
) -> AsyncIterator[Cluster]:
    """A scheduler with a short binding time-out, a kubelet, and one class; no complaint of the kubelet passes."""
    plugin = {"name": "DynamicResources", "args": {"bindingTimeout": f"{BINDING_TIMEOUT_S}s"}}
    config = {"profiles": [{"schedulerName": "dra-scheduler", "pluginConfig": [plugin]}]}
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    async with PretendedKubelet(api.session) as kubelet:
        scheduler = SchedulerProcess(folder, kubeconfig, config=config, arguments=arguments)
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            yield Cluster(api, kubelet)
            assert kubelet.complaints() == []
            assert scheduler.errors() == []
        finally:
            await asyncio.to_thread(scheduler.stop)
