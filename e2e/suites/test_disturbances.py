"""Drivers, nodes and the API server misbehave: waiting Pods get in, what others hold stays, nothing is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import yaml

from e2e.api import CLAIMS, DEVICE_CLASSES, NODES, PODS, Api
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.driver import PretendedDriver, add_node, remove_node
from e2e.objects import device_class
from e2e.proxy import CuttingProxy, port_of
from e2e.scheduler import SchedulerProcess, record
from e2e.suites.test_devices import (
    CLASS,
    NS,
    bound_are,
    bound_count,
    create_pods,
    given_devices,
    gpu_cluster,
    is_bound,
    waiting_messages,
)
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet


async def _allocations(api: Api) -> dict[str, object]:
    return {c["metadata"]["name"]: (c.get("status") or {}).get("allocation") for c in await api.list(CLAIMS, NS)}


async def test_driver_restart_and_half_a_pool(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A driver republishes under a new generation, half of it first: nothing is given meanwhile, everything after."""
    api = clean_cluster
    driver = PretendedDriver(api, CLASS)
    await gpu_cluster(api, 0, 0)
    await add_node(api, "node-0")
    await driver.publish_node("node-0", 4, slices=2)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["a", "b"], templates={"gpu": "one-gpu"})
        await eventually(bound_are(api, 2), "two Pods are bound")
        before = await _allocations(api)
        await driver.publish_half("node-0")
        await create_pods(api, ["c"], templates={"gpu": "one-gpu"})

        async def refused() -> bool:
            return "cannot allocate all claims" in (await waiting_messages(api)).get("c", "")

        await eventually(refused, "nothing is given from half a pool")
        await driver.restore("node-0")
        await eventually(is_bound(api, "c"), "the waiting Pod gets in when the pool is whole again", timeout_s=30)
        await driver.bump("node-0")
        await create_pods(api, ["d"], templates={"gpu": "one-gpu"})
        await eventually(is_bound(api, "d"), "the next generation serves too", timeout_s=30)
        after = await _allocations(api)
        assert all(after[name] == allocation for name, allocation in before.items()), "others keep what they have"
        given = await given_devices(api)
        assert len(given) == len(set(given)) == 4
        await driver.withdraw("node-0")
        await create_pods(api, ["e"], templates={"gpu": "one-gpu"})
        await eventually(refused_as(api, "e"), "without slices nothing is given")
        await driver.restore("node-0")
        await api.delete(PODS, "a", NS, grace_period_s=0)
        await eventually(is_bound(api, "e"), "a returned slice and a freed device serve the waiting Pod", timeout_s=60)


def refused_as(api: Api, name: str):  # type: ignore[no-untyped-def]  # a check for eventually()
    """A check for eventually(): the Pod carries the refusal."""

    async def check() -> bool:
        return "cannot allocate all claims" in (await waiting_messages(api)).get(name, "")

    return check


async def test_tainted_device_waits_for_the_taint_to_go(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The only device is tainted: the Pod waits, and is woken when the taint goes."""
    api = clean_cluster
    driver = await gpu_cluster(api, 1, 1)
    await driver.taint("node-0", "gpu-0")
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["a"], templates={"gpu": "one-gpu"})
        await eventually(refused_as(api, "a"), "the tainted device is not given")
        await driver.untaint("node-0", "gpu-0")
        await eventually(is_bound(api, "a"), "the Pod gets the healed device", timeout_s=30)


async def test_node_drained_deleted_and_added_again(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Cordoned and emptied, deleted, added again under its name: waiting Pods get in, Pods elsewhere keep theirs."""
    api = clean_cluster
    driver = await gpu_cluster(api, 2, 2)
    async with PretendedKubelet(api.session) as kubelet:
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
            await create_pods(api, [f"pod-{i}" for i in range(4)], templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, 4), "all four devices are given")
            pods = await api.list(PODS, NS)
            there = [p["metadata"]["name"] for p in pods if p["spec"]["nodeName"] == "node-0"]
            elsewhere = [p["metadata"]["name"] for p in pods if p["spec"]["nodeName"] == "node-1"]
            assert len(there) == len(elsewhere) == 2
            kept = {n: a for n, a in (await _allocations(api)).items() if a and "node-1" in str(a)}
            await api.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
            for name in there:
                await api.delete(PODS, name, NS)
            await create_pods(api, ["late-0", "late-1"], templates={"gpu": "one-gpu"})

            async def cordoned() -> bool:
                texts = await waiting_messages(api)
                return len(texts) == 2 and all("node(s) were unschedulable" in text for text in texts.values())

            await eventually(cordoned, "the cordoned node takes nobody")
            await remove_node(api, "node-0")
            await driver.withdraw("node-0")
            await add_node(api, "node-0")
            await driver.restore("node-0")
            await eventually(is_bound(api, "late-0"), "a waiting Pod gets in", timeout_s=60)
            await eventually(is_bound(api, "late-1"), "and the other", timeout_s=60)
            now = await _allocations(api)
            assert all(now[name] == allocation for name, allocation in kept.items())
            given = await given_devices(api)
            assert len(given) == len(set(given)) == 4
        assert kubelet.complaints() == []


