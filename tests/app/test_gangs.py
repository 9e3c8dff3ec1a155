"""PodGroups on the embedded API server with GenericWorkload: all or nothing, with devices or without."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from scheduler.cycle.gang import GroupAttempt
from scheduler.embedded.faults import Action, Fault
from tests.app.objects import Object, gpu_class, gpu_slice, node, pod
from tests.app.race import PODS_PATH, shown
from tests.app.test_preemption import classes, events
from tests.app.world import World, world

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""
GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
GROUPS_PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"
CLAIMS_PATH = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def group(name: str, min_count: int = 0, **spec: Any) -> Object:
    """A gang of at least ``min_count``, 0: a basic group."""
    policy: Object = {"gang": {"minCount": min_count}} if min_count else {"basic": {}}
    return {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(name: str, of: str, cpu: str = "1", **fields: Any) -> Object:
    """A Pod that names its group."""
    return pod(name, cpu=cpu, schedulingGroup={"podGroupName": of}, terminationGracePeriodSeconds=0, **fields)


async def message(w: World, name: str) -> str:
    """What the Pod's condition says."""
    conditions = (await w.pod(name))["status"].get("conditions", [])
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")


async def says(w: World, name: str, text: str) -> None:
    """Wait until the Pod's condition says just this."""

    async def told() -> bool:
        return await message(w, name) == text

    await w.until(told, f"{name} says {text!r}")


async def group_says(w: World, name: str, *expected: str) -> None:
    """Wait until the group's condition has this status, reason and message."""

    async def told() -> bool:
        conditions = (await w.call("GET", f"{GROUPS_PATH}/{name}")).get("status", {}).get("conditions", [])
        return [(c["type"], c["status"], c["reason"], c["message"]) for c in conditions] == [
            ("PodGroupInitiallyScheduled", *expected)
        ]

    await w.until(told, f"group {name} says {expected}")


async def until_bound(w: World, *names: str) -> None:
    """Wait until just these Pods have nodes."""

    async def done() -> bool:
        return set(await w.bound()) == set(names)

    await w.until(done, f"{names} are bound")


async def test_two_gangs_of_three_on_four_slots_end_with_one_whole_gang() -> None:
    """B131: the second gang holds nothing, says why, and is placed when the first has gone."""
    nodes = [node(f"n{index}", cpu="1") for index in range(4)]
    async with world([*nodes, group("a", 3), group("b", 3)], CONFIG, feature_gates=GATES) as w:
        for index in range(3):  # interleaved, so that one by one each gang would get a part
            for name in "ab":
                await w.call("POST", PODS_PATH, member(f"{name}{index}", name))
        await until_bound(w, "a0", "a1", "a2")
        await group_says(w, "a", "True", "Scheduled", "")
        text = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
        await group_says(w, "b", "False", "Unschedulable", text)
        await says(w, "b0", f"pod group is unschedulable, {text}")
        await says(w, "b1", "0/4 nodes are available: 4 Insufficient cpu.")
        await says(w, "b2", f"pod group is unschedulable, {text}")
        assert w.service.state.assumed_count() == 0
        assert (w.counts.seen["group scheduled"], w.counts.seen["group unschedulable"]) == (1, 1)
        await asyncio.sleep(0.3)
        attempts = [queued["attempts"] for queued in w.service.queue.dump()]
        assert attempts == [1, 1, 1], "what the gang gives back itself wakes nobody"
        for index in range(3):
            await w.call("DELETE", f"{PODS_PATH}/a{index}")
        await until_bound(w, "b0", "b1", "b2")
        await group_says(w, "b", "True", "Scheduled", "")


async def test_a_gang_that_lacks_a_device_leaves_no_allocation() -> None:
    """U11: two gangs of three with a claim each on four devices; the failed one's claims stay as they were."""
    objects = [gpu_class(), group("a", 3), group("b", 3)]
    for index in range(2):
        objects += [node(f"n{index}"), gpu_slice(f"n{index}", 2)]
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    async with world(objects, CONFIG, feature_gates=GATES) as w:
        for index in range(3):
            for name in "ab":
                claim = {"metadata": {"name": f"{name}{index}"}, "spec": asked}
                await w.call("POST", CLAIMS_PATH, claim)
                await w.call("POST", PODS_PATH, member(f"{name}{index}", name, claim=f"{name}{index}"))
        await until_bound(w, "a0", "a1", "a2")
        await says(w, "b1", "0/2 nodes are available: 2 cannot allocate all claims.")
        claims = (await w.call("GET", CLAIMS_PATH))["items"]
        allocated = {claim["metadata"]["name"] for claim in claims if claim.get("status", {}).get("allocation")}
        assert allocated == {"a0", "a1", "a2"}
        assert len(w.service.state.devices.ledger.state()) == 3


async def test_members_wait_for_their_group_and_for_each_other() -> None:
    """Without the group, and with too few members, nobody is tried; the last one that comes lets all go."""
    async with world([node("n1")], CONFIG, feature_gates=GATES) as w:
        await w.call("POST", PODS_PATH, member("one", "late"))
        await says(w, "one", 'waiting for pods\'s pod group "late" to appear in scheduling queue')
        await w.call("POST", GROUPS_PATH, group("late", 2))
        await w.call("POST", PODS_PATH, member("stranger", "other"))
        await asyncio.sleep(0.1)
        assert w.service.queue.counts()["gated"] == 2
        assert await w.bound() == {}
        await w.call("POST", PODS_PATH, member("two", "late"))
        await until_bound(w, "one", "two")


