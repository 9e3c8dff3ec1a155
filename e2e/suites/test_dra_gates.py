"""DRA features whose gates are off by default, once end to end on a control plane that has them on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from e2e.api import CLAIM_TEMPLATES, CLAIMS, NODES, PODS, SLICES, Object, Resource
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.device_cluster import CLASS, NS, Cluster, device_cluster
from e2e.driver import Pool, add_node
from e2e.objects import claim, claim_template, device, exactly

GATES = {
    "DRANodeAllocatableResources": True,
    "DRAListTypeAttributes": True,
    "DRADerivedAttributes": True,
    "DRADeviceCompatibilityGroups": True,
    "GenericWorkload": True,
    "DRAWorkloadResourceClaims": True,
}
RUNTIME = {"scheduling.k8s.io/v1beta1": True}
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


@pytest.fixture
async def cluster(own_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> AsyncIterator[Cluster]:
    """API server, controllers and scheduler with the gates on."""
    plane = await asyncio.to_thread(own_control_plane, feature_gates=GATES, runtime_config=RUNTIME)
    flag = "--feature-gates=" + ",".join(f"{name}=true" for name in GATES)
    async with make_api(plane) as api, device_cluster(api, tmp_path, plane.kubeconfig_for(), [flag]) as made:
        yield made


def listed(name: str, *zones: str) -> Object:
    """A device with a list of strings as an attribute."""
    made = device(name)
    made["attributes"] = {"example.com/zones": {"strings": list(zones)}}
    return made


async def derived_and_listed_attributes(cluster: Cluster) -> None:
    """List values must meet for matchAttribute; a derived attribute exists for the constraint alone."""
    await cluster.node("lists", listed("a", "x"), listed("b", "y", "z"), listed("c", "z"))
    on = {"kubernetes.io/hostname": "lists"}
    match = [{"matchAttribute": "example.com/zones"}]
    await cluster.pod("list", exactly(CLASS, count=2), constraints=match, nodeSelector=on)
    await cluster.bound("list")
    assert [result["device"] for result in await cluster.results("list")] == ["b", "c"]
    sizes = [device(f"gpu-{i}", {"size": size}) for i, size in enumerate((7, 12, 15, 9))]
    await cluster.node("sizes", *sizes)
    derived = {"name": "example.com/large", "expression": f'device.attributes["{CLASS}"].size > 10'}
    asked = exactly(CLASS, f'"size" in device.attributes["{CLASS}"]', count=2, derivedAttributes=[derived])
    await cluster.pod("derived", asked, constraints=[{"matchAttribute": "example.com/large"}])
    assert await cluster.bound("derived") == "sizes"
    assert [result["device"] for result in await cluster.results("derived")] == ["gpu-0", "gpu-3"]


async def compatibility_groups(cluster: Cluster) -> None:
    """Devices of one counter set are given out together only while they have a group in common."""

    def part(name: str, *groups: str) -> Object:
        counters = {"slots": {"value": "1"}}
        return device(name, consumesCounters=[{"counterSet": "s", "counters": counters, "compatibilityGroups": groups}])

    await add_node(cluster.api, "groups")
    pool = Pool("groups", [part("a", "x"), part("b", "y"), part("c", "x", "y")], {"nodeName": "groups"})
    body = cluster.driver.slice_object(pool, 0)
    body["spec"]["pool"]["resourceSliceCount"] = 2
    place = {key: body["spec"][key] for key in ("driver", "pool", "nodeName")}
    counters = [{"name": "s", "counters": {"slots": {"value": "8"}}}]
    await cluster.api.create(SLICES, body)
    shared = {"metadata": {"name": "groups-counters"}, "spec": {**place, "sharedCounters": counters}}
    await cluster.api.create(SLICES, shared)
    on = {"kubernetes.io/hostname": "groups"}
    for name in ("one", "two"):
        await cluster.pod(name, exactly(CLASS), nodeSelector=on)
        await cluster.bound(name)
    assert [(await cluster.results(name))[0]["device"] for name in ("one", "two")] == ["a", "c"]
    await cluster.pod("third", exactly(CLASS), nodeSelector=on)
    await cluster.refused("third", "1 cannot allocate all claims")


async def node_allocatable_resources(cluster: Cluster) -> None:
    """A device that is two cpus leaves that much less; the Pod's status tells the kubelet; the claim is not shared."""
    cpus = device("cpus-0")
    cpus["nodeAllocatableResources"] = {
        "cpu": {"mapping": {"deviceMultiplier": "2"}},
        "memory": {"overhead": {"perPod": "1Gi", "perContainer": "100Mi"}},
    }
    await add_node(cluster.api, "cpus", cpu="4")
    declared = {"status": {"declaredFeatures": ["DRANodeAllocatableResources"]}}
    await cluster.api.patch(NODES, "cpus", declared, subresource="status")
    await cluster.driver.publish(Pool("cpus", [cpus], {"nodeName": "cpus"}))
    await cluster.api.create(CLAIMS, claim("cpus", exactly(CLASS)), NS)
    on = {"kubernetes.io/hostname": "cpus"}
    await cluster.pod("pinned", claims={"cpus": "cpus"}, requests={"cpu": "1"}, nodeSelector=on)
    await cluster.bound("pinned")
    status = (await cluster.api.get(PODS, "pinned", NS))["status"]["nodeAllocatableResourceClaimStatuses"]
    assert status == [
        {
            "resourceClaimName": "cpus",
            "containers": ["main"],
            "mapping": [{"name": "cpu", "quantity": "2"}],
            "overhead": [{"name": "memory", "perPod": "1Gi", "perContainer": "100Mi"}],
        }
    ]
    await cluster.pod("large", requests={"cpu": "1500m"}, nodeSelector=on)
    await cluster.refused("large", "1 Insufficient cpu")
    await cluster.pod("sharing", claims={"cpus": "cpus"}, requests={"cpu": "1m"}, nodeSelector=on)
    await cluster.refused("sharing", "node allocatable resource claim cpus has a mapped device and cannot be shared")
    await cluster.pod("small", requests={"cpu": "1"}, nodeSelector=on)
    await cluster.bound("small")


