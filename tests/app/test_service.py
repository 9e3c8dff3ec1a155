"""The whole way of a Pod on the embedded API server."""

from __future__ import annotations

import pytest

from tests.app.objects import gpu_class, gpu_slice, node, pod, template
from tests.app.world import World, world


async def test_a_plain_pod_is_bound() -> None:
    """A Pod of ours gets the only node."""
    async with world([node("n1")]) as w:
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("a"))

        async def bound() -> bool:
            return await w.bound() == {"a": "n1"}

        await w.until(bound, "the Pod is bound")


async def _claims(w: World) -> list[dict[str, object]]:
    listed = await w.call("GET", "/apis/resource.k8s.io/v1/resourceclaims")
    items: list[dict[str, object]] = listed["items"]
    return items


async def test_claims_are_written_verified_and_reserved() -> None:
    """Four Pods with a claim template on two nodes with two devices each: four devices, each given once."""
    objects = [node("n1"), node("n2"), gpu_class(), gpu_slice("n1", 2), gpu_slice("n2", 2), template("one")]
    async with world(objects) as w:
        for index in range(5):
            await w.call("POST", "/api/v1/namespaces/default/pods", pod(f"p{index}", template="one"))

        async def four() -> bool:
            return len(await w.bound()) == 4

        await w.until(four, "four Pods are bound")

        async def told() -> bool:
            waiting = {f"p{i}" for i in range(5)} - set(await w.bound())
            found = await w.pod(waiting.pop())
            messages = [c.get("message", "") for c in found["status"].get("conditions", [])]
            text = "0/2 nodes are available: 2 cannot allocate all claims. preemption: 0/2 nodes are available: "
            return f"{text}2 Preemption is not helpful for scheduling." in messages

        await w.until(told, "the fifth carries upstream's text")
        devices = [
            (r["pool"], r["device"])
            for claim in await _claims(w)
            for r in (claim.get("status") or {}).get("allocation", {}).get("devices", {}).get("results", [])  # type: ignore[attr-defined]  # JSON
        ]
        assert len(devices) == len(set(devices)) == 4


async def test_the_parser_is_built_before_readiness_where_there_are_device_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first claim does not wait for it; where there are no classes nobody pays for it."""
    built: list[None] = []
    monkeypatch.setattr("scheduler.app.service.build_parser", lambda: built.append(None))
    async with world([node("n1")]):
        assert not built
    async with world([node("n1"), gpu_class()]):
        assert len(built) == 1
