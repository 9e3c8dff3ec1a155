"""Life of a device: Pods fail, nodes and drivers come and go, people delete things; a device comes free exactly when it
may, the next Pod gets in without help, and nothing leaks.

The controllers are the real ones. In each scenario a Pod waits for what another one holds; the recorded history says
whether it came too early, the doctor whether anything is left behind.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NAMESPACES, NODES, PODS, Api, ApiError, Object, Resource
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.controlplane.cluster import DEFAULT_CONTROLLERS, ControlPlaneOptions
from e2e.controlplane.fixtures import make_api, require_binaries
from e2e.driver import Pool, PretendedDriver, add_node, remove_node
from e2e.objects import claim, claim_template, device, device_class, exactly, pod
from e2e.scheduler import History, SchedulerProcess, condition, record
from e2e.waiting import NeverHappenedError, eventually
from scheduler.app.doctor import from_cluster
from scheduler.app.trails import tell
from scheduler.audit.stories import Holding
from scheduler.config import load_config
from scheduler.embedded.kubelet import PretendedKubelet
from scheduler.errors import UserError

CLASS = "gpu.example.com"
NS = "default"
# The taint controller finds Pods by an index that only the one for DaemonSets makes.
MAKERS = ("job-controller", "replicaset-controller", "taint-eviction-controller", "daemonset-controller")
CONTROLLERS = (*DEFAULT_CONTROLLERS, *MAKERS)
JOBS = Resource("batch", "v1", "jobs", "Job")
REPLICA_SETS = Resource("apps", "v1", "replicasets", "ReplicaSet")


class Life(History):
    """Also notes at which revision each Pod had ended or was gone."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, int] = {}

    def see_pod(self, pod: Object, revision: int, gone: bool) -> None:
        """Take in one Pod event."""
        super().see_pod(pod, revision, gone)
        if gone or pod["status"].get("phase") in ("Succeeded", "Failed"):
            self.ended.setdefault(pod["metadata"]["uid"], revision)

    def too_early(self) -> list[str]:
        """Devices that left a claim although a Pod it was reserved for still lived."""
        bad = []
        for uid, changes in self.allocations.items():
            users = [pod_uid for claim_uid, pod_uid in self.reserved if claim_uid == uid]
            for revision, devices in changes[1:]:
                alive = [u for u in users if u in self.bound and self.ended.get(u, revision + 1) > revision]
                if not devices and alive:
                    bad.append(f"claim {uid} let go at {revision}, Pods {alive} still lived")
        return bad


