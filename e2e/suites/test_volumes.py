"""Late binding on the real control plane: volumes that exist, and volumes that a pretended provisioner makes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from e2e.api import CLAIM_TEMPLATES, DEVICE_CLASSES, NODES, PODS, Api, Object
from e2e.controlplane import ControlPlane
from e2e.controlplane.cluster import DEFAULT_CONTROLLERS
from e2e.controlplane.fixtures import make_api
from e2e.driver import PretendedDriver, add_node
from e2e.objects import claim_template, device_class, exactly, pod
from e2e.provisioner import (
    PERSISTENT_VOLUMES,
    SELECTED_NODE,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    PretendedProvisioner,
    claim_volume,
    late_class,
    volume,
    volume_claim,
)
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually

GPU, NS, ZONE = "gpu.example.com", "default", "topology.kubernetes.io/zone"
CONTROLLERS = (*DEFAULT_CONTROLLERS, "persistentvolume-binder-controller")


@asynccontextmanager
async def volume_cluster(
    start: Callable[..., ControlPlane], folder: Path, config: dict[str, Any] | None = None
) -> AsyncIterator[Api]:
    """A control plane that binds volumes, and our scheduler on it."""
    plane = await asyncio.to_thread(start, controllers=CONTROLLERS)
    async with make_api(plane) as api:
        scheduler = SchedulerProcess(folder, plane.kubeconfig_for(), config=config)
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            yield api
        finally:
            await asyncio.to_thread(scheduler.stop)


async def node_of(api: Api, name: str) -> str:
    """The Pod's node, "" without."""
    return str((await api.get(PODS, name, NS))["spec"].get("nodeName", ""))


async def bound_to(api: Api, name: str, node: str, *, timeout_s: float = 30.0) -> None:
    """Wait until the Pod has a node, which must be ``node``."""

    async def bound() -> bool:
        return bool(await node_of(api, name))

    await eventually(bound, f"Pod {name} is bound", timeout_s=timeout_s)
    assert await node_of(api, name) == node


async def claim_of(api: Api, name: str) -> Object:
    """A PersistentVolumeClaim."""
    return await api.get(VOLUME_CLAIMS, name, NS)


