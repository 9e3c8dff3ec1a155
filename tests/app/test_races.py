"""Something happens between the decision and the Binding: no device twice, no node overfull, nothing stuck."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from scheduler.embedded.faults import Action, Fault
from tests.app.objects import Object, claim, gpu_class, gpu_slice, node, pod, template
from tests.app.race import (
    CONFIG,
    PODS_PATH,
    STEPS,
    allocated,
    create,
    delete,
    foreign_claim,
    foreign_pod,
    idle,
    once_before,
    reasons,
    results,
    shown,
    until_bound,
)
from tests.app.world import world


def one_node(devices: int = 1) -> list[Object]:
    return [gpu_class(), template("one"), node("n1"), gpu_slice("n1", devices)]


def shared_device() -> list[Object]:
    """One device with 10 of ``memory`` that several claims may share."""
    published = gpu_slice("n1", 1)
    published["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "10"}}}
    wanted = template("part")
    wanted["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": "6"}}
    return [gpu_class(), wanted, node("n1"), published]


@pytest.mark.parametrize("step", ["decided", "writing"])
async def test_a_foreign_allocation_that_was_first_wins(step: str) -> None:
    """B3: before our write somebody else stores the same device: ours is cleared, the Pod gets the other device."""
    async with world(one_node(2), CONFIG) as w:
        once_before(w, step, lambda: foreign_claim(w, "foreign", "n1", "gpu-0"))
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        await idle(w)
        given = sorted((await results(w)).values())
        assert given == [[("n1", "gpu-0")], [("n1", "gpu-1")]]
        assert w.counts.seen["lost"] == w.counts.seen["verified lost"] == w.counts.seen["verified won"] == 1
        assert w.counts.seen["overlap"] == 0
        assert w.counts.seen["allocate success"] == 2
        assert w.counts.seen["deallocate success"] == 1
        assert (await reasons(w, "p")).count("LostRace") == 1
        assert (await reasons(w, "p"))[-1] == "Scheduled"


@pytest.mark.parametrize("step", ["written", "binding"])
async def test_a_foreign_allocation_that_was_second_is_reported(step: str) -> None:
    """B3: after our write somebody else stores the same device: we keep it and bind, and say so once, even when the
    verification was over.
    """
    async with world(one_node(2), CONFIG) as w:
        once_before(w, step, lambda: foreign_claim(w, "foreign", "n1", "gpu-0"))
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        await idle(w)
        assert w.counts.seen["lost"] == 0
        assert w.counts.seen["overlap"] == 1
        assert (await reasons(w, "p")).count("DeviceGivenTwice") == 1


async def test_a_device_given_again_long_after_is_reported() -> None:
    """A foreign claim takes the device of a Pod that runs: one event on that Pod; changes of the claim add none."""
    async with world(one_node(2), CONFIG) as w:
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        (((pool, device),),) = (await results(w)).values()
        assert pool == "n1"
        await foreign_claim(w, "foreign", "n1", device)

        async def told() -> bool:
            return w.counts.seen["overlap"] == 1

        await w.until(told, "the pair is reported")
        path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/foreign"
        await w.call("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, "application/merge-patch+json")
        await foreign_claim(w, "elsewhere", "n1", "gpu-1" if device == "gpu-0" else "gpu-0")
        await idle(w)
        assert w.counts.seen["overlap"] == 1
        assert (await reasons(w, "p")).count("DeviceGivenTwice") == 1


@pytest.mark.parametrize(("step", "lost"), [("writing", 1), ("written", 0)])
async def test_shared_capacity_is_judged_by_order_too(step: str, lost: int) -> None:
    """Another share of the device leaves no room for ours: the later of both writes loses."""
    share = {"shareID": "11111111-1111-1111-1111-111111111111", "consumedCapacity": {"memory": "6"}}
    async with world(shared_device(), CONFIG) as w:
        once_before(w, step, lambda: foreign_claim(w, "foreign", "n1", "gpu-0", **share))
        await create(w, pod("p", template="part"))
        if lost:

            async def given_back() -> bool:
                return w.counts.seen["lost"] >= 1 and w.service.queue.counts()["unschedulable"] == 1

            await w.until(given_back, "the Pod waits")
            assert await w.bound() == {}
            assert sum(map(len, (await results(w)).values())) == 1
        else:
            await until_bound(w, "p")
            assert w.counts.seen["overlap"] == 1
        await idle(w)


async def test_an_unverified_allocation_is_not_bound() -> None:
    """A scheduler died between write and verification; the claim it left collides: it is cleared, not bound."""
    objects = one_node(2)
    left = allocated("left", "n1", "gpu-0")
    async with world([*objects, allocated("foreign", "n1", "gpu-0"), left], CONFIG) as w:
        await create(w, pod("p", claim="left"))
        await until_bound(w, "p")
        await idle(w)
        assert (await results(w))["left"] == [("n1", "gpu-1")]
        assert w.counts.seen["lost"] == 1


async def test_the_binding_waits_for_the_claim_watch() -> None:
    """The claim watch lags half a second: nothing is bound before it has passed our write."""
    async with world(one_node(), CONFIG) as w:
        lag = Fault(Action.DELAY, verb="watch", kind="resourceclaims", delay_s=0.5)

        async def break_watch() -> None:
            w.server.faults.add(lag)
            w.server.break_watches(Action.CLOSE, "resourceclaims", "dra-scheduler")
            await shown(lambda: not w.server.open_watches("resourceclaims") or lag.hits == 1)

        once_before(w, "writing", break_watch)
        started_s = time.monotonic()
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        assert time.monotonic() - started_s >= 0.45
        assert w.counts.seen["lost"] == 0


async def test_a_claim_watch_that_lags_too_long_loses_the_race() -> None:
    """Past the bound the Pod counts as lost, its devices are given back, and it gets them when the watch is back."""
    async with world(one_node(), CONFIG) as w:
        w.service.committer.verification.timeout_s = 0.1
        lag = Fault(Action.DELAY, verb="watch", kind="resourceclaims", delay_s=1.0)

        async def break_watch() -> None:
            w.server.faults.add(lag)
            w.server.break_watches(Action.CLOSE, "resourceclaims", "dra-scheduler")
            await shown(lambda: lag.hits == 1)

        once_before(w, "writing", break_watch)
        await create(w, pod("p", template="one"))

        async def lost() -> bool:
            return w.counts.seen["lost"] == 1

        await w.until(lost, "the race is lost")
        assert w.counts.seen["verified late"] == 1
        assert await w.bound() == {}
        w.service.committer.verification.timeout_s = 10.0
        await until_bound(w, "p")
        await idle(w)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("again", [False, True])
async def test_a_pod_deleted_at_each_step(step: str, again: bool) -> None:
    """B110, B102: deleted (and created again): the device is free for others, the new Pod is bound in its own right."""
    async with world(one_node(), CONFIG) as w:

        async def vanish() -> None:
            uid = (await w.pod("p"))["metadata"]["uid"]
            await delete(w, f"{PODS_PATH}/p")
            if again:
                await create(w, pod("p", template="one"))
            if step != "binding":
                await shown(lambda: uid not in w.service.state.pods)

        done = once_before(w, step, vanish)
        await create(w, pod("p", template="one"), pod("other", template="one") if not again else pod("plain"))
        await until_bound(w, "p" if again else "other", "plain" if again else "other")
        assert done == [step]
        await idle(w)
        given = await results(w)
        assert sum(map(len, given.values())) == 1
        if again:
            uid = (await w.pod("p"))["metadata"]["uid"]
            (item,) = (await w.call("GET", "/apis/resource.k8s.io/v1/resourceclaims"))["items"]
            assert [c["uid"] for c in item["status"]["reservedFor"]] == [uid]


@pytest.mark.parametrize("step", ["decided", "writing", "written"])
async def test_a_node_replaced_under_its_name(step: str) -> None:
    """The node is deleted and created again before the Binding: the decision is made anew, for the new node."""
    async with world(one_node(), CONFIG) as w:

        async def replace() -> None:
            await delete(w, "/api/v1/nodes/n1")
            await w.call("POST", "/api/v1/nodes", node("n1"))
            uid = (await w.call("GET", "/api/v1/nodes/n1"))["metadata"]["uid"]
            nodes = w.service.state.nodes
            await shown(lambda: (row := nodes.row_of("n1")) is not None and nodes.node(row).metadata.uid == uid)

        once_before(w, step, replace)
        await create(w, pod("p", template="one"))
        await until_bound(w, "p")
        await idle(w)
        assert w.counts.seen["scheduled"] == 1
        assert w.counts.seen["error"] == 1


async def test_a_foreign_pod_takes_the_room() -> None:
    """B104: between decision and Binding a foreign Pod fills the node: ours goes elsewhere, no node is overfull."""
    async with world([node("n1"), node("n2")], CONFIG) as w:

        async def fill() -> None:
            (placement,) = w.service.state.placements.values()
            await foreign_pod(w, "foreign", placement.node, "4")

        once_before(w, "decided", fill)
        await create(w, pod("p", cpu="6"))
        bound = await until_bound(w, "p", "foreign")
        assert bound["p"] != bound["foreign"]
        assert w.counts.seen["lost"] == 1


@pytest.mark.parametrize("step", ["decided", "writing", "written"])
async def test_a_slice_that_goes_away(step: str) -> None:
    """B42: the devices vanish before the Binding: nothing is bound on them, and all is well when they return."""
    async with world(one_node(), CONFIG) as w:

        async def withdraw() -> None:
            await delete(w, "/apis/resource.k8s.io/v1/resourceslices/n1-gpu")
            await shown(lambda: not len(w.service.state.devices.slices))

        done = once_before(w, step, withdraw)
        await create(w, pod("p", template="one"))

        async def waits() -> bool:
            return bool(done) and w.service.queue.counts()["unschedulable"] == 1

        await w.until(waits, "the Pod waits")
        assert await w.bound() == {}
        assert sum(map(len, (await results(w)).values())) == 0
        w.server.load([gpu_slice("n1", 1)])
        await until_bound(w, "p")
        await idle(w)


async def test_many_pods_share_one_claim_being_allocated() -> None:
    """B51: twenty Pods of one claim come together: few attempts each, one allocation, all bound on one node."""
    async with world([*one_node(), node("n2"), claim("shared")], CONFIG) as w:
        names = [f"p{index}" for index in range(20)]
        await create(w, *(pod(name, claim="shared") for name in names))
        bound = await until_bound(w, *names)
        assert set(bound.values()) == {"n1"}
        assert w.counts.seen["algorithm"] <= 60
        await idle(w)


@pytest.mark.parametrize(("before", "fit"), [(254, 2), (255, 1), (256, 0)])
async def test_the_last_consumers_of_a_claim(before: int, fit: int) -> None:
    """B56: a claim serves 256 consumers; whoever comes later waits and is told exactly that."""
    crowded = allocated("crowded", "n1", "gpu-0")
    crowded["status"]["reservedFor"] = [
        {"apiGroup": "example.com", "resource": "things", "name": f"t{i}", "uid": f"t{i}"} for i in range(before)
    ]
    async with world([*one_node(), crowded], CONFIG) as w:
        await create(w, pod("a", claim="crowded"), pod("b", claim="crowded"))

        async def settled() -> bool:
            return len(await w.bound()) == fit and w.service.queue.counts()["unschedulable"] == 2 - fit

        await w.until(settled, f"{fit} Pods bound")
        await w.service.status.drain(5.0)
        for name in {"a", "b"} - set(await w.bound()):
            messages = [c.get("message", "") for c in (await w.pod(name))["status"]["conditions"]]
            assert any("is reserved for 256 consumers, which is the limit" in message for message in messages)


FAILING: dict[str, dict[str, Any]] = {
    "finalizer": {"verb": "patch", "kind": "resourceclaims", "subresource": "", "name": "a"},
    "claim status": {"verb": "patch", "kind": "resourceclaims", "subresource": "status", "name": "a"},
    "binding": {"verb": "create", "kind": "pods", "subresource": "binding", "name": "p"},
}


@pytest.mark.parametrize("call", FAILING)
async def test_a_refused_call_frees_the_device_once(call: str) -> None:
    """B52: our calls for one Pod are refused for good: what was promised is free at once, what is stored stays."""
    async with world([*one_node(), claim("a"), claim("b")], CONFIG) as w:
        w.server.faults.add(Fault(Action.ANSWER, code=403, times=None, user_agent="dra-scheduler*", **FAILING[call]))
        held = asyncio.Event()
        once_before(w, "writing", held.wait)  # the first Pod's device is in flight while the second one looks
        await create(w, pod("p", claim="a"))
        await shown(lambda: bool(w.service.loop._commits))
        await create(w, pod("q", claim="b"))
        await shown(lambda: w.service.queue.counts()["unschedulable"] == 1)
        started_s = time.monotonic()
        held.set()
        if call == "binding":  # stored: the device stays with its claim

            async def tried() -> bool:
                return w.counts.seen["error"] >= 2

            await w.until(tried, "two attempts failed")
            assert (await results(w)) == {"a": [("n1", "gpu-0")], "b": []}
            assert await w.bound() == {}
            return
        await until_bound(w, "q")
        assert time.monotonic() - started_s < 5
        assert (await results(w)) == {"a": [], "b": [("n1", "gpu-0")]}


@pytest.mark.parametrize("same", [True, False])
async def test_a_pod_that_is_assigned_already(same: bool) -> None:
    """B108: bound by somebody else, to our node: success; to another one: a lost race, and no word of a failure."""
    async with world([node("n1"), node("n2")], CONFIG) as w:

        async def bind() -> None:
            (placement,) = w.service.state.placements.values()
            target = placement.node if same else {"n1": "n2", "n2": "n1"}[placement.node]
            body = {"apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": target}}
            await w.call("POST", f"{PODS_PATH}/p/binding", body)

        once_before(w, "binding", bind)
        await create(w, pod("p"))
        await until_bound(w, "p")
        await idle(w)
        await w.service.status.drain(5.0)
        assert await reasons(w, "p") == (["Scheduled"] if same else ["LostRace"])
        conditions = (await w.pod("p"))["status"].get("conditions") or []
        assert all(c["status"] == "True" for c in conditions if c["type"] == "PodScheduled")
        assert w.service.queue.get((await w.pod("p"))["metadata"]["uid"]) is None


async def test_a_full_node_takes_no_more_pods() -> None:
    """B106: ``pods`` is an amount like others, counted before the watch confirms."""
    small = node("n1")
    small["status"]["allocatable"]["pods"] = "5"
    async with world([small], CONFIG) as w:
        await create(w, *(pod(f"p{index}") for index in range(8)))

        async def settled() -> bool:
            return len(await w.bound()) == 5 and w.service.queue.counts()["unschedulable"] == 3

        await w.until(settled, "five are bound, three wait")
