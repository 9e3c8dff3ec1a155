"""The demo's files, applied to the embedded API server, tell the stories they promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp
import yaml

from scheduler.embedded.kubelet import RUN_SECONDS_ANNOTATION, PretendedKubelet
from tests.app.world import World, world

DEMO = Path(__file__).resolve().parents[2] / "manifests/examples/demo"
NS = "demo"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{NS}/resourceclaims"
PODS = f"/api/v1/namespaces/{NS}/pods"


def demo_objects() -> list[dict[str, Any]]:
    """Every object in the order of the files."""
    return [
        document
        for path in sorted(DEMO.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text())
        if document is not None
    ]


async def devices(running: World) -> dict[str, list[tuple[str, str]]]:
    """Pod name → (pool, device) of all its claims."""
    held: dict[str, list[tuple[str, str]]] = {}
    for claim in (await running.call("GET", CLAIMS))["items"]:
        status = claim.get("status", {})
        results = status.get("allocation", {}).get("devices", {}).get("results", [])
        for consumer in status.get("reservedFor", []):
            held.setdefault(consumer["name"], []).extend((result["pool"], result["device"]) for result in results)
    return held


async def message(running: World, name: str) -> str:
    """The message of the Pod's PodScheduled condition, "" without one."""
    conditions = (await running.pod(name, NS)).get("status", {}).get("conditions", [])
    return next((str(item.get("message", "")) for item in conditions if item["type"] == "PodScheduled"), "")


async def test_every_demo_pod_ends_as_its_comment_says() -> None:
    """Whole GPU, two on one root, shared claim, the waiting Pod after the other has finished, and the one that never
    fits with kube-scheduler's words.
    """
    objects = demo_objects()
    pods = [item for item in objects if item["kind"] == "Pod"]
    roots = {
        (slice_["spec"]["pool"]["name"], device["name"]): device["attributes"]["resource.kubernetes.io/pcieRoot"][
            "string"
        ]
        for slice_ in objects
        if slice_["kind"] == "ResourceSlice"
        for device in slice_["spec"]["devices"]
    }
    async with world([item for item in objects if item["kind"] != "Pod"]) as running:
        url = running.client.access.server
        async with aiohttp.ClientSession(url) as session, PretendedKubelet(session) as kubelet:
            for item in pods:
                if item["metadata"]["name"] == "npu-batch":
                    item["metadata"]["annotations"][RUN_SECONDS_ANNOTATION] = "1.0"
                await running.call("POST", PODS, item)

            async def first_bound() -> bool:
                return len(await running.bound(NS)) == 6

            await running.until(first_bound, "all but the two that must wait are bound")
            assert set(await running.bound(NS)) == {"web", "trainer", "pair", "reader-1", "reader-2", "npu-batch"}
            held = await devices(running)
            assert [pool[:4] for pool, _ in held["trainer"]] == ["h100"]
            assert len(held["pair"]) == 2
            assert len({roots[key] for key in held["pair"]}) == 1
            assert held["reader-1"] == held["reader-2"]
            assert len(held["reader-1"]) == 1

            async def next_bound() -> bool:
                return (await running.bound(NS)).get("npu-next") == "npu-1"

            await running.until(next_bound, "npu-next is bound after npu-batch has finished")

            async def told() -> bool:
                return await message(running, "too-big") != ""

            await running.until(told, "the Pod that never fits is told why")
            text = await message(running, "too-big")
            assert text.startswith("0/5 nodes are available: ")
            assert "5 cannot allocate all claims" in text
            assert kubelet.complaints() == []
