"""Preemption on the embedded API server: who goes, who is told, who waits, and what happens when calls fail."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.embedded.faults import Action, Fault
from tests.app.objects import Object, node, pod
from tests.app.race import CONFIG, PODS_PATH, shown
from tests.app.world import World, world

OURS = "dra-scheduler*"


def classes() -> list[Object]:
    """Three priorities."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("low", 1), ("middle", 50), ("high", 100))
    ]


def of(priority: str, name: str, *, grace_s: int = 0, **options: Any) -> Object:
    """A Pod of a priority; without grace it is gone as soon as it is deleted, as there is no kubelet here."""
    return pod(name, priorityClassName=priority, terminationGracePeriodSeconds=grace_s, **options)


async def running(w: World, *pods: Object) -> None:
    """Create Pods and wait until each has its node."""
    for item in pods:
        await w.call("POST", PODS_PATH, item)

    async def bound() -> bool:
        return {item["metadata"]["name"] for item in pods} <= (await w.bound()).keys()

    await w.until(bound, "the first Pods are bound")


async def until_bound(w: World, name: str) -> str:
    async def there() -> bool:
        return name in await w.bound()

    await w.until(there, f"{name} is bound")
    return (await w.bound())[name]


async def events(w: World, reason: str) -> list[Object]:
    await w.service.recorder.drain(5)
    listed = await w.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    return [item for item in listed["items"] if item["reason"] == reason]


def writes(w: World, name: str) -> list[tuple[str, str]]:
    """(verb, sub-resource) of our writes to a Pod, in order."""
    return [
        (entry.call.verb, entry.call.subresource)
        for entry in w.server.audit.writes(kind="pods", user_agent=OURS)
        if entry.call.name == name
    ]


def deleted(w: World) -> list[str]:
    """Names of the Pods we deleted."""
    return [e.call.name for e in w.server.audit.writes(kind="pods", user_agent=OURS) if e.call.verb == "delete"]


async def test_two_pods_go_for_a_more_important_one() -> None:
    """Victims get the condition, then are deleted, an event names the preemptor; that one is nominated and bound."""
    async with world([*classes(), node("n1", cpu="2")], CONFIG) as w:
        await running(w, of("low", "a", cpu="1"), of("low", "b", cpu="1"))
        await w.call("POST", PODS_PATH, of("high", "big", cpu="2"))
        assert await until_bound(w, "big") == "n1"
        assert await w.bound() == {"big": "n1"}
        for name in "ab":
            assert writes(w, name)[-2:] == [("patch", "status"), ("delete", "")]
        told = await events(w, "Preempted")
        uid = (await w.pod("big"))["metadata"]["uid"]
        assert {item["regarding"]["name"] for item in told} == {"a", "b"}
        for item in told:
            assert (item["type"], item["action"], item["related"]["name"]) == ("Normal", "Preempting", "big")
            assert item["note"] == f"Preempted by pod {uid} on node n1"
        failed = [item["note"] for item in await events(w, "FailedScheduling") if item["regarding"]["name"] == "big"]
        assert failed == [
            "0/1 nodes are available: 1 Insufficient cpu. "
            "preemption: found a potential placement for pod on node n1, preempting 2 victims"
        ]
        assert (w.counts.seen["victims"], w.counts.seen["preemption success"]) == (2, 1)


async def test_room_is_kept_while_a_victim_goes() -> None:
    """A victim with grace: the preemptor is nominated and evicts nobody else, a lesser Pod does not get the room."""
    async with world([*classes(), node("n1", cpu="2"), node("n2", cpu="1")], CONFIG) as w:
        await running(w, of("low", "slow", cpu="2", grace_s=30), of("middle", "other", cpu="1"))
        await w.call("POST", PODS_PATH, of("high", "big", cpu="2"))

        async def nominated() -> bool:
            return bool((await w.pod("big"))["status"].get("nominatedNodeName") == "n1")

        await w.until(nominated, "big is nominated")
        slow = await w.pod("slow")
        condition = next(c for c in slow["status"]["conditions"] if c["type"] == "DisruptionTarget")
        assert (condition["status"], condition["reason"]) == ("True", "PreemptionByScheduler")
        assert condition["message"] == "dra-scheduler: preempting to accommodate a higher priority pod"
        assert slow["metadata"]["deletionTimestamp"]
        await w.call("POST", PODS_PATH, of("middle", "lesser", cpu="2"))
        await w.call("DELETE", f"{PODS_PATH}/slow", {"gracePeriodSeconds": 0})
        assert await until_bound(w, "big") == "n1"
        assert "lesser" not in await w.bound()
        assert deleted(w) == ["slow"]