async def pod_group_claims(cluster: Cluster) -> None:
    """All Pods of a group use the one claim made for it, reserved for the group; a gang waits for its members."""
    await cluster.node("team", device("gpu-0"))
    await cluster.api.create(CLAIM_TEMPLATES, claim_template("team", exactly(CLASS)), NS)
    entry = {"name": "gpu", "resourceClaimTemplateName": "team"}
    groups = {"team": {"basic": {}}, "gang": {"gang": {"minCount": 2}}}
    for name, policy in groups.items():
        spec = {"schedulingPolicy": policy, "resourceClaims": [entry] if name == "team" else []}
        await cluster.api.create(POD_GROUPS, {"metadata": {"name": name}, "spec": spec}, NS)
    on = {"kubernetes.io/hostname": "team"}
    member = {"nodeSelector": on, "templates": {"gpu": "team"}, "schedulingGroup": {"podGroupName": "team"}}
    await cluster.pod("first", **member)
    await cluster.pod("second", **member)
    assert [await cluster.bound("first"), await cluster.bound("second")] == ["team", "team"]
    (found,) = [item for item in await cluster.api.list(CLAIMS, NS) if "team" in item["metadata"]["name"]]
    (consumer,) = found["status"]["reservedFor"]
    assert (consumer["apiGroup"], consumer["resource"], consumer["name"]) == ("scheduling.k8s.io", "podgroups", "team")
    await cluster.pod("ganged", schedulingGroup={"podGroupName": "gang"}, nodeSelector=on)
    await cluster.refused("ganged", "waiting for minCount pods from a gang to appear in scheduling queue")


async def test_features_behind_gates(cluster: Cluster) -> None:
    """Each on nodes of its own, so that one control plane and one scheduler serve them all."""
    await derived_and_listed_attributes(cluster)
    await compatibility_groups(cluster)
    await node_allocatable_resources(cluster)
    await pod_group_claims(cluster)
