"""Whole ways of a Pod in situations that went wrong elsewhere (docs/cases.md names the test of each case)."""

from __future__ import annotations

from scheduler.embedded.faults import Action, Fault
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.app.race import CONFIG, create, idle, results, shown, until_bound
from tests.app.world import World, world


def calls(w: World) -> list[tuple[str, str, str]]:
    """(verb, kind, sub-resource) of the scheduler's writes, in order."""
    return [
        (entry.call.verb, entry.call.kind, entry.call.subresource)
        for entry in w.server.audit.writes(user_agent="dra-scheduler*")
    ]


async def test_b1_every_device_is_given_once_while_the_watch_stumbles() -> None:
    """Four nodes with three devices, 17 Pods at once, claim watches that end and lag: 12 bound, 5 waiting."""
    nodes = [f"n{index}" for index in range(4)]
    objects = [gpu_class(), template("one"), *map(node, nodes), *(gpu_slice(name, 3) for name in nodes)]
    closing = Fault(Action.CLOSE, verb="watch", kind="resourceclaims", times=4, after_events=5)
    async with world(objects, CONFIG, faults=[closing]) as w:
        await create(w, *(pod(f"p{index}", template="one") for index in range(17)))

        async def settled() -> bool:
            return len(await w.bound()) == 12 and w.service.queue.counts()["unschedulable"] == 5

        await w.until(settled, "12 Pods are bound and 5 wait", 20)
        given = [device for devices in (await results(w)).values() for device in devices]
        assert len(given) == len(set(given)) == 12


async def test_b54_allocation_and_reservation_are_stored_before_the_binding() -> None:
    """The recorded order of calls: the claim's status, then the Binding."""
    async with world([gpu_class(), node("n1"), gpu_slice("n1", 1), claim("a")], CONFIG) as w:
        await create(w, pod("p", claim="a"))
        await until_bound(w, "p")
        order = calls(w)
        assert order.index(("patch", "resourceclaims", "status")) < order.index(("create", "pods", "binding"))
        stored = await w.call("GET", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/a")
        assert [consumer["name"] for consumer in stored["status"]["reservedFor"]] == ["p"]
        assert (await results(w)) == {"a": [("n1", "gpu-0")]}


async def test_b54_no_binding_without_the_claims_status() -> None:
    """The status write is refused: no Binding is sent; when it is let through the Pod is bound."""
    async with world([gpu_class(), node("n1"), gpu_slice("n1", 1), claim("a")], CONFIG) as w:
        w.server.faults.add(
            Fault(Action.ANSWER, verb="patch", kind="resourceclaims", subresource="status", code=403, times=1)
        )
        await create(w, pod("p", claim="a"))
        await shown(lambda: w.counts.seen["error"] >= 1)
        assert ("create", "pods", "binding") not in calls(w)
        await until_bound(w, "p")


async def test_b55_a_pod_created_with_a_node_is_left_alone_and_counted() -> None:
    """No write to it or its claim; its CPU keeps others away from the node."""
    async with world([gpu_class(), node("n1", cpu="2"), gpu_slice("n1", 1), claim("a")], CONFIG) as w:
        await create(w, pod("placed", claim="a", cpu="1500m", nodeName="n1"))
        await shown(lambda: "placed" in {info.pod.metadata.name for info in w.service.state.nodes.pods_on("n1")})
        await create(w, pod("big", cpu="1"), pod("small", cpu="100m"))
        await until_bound(w, "small")
        await shown(lambda: w.service.queue.counts()["unschedulable"] == 1)
        await idle(w)
        assert set(await w.bound()) == {"placed", "small"}
        assert (await results(w)) == {"a": []}
        assert [call for call in calls(w) if call[1] == "resourceclaims"] == []
