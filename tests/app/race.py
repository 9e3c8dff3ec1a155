"""Steps of a commit at which tests let something happen, and what may happen."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from scheduler.dra.devices import DeviceKey
from tests.app.objects import Object, claim, pod
from tests.app.world import World

CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"
PODS_PATH = "/api/v1/namespaces/default/pods"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""
Act = Callable[[], Awaitable[None]]

STEPS = ("decided", "writing", "written", "binding")
"""The decision is made; the claim is about to be written; it is written; the Binding is about to be sent."""


def once_before(w: World, step: str, act: Act) -> list[str]:
    """Run ``act`` before ``step`` of the first commit that comes to it; the answer lists what was run."""
    committer = w.service.committer
    owner, method = {
        "decided": (committer, "commit"),
        "writing": (committer.performer.claims, "allocate"),
        "written": (committer.verification.revisions, "wait_revision"),
        "binding": (committer.performer.binder, "bind"),
    }[step]
    original = getattr(owner, method)
    done: list[str] = []

    async def hooked(*arguments: Any, **options: Any) -> Any:
        if not done:
            done.append(step)
            await act()
        return await original(*arguments, **options)

    setattr(owner, method, hooked)
    return done


async def shown(check: Callable[[], bool]) -> None:
    """Wait until the watch has brought something into the state."""
    async with asyncio.timeout(5):
        while not check():  # noqa: ASYNC110 - the state has no event to wait for
            await asyncio.sleep(0.005)


def allocated(name: str, pool: str, device: str, **result: Any) -> Object:
    """A claim that another scheduler has allocated."""
    found = claim(name)
    entry = {"request": "gpu", "driver": "gpu.example.com", "pool": pool, "device": device, **result}
    found["status"] = {"allocation": {"devices": {"results": [entry]}}}
    return found


async def foreign_claim(w: World, name: str, pool: str, device: str, **result: Any) -> None:
    """Another scheduler gives ``device`` away, and our watch shows it."""
    w.server.load([allocated(name, pool, device, **result)])
    key = DeviceKey("gpu.example.com", pool, device)
    await shown(lambda: f"default/{name}" in w.service.state.devices.ledger.holders(key))


async def foreign_pod(w: World, name: str, node_name: str, cpu: str) -> None:
    """Another scheduler's Pod lands on a node, and our watch shows it."""
    w.server.load([pod(name, cpu=cpu, scheduler="other", nodeName=node_name)])
    await shown(lambda: any(found.metadata.name == name for found in w.service.state.pods.values()))


async def create(w: World, *bodies: Object) -> None:
    for body in bodies:
        await w.call("POST", PODS_PATH, body)


async def delete(w: World, path: str) -> None:
    """Delete without grace."""
    await w.call("DELETE", path, {"gracePeriodSeconds": 0})


async def results(w: World) -> dict[str, list[tuple[str, str]]]:
    """Claim name → (pool, device) it was given."""
    found = {}
    for item in (await w.call("GET", CLAIMS_PATH))["items"]:
        allocation = (item.get("status") or {}).get("allocation") or {"devices": {"results": []}}
        found[item["metadata"]["name"]] = [(r["pool"], r["device"]) for r in allocation["devices"]["results"]]
    return found


async def until_bound(w: World, *names: str, timeout_s: float = 10.0) -> dict[str, str]:
    async def bound() -> bool:
        return set(names) <= set(await w.bound())

    await w.until(bound, f"{names} are bound", timeout_s)
    return await w.bound()


async def reasons(w: World, name: str) -> list[str]:
    """Reasons of the events about a Pod, oldest first."""
    await w.service.recorder.drain(5.0)
    listed = await w.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    items = [item for item in listed["items"] if item["regarding"]["name"] == name]
    return [item["reason"] for item in sorted(items, key=lambda item: int(item["metadata"]["resourceVersion"]))]


async def idle(w: World) -> None:
    """No commit is under way, and nothing is promised or assumed any more."""
    service = w.service

    async def quiet() -> bool:
        ledger = service.state.devices.ledger
        flying = [uid for uid in ledger._entries if ledger.in_flight(uid) is not None]
        return not service.loop._commits and not flying and not service.state.assumed_count()

    await w.until(quiet, "nothing is under way")
    service.loop.check()
