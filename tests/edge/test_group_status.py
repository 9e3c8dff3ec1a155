"""The condition PodGroupInitiallyScheduled: written when it changes, final once True, never in the way."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.api.kinds import convert
from scheduler.api.podgroups import POD_GROUP, PodGroup
from scheduler.edge.client import ApiClient
from scheduler.edge.group_status import SCHEDULED, SCHEDULER_ERROR, UNSCHEDULABLE, GroupStatusWriter
from scheduler.embedded import EmbeddedServer, Fault
from scheduler.embedded.faults import Action

PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups/g"


class Clock:
    """Each transition has a time of its own."""

    def __init__(self) -> None:
        self.hour = 0

    def __call__(self) -> str:
        self.hour += 1
        return f"2026-11-29T{self.hour:02}:00:00Z"


@pytest.fixture
def group(embedded: EmbeddedServer) -> PodGroup:
    item = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    found: PodGroup = convert(POD_GROUP, embedded.load([item])[0].obj)
    return found


async def shown(api: ApiClient) -> dict[str, Any]:
    """The group's only condition."""
    item = msgspec.json.decode((await api.call("GET", PATH)).body)
    (condition,) = item["status"]["conditions"]
    found: dict[str, Any] = condition
    return found


def writes(server: EmbeddedServer) -> int:
    return sum(1 for _ in server.audit.writes(kind="podgroups"))


async def test_it_is_written_when_it_says_something_new_and_true_is_final(
    embedded: EmbeddedServer, api: ApiClient, group: PodGroup
) -> None:
    """The transition time moves only with the status; the same words cost nothing; after True nothing is written."""
    writer = GroupStatusWriter(api, now=Clock())
    for text in ("first", "first", "second"):
        writer.set_condition(group, UNSCHEDULABLE, text)
        await writer.drain(5)
    assert writes(embedded) == 2
    condition = await shown(api)
    assert condition == {
        "type": "PodGroupInitiallyScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "second",
        "lastTransitionTime": "2026-11-29T01:00:00Z",
        "observedGeneration": group.metadata.generation,
    }
    writer.set_condition(group, SCHEDULED, "")
    await writer.drain(5)
    writer.set_condition(group, SCHEDULER_ERROR, "broken")
    await writer.drain(5)
    condition = await shown(api)
    assert (condition["status"], condition["reason"]) == ("True", "Scheduled")
    assert condition["lastTransitionTime"] == "2026-11-29T02:00:00Z"
    assert writes(embedded) == 3
    await writer.close()


async def test_what_a_predecessor_wrote_counts(embedded: EmbeddedServer, api: ApiClient, group: PodGroup) -> None:
    """A new process reads the condition from the group: True stays, the same words are not written again."""
    writer = GroupStatusWriter(api)
    writer.set_condition(group, SCHEDULED, "")
    await writer.drain(5)
    item = msgspec.json.decode((await api.call("GET", PATH)).body)
    successor = GroupStatusWriter(api)
    successor.set_condition(convert(POD_GROUP, item), UNSCHEDULABLE, "late")
    await successor.drain(5)
    assert writes(embedded) == 1


async def test_a_write_that_fails_is_told_and_said_again_by_the_next_cycle(
    embedded: EmbeddedServer, api: ApiClient, group: PodGroup
) -> None:
    """A refusal leaves the wish unwritten; a group that is gone needs no words."""
    troubles: list[str] = []
    writer = GroupStatusWriter(api, on_trouble=troubles.append)
    embedded.faults.add(Fault(Action.ANSWER, verb="patch", kind="podgroups", code=403, times=1))
    writer.set_condition(group, UNSCHEDULABLE, "text")
    await writer.drain(5)
    assert len(troubles) == 1
    writer.set_condition(group, UNSCHEDULABLE, "text")
    await writer.drain(5)
    assert (await shown(api))["message"] == "text"
    await api.call("DELETE", PATH)
    writer.set_condition(group, UNSCHEDULABLE, "other")
    await writer.drain(5)
    assert len(troubles) == 1