async def test_a_lower_nomination_ends() -> None:
    """Two preemptors on one node: when the more important one takes it, the other one's nomination is cleared."""
    async with world([*classes(), node("n1", cpu="2")], CONFIG) as w:
        await running(w, of("low", "slow", cpu="2", grace_s=30))
        await w.call("POST", PODS_PATH, of("middle", "second", cpu="2"))

        async def is_nominated(name: str) -> bool:
            return bool((await w.pod(name))["status"].get("nominatedNodeName") == "n1")

        await w.until(lambda: is_nominated("second"), "second is nominated")
        await w.call("POST", PODS_PATH, of("high", "first", cpu="2"))
        await w.until(lambda: is_nominated("first"), "first is nominated")

        async def cleared() -> bool:
            return not await is_nominated("second")

        await w.until(cleared, "second is not nominated any more")
        await w.call("DELETE", f"{PODS_PATH}/slow", {"gracePeriodSeconds": 0})
        assert await until_bound(w, "first") == "n1"


@pytest.mark.parametrize(
    "fault",
    [
        Fault(Action.DROP_AFTER, "delete", "pods", times=1),
        Fault(Action.DROP_BEFORE, "patch", "pods", name="a", subresource="status", times=2),
        Fault(Action.ANSWER, "delete", "pods", code=500, times=1),
        Fault(Action.ANSWER, "delete", "pods", code=409, times=1),
        Fault(Action.ANSWER, "delete", "pods", code=403, times=1),
        Fault(Action.ANSWER, "patch", "pods", name="a", subresource="status", code=503, times=5),
    ],
    ids=["delete lost", "patch lost", "delete 500", "delete 409", "delete 403", "patch 503"],
)
async def test_a_failing_eviction_is_tried_again(fault: Fault) -> None:
    """Whatever call fails, the preemptor is not held back for ever and gets its node."""
    fault.user_agent = OURS
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await running(w, of("low", "a", cpu="1"))
        w.server.faults.add(fault)
        await w.call("POST", PODS_PATH, of("high", "big", cpu="1"))
        assert await until_bound(w, "big") == "n1"
        assert fault.hits >= 1
        assert await w.bound() == {"big": "n1"}


async def test_a_budget_decides_between_nodes() -> None:
    """Of two nodes the one whose Pod no budget protects loses its Pod."""
    guarded, free = of("low", "guarded", cpu="1"), of("low", "free", cpu="1")
    guarded["metadata"]["labels"] = {"app": "db"}
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "db", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}, "minAvailable": 1},
    }
    async with world([*classes(), budget, node("n1", cpu="1"), node("n2", cpu="1")], CONFIG) as w:
        await running(w, guarded, free)
        await shown(lambda: bool(w.service.state.budgets))
        await w.call("POST", PODS_PATH, of("high", "big", cpu="1"))
        await until_bound(w, "big")
        assert set(await w.bound()) == {"big", "guarded"}


async def test_b123_a_removed_node_takes_its_nominations_along() -> None:
    """B123: the node goes and comes back under its name; nobody is kept room for but who was nominated anew."""
    async with world([*classes(), node("n1", cpu="2")], CONFIG) as w:
        await running(w, of("low", "slow", cpu="2", grace_s=30))
        await w.call("POST", PODS_PATH, of("high", "big", cpu="2"))
        await shown(lambda: bool(w.service.state.nominator))
        await w.call("DELETE", f"{PODS_PATH}/big", {"gracePeriodSeconds": 0})
        await shown(lambda: not w.service.state.nominator)
        await w.call("POST", PODS_PATH, of("high", "next", cpu="2"))
        await shown(lambda: bool(w.service.state.nominator))
        await w.call("DELETE", "/api/v1/nodes/n1")
        await shown(lambda: not w.service.state.nominator)


async def test_a_victim_that_is_about_to_be_evicted_counts_as_going() -> None:
    """Two preemptors on one node: the first one's victims are gone before the second one's are being deleted. The
    first waits for the room there, and takes nobody's elsewhere.
    """
    async with world([*classes(), node("n1", cpu="4")], CONFIG) as w:
        await running(w, *(of("low", name, cpu="1", grace_s=30) for name in "abcd"))
        await w.call("POST", PODS_PATH, of("high", "first", cpu="2"))
        await shown(lambda: len(_going(w)) == 2)
        stuck = Fault(Action.DELAY, "patch", "pods", subresource="status", user_agent=OURS, delay_s=1.0, times=None)
        stuck.name = "[abcd]"
        w.server.faults.add(stuck)
        await w.call("POST", PODS_PATH, of("high", "second", cpu="2"))
        await shown(lambda: len(list(w.service.state.nominator.on("n1"))) == 2)
        others = [of("low", name, cpu="1", nodeName="n2") for name in "ef"]
        w.server.load([node("n2", cpu="2"), *others])
        await shown(lambda: len(w.service.state.nodes.pods_on("n2")) == 2)
        for name in _going(w):
            await w.call("DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0})
        await shown(lambda: len(w.service.state.nodes.pods_on("n1")) == 2 and len(_going(w)) == 2)
        for name in _going(w):
            await w.call("DELETE", f"{PODS_PATH}/{name}", {"gracePeriodSeconds": 0})
        assert {await until_bound(w, "first"), await until_bound(w, "second")} == {"n1"}
        assert sorted(deleted(w)) == ["a", "b", "c", "d"]


def _going(w: World) -> list[str]:
    return sorted(p.metadata.name for p in w.service.state.pods.values() if p.metadata.deletionTimestamp)
