"""The event's note: upstream's sentence, then the devices in short; the condition keeps upstream's text alone."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.app.objects import claim, gpu_class, gpu_slice, node, pod
from tests.app.world import World, world

SENTENCE = (
    "0/1 nodes are available: 1 cannot allocate all claims. preemption: 0/1 nodes are available: "
    "1 Preemption is not helpful for scheduling."
)


async def notes(w: World) -> list[Any]:
    listed = await w.call("GET", "/apis/events.k8s.io/v1/events")
    return [event for event in listed["items"] if event["reason"] == "FailedScheduling"]


async def test_the_summary_follows_upstreams_sentence_and_stays_out_of_the_condition() -> None:
    """Two devices, one of them held: a Pod that wants two is told how many are in use, in the event alone."""
    objects = [node("n1"), gpu_class(), gpu_slice("n1", 2), claim("one"), claim("two", count=2)]
    async with world(objects) as w:
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("a", claim="one"))

        async def bound() -> bool:
            return await w.bound() == {"a": "n1"}

        await w.until(bound, "the first Pod is bound")
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("b", claim="two"))

        async def told() -> bool:
            return bool(await notes(w))

        await w.until(told, "the second is told why it waits")
        (event,) = await notes(w)
        assert event["note"] == f"{SENTENCE} Devices: gpu: 2 devices: 1 in use, 1 would do."
        (condition,) = (await w.pod("b"))["status"]["conditions"]
        assert condition["message"] == SENTENCE


async def test_a_summary_that_changes_writes_nothing() -> None:
    """When only the devices' use changes, condition and event stay as they are written first."""
    objects = [node("n1"), gpu_class(), gpu_slice("n1", 2), claim("one"), claim("three", count=3)]
    async with world(objects) as w:
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("b", claim="three"))

        async def told() -> bool:
            return bool(await notes(w))

        await w.until(told, "it is told why it waits")
        before = await w.pod("b")
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("a", claim="one"))

        async def bound() -> bool:
            return await w.bound() == {"a": "n1"}

        await w.until(bound, "the other Pod is bound, and one device less is free")
        queued = next(p for p in w.service.state.pods.values() if p.metadata.name == "b")
        attempts = w.counts.seen["unschedulable"]
        w.service.loop.activate(queued.uid)

        async def tried_again() -> bool:
            return w.counts.seen["unschedulable"] > attempts

        await w.until(tried_again, "it was tried again")
        await asyncio.wait_for(w.service.recorder.drain(5), 6)
        (event,) = await notes(w)
        assert event["note"].endswith("Devices: gpu: 2 devices on a node at most, 3 asked.")
        assert (await w.pod("b"))["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


async def test_a_summary_that_breaks_costs_the_event_its_summary_only() -> None:
    """Whatever goes wrong in the plugin while it is asked for reasons, the Pod is told upstream's sentence."""
    objects = [node("n1"), gpu_class(), gpu_slice("n1", 1), claim("two", count=2)]
    async with world(objects) as w:
        plugin = w.service.profiles["dra-scheduler"].plugins["DynamicResources"]

        def breaks(*_: object) -> None:
            raise RuntimeError("no reasons today")

        plugin.device_reasons = breaks
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("b", claim="two"))

        async def told() -> bool:
            return bool(await notes(w))

        await w.until(told, "it is told why it waits")
        (event,) = await notes(w)
        assert event["note"] == SENTENCE
        assert w.counts.seen["broken"] == 1
        w.counts.seen["broken"] = 0
