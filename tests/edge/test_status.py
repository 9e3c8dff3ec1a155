"""The PodScheduled condition: written when it changes, newest wish first, never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import POD
from scheduler.edge.client import ApiClient
from scheduler.edge.status import StatusWriter, pod_scheduled
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

from .objects import load_pod, read_pod
from .scripted import Sleeps


class Now:
    """The time of the next transition."""

    def __init__(self) -> None:
        self.text = "2026-11-29T10:00:00Z"

    def __call__(self) -> str:
        return self.text


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.fixture
async def writer(api: ApiClient, now: Now, sleeps: Sleeps) -> AsyncIterator[StatusWriter]:
    made = StatusWriter(api, now=now, sleep=sleeps)
    task = asyncio.create_task(made.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def patches(server: EmbeddedServer) -> int:
    return sum(1 for entry in server.audit.writes(kind="pods") if entry.call.subresource == "status")


async def test_condition_and_nomination(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter, now: Now
) -> None:
    """The condition carries reason, full message and generation; the transition time moves only with the status."""
    writer.set_condition(load_pod(embedded), "Unschedulable", "x" * 3000, nominated="n1")
    assert await writer.drain(5)
    pod = await read_pod(api)
    condition = pod_scheduled(pod)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == ("False", "Unschedulable", "x" * 3000)
    assert condition.observedGeneration == pod.metadata.generation
    assert condition.lastTransitionTime == now.text
    assert pod.status.nominatedNodeName == "n1"
    now.text = "2026-11-29T11:00:00Z"
    writer.set_condition(pod, "SchedulerError", "other", nominated="")
    assert await writer.drain(5)
    pod = await read_pod(api)
    condition = pod_scheduled(pod)
    assert condition is not None
    assert (condition.reason, condition.message) == ("SchedulerError", "other")
    assert condition.lastTransitionTime == "2026-11-29T10:00:00Z"
    assert pod.status.nominatedNodeName == ""


async def test_unchanged_condition_is_not_written(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """Neither when the Pod says so already, nor while the watch has not yet brought our own write back."""
    old = load_pod(embedded)
    for _ in range(3):
        writer.set_condition(old, "Unschedulable", "same")
        await writer.drain(5)
    writer.set_condition(await read_pod(api), "Unschedulable", "same", nominated="")
    await writer.drain(5)
    assert patches(embedded) == 1


async def test_newest_wish_wins(embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter) -> None:
    """While one patch is under way, only the last of several wishes follows it."""
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="pods", delay_s=0.1))
    pod = load_pod(embedded)
    writer.set_condition(pod, "Unschedulable", "0")
    await asyncio.sleep(0.03)
    for number in range(1, 20):
        writer.set_condition(pod, "Unschedulable", str(number))
    await writer.drain(5)
    condition = pod_scheduled(await read_pod(api))
    assert condition is not None
    assert condition.message == "19"
    assert patches(embedded) == 2


async def test_a_newer_wish_keeps_a_nomination_that_was_not_written_yet(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """The next attempt says something else and nothing of the nomination: that still holds. What it says, counts."""
    pod = load_pod(embedded)
    writer.set_condition(pod, "Unschedulable", "preempting", nominated="n1")
    writer.set_condition(pod, "Unschedulable", "waiting for the victims")
    await writer.drain(5)
    pod = await read_pod(api)
    condition = pod_scheduled(pod)
    assert condition is not None
    assert (pod.status.nominatedNodeName, condition.message) == ("n1", "waiting for the victims")
    writer.set_condition(pod, "Unschedulable", "preempting again", nominated="n2")
    writer.set_condition(pod, "Unschedulable", "given up", nominated="")
    await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == ""


async def write_that_fails(embedded: EmbeddedServer, writer: StatusWriter, action: Action) -> Pod:
    """A nomination is on its way, and will be lost or refused."""
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="pods", delay_s=0.1))
    embedded.faults.add(Fault(action, verb="patch", kind="pods", code=500, times=4))
    pod = load_pod(embedded)
    writer.set_condition(pod, "Unschedulable", "preempting", nominated="n1")
    await asyncio.sleep(0.03)
    return pod


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.ANSWER], ids=["lost", "refused"])
async def test_a_nomination_whose_write_failed_goes_with_the_newer_wish(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter, action: Action
) -> None:
    """The write that is overtaken gives up; what it would have nominated is not lost with it."""
    pod = await write_that_fails(embedded, writer, action)
    writer.set_condition(pod, "Unschedulable", "waiting")
    await writer.drain(5)
    pod = await read_pod(api)
    condition = pod_scheduled(pod)
    assert condition is not None
    assert (pod.status.nominatedNodeName, condition.message) == ("n1", "waiting")


async def test_what_a_forgotten_write_would_have_nominated_is_forgotten(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """The Pod left and is back: a write of before, still under way and refused, gives nothing to the new wish."""
    pod = await write_that_fails(embedded, writer, Action.ANSWER)
    writer.forget(pod.uid)
    writer.set_condition(pod, "Unschedulable", "waiting")
    await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == ""


async def test_a_nomination_is_cleared_though_the_write_of_it_seemed_lost(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """It took effect, its answer did not come: what the watch shows says nothing of what has to be cleared."""
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="pods", delay_s=0.1))
    embedded.faults.add(Fault(Action.DROP_AFTER, verb="patch", kind="pods"))
    pod = load_pod(embedded)
    writer.nominate(pod, "n1")
    await asyncio.sleep(0.03)
    writer.nominate(pod, "")
    await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == ""


async def test_wish_back_to_the_old_state_during_a_write(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """What the Pod said before a write under way is not taken for what it says after it."""
    writer.set_condition(load_pod(embedded), "Unschedulable", "a")
    await writer.drain(5)
    pod = await read_pod(api)
    embedded.faults.add(Fault(Action.DELAY, verb="patch", kind="pods", delay_s=0.1))
    writer.set_condition(pod, "Unschedulable", "b")
    await asyncio.sleep(0.03)
    writer.set_condition(pod, "Unschedulable", "a")
    await writer.drain(5)
    condition = pod_scheduled(await read_pod(api))
    assert condition is not None
    assert condition.message == "a"


async def test_recreated_or_deleted_pod_is_left_alone(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """A Pod of the same name with another uid gets nothing; a missing one is no trouble."""
    old = load_pod(embedded)
    await api.call("DELETE", POD.path("default", "p"))
    writer.set_condition(old, "Unschedulable", "late")
    await writer.drain(5)
    load_pod(embedded)
    writer.set_condition(old, "Unschedulable", "late")
    await writer.drain(5)
    assert pod_scheduled(await read_pod(api)) is None
    assert writer.failures == 0


async def test_forgotten_wish_is_not_written(embedded: EmbeddedServer, api: ApiClient) -> None:
    """A Pod that got bound meanwhile is not called unschedulable."""
    writer = StatusWriter(api)
    pod = load_pod(embedded)
    writer.set_condition(pod, "Unschedulable", "no longer true")
    writer.forget(pod.uid)
    assert writer.waiting == 0


async def test_nothing_is_remembered_of_a_pod_that_waits_no_more(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """Whether it is forgotten before or while its condition is written: a million Pods must not pile up."""
    pod = load_pod(embedded)
    writer.set_condition(pod, "Unschedulable", "m")
    assert await writer.drain(5)
    assert list(writer._written) == [pod.uid]
    writer.forget(pod.uid)
    assert not writer._written
    asked = asyncio.Event()
    call = api.call

    async def observed(*arguments: Any, **options: Any) -> Any:
        answer = await call(*arguments, **options)
        writer.forget(pod.uid)
        asked.set()
        return answer

    api.call = observed  # type: ignore[method-assign]  # the moment between answer and its reading
    writer.set_condition(pod, "Unschedulable", "other")
    await asyncio.wait_for(asked.wait(), 5)
    assert await writer.drain(5)
    assert not writer._written
    assert not writer._dropped


@pytest.mark.parametrize("code", [409, 429, 500, 503])
async def test_passing_refusals(embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter, code: int) -> None:
    """Refusals that pass are repeated, conflicts included."""
    pods: list[Pod] = [load_pod(embedded, name) for name in ("p", "q")]
    embedded.faults.add(Fault(Action.ANSWER, verb="patch", kind="pods", code=code, times=2))
    for pod in pods:
        writer.set_condition(pod, "Unschedulable", "m")
    assert await writer.drain(5)
    for name in ("p", "q"):
        assert pod_scheduled(await read_pod(api, name)) is not None


async def test_a_nomination_is_cleared_though_the_watch_has_not_shown_it(
    embedded: EmbeddedServer, api: ApiClient, writer: StatusWriter
) -> None:
    """Clearing is decided on what was written, not on an object from before: else the node would stay named."""
    before = load_pod(embedded)
    writer.nominate(before, "n1")
    assert await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == "n1"
    writer.set_condition(before, "SchedulerError", "it broke", nominated="")
    assert await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == ""
    writer.nominate(before, "n2")
    assert await writer.drain(5)
    writer.nominate(before, "")
    assert await writer.drain(5)
    assert (await read_pod(api)).status.nominatedNodeName == ""
