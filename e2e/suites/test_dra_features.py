"""Each DRA feature once end to end: what the API server accepted, and a kubelet that does not complain."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.api import CLAIMS, DEVICE_CLASSES, DEVICE_TAINT_RULES, EVENTS, PODS, SLICES, Api, Object
from e2e.controlplane import ControlPlane
from e2e.device_cluster import CLASS, NS, Cluster, device_cluster
from e2e.driver import Pool, add_node
from e2e.objects import claim, device, exactly
from e2e.waiting import eventually


@pytest.fixture
async def cluster(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> AsyncIterator[Cluster]:
    """On the control plane that all suites share, with default gates."""
    async with device_cluster(clean_cluster, tmp_path, control_plane.kubeconfig_for()) as made:
        yield made


async def test_partitions_share_the_counters_of_their_device(cluster: Cluster) -> None:
    """Two halves of one device are given out, a third partition that the counters do not allow is not."""
    counters = [{"name": "whole", "counters": {"memory": {"value": "80Gi"}}}]

    def partition(name: str, memory: str) -> Object:
        consumed = [{"counterSet": "whole", "counters": {"memory": {"value": memory}}}]
        return device(name, {"size": memory}, consumesCounters=consumed)

    await add_node(cluster.api, "n")
    devices = [partition("half-0", "40Gi"), partition("half-1", "40Gi"), partition("quarter", "20Gi")]
    pool = Pool("n", devices, {"nodeName": "n"}, slice_count=1)
    body = cluster.driver.slice_object(pool, 0)
    body["spec"]["pool"]["resourceSliceCount"] = 2
    shared = {
        "metadata": {"name": "n-counters"},
        "spec": {**{key: body["spec"][key] for key in ("driver", "pool", "nodeName")}, "sharedCounters": counters},
    }
    await cluster.api.create(SLICES, body)
    await cluster.api.create(SLICES, shared)
    for name in ("one", "two"):
        await cluster.pod(name, exactly(CLASS, f'device.attributes["{CLASS}"].size == "40Gi"'))
        await cluster.bound(name)
    await cluster.pod("three", exactly(CLASS))
    await cluster.refused("three", "cannot allocate all claims")
    assert {(await cluster.results(name))[0]["device"] for name in ("one", "two")} == {"half-0", "half-1"}
    await cluster.delete("one")
    assert await cluster.bound("three") == "n"


async def test_a_device_is_shared_by_capacity(cluster: Cluster) -> None:
    """Shares carry an id and what they consume, rounded by the policy; when the device is full the next Pod waits."""
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}
    big = device("gpu", allowMultipleAllocations=True)
    big["capacity"] = {"memory": {"value": "11Gi", "requestPolicy": policy}}
    await cluster.node("n", big)
    asked = exactly(CLASS, capacity={"requests": {"memory": "4Gi"}})
    for name in ("one", "two"):
        await cluster.pod(name, asked)
        await cluster.bound(name)
    await cluster.pod("three", asked)
    await cluster.refused("three", "cannot allocate all claims")
    shares = [(await cluster.results(name))[0] for name in ("one", "two")]
    assert [share["consumedCapacity"] for share in shares] == [{"memory": "5Gi"}] * 2
    assert len({share["shareID"] for share in shares}) == 2


async def test_taints_of_slices_and_rules(cluster: Cluster) -> None:
    """A taint keeps Pods away that do not tolerate it; a rule taints without the slice, and its end wakes who waits."""
    taint = {"key": "example.com/broken", "value": "true", "effect": "NoSchedule"}
    await cluster.node("n", device("gpu-0", taints=[taint]))
    await cluster.pod("plain", exactly(CLASS))
    await cluster.refused("plain", "cannot allocate all claims")
    tolerated = [{"key": "example.com/broken", "operator": "Exists"}]
    await cluster.pod("tolerant", exactly(CLASS, tolerations=tolerated))
    assert await cluster.bound("tolerant") == "n"
    (result,) = await cluster.results("tolerant")
    assert result["tolerations"] == tolerated
    spec = {"deviceSelector": {"driver": CLASS, "pool": "m"}, "taint": {**taint, "key": "example.com/maintenance"}}
    await cluster.api.create(DEVICE_TAINT_RULES, {"metadata": {"name": "maintenance"}, "spec": spec})
    try:
        await asyncio.sleep(0.5)  # the rule has reached the scheduler before the device does
        await cluster.node("m", device("gpu-0"))
        await cluster.refused("plain", "0/2 nodes are available: 2 cannot allocate all claims")
    finally:
        await cluster.api.delete(DEVICE_TAINT_RULES, "maintenance")
    assert await cluster.bound("plain") == "m"


def attached(name: str = "fabric") -> Object:
    """A device that must be made ready before Pods are bound to it."""
    return device(
        name,
        bindsToNode=True,
        bindingConditions=["example.com/ready"],
        bindingFailureConditions=["example.com/failed"],
    )


async def waits_for_driver(cluster: Cluster, name: str, times: int = 1) -> str:
    """Wait until the Pod's claim is allocated for the n-th time and the Binding waits; the claim's name."""

    async def waits() -> bool:
        events = [
            event
            for event in await cluster.api.list(EVENTS, NS)
            if event["reason"] == "BindingConditionsPending" and event["regarding"]["name"] == name
        ]
        return times <= sum(int((event.get("series") or {}).get("count", 1)) for event in events)

    await eventually(waits, f"pod {name} waits for its device, {times} times", timeout_s=30)
    found = await cluster.claim_of(name)
    assert "allocationTimestamp" in found["status"]["allocation"]
    (result,) = found["status"]["allocation"]["devices"]["results"]
    assert result["bindingConditions"] == ["example.com/ready"]
    assert result["bindingFailureConditions"] == ["example.com/failed"]
    claim_name: str = found["metadata"]["name"]
    return claim_name


async def test_binding_conditions_met_failed_and_timed_out(cluster: Cluster) -> None:
    """Bindings wait for the driver side by side, others are placed meanwhile; failure and time-out start over."""
    api, driver = cluster.api, cluster.driver
    names = ("met", "failed", "late")
    for name in names:
        await cluster.node(name, attached())
        await cluster.pod(name, exactly(CLASS), nodeSelector={"kubernetes.io/hostname": name})
    claims = {name: await waits_for_driver(cluster, name) for name in names}
    await cluster.pod("other")
    await cluster.bound("other", timeout_s=3)
    await driver.set_device_conditions(NS, claims["met"], {"example.com/ready": "True"})
    await driver.set_device_conditions(NS, claims["failed"], {"example.com/failed": "True"})
    assert await cluster.bound("met") == "met"
    await cluster.told("failed", f"device binding failed: claim={claims['failed']}, reason=Reported")
    await cluster.told("late", "device binding timeout: ")
    for name in ("failed", "late"):
        await waits_for_driver(cluster, name, times=2)
        assert "devices" not in (await api.get(CLAIMS, claims[name], NS))["status"]
        await driver.set_device_conditions(NS, claims[name], {"example.com/ready": "True"})
    assert {await cluster.bound("failed"), await cluster.bound("late")} == {"failed", "late"}


async def test_extended_resources_from_a_device_plugin_and_from_devices(cluster: Cluster) -> None:
    """Each node serves its way; behind devices stands a claim that goes with its Pod and gives them back."""
    resource = "example.com/gpu"
    await cluster.api.patch(DEVICE_CLASSES, CLASS, {"spec": {"extendedResourceName": resource}})
    await cluster.node("plugin", extended={resource: "1"})
    await cluster.node("devices", device("gpu-0"), extended={resource: "0"})

    def asking(name: str, on: str) -> Any:
        one = {resource: "1"}
        return cluster.pod(name, requests=one, limits=one, nodeSelector={"kubernetes.io/hostname": on})

    await asking("one", "plugin")
    await asking("two", "devices")
    assert [await cluster.bound("one"), await cluster.bound("two")] == ["plugin", "devices"]
    found = await cluster.claim_of("two")
    assert [item["metadata"]["name"] for item in await cluster.api.list(CLAIMS, NS)] == [found["metadata"]["name"]]
    assert found["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    (request,) = found["spec"]["devices"]["requests"]
    status = (await cluster.api.get(PODS, "two", NS))["status"]["extendedResourceClaimStatus"]
    mapping = {"containerName": "main", "resourceName": resource, "requestName": request["name"]}
    assert status == {"resourceClaimName": found["metadata"]["name"], "requestMappings": [mapping]}
    assert "extendedResourceClaimStatus" not in (await cluster.api.get(PODS, "one", NS))["status"]
    await asking("three", "devices")
    await asking("four", "plugin")
    await cluster.refused("three", "1 cannot allocate all claims")
    await cluster.refused("four", f"1 Insufficient {resource}")
    await cluster.delete("two")
    assert await cluster.bound("three", timeout_s=40) == "devices"


async def test_a_network_attached_device(cluster: Cluster) -> None:
    """A device that a whole zone reaches gives the claim the zone's selector, for its second user as well."""
    for name, zone in (("near-0", "near"), ("near-1", "near"), ("far", "far")):
        await add_node(cluster.api, name, zone=zone, cpu="1")
    terms = [{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["near"]}]}]
    selector = {"nodeSelectorTerms": terms}
    await cluster.driver.publish(Pool("fabric", [device("disk")], {"nodeSelector": selector}))
    await cluster.api.create(CLAIMS, claim("shared", exactly(CLASS)), NS)
    nodes = []
    for name in ("one", "two"):
        await cluster.pod(name, claims={"disk": "shared"}, requests={"cpu": "1"})
        nodes.append(await cluster.bound(name))
    assert sorted(nodes) == ["near-0", "near-1"]
    found = await cluster.api.get(CLAIMS, "shared", NS)
    assert found["status"]["allocation"]["nodeSelector"] == selector
    assert len(found["status"]["reservedFor"]) == 2


async def test_a_prioritized_list(cluster: Cluster) -> None:
    """The first alternative that can be had is taken and named in the result; a node with a better one wins."""
    await cluster.node("small", device("gpu-0", {"size": "small"}), device("gpu-1", {"size": "small"}))
    wanted = [
        {
            "name": size,
            "deviceClassName": CLASS,
            "count": 1,
            "selectors": [{"cel": {"expression": f'device.attributes["{CLASS}"].size == "{size}"'}}],
        }
        for size in ("huge", "big", "small")
    ]
    listed = {"name": "gpu", "firstAvailable": wanted}
    await cluster.pod("one", listed)
    assert await cluster.bound("one") == "small"
    await cluster.node("big", device("gpu-0", {"size": "big"}))
    await cluster.pod("two", listed)
    assert await cluster.bound("two") == "big"
    assert [(await cluster.results(name))[0]["request"] for name in ("one", "two")] == ["gpu/small", "gpu/big"]
