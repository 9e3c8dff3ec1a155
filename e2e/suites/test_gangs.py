"""PodGroups on the real control plane: all or nothing, with claims of the Pods and of the group."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from e2e.api import CLAIM_TEMPLATES, CLAIMS, PODS, Object, Resource
from e2e.controlplane import ControlPlane, build
from e2e.controlplane.fixtures import make_api
from e2e.device_cluster import CLASS, NS, Cluster, device_cluster
from e2e.objects import claim_template, device, exactly
from e2e.waiting import eventually

GATES = {"GenericWorkload": True, "DRAWorkloadResourceClaims": True}
OVERLAY = Path(__file__).resolve().parents[2] / "manifests/overlays/gangs"
ACCOUNT = ("dra-scheduler", "dra-scheduler")
RUNTIME = {"scheduling.k8s.io/v1beta1": True}
POD_GROUPS = Resource("scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup")


def apply_overlay(plane: ControlPlane) -> None:
    """`kubectl apply -k manifests/overlays/gangs` as admin."""
    kubectl = build.control_plane_binaries() / "kubectl"
    command = [str(kubectl), f"--kubeconfig={plane.kubeconfig_for()}", "apply", "-k", str(OVERLAY)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
async def cluster(own_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> AsyncIterator[Cluster]:
    """API server, controllers and scheduler with the gates on; it has the rights of manifests/overlays/gangs."""
    plane = await asyncio.to_thread(own_control_plane, feature_gates=GATES, runtime_config=RUNTIME)
    await asyncio.to_thread(apply_overlay, plane)
    flag = "--feature-gates=" + ",".join(f"{name}=true" for name in GATES)
    async with (
        make_api(plane) as api,
        device_cluster(api, tmp_path, plane.kubeconfig_for(service_account=ACCOUNT), [flag]) as made,
    ):
        yield made


async def gang(cluster: Cluster, name: str, min_count: int, **spec: Any) -> None:
    """A PodGroup with the gang policy."""
    spec["schedulingPolicy"] = {"gang": {"minCount": min_count}}
    await cluster.api.create(POD_GROUPS, {"metadata": {"name": name}, "spec": spec}, NS)


async def told(cluster: Cluster, name: str, status: str, reason: str, message: str) -> None:
    """Wait until the group's condition says this."""

    async def says() -> bool:
        found = (await cluster.api.get(POD_GROUPS, name, NS)).get("status", {}).get("conditions", [])
        return [(c["type"], c["status"], c["reason"], c["message"]) for c in found] == [
            ("PodGroupInitiallyScheduled", status, reason, message)
        ]

    await eventually(says, f"PodGroup {name} says {status} {reason} {message!r}", timeout_s=20.0)


async def allocated(cluster: Cluster) -> set[str]:
    """The Pods whose claims have devices."""
    claims: list[Object] = await cluster.api.list(CLAIMS, NS)
    with_devices = [item for item in claims if item.get("status", {}).get("allocation")]
    return {item["metadata"]["ownerReferences"][0]["name"] for item in with_devices}


async def two_gangs_of_three_on_four_devices(cluster: Cluster) -> None:
    """B131, U11: one gang has all its devices, the other none; it follows when the first has gone."""
    for index in range(2):
        await cluster.node(f"n{index}", device("gpu-0"), device("gpu-1"))
    for name in "ab":
        await gang(cluster, name, 3)
    for index in range(3):
        for name in "ab":
            await cluster.pod(f"{name}{index}", exactly(CLASS), schedulingGroup={"podGroupName": name})

    states: dict[str, str] = {}

    async def decided() -> bool:
        """One gang has its place. A gang still without its last claim may be told False: that alone decides nothing."""
        for item in await cluster.api.list(POD_GROUPS, NS):
            for condition in item.get("status", {}).get("conditions", []):
                states[item["metadata"]["name"]] = condition["status"]
        return sorted(states.values()) == ["False", "True"]

    await eventually(decided, "one group is scheduled, the other is told", timeout_s=30.0)
    first, second = sorted("ab", key=lambda name: states[name], reverse=True)
    for index in range(3):
        await cluster.bound(f"{first}{index}")
    text = "minCount (3) cannot be satisfied: 1 scheduled, 1 remaining"
    await told(cluster, second, "False", "Unschedulable", text)
    await cluster.refused(f"{second}0", text)
    assert await allocated(cluster) == {f"{first}{index}" for index in range(3)}
    assert not [
        item
        for item in await cluster.api.list(PODS, NS)
        if item["spec"].get("nodeName") and item["metadata"]["name"].startswith(second)
    ]
    for index in range(3):
        await cluster.delete(f"{first}{index}")
    for index in range(3):
        await cluster.bound(f"{second}{index}", timeout_s=40.0)
    await told(cluster, second, "True", "Scheduled", "")
    for index in range(3):
        await cluster.delete(f"{second}{index}")


async def a_gang_shares_its_claim_in_one_cycle(cluster: Cluster) -> None:
    """The controller makes one claim for the group; all members go where its device is, without a second try."""
    await cluster.api.create(CLAIM_TEMPLATES, claim_template("team", exactly(CLASS)), NS)
    await gang(cluster, "team", 3, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "team"}])
    for index in range(3):
        fields = {"templates": {"gpu": "team"}, "schedulingGroup": {"podGroupName": "team"}}
        await cluster.pod(f"team{index}", **fields)
    nodes = {await cluster.bound(f"team{index}") for index in range(3)}
    assert len(nodes) == 1
    claims = [item for item in await cluster.api.list(CLAIMS, NS) if item["metadata"]["name"].startswith("team")]
    (claim,) = claims
    (consumer,) = claim["status"]["reservedFor"]
    assert (consumer["resource"], consumer["name"]) == ("podgroups", "team")
    await told(cluster, "team", "True", "Scheduled", "")


async def test_gangs(cluster: Cluster) -> None:
    """One control plane and one scheduler serve all."""
    await two_gangs_of_three_on_four_devices(cluster)
    await a_gang_shares_its_claim_in_one_cycle(cluster)
