"""The main job on the real control plane: Pods with claims get devices, exactly once, in the right order of writes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, EVENTS, PODS, Api, Object
from e2e.controlplane import ControlPlane
from e2e.driver import PretendedDriver, add_node
from e2e.objects import claim, claim_template, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess, condition, device_keys, record
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

CLASS = "gpu.example.com"
NS = "default"


async def gpu_cluster(api: Api, nodes: int, devices: int, **node: str) -> PretendedDriver:
    """Nodes with devices of one class, and a template that asks for one device."""
    driver = PretendedDriver(api, CLASS)
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    for index in range(nodes):
        await add_node(api, f"node-{index}", **node)  # type: ignore[arg-type]  # texts only
        await driver.publish_node(f"node-{index}", devices)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    return driver


async def create_pods(api: Api, names: Sequence[str], *, at_once: int = 16, **fields: object) -> None:
    """Create Pods side by side."""
    slots = asyncio.Semaphore(at_once)

    async def one(name: str) -> None:
        async with slots:
            await api.create(PODS, pod(name, **fields), NS)  # type: ignore[arg-type]  # the caller's keywords

    await asyncio.gather(*(one(name) for name in names))


async def bound_count(api: Api) -> int:
    """Pods with a node."""
    return sum(bool(item["spec"].get("nodeName")) for item in await api.list(PODS, NS))


def bound_are(api: Api, count: int) -> Callable[[], Awaitable[bool]]:
    """A check for eventually(): so many Pods have a node."""

    async def check() -> bool:
        return await bound_count(api) == count

    return check


def is_bound(api: Api, name: str) -> Callable[[], Awaitable[bool]]:
    """A check for eventually(): this Pod has a node."""

    async def check() -> bool:
        found = await api.find(PODS, name, NS)
        return found is not None and bool(found["spec"].get("nodeName"))

    return check


async def waiting_messages(api: Api) -> dict[str, str]:
    """Pod name -> message of its PodScheduled condition, for Pods without a node."""
    return {
        item["metadata"]["name"]: condition(item).get("message", "")
        for item in await api.list(PODS, NS)
        if not item["spec"].get("nodeName")
    }


async def given_devices(api: Api) -> list[tuple[str, str, str]]:
    """Every (driver, pool, device) of every allocation."""
    return [key for item in await api.list(CLAIMS) for key in device_keys(item)]


async def test_a_plain_pod_is_bound(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A Pod that names us gets node, condition and event as from kube-scheduler; one that does not is left alone."""
    api = clean_cluster
    await add_node(api, "node-0")
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
        await api.create(PODS, pod("ours", requests={"cpu": "1"}), NS)
        await api.create(PODS, pod("theirs", scheduler="default-scheduler"), NS)
        await eventually(is_bound(api, "ours"), "the Pod is bound")
        ours = await api.get(PODS, "ours", NS)
        assert ours["spec"]["nodeName"] == "node-0"
        assert condition(ours)["status"] == "True"
        assert not (await api.get(PODS, "theirs", NS))["spec"].get("nodeName")

        async def told() -> bool:
            events = await api.list(EVENTS, NS)
            return any(
                e["reason"] == "Scheduled"
                and e["note"] == f"Successfully assigned {NS}/ours to node-0"
                and e["reportingController"] == "dra-scheduler"
                for e in events
            )

        await eventually(told, "the Scheduled event")
        assert scheduler.metric("scheduler_schedule_attempts_total", result="scheduled") == 1
        assert scheduler.stop() == 0, "SIGTERM ends with exit code 0"


async def test_two_hundred_pods_on_one_hundred_and_sixty_devices(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Exactly 160 are bound, each device is given once, claims come before Bindings, 40 wait with upstream's text."""
    api = clean_cluster
    await gpu_cluster(api, 20, 8)
    async with PretendedKubelet(api.session) as kubelet, record(api) as history:
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
            started = time.monotonic()
            await create_pods(api, [f"pod-{i}" for i in range(200)], templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, 160), "160 Pods are bound", timeout_s=90)
            print(f"160 of 200 Pods with a claim bound {time.monotonic() - started:.1f} s after the first creation")
            expected = (
                "0/20 nodes are available: 20 cannot allocate all claims. "
                "preemption: 0/20 nodes are available: 20 Preemption is not helpful for scheduling."
            )

            async def all_told() -> bool:
                messages = await waiting_messages(api)
                return len(messages) == 40 and set(messages.values()) == {expected}

            await eventually(all_told, f"40 Pods wait with {expected!r}", timeout_s=60)
            given = await given_devices(api)
            assert len(given) == len(set(given)) == 160
            assert await bound_count(api) == 160

            # A finished Pod and a deleted one give back their devices without help.
            async def all_running() -> bool:
                return len(kubelet.running) == 160

            await eventually(all_running, "the kubelet runs all 160", timeout_s=60)
            first, second, *_ = sorted(kubelet.running)
            await kubelet.finish(*first.split("/"))
            await api.delete(PODS, second.split("/")[1], NS)

            async def two_more() -> bool:
                pods = await api.list(PODS, NS)
                placed = [p for p in pods if p["spec"].get("nodeName") and p["metadata"]["name"] != second]
                return len(placed) >= 161

            await eventually(two_more, "two waiting Pods got the devices given back", timeout_s=60)
            assert len(history.bound) >= 161, "the history saw every Binding"
            assert all(history.pod_claims[uid] for uid in history.bound), "and the claim of each bound Pod"
            assert history.bound_without_reservation() == []
            assert history.double_given() == []
            assert scheduler.metric("dra_scheduler_lost_races_total") == 0
        assert kubelet.complaints() == []


async def test_a_named_claim_is_shared_and_given_back(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Two Pods that name one claim share its device; a third that needs another device waits until both are gone."""
    api = clean_cluster
    await gpu_cluster(api, 1, 1)
    async with PretendedKubelet(api.session) as kubelet:
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
            await api.create(CLAIMS, claim("shared", exactly(CLASS)), NS)
            await create_pods(api, ["one", "two"], claims={"gpu": "shared"})
            await eventually(bound_are(api, 2), "both sharers are bound")
            shared: Object = await api.get(CLAIMS, "shared", NS)
            assert len(shared["status"]["reservedFor"]) == 2
            assert "allocationTimestamp" in shared["status"]["allocation"]
            await create_pods(api, ["three"], templates={"gpu": "one-gpu"})

            async def refused() -> bool:
                return bool((await waiting_messages(api)).get("three"))

            await eventually(refused, "the third Pod is refused")
            for name in ("one", "two"):
                await api.delete(PODS, name, NS)
            await eventually(is_bound(api, "three"), "the third Pod gets the device", timeout_s=60)
        assert kubelet.complaints() == []


async def test_restart_keeps_what_was_given(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """A fresh process counts every allocation of its predecessor as used and releases as before."""
    api = clean_cluster
    await gpu_cluster(api, 2, 2)
    with SchedulerProcess(tmp_path / "a", control_plane.kubeconfig_for()):
        await create_pods(api, [f"old-{i}" for i in range(3)], templates={"gpu": "one-gpu"})
        await eventually(bound_are(api, 3), "three Pods are bound")
    with SchedulerProcess(tmp_path / "b", control_plane.kubeconfig_for()):
        await create_pods(api, ["new-0", "new-1"], templates={"gpu": "one-gpu"})
        await eventually(bound_are(api, 4), "one of the two new Pods is bound")
        await asyncio.sleep(1.0)  # long enough for a wrong second grant
        given = await given_devices(api)
        assert len(given) == len(set(given)) == 4