async def test_api_server_restarts_under_load(own_control_plane, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]  # a fixture
    """The API server goes away twice while Pods arrive: the same process goes on, nothing is lost or given twice."""
    plane: ControlPlane = own_control_plane()
    async with make_api(plane) as api:
        await gpu_cluster(api, 10, 8)
        with SchedulerProcess(tmp_path, plane.kubeconfig_for()) as scheduler:
            pid = scheduler.pid
            for round_number in range(2):
                names = [f"pod-{round_number}-{i}" for i in range(50)]
                await create_pods(api, names, templates={"gpu": "one-gpu"})
                await asyncio.sleep(0.3)
                await asyncio.to_thread(plane.restart_apiserver, kill=round_number == 1)
            await eventually(bound_are(api, 80), "all Pods that fit are bound", timeout_s=120, interval_s=0.3)
            await asyncio.sleep(1.0)
            assert scheduler.pid == pid
            given = await given_devices(api)
            assert len(given) == len(set(given)) == 80


async def test_connections_cut_and_stalled_under_load(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Every connection is cut ten times, wherever it stands, and once all stand still: it recovers by itself."""
    api = clean_cluster
    await gpu_cluster(api, 10, 8)
    original = control_plane.kubeconfig_for()
    async with CuttingProxy(port_of(yaml.safe_load(original.read_text()))) as proxy, record(api) as history:
        scheduler = SchedulerProcess(tmp_path, proxy.kubeconfig(original, tmp_path))
        try:
            await asyncio.to_thread(scheduler.start_and_wait)
            load = asyncio.create_task(
                create_pods(api, [f"pod-{i}" for i in range(100)], at_once=4, templates={"gpu": "one-gpu"})
            )
            for _ in range(10):
                await asyncio.sleep(0.2)
                proxy.cut_all()
            proxy.stall()
            await asyncio.sleep(3.0)
            proxy.flow()
            await load
            await eventually(bound_are(api, 80), "all Pods that fit are bound", timeout_s=120)
            print(f"{proxy.cuts} connections cut, {await bound_count(api)} bound")
            await asyncio.sleep(1.0)
            given = await given_devices(api)
            assert len(given) == len(set(given)) == 80
            assert history.double_given() == []
            assert history.bound_without_reservation() == []
            assert proxy.cuts > 10
        finally:
            await asyncio.to_thread(scheduler.stop)


async def test_a_class_that_appears_later_wakes_the_pod(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A Pod whose class does not exist says so and is bound as soon as it does."""
    api = clean_cluster
    await gpu_cluster(api, 1, 1)
    await api.delete(DEVICE_CLASSES, CLASS)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["a"], templates={"gpu": "one-gpu"})

        async def told() -> bool:
            return f"device class {CLASS} does not exist" in (await waiting_messages(api)).get("a", "")

        await eventually(told, "the missing class is named")
        await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
        await eventually(is_bound(api, "a"), "the Pod is bound", timeout_s=30)
