"""Two of our schedulers on the same devices, each blind to what the other is about to write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from scheduler.app.service import Service
from scheduler.config import load_config
from scheduler.edge.client import ApiClient
from scheduler.edge.credentials import insecure
from scheduler.embedded import Fault
from scheduler.embedded.faults import Action
from tests.app.objects import gpu_class, gpu_slice, node, pod, template
from tests.app.world import Counts, Lines, World, world

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles: [{{schedulerName: {name}}}]
"""
NODES, DEVICES = 3, 4


@asynccontextmanager
async def second_scheduler(w: World, name: str) -> AsyncIterator[Counts]:
    """Another scheduler on the same server."""
    counts = Counts()
    async with ApiClient(insecure(w.server.url), user_agent=name) as client:
        service = Service(
            load_config(CONFIG.format(name=name)),
            client,
            counts,
            Lines(),
            clock=time.time,
            instance=lambda profile: f"{profile}-test",
            verify_caches=True,
        )
        service.start()
        await service.wait_synced()
        running = asyncio.create_task(service.run())
        try:
            yield counts
        finally:
            service.stop()
            await asyncio.wait_for(running, 15)
            await service.close(drain=False)
    assert counts.seen["broken"] == 0


async def devices_of_bound(w: World) -> list[tuple[str, str]]:
    """Devices of every bound Pod's claim, repeated when given twice."""
    bound = await w.bound()
    claims = (await w.call("GET", "/apis/resource.k8s.io/v1/resourceclaims"))["items"]
    found: list[tuple[str, str]] = []
    for item in claims:
        status = item.get("status") or {}
        if any(consumer["name"] in bound for consumer in status.get("reservedFor") or ()):
            results: list[dict[str, Any]] = status["allocation"]["devices"]["results"]
            found += [(result["pool"], result["device"]) for result in results]
    return found


@pytest.mark.parametrize("delay_s", [0.0, 0.05])
async def test_no_device_twice_between_two_schedulers(delay_s: float) -> None:
    """20 Pods want 12 devices: 12 are bound, each device once; slow claim writes force lost races."""
    names = [f"n{index}" for index in range(NODES)]
    objects = [
        gpu_class(),
        template("one"),
        *(node(name) for name in names),
        *(gpu_slice(name, DEVICES) for name in names),
    ]
    async with world(objects, CONFIG.format(name="first")) as w, second_scheduler(w, "second") as other:
        if delay_s:
            w.server.faults.add(Fault(Action.DELAY, verb="patch", kind="resourceclaims", delay_s=delay_s, times=None))
        for index in range(20):
            body = pod(f"p{index}", template="one", scheduler=("first", "second")[index % 2])
            await w.call("POST", "/api/v1/namespaces/default/pods", body)

        async def full() -> bool:
            return len(await w.bound()) == NODES * DEVICES

        await w.until(full, "every device is in use", 60.0)
        await asyncio.sleep(0.5)
        devices = await devices_of_bound(w)
        assert len(await w.bound()) == NODES * DEVICES
        assert len(devices) == len(set(devices)) == NODES * DEVICES
        if delay_s:
            assert w.counts.seen["lost"] + other.seen["lost"] > 0, "no race: the test proves nothing"