class World:
    """The API, a driver, a kubelet, what happened so far, and a scheduler that nobody helps."""

    def __init__(self, api: Api, kubeconfig: Path, trail: Path, kubelet: PretendedKubelet, life: Life) -> None:
        self.api, self.kubeconfig, self.kubelet, self.life = api, kubeconfig, kubelet, life
        self.trail, self.began = trail, time.time()
        self.driver = PretendedDriver(api, CLASS)

    async def node(self, name: str, *devices: str) -> None:
        """A node with these devices."""
        await add_node(self.api, name)
        await self.driver.publish(Pool(name, [device(one) for one in devices], {"nodeName": name}))

    async def pod(self, name: str, namespace: str = NS, **fields: Any) -> None:
        """A Pod that wants a device of its own unless told otherwise."""
        fields.setdefault("templates", {} if "claims" in fields else {"gpu": "one-gpu"})
        await self.api.create(PODS, pod(name, **fields), namespace)

    async def runs(self, name: str, namespace: str = NS, timeout_s: float = 40.0) -> str:
        """Wait until the Pod runs; its node."""

        async def check() -> bool:
            return f"{namespace}/{name}" in self.kubelet.running

        await eventually(check, f"pod {name} runs", timeout_s=timeout_s)
        found: str = (await self.api.get(PODS, name, namespace))["spec"]["nodeName"]
        return found

    async def waits(self, name: str) -> None:
        """Wait until the Pod has been told that it must wait."""

        async def check() -> bool:
            return condition(await self.api.get(PODS, name, NS)).get("reason") == "Unschedulable"

        await eventually(check, f"pod {name} is told to wait", timeout_s=40)

    async def device_of(self, name: str, namespace: str = NS) -> tuple[str, str]:
        """(pool, device) that the Pod's claim holds."""
        for item in await self.api.list(CLAIMS, namespace):
            if any(user["name"] == name for user in item.get("status", {}).get("reservedFor") or []):
                (result,) = item["status"]["allocation"]["devices"]["results"]
                return result["pool"], result["device"]
        raise AssertionError(f"no claim is reserved for {name}")

    async def only_pod(self, *, but: str = "") -> str:
        """The one Pod that runs and is not ``but``: what a controller has made."""
        names: list[str] = []

        async def check() -> bool:
            names[:] = [name.partition("/")[2] for name in self.kubelet.running if name != f"{NS}/{but}"]
            return len(names) == 1

        await eventually(check, "one Pod of the controller runs", timeout_s=60)
        return names[0]

    async def evict(self, name: str) -> None:
        """What ``kubectl drain`` asks for."""
        body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
        await self.api.request("POST", PODS.path(NS, name, "eviction"), body)

    async def nothing_left(self, **holders: list[str]) -> None:
        """Everything is deleted the ordinary way: no claim, no hold, no finding stays, and nothing came too early.

        ``holders``: node and device, joined by ``__`` with ``_`` for ``-`` → the Pods that had it, one after the other,
        as the audit trail must tell it.
        """
        await self.api.delete_all(PODS, NS)

        async def empty() -> bool:
            if await self.api.list(PODS):
                return False
            for item in await self.api.list(CLAIMS):
                if item.get("status", {}).get("allocation") or item["metadata"].get("ownerReferences"):
                    return False
            return True

        await eventually(empty, "no claim holds a device any more", timeout_s=40)
        assert await self.findings() == []
        assert self.life.too_early() == []
        assert self.life.double_given() == []
        assert self.life.bound_without_reservation() == []
        assert self.kubelet.complaints() == []
        for place, pods in holders.items():
            await self.told(f"{CLASS}/{place.replace('__', '/').replace('_', '-')}", pods)

    async def told(self, device_name: str, pods: list[str]) -> None:
        """The device's story in the audit trail: these Pods had it, each let go before the next came, all are gone."""
        expected = [name if "/" in name else f"{NS}/{name}" for name in pods]
        seen: list[Holding] = []

        async def complete() -> bool:
            seen[:] = await asyncio.to_thread(self._holdings, device_name)
            return [one.pod for one in seen] == expected and all(one.until for one in seen)

        try:
            await eventually(complete, f"the trail tells of {device_name}", interval_s=0.3)
        except NeverHappenedError:
            raise AssertionError(f"{device_name}: {expected} expected, the trail tells {seen}") from None
        assert all(one.freed_by for one in seen)
        for one, after in itertools.pairwise(seen):
            assert one.since < one.until <= after.since

    def _holdings(self, device_name: str) -> list[Holding]:
        try:
            return tell([str(self.trail)], "device", device_name, (self.began, float("inf"))).holdings
        except UserError:
            return []  # nothing has been written about it yet

    async def findings(self) -> list[str]:
        """What the doctor says now."""
        found = await asyncio.to_thread(from_cluster, str(self.kubeconfig), load_config(""), settle_s=1.0)
        return [one.check for one in found.diagnosis.findings]


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane with the controllers that end Pods and make new ones."""
    require_binaries()
    with ControlPlane(ControlPlaneOptions(controllers=CONTROLLERS)) as started:
        yield started


@pytest.fixture(scope="module")
def trail(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """One scheduler lives through all scenarios: what one leaks is missing in the next. This is its audit trail."""
    folder = tmp_path_factory.mktemp("life")
    file = folder / "audit.db"
    with SchedulerProcess(folder, plane.kubeconfig_for(), arguments=[f"--audit-file={file}"]) as started:
        yield file
        assert started.errors() == []


@pytest.fixture
async def world(plane: ControlPlane, trail: Path) -> AsyncIterator[World]:
    """An empty cluster with one class and one template."""
    async with make_api(plane) as api:
        for resource in (JOBS, REPLICA_SETS):
            await api.delete_all(resource, NS)
        await clean(api)
        await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
        await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
        life = Life()
        async with PretendedKubelet(api.session) as kubelet, record(api, life):
            yield World(api, plane.kubeconfig_for(), trail, kubelet, life)


def template_of(**fields: Any) -> Object:
    """A Pod template that asks for a device."""
    made = pod("unnamed", templates={"gpu": "one-gpu"}, labels={"app": "made"}, **fields)
    return {"metadata": {"labels": {"app": "made"}}, "spec": made["spec"]}


async def test_a_job_is_retried_after_a_failed_pod(world: World) -> None:
    """One device: the failed Pod's claim goes with it, the Job's next Pod gets the device, then the one that waits."""
    await world.node("node-0", "gpu")
    await world.api.create(
        JOBS, {"metadata": {"name": "job"}, "spec": {"backoffLimit": 3, "template": template_of()}}, NS
    )
    first = await world.only_pod()
    await world.kubelet.finish(NS, first, "Failed")

    async def second_runs() -> bool:
        return bool(world.kubelet.running - {f"{NS}/{first}"})

    await eventually(second_runs, "the Job's second Pod runs", timeout_s=60)
    second = await world.only_pod()
    assert second != first
    await world.pod("next")
    await world.waits("next")
    await world.kubelet.finish(NS, second, "Succeeded")
    await world.runs("next")
    assert (await world.api.get(JOBS, "job", NS))["status"].get("failed") == 1
    await world.api.request("DELETE", JOBS.path(NS, "job"), {"propagationPolicy": "Background"})
    await world.nothing_left(node_0__gpu=[first, second, "next"])


async def test_a_node_is_drained_and_comes_back(world: World) -> None:
    """Cordon and eviction, later a NoExecute taint: the replacement goes where it may, and back when it may again."""
    await world.node("node-0", "gpu")
    await world.node("node-1", "gpu")
    await world.api.patch(NODES, "node-1", {"spec": {"unschedulable": True}})
    spec: Object = {"replicas": 1, "selector": {"matchLabels": {"app": "made"}}, "template": template_of()}
    spec["template"]["spec"]["restartPolicy"] = "Always"
    await world.api.create(REPLICA_SETS, {"metadata": {"name": "set"}, "spec": spec}, NS)
    first = await world.only_pod()
    assert await world.runs(first) == "node-0"
    # drain node-0: its replacement waits, since the other node is cordoned as well, and goes there once it is not
    await world.api.patch(NODES, "node-0", {"spec": {"unschedulable": True}})
    await world.evict(first)

    async def replaced() -> bool:
        pods = [item for item in await world.api.list(PODS, NS) if item["metadata"]["name"] != first]
        return len(pods) == 1 and condition(pods[0]).get("reason") == "Unschedulable"

    await eventually(replaced, "the replacement is told to wait", timeout_s=40)
    await world.api.patch(NODES, "node-1", {"spec": {"unschedulable": False}})
    second = await world.only_pod(but=first)
    assert await world.runs(second) == "node-1"
    # the taint controller evicts it; node-0 is back
    await world.api.patch(NODES, "node-0", {"spec": {"unschedulable": False}})
    taint = {"key": "example.com/maintenance", "effect": "NoExecute"}
    await world.api.patch(NODES, "node-1", {"spec": {"taints": [taint]}})
    third = await world.only_pod(but=second)
    assert await world.runs(third) == "node-0"
    # node-1 is back, too: the next Pod gets its device
    await world.api.patch(NODES, "node-1", {"spec": {"taints": None}})
    await world.pod("next")
    assert await world.runs("next") == "node-1"
    await world.api.request("DELETE", REPLICA_SETS.path(NS, "set"), {"propagationPolicy": "Background"})
    await world.nothing_left(node_0__gpu=[first, third], node_1__gpu=[second, "next"])


async def test_a_node_is_deleted(world: World) -> None:
    """Its Pod still exists, so its device stays taken, also when the node is back; it is free once the Pod is gone."""
    await world.node("node-0", "gpu")
    await world.pod("first")
    await world.runs("first")
    await world.pod("next")
    await world.waits("next")
    await world.driver.withdraw("node-0")
    await remove_node(world.api, "node-0")
    await add_node(world.api, "node-0")
    await world.driver.restore("node-0")
    # A Pod without claims shows that the scheduler has seen the node again, and has tried the other one before it.
    await world.pod("plain", templates={})
    assert await world.runs("plain") == "node-0"
    assert not (await world.api.get(PODS, "next", NS))["spec"].get("nodeName")
    await world.api.delete(PODS, "first", NS, grace_period_s=0)
    assert await world.runs("next") == "node-0"
    await world.nothing_left(node_0__gpu=["first", "next"])


async def test_a_driver_restarts(world: World) -> None:
    """Slices go and come back as a new generation, without one device that is in use: it is not given again, the claim
    keeps it until its Pod ends, the others serve.
    """
    await world.node("node-0", "gpu-0", "gpu-1")
    await world.pod("first")
    await world.runs("first")
    assert await world.device_of("first") == ("node-0", "gpu-0")
    await world.driver.withdraw("node-0")
    await world.pod("second")
    await world.waits("second")
    pool = world.driver.pools["node-0"]
    pool.devices = [device("gpu-1")]
    await world.driver.bump("node-0")
    await world.runs("second")
    assert await world.device_of("second") == ("node-0", "gpu-1")
    assert await world.findings() == ["device-gone"]
    assert f"{NS}/first" in world.kubelet.running
    await world.pod("third")
    await world.waits("third")
    # The device that is gone comes free, and serves nobody.
    await world.api.delete(PODS, "first", NS)

    async def released() -> bool:
        return len([c for c in await world.api.list(CLAIMS, NS) if c.get("status", {}).get("allocation")]) == 1

    await eventually(released, "the claim of the deleted Pod has let go")
    await world.pod("plain", templates={})
    await world.runs("plain")
    assert not (await world.api.get(PODS, "third", NS))["spec"].get("nodeName")
    # Repaired, it is published again: the third Pod gets it at once.
    pool.devices = [device("gpu-0"), device("gpu-1")]
    await world.driver.bump("node-0")
    await world.runs("third")
    assert await world.device_of("third") == ("node-0", "gpu-0")
    await world.nothing_left(node_0__gpu_0=["first", "third"], node_0__gpu_1=["second"])


async def test_a_half_published_generation_holds_devices_back(world: World) -> None:
    """A restart that stops in the middle: nothing of the pool is given until the new generation is complete."""
    await add_node(world.api, "node-0")
    await world.driver.publish_node("node-0", 2, slices=2)
    await world.pod("first")
    await world.runs("first")
    await world.driver.publish_half("node-0")
    await world.pod("next")
    await world.waits("next")
    await world.driver.restore("node-0")
    await world.runs("next")
    assert await world.device_of("first") != await world.device_of("next")
    await world.nothing_left(node_0__gpu_0=["first"], node_0__gpu_1=["next"])


async def test_a_shared_claim_outlives_its_first_pod(world: World) -> None:
    """Two Pods share a device; it comes free with the second one, not before."""
    await world.node("node-0", "gpu")
    await world.api.create(CLAIMS, claim("shared", exactly(CLASS)), NS)
    for name in ("first", "second"):
        await world.pod(name, claims={"gpu": "shared"})
        await world.runs(name)
    await world.pod("next")
    await world.waits("next")
    await world.api.delete(PODS, "first", NS)

    async def left_alone() -> bool:
        users = (await world.api.get(CLAIMS, "shared", NS))["status"].get("reservedFor") or []
        return [user["name"] for user in users] == ["second"]

    await eventually(left_alone, "the claim is reserved for the second Pod alone")
    await world.pod("third", claims={"gpu": "shared"})
    await world.runs("third")  # shares it, too, while the other one still waits
    assert not (await world.api.get(PODS, "next", NS))["spec"].get("nodeName")
    for name in ("second", "third"):
        await world.api.delete(PODS, name, NS)
    await world.runs("next")
    assert "allocation" not in (await world.api.get(CLAIMS, "shared", NS)).get("status", {})
    await world.nothing_left(node_0__gpu=["first", "next"])


async def test_a_namespace_is_deleted_with_pods_waiting(world: World) -> None:
    """One of its Pods runs, one waits: both go with their claims, and a Pod elsewhere gets the device."""
    await world.api.create(NAMESPACES, {"metadata": {"name": "doomed"}})
    await world.api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), "doomed")
    await world.node("node-0", "gpu")
    await world.pod("first", "doomed")
    await world.runs("first", "doomed")
    await world.pod("waiting", "doomed")

    async def told() -> bool:
        return condition(await world.api.get(PODS, "waiting", "doomed")).get("reason") == "Unschedulable"

    await eventually(told, "the Pod in the doomed namespace waits", timeout_s=40)
    await world.pod("next")
    await world.waits("next")
    await world.api.delete(NAMESPACES, "doomed")
    await world.runs("next", timeout_s=60)

    async def gone() -> bool:
        return await world.api.find(NAMESPACES, "doomed") is None

    await eventually(gone, "the namespace is gone", timeout_s=60)
    await world.nothing_left(node_0__gpu=["doomed/first", "next"])


async def test_a_pod_is_force_deleted(world: World) -> None:
    """Gone at once, its kubelet unasked: the device is free as soon as the Pod is; a Pod of the same name may come."""
    await world.node("node-0", "gpu")
    await world.pod("first")
    await world.runs("first")
    await world.pod("next")
    await world.waits("next")
    await world.api.delete(PODS, "first", NS, grace_period_s=0)
    await world.runs("next")
    await world.pod("first")  # the same name again: another Pod, another claim
    await world.waits("first")
    await world.api.delete(PODS, "next", NS, grace_period_s=0)
    await world.runs("first")
    await world.nothing_left(node_0__gpu=["first", "next", "first"])


async def test_a_pod_that_waits_is_deleted_in_the_middle_of_its_attempt(world: World) -> None:
    """Pods are deleted while their claims are being written: whatever was allocated comes back."""
    await world.node("node-0", "gpu-0", "gpu-1")
    for number in range(20):
        await world.pod(f"short-{number}")
        if number % 2:
            await asyncio.sleep(0.02)
        try:
            await world.api.delete(PODS, f"short-{number}", NS, grace_period_s=0)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
    for name in ("last-0", "last-1"):
        await world.pod(name)
        await world.runs(name)
    await world.nothing_left()


def test_the_history_notices_a_device_that_left_too_early() -> None:
    """The judge itself: a claim that lets go before its bound Pod has ended is told, one that does so after is not."""
    results = [{"driver": CLASS, "pool": "node-0", "device": "gpu"}]
    held = {
        "metadata": {"uid": "c"},
        "status": {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "p"}]},
    }
    free: Object = {"metadata": {"uid": "c"}, "status": {}}
    running: Object = {"metadata": {"uid": "p"}, "spec": {"nodeName": "node-0"}, "status": {"phase": "Running"}}
    for ended_at, told in ((5, 0), (7, 1)):
        life = Life()
        life.see_pod(running, 1, False)
        life.see_claim(held, 2, False)
        life.see_pod(running, ended_at, True)
        life.see_claim(free, 6, False)
        assert len(life.too_early()) == told