async def test_a_volume_that_exists_is_bound_before_the_pod(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """The Pod goes where a large enough volume is, the smallest of these is given, and its claim is bound first."""
    async with volume_cluster(own_control_plane, tmp_path) as api:
        for index in range(3):
            await add_node(api, f"node-{index}")
        await api.create(STORAGE_CLASSES, late_class("local"))
        for name, node, size in (("small", "node-0", "1Gi"), ("large", "node-1", "9Gi"), ("right", "node-1", "5Gi")):
            await api.create(PERSISTENT_VOLUMES, volume(name, "local", node=node, size=size))

        async def available() -> bool:
            volumes = await api.list(PERSISTENT_VOLUMES)
            return all(found.get("status", {}).get("phase") == "Available" for found in volumes)

        await eventually(available, "the volume controller offers every volume")
        await api.create(VOLUME_CLAIMS, volume_claim("data", "local", "4Gi"), NS)
        await api.create(PODS, pod("consumer", volumes=[claim_volume("data")]), NS)
        await bound_to(api, "consumer", "node-1")
        claim = await claim_of(api, "data")
        assert (claim["spec"]["volumeName"], claim["status"]["phase"]) == ("right", "Bound")
        stored = await api.get(PERSISTENT_VOLUMES, "right")
        assert stored["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        assert stored["metadata"]["annotations"]["pv.kubernetes.io/bound-by-controller"] == "yes"

        # Nothing is left that is large enough: the next one is told so, and goes on when a volume comes.
        await api.create(VOLUME_CLAIMS, volume_claim("more", "local", "10Gi"), NS)
        await api.create(PODS, pod("second", volumes=[claim_volume("more")]), NS)
        expected = "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."

        async def told() -> bool:
            message: str = condition(await api.get(PODS, "second", NS)).get("message", "")
            return message.startswith(expected)

        await eventually(told, f"the second Pod is told: {expected}")
        await api.create(PERSISTENT_VOLUMES, volume("late", "local", node="node-2", size="10Gi"))
        await bound_to(api, "second", "node-2")


async def test_a_volume_is_made_for_the_chosen_node(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """B121: the node is written into the claim, the provisioner makes the volume, then the Pod is bound."""
    async with volume_cluster(own_control_plane, tmp_path) as api:
        for zone in "ab":
            await add_node(api, f"node-{zone}", zone=zone)
        topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
        await api.create(STORAGE_CLASSES, late_class("made", "csi.example.com", allowedTopologies=topologies))
        async with PretendedProvisioner(api) as provisioner:
            await api.create(VOLUME_CLAIMS, volume_claim("data", "made"), NS)
            await api.create(PODS, pod("consumer", volumes=[claim_volume("data")]), NS)
            await bound_to(api, "consumer", "node-b")
            claim = await claim_of(api, "data")
            assert claim["metadata"]["annotations"][SELECTED_NODE] == "node-b"
            assert claim["status"]["phase"] == "Bound"
            assert provisioner.made == {"data": "node-b"}


async def test_volume_device_and_zone_leave_one_node(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """Of five nodes one has the zone of the volume, a free device and a place in the spread; the Pod lands there."""
    async with volume_cluster(own_control_plane, tmp_path) as api:
        driver = PretendedDriver(api, GPU)
        await api.create(DEVICE_CLASSES, device_class(GPU, f'device.driver == "{GPU}"'))
        await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(GPU)), NS)
        for name, zone in (("a-gpu", "a"), ("b-none", "b"), ("b-gpu", "b"), ("b-full", "b"), ("c-gpu", "c")):
            await add_node(api, name, zone=zone, cpu="1" if name == "b-full" else "8")
            if "none" not in name:
                await driver.publish_node(name, 1)
        await api.create(STORAGE_CLASSES, late_class("zonal"))
        for zone in "ab":
            await api.create(PERSISTENT_VOLUMES, volume(f"volume-{zone}", "zonal", zone=zone))
        await api.create(VOLUME_CLAIMS, volume_claim("data", "zonal"), NS)
        spread = {
            "maxSkew": 1,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": "x"}},
        }
        first = pod("first", labels={"app": "x"}, requests={"cpu": "1"}, nodeSelector={ZONE: "a"})
        await api.create(PODS, first, NS)
        await bound_to(api, "first", "a-gpu")
        wanted = pod(
            "consumer",
            labels={"app": "x"},
            requests={"cpu": "2"},
            templates={"gpu": "one-gpu"},
            volumes=[claim_volume("data")],
            topologySpreadConstraints=[spread],
        )
        await api.create(PODS, wanted, NS)
        await bound_to(api, "consumer", "b-gpu")
        assert (await claim_of(api, "data"))["spec"]["volumeName"] == "volume-b"


async def test_a_node_that_gets_no_volume_is_given_up(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """B121: after a refusal and after a time-out the claim is free for other nodes, and is made on the next one."""
    profile = {
        "schedulerName": "dra-scheduler",
        "pluginConfig": [{"name": "VolumeBinding", "args": {"bindTimeoutSeconds": 2}}],
    }
    async with volume_cluster(own_control_plane, tmp_path, {"profiles": [profile]}) as api:
        for name in ("refused", "silent"):
            await add_node(api, name)
        await api.create(STORAGE_CLASSES, late_class("made", "csi.example.com"))
        async with PretendedProvisioner(api, refuses={"refused"}, ignores={"silent"}) as provisioner:
            for name in ("refused", "silent"):
                await api.create(VOLUME_CLAIMS, volume_claim(name, "made"), NS)
                wanted = pod(name, volumes=[claim_volume(name)], nodeSelector={"kubernetes.io/hostname": name})
                await api.create(PODS, wanted, NS)

            async def failed() -> bool:
                messages = [
                    condition(await api.get(PODS, name, NS)).get("message", "") for name in ("refused", "silent")
                ]
                start = 'running PreBind plugin "VolumeBinding": binding volumes: '
                return messages == [
                    f'{start}provisioning failed for PVC "refused"',
                    f"{start}context deadline exceeded",
                ]

            await eventually(failed, "both Pods are told why", timeout_s=30)
            assert ("refused", "refused") in provisioner.refused

            # The claim of a deleted Pod is not left pinned: the next Pod may take it elsewhere.
            await add_node(api, "good")
            for name in ("refused", "silent"):
                await api.delete(PODS, name, NS, grace_period_s=0)
                await api.patch(NODES, name, {"spec": {"unschedulable": True}})
                again = pod(f"{name}-again", volumes=[claim_volume(name)])
                await api.create(PODS, again, NS)
            for name in ("refused", "silent"):
                await bound_to(api, f"{name}-again", "good", timeout_s=40)
                claim = await claim_of(api, name)
                assert claim["metadata"]["annotations"][SELECTED_NODE] == "good"
