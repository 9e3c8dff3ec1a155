"""A whole service whose Pods ask for extended resources that devices serve."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.embedded import Fault
from scheduler.embedded.faults import Action

from .objects import claim, gpu_class, gpu_slice, node, pod
from .world import World, world

GPU = "example.com/gpu"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
Object = dict[str, Any]


def cluster(nodes: int = 1, devices: int = 2) -> list[Object]:
    """Nodes with devices of a class that stands for the resource."""
    served = gpu_class()
    served["spec"]["extendedResourceName"] = GPU
    names = [f"node-{i}" for i in range(nodes)]
    return [served, *(node(name) for name in names), *(gpu_slice(name, devices) for name in names)]


def asking(name: str, count: int = 1, claim_name: str = "") -> Object:
    """A Pod that asks for so many."""
    made = pod(name, claim=claim_name)
    made["spec"]["containers"][0]["resources"]["requests"][GPU] = str(count)
    made["spec"]["containers"][0]["resources"]["limits"] = {GPU: str(count)}
    return made


async def claims(running: World) -> list[Object]:
    """All claims."""
    found: list[Object] = (await running.call("GET", CLAIMS))["items"]
    return found


def binds(running: World, *names: str) -> Any:
    """A check that these Pods have nodes."""

    async def check() -> bool:
        return set(names) <= set(await running.bound())

    return check


async def test_b47_b74_a_pod_gets_its_claim_and_the_kubelet_is_told() -> None:
    """B47, B74: the claim is stored, allocated, reserved; mappings name its requests; the next Pod waits."""
    async with world(cluster()) as running:
        running.server.load([asking("one", 2), asking("two", 1)])
        await running.until(binds(running, "one"), "the first Pod is bound")
        (made,) = await claims(running)
        told = (await running.pod("one"))["status"]["extendedResourceClaimStatus"]
        assert told["resourceClaimName"] == made["metadata"]["name"]
        requests = {request["name"] for request in made["spec"]["devices"]["requests"]}
        assert {mapping["requestName"] for mapping in told["requestMappings"]} <= requests
        assert [consumer["name"] for consumer in made["status"]["reservedFor"]] == ["one"]
        assert len(made["status"]["allocation"]["devices"]["results"]) == 2
        assert "two" not in await running.bound()
        await running.call("DELETE", "/api/v1/namespaces/default/pods/one", {"gracePeriodSeconds": 0})
        await running.until(binds(running, "two"), "the second Pod gets what came free")


async def test_b75_no_call_carries_a_placeholder() -> None:
    """B75: with claims of the user's and without, with devices and a plugin, no name from our memory leaves."""
    objects = [*cluster(), claim("mine"), node("plugin")]
    objects[-1]["status"]["allocatable"][GPU] = "4"
    async with world(objects) as running:
        running.server.load([asking("a", 1, "mine"), asking("b", 4), asking("c", 9)])
        await running.until(binds(running, "a", "b"), "both are bound")

        async def told() -> bool:
            conditions = (await running.pod("c")).get("status", {}).get("conditions") or []
            return any("cannot" in condition.get("message", "") for condition in conditions)

        await running.until(told, "the third is told")
        assert (await running.bound())["b"] == "plugin"
        assert len(await claims(running)) == 2, "the user's and one of ours"
        assert running.counts.seen["claim success"] == 1
        written = repr([entry.call for entry in running.server.audit.writes()])
        stored = repr(await claims(running)) + repr([await running.pod(name) for name in "abc"])
        assert "<extended-resources>" not in written + stored
        assert 'extended-resources-"' not in stored


async def test_a_binding_that_fails_leaves_no_claim_behind() -> None:
    """When the Binding is refused the claim goes again; the next attempt makes another one and succeeds."""
    async with world(cluster()) as running:
        running.server.faults.add(Fault(Action.ANSWER, kind="pods", subresource="binding", code=403, times=1))
        running.server.load([asking("one", 2)])
        await running.until(binds(running, "one"), "the Pod is bound in the end", timeout_s=15)
        (left,) = await claims(running)
        assert (
            left["metadata"]["name"]
            == (await running.pod("one"))["status"]["extendedResourceClaimStatus"]["resourceClaimName"]
        )


async def test_a_status_that_cannot_be_written_takes_everything_back() -> None:
    """The kubelet must know: without the Pod's status there is no Binding, and the devices come free."""
    async with world(cluster()) as running:
        fault = Fault(Action.ANSWER, verb="patch", kind="pods", subresource="status", code=403, times=1)
        running.server.faults.add(fault)
        running.server.load([asking("one", 2)])
        await running.until(binds(running, "one"), "the Pod is bound in the end", timeout_s=15)
        assert fault.hits == 1
        assert len(await claims(running)) == 1


async def test_a_claim_left_by_a_dead_process_is_replaced() -> None:
    """A process that died after the creation left a claim: it is deleted, then the Pod gets a new one."""
    waiting = asking("one", 2)
    waiting["metadata"]["uid"] = "one-uid"
    left = claim("one-extended-resources-aaaaa")
    left["metadata"] |= {
        "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
        "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "one", "uid": "one-uid", "controller": True}],
        "finalizers": ["resource.kubernetes.io/delete-protection"],
    }
    async with world([*cluster(), left, waiting]) as running:
        await running.until(binds(running, "one"), "the Pod is bound in the end", timeout_s=15)
        names = [made["metadata"]["name"] for made in await claims(running)]
        assert len(names) == 1
        assert names != ["one-extended-resources-aaaaa"]


@pytest.mark.parametrize("action", [Action.DROP_BEFORE, Action.DROP_AFTER, Action.ANSWER])
@pytest.mark.parametrize(
    ("verb", "kind", "subresource"),
    [
        ("create", "resourceclaims", "*"),
        ("patch", "resourceclaims", ""),
        ("patch", "resourceclaims", "status"),
        ("patch", "pods", "status"),
        ("create", "pods", "binding"),
    ],
)
async def test_one_lost_or_failed_write_ends_with_one_claim(
    action: Action, verb: str, kind: str, subresource: str
) -> None:
    """Wherever a single write is lost or answered 500, the Pod is bound with one claim, and no device leaks."""
    async with world(cluster()) as running:
        fault = Fault(action, verb=verb, kind=kind, subresource=subresource, code=500, times=1)
        running.server.faults.add(fault)
        running.server.load([asking("one", 1)])
        await running.until(binds(running, "one"), "the Pod is bound in the end", timeout_s=20)
        assert fault.hits == 1
        (made,) = await claims(running)
        assert [consumer["name"] for consumer in made["status"]["reservedFor"]] == ["one"]
        running.server.load([asking("two", 1)])
        await running.until(binds(running, "two"), "the second device is still there", timeout_s=20)