async def test_a_late_member_joins_a_gang_that_runs() -> None:
    """Members with a node count, so the fourth of a gang of three needs no others."""
    async with world([node("n1"), group("g", 3)], CONFIG, feature_gates=GATES) as w:
        for index in range(3):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
        await until_bound(w, "p0", "p1", "p2")
        await w.call("POST", PODS_PATH, member("p3", "g"))
        await until_bound(w, "p0", "p1", "p2", "p3")


async def test_more_members_than_fit_are_no_obstacle_above_min_count() -> None:
    """Two of three fit and two are enough; the third says what it lacks and the group counts as scheduled."""
    async with world([node("n1", cpu="2")], CONFIG, feature_gates=GATES) as w:
        for index in range(3):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
        await w.call("POST", GROUPS_PATH, group("g", 2))
        await until_bound(w, "p0", "p1")
        await says(w, "p2", "0/1 nodes are available: 1 Insufficient cpu.")
        await group_says(w, "g", "True", "Scheduled", "")


async def test_members_must_agree_on_their_priority() -> None:
    """A gang whose members differ is told so, an error of whoever made it."""
    async with world([*classes(), node("n1"), group("g", 2)], CONFIG, feature_gates=GATES) as w:
        await w.call("POST", PODS_PATH, member("one", "g", priorityClassName="low"))
        await w.call("POST", PODS_PATH, member("two", "g", priorityClassName="high"))
        text = "all pods in a single pod group should have the same priority as the pod group's priority, got 1 and 100"
        await says(w, "one", text)
        await group_says(w, "g", "False", "SchedulerError", text)
        assert await w.bound() == {}


async def test_a_basic_group_places_whoever_fits() -> None:
    """No minimum: one of two is bound, the other waits as any Pod does."""
    async with world([node("n1", cpu="1"), group("g")], CONFIG, feature_gates=GATES) as w:
        for index in range(2):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
        await says(
            w,
            "p1",
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod.",
        )
        assert set(await w.bound()) == {"p0"}


async def test_the_members_of_one_cycle_share_a_claim_that_is_not_written_yet() -> None:
    """The group's claim is promised once, written once for the group, and all members land where its device is."""
    entry = {"name": "gpu", "resourceClaimName": "shared"}
    objects = [gpu_class(), group("g", 3, resourceClaims=[entry])]
    for index in range(3):
        objects += [node(f"n{index}"), gpu_slice(f"n{index}", 1)]
    asked = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    async with world(objects, CONFIG, feature_gates=GATES) as w:
        await w.call("POST", CLAIMS_PATH, {"metadata": {"name": "shared"}, "spec": asked})
        for index in range(3):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g", claim="shared"))
        await until_bound(w, "p0", "p1", "p2")
        assert len(set((await w.bound()).values())) == 1
        (claim,) = (await w.call("GET", CLAIMS_PATH))["items"]
        (consumer,) = claim["status"]["reservedFor"]
        assert (consumer["resource"], consumer["name"]) == ("podgroups", "g")
        assert w.counts.seen["lost"] == 0
        assert len(w.service.state.devices.ledger.state()) == 1
        assert await events(w, "FailedScheduling") == []


async def test_without_the_gate_groups_mean_nothing() -> None:
    """Pods that name a group are decided one by one, whether it exists or not."""
    async with world([node("n1", cpu="1"), group("g", 3)], CONFIG) as w:
        await w.call("POST", PODS_PATH, member("alone", "g"))
        await until_bound(w, "alone")


async def test_a_member_whose_binding_fails_comes_back_to_its_gang() -> None:
    """The others are bound and count, so it is tried again alone."""
    fault = Fault(Action.ANSWER, verb="create", kind="pods", subresource="binding", name="p1", code=403, times=1)
    async with world([node("n1"), group("g", 3)], CONFIG, faults=[fault], feature_gates=GATES) as w:
        for index in range(3):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
        await until_bound(w, "p0", "p1", "p2")
        assert fault.hits == 1
        assert w.counts.seen["error"] == 1


async def test_a_gang_next_to_ordinary_pods() -> None:
    """Ordinary Pods take their places between gangs, never between a gang's members."""
    nodes = [node(f"n{index}", cpu="2") for index in range(3)]
    async with world([*nodes, group("g", 4)], CONFIG, feature_gates=GATES) as w:
        for index in range(4):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
            await w.call("POST", PODS_PATH, pod(f"single{index}", cpu="1"))
        await shown(lambda: w.counts.seen["unschedulable"] > 0)

        async def settled() -> bool:
            names = await w.bound()
            members = sum(name.startswith("p") for name in names)
            return (members, len(names) - members) in ((0, 4), (4, 2))

        await w.until(settled, "the gang has its four slots and two are left, or it has none")


async def test_an_unforeseen_error_costs_the_members_one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are told and come back after the error back-off; the loop goes on."""
    real, tries = GroupAttempt.step, []

    def step(attempt: GroupAttempt, budget: int) -> Any:
        tries.append(attempt)
        if len(tries) == 1:
            raise RuntimeError("unforeseen")
        return real(attempt, budget)

    monkeypatch.setattr(GroupAttempt, "step", step)
    async with world([node("n1"), group("g", 2)], CONFIG, feature_gates=GATES) as w:
        for index in range(2):
            await w.call("POST", PODS_PATH, member(f"p{index}", "g"))
        await until_bound(w, "p0", "p1")
        assert (w.counts.seen["broken"], w.counts.seen["error"]) == (1, 2)
        w.counts.seen["broken"] = 0
        notes = {event["note"] for event in await events(w, "FailedScheduling")}
        assert notes == {"RuntimeError: unforeseen"}
