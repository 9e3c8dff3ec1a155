"""Events: series, note length, a bounded queue, a lane that never blocks and never dies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from scheduler.api.bodies import Event, ObjectReference, pod_reference
from scheduler.edge.client import ApiClient
from scheduler.edge.events import EventRecorder
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

from .objects import load_pod
from .scripted import Sleeps


class Time:
    """Both clocks, moved by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def clock(self) -> float:
        return self.now_s

    def wall(self) -> float:
        return 1_800_000_000.123456 + self.now_s


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def recorder(api: ApiClient, time: Time, sleeps: Sleeps) -> AsyncIterator[EventRecorder]:
    made = EventRecorder(api, clock=time.clock, wall=time.wall, sleep=sleeps)
    task = asyncio.create_task(made.run())
    yield made
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def event(regarding: ObjectReference, note: str = "0/1 nodes are available", reason: str = "FailedScheduling") -> Event:
    return Event("Warning", reason, "Scheduling", note, regarding, "dra-scheduler", "dra-scheduler-host")


async def stored(api: ApiClient) -> list[Any]:
    body = (await api.call("GET", "/apis/events.k8s.io/v1/events")).body
    items: list[Any] = msgspec.json.decode(body)["items"]
    return items


async def test_event_as_upstream_writes_it(embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder) -> None:
    """All fields events.k8s.io asks for are there, times with six digits and zone."""
    pod = load_pod(embedded)
    recorder.record(event(pod_reference(pod)))
    assert await recorder.drain(5)
    (found,) = await stored(api)
    assert found["eventTime"] == "2027-01-15T08:16:40.123456Z"
    assert found["reportingController"] == "dra-scheduler"
    assert found["reportingInstance"] == "dra-scheduler-host"
    assert (found["action"], found["reason"], found["type"]) == ("Scheduling", "FailedScheduling", "Warning")
    assert found["regarding"]["uid"] == pod.uid
    assert found["metadata"]["namespace"] == "default"


async def test_repetitions_become_a_series(
    embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder, time: Time
) -> None:
    """The first repeat is written as count 2, later ones are held, written after 30 s; after 6 min a new one begins."""
    pod = load_pod(embedded)
    for _ in range(5):
        recorder.record(event(pod_reference(pod), note=f"note at {time.now_s}"))
        await recorder.drain(5)
        time.now_s += 1
    (found,) = await stored(api)
    assert found["series"]["count"] == 2
    assert found["note"] == "note at 1000.0"
    time.now_s += 30
    recorder.refresh()
    await recorder.drain(5)
    (found,) = await stored(api)
    assert found["series"]["count"] == 5
    assert found["series"]["lastObservedTime"] == "2027-01-15T08:16:44.123456Z"
    time.now_s += 400
    recorder.refresh()
    recorder.record(event(pod_reference(pod)))
    await recorder.drain(5)
    assert len(await stored(api)) == 2


async def test_what_happens_once_is_not_kept(embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder) -> None:
    """Ten thousand Pods bound in six minutes would be ten thousand events in memory, for nothing."""
    reference = pod_reference(load_pod(embedded))
    recorder.record(event(reference, reason="Scheduled"), repeats=False)
    assert not recorder._series
    await recorder.drain(5)
    assert [found["reason"] for found in await stored(api)] == ["Scheduled"]


async def test_other_version_of_the_same_object_repeats(
    embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder
) -> None:
    """A changed resourceVersion is no other object; another reason is another event."""
    reference = pod_reference(load_pod(embedded))
    recorder.record(event(reference))
    recorder.record(event(msgspec.structs.replace(reference, resourceVersion="99")))
    recorder.record(event(reference, reason="Scheduled"))
    await recorder.drain(5)
    assert sorted(found.get("series", {}).get("count", 1) for found in await stored(api)) == [1, 2]


async def test_long_note_is_cut_on_a_character_border(
    embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder
) -> None:
    """5,000 bytes of multi-byte characters become at most 1024 and stay valid."""
    recorder.record(event(pod_reference(load_pod(embedded)), note="ä€😀" * 600))
    await recorder.drain(5)
    (found,) = await stored(api)
    assert 1015 <= len(found["note"].encode()) <= 1024
    assert found["note"].endswith(" ...")


async def test_full_queue_drops_and_counts(embedded: EmbeddedServer, api: ApiClient, time: Time) -> None:
    """Beyond the bound events are dropped at once, nothing blocks."""
    recorder = EventRecorder(api, clock=time.clock, wall=time.wall, queue_max=10)
    reference = pod_reference(load_pod(embedded))
    for number in range(25):
        recorder.record(event(reference, reason=f"R{number}"))
    assert recorder.dropped == 15


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Action.ANSWER, verb="create", kind="events", code=503, times=9),
        Fault(Action.DROP_AFTER, verb="create", kind="events"),
        Fault(Action.DROP_BEFORE, verb="create", kind="events"),
        Fault(Action.ANSWER, verb="create", kind="events", code=429, times=3, retry_after_s=1),
    ],
)
async def test_passing_trouble(embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder, fault: Fault) -> None:
    """Outages and lost answers end in exactly one Event."""
    embedded.faults.add(msgspec_copy(fault))
    recorder.record(event(pod_reference(load_pod(embedded))))
    assert await recorder.drain(5)
    assert len(await stored(api)) == 1
    assert recorder.dropped == 0


def msgspec_copy(fault: Fault) -> Fault:
    """A fresh fault: the parametrised one would be used up by the first run."""
    return Fault(
        fault.action,
        verb=fault.verb,
        kind=fault.kind,
        code=fault.code,
        times=fault.times,
        retry_after_s=fault.retry_after_s,
    )


async def test_refused_event_harms_nobody(embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder) -> None:
    """A refusal drops that event; the next one is written."""
    embedded.faults.add(Fault(Action.ANSWER, verb="create", kind="events", code=422))
    reference = pod_reference(load_pod(embedded))
    recorder.record(event(reference))
    recorder.record(event(reference, reason="Other"))
    await recorder.drain(5)
    assert [found["reason"] for found in await stored(api)] == ["Other"]
    assert recorder.dropped == 1


async def test_a_thousand_waiting_pods_for_an_hour(
    embedded: EmbeddedServer, api: ApiClient, recorder: EventRecorder, time: Time
) -> None:
    """1,000 unschedulable Pods tried every 10 s for an hour of virtual time: few writes per Pod, not 360."""
    pods = 100  # a tenth of the Pods, a tenth of the bound: the writes of one Pod do not depend on the others
    references = [ObjectReference("Pod", "v1", "default", f"p{number}", f"u{number}") for number in range(pods)]
    for _ in range(360):
        for reference in references:
            recorder.record(event(reference))
        recorder.refresh()
        time.now_s += 10
        await recorder.drain(30)
    writes = len(embedded.audit.writes(kind="events"))
    assert pods * 2 < writes <= pods * 16, writes
