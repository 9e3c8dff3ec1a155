"""doctor on the real control plane: each damage is done for real, found, healed by the printed command, and gone."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, PODS, SLICES, Api, ApiError, Object, Resource
from e2e.controlplane import ControlPlane, build
from e2e.driver import Pool, PretendedDriver, add_node
from e2e.objects import claim, claim_template, device, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess
from e2e.suites.test_devices import CLASS, NS, bound_are, create_pods
from e2e.waiting import eventually
from scheduler.app.doctor import Round, from_cluster
from scheduler.cli.doctor import add_arguments
from scheduler.cli.options import Parser, go_style
from scheduler.config import load_config
from scheduler.embedded.kubelet import RUN_SECONDS_ANNOTATION, PretendedKubelet

MANAGER = "kube-controller-manager"
PROTECTION = "resource.kubernetes.io/delete-protection"


def run_doctor(kubeconfig: str, flags: Sequence[str]) -> Round:
    """What the command does with its flags."""
    parser = Parser(prog="doctor")
    add_arguments(parser)
    given = parser.parse_args(go_style(parser, flags))
    config = load_config(Path(given.config).read_text() if given.config else "")
    return from_cluster(kubeconfig, config, settle_s=given.settle, fix=given.fix, dry=not given.yes)


@dataclass
class Ward:
    """A cluster with one node of devices, its driver, and ways to damage it as other schedulers and people do."""

    api: Api
    plane: ControlPlane
    driver: PretendedDriver

    async def doctor(self, *flags: str) -> tuple[int, Object]:
        """Exit code and answer of the command, without the second that a new process costs."""
        found = await asyncio.to_thread(run_doctor, str(self.plane.kubeconfig_for()), flags)
        answer: Object = msgspec.json.decode(msgspec.json.encode(found))
        return 2 if found.left else 0, answer

    async def shell(self, command: str) -> tuple[int, str]:
        """A command line, as a person would paste it."""
        tools = f"{build.control_plane_binaries()}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": tools, "KUBECONFIG": str(self.plane.kubeconfig_for())}
        process = await asyncio.create_subprocess_shell(
            command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, env=environment
        )
        out, error = await asyncio.wait_for(process.communicate(), 90)
        assert b"Traceback" not in error, error.decode()
        assert process.returncode is not None
        return process.returncode, out.decode() + error.decode()

    async def claim(
        self, name: str, device_name: str, *, users: list[Object] | None = None, **result: object
    ) -> Object:
        """A claim with a device, written as a scheduler writes it: finalizer, then allocation and reservations."""
        await self.api.create(CLAIMS, claim(name, exactly(CLASS)), NS)
        await self.api.patch(CLAIMS, name, {"metadata": {"finalizers": [PROTECTION]}}, NS)
        results = [{"request": "gpu", "driver": CLASS, "pool": "node-0", "device": device_name, **result}]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status: Object = {"allocation": {"devices": {"results": results}, "allocationTimestamp": now}}
        if users:
            status["reservedFor"] = [{"resource": "pods", **user} for user in users]
        return await self.api.patch(CLAIMS, name, {"status": status}, NS, "status")

    async def user(self, name: str, device_name: str, **result: object) -> None:
        """A Pod that runs with a claim of its own name on a device, whoever has it already."""
        body = pod(name, claims={"gpu": name}, nodeName="node-0")
        stored = await self.api.create(PODS, body, NS)
        user = {"name": name, "uid": stored["metadata"]["uid"]}
        await self.claim(name, device_name, users=[user], **result)

        async def runs() -> bool:
            found = await self.api.get(PODS, name, NS)
            return bool(found["status"].get("phase") == "Running")

        await eventually(runs, f"pod {name} runs")

    @asynccontextmanager
    async def without_controllers(self) -> AsyncIterator[None]:
        """While kube-controller-manager hangs, nobody tidies up."""
        self.plane.pause(MANAGER)
        try:
            yield
        finally:
            self.plane.resume(MANAGER)


@pytest.fixture
async def ward(clean_cluster: Api, control_plane: ControlPlane) -> AsyncIterator[Ward]:
    """Devices of every kind on node-0: whole ones, one to share, and overlapping parts; a kubelet runs the Pods."""
    driver = PretendedDriver(clean_cluster, CLASS)
    await clean_cluster.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await add_node(clean_cluster, "node-0")
    shared = device("shared", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)
    await driver.publish(Pool("node-0", [device("d0"), device("d1"), shared], {"nodeName": "node-0"}))
    async with PretendedKubelet(clean_cluster.session):
        yield Ward(clean_cluster, control_plane, driver)


async def found_and_healed(ward: Ward, check: str, subject: str, what: str) -> None:
    """The doctor finds exactly this, its commands are carried out as printed, and then it is content."""
    code, answer = await ward.doctor("--settle=1s")
    (finding,) = [one for one in answer["diagnosis"]["findings"] if one["severity"] != "note"]
    assert (code, finding["check"], finding["subject"]) == (2, check, subject)
    assert what in finding["what"]
    assert finding["commands"]
    for command in finding["commands"]:
        status, told = await ward.shell(command)
        assert status == 0, told
    await eventually(lambda: content(ward), f"{check} is healed", timeout_s=30, interval_s=0.5)


async def content(ward: Ward) -> bool:
    """Whether the doctor has nothing to say."""
    code, answer = await ward.doctor("--settle=0s")
    return code == 0 and answer["diagnosis"]["findings"] == []


Damage = Callable[[Ward], Awaitable[None]]


async def twice(ward: Ward) -> None:
    """Two schedulers gave one device away; the Pods run side by side."""
    await ward.user("first", "d0")
    await asyncio.sleep(1.1)  # allocation times are whole seconds
    await ward.user("second", "d0")


async def beyond_capacity(ward: Ward) -> None:
    """Three shares of a device that has room for two."""
    for number in range(3):
        name = f"share-{number}"
        share = {"shareID": f"00000000-0000-4000-8000-00000000000{number}", "consumedCapacity": {"memory": "20Gi"}}
        await ward.user(name, "shared", **share)
        await asyncio.sleep(1.1)


async def beyond_counters(ward: Ward) -> None:
    """A whole device and a part of it."""
    charge = {"whole": "4", "part": "1"}
    parts = [
        device(name, consumesCounters=[{"counterSet": "set", "counters": {"slots": {"value": value}}}])
        for name, value in charge.items()
    ]
    counters = {"sharedCounters": [{"name": "set", "counters": {"slots": {"value": "4"}}}]}
    place = {"driver": CLASS, "nodeName": "node-0"}
    numbers = {"name": "parts", "generation": 1, "resourceSliceCount": 2}
    for name, content in (("parts", {"devices": parts}), ("counters", counters)):
        await ward.api.create(SLICES, {"metadata": {"name": name}, "spec": {**place, "pool": numbers, **content}})
    await ward.user("whole", "whole", pool="parts")
    await asyncio.sleep(1.1)
    await ward.user("part", "part", pool="parts")


async def idle(ward: Ward) -> None:
    """Allocated and never reserved."""
    await ward.claim("idle", "d1")


async def vanished(ward: Ward) -> None:
    """The driver does not publish a used device any more."""
    await ward.user("user", "d1")
    pool = ward.driver.pools["node-0"]
    pool.devices = [one for one in pool.devices if one["name"] != "d1"]
    await ward.driver.bump("node-0")


async def bound_without(ward: Ward) -> None:
    """A Pod with a node whose claim nobody ever allocated."""
    await ward.api.create(CLAIMS, claim("none", exactly(CLASS)), NS)
    await ward.api.create(PODS, pod("early", claims={"gpu": "none"}, nodeName="node-0"), NS)


async def strange_finalizer(ward: Ward) -> None:
    """A claim that cannot go because of somebody's finalizer."""
    body = claim("kept", exactly(CLASS))
    body["metadata"]["finalizers"] = ["example.com/backup"]
    await ward.api.create(CLAIMS, body, NS)
    await ward.api.delete(CLAIMS, "kept", NS)


@pytest.mark.parametrize(
    ("damage", "check", "subject", "what"),
    [
        (twice, "device-held-twice", f"Device {CLASS}/node-0/d0", "default/first had it first"),
        (beyond_capacity, "capacity-exceeded", f"Device {CLASS}/node-0/shared", "memory: 60Gi given of 40Gi"),
        (beyond_counters, "counters-exceeded", f"Pool {CLASS}/parts", "set/slots: 5 of 4"),
        (idle, "allocated-unreserved", "ResourceClaim default/idle", "is reserved for nobody"),
        (vanished, "device-gone", "ResourceClaim default/user", f"holds {CLASS}/node-0/d1, which no ResourceSlice has"),
        (bound_without, "pod-without-claim", "Pod default/early", "claim none has no devices"),
        (strange_finalizer, "foreign-finalizer", "ResourceClaim default/kept", "example.com/backup"),
    ],
)
async def test_damage_is_found_and_healed_by_the_printed_command(
    ward: Ward, damage: Damage, check: str, subject: str, what: str
) -> None:
    """Done with real writes that the API server accepted."""
    await damage(ward)
    await found_and_healed(ward, check, subject, what)


async def test_a_claim_reserved_for_a_pod_that_does_not_exist(ward: Ward) -> None:
    """Its Pod went while kube-controller-manager hung: the command frees it, and a stale command does nothing."""
    async with ward.without_controllers():
        await ward.user("gone", "d0")
        await ward.api.delete(PODS, "gone", NS, grace_period_s=0)
        code, answer = await ward.doctor("--settle=1s")
        (finding,) = answer["diagnosis"]["findings"]
        assert (code, finding["check"]) == (2, "reserved-for-nobody")
        await ward.api.patch(CLAIMS, "gone", {"metadata": {"labels": {"touched": "yes"}}}, NS)
        status, told = await ward.shell(finding["commands"][0])
        assert status != 0
        assert "the object has been modified" in told
        assert "allocation" in (await ward.api.get(CLAIMS, "gone", NS))["status"]
        await found_and_healed(ward, "reserved-for-nobody", "ResourceClaim default/gone", "which does not exist")


async def test_a_deletion_that_does_not_end(ward: Ward) -> None:
    """A claim that was deleted while kube-controller-manager hung, with and without devices."""
    async with ward.without_controllers():
        await ward.claim("stuck", "d0")
        await ward.api.delete(CLAIMS, "stuck", NS)
        await found_and_healed(ward, "deletion-stuck", "ResourceClaim default/stuck", "it does not go")
        assert await ward.api.find(CLAIMS, "stuck", NS) is None


async def test_fix_repairs_what_is_safe_and_nothing_else(ward: Ward) -> None:
    """Two leaks go, after a dry run that left them; a device with two users stays as it is."""
    async with ward.without_controllers():
        await twice(ward)
        await ward.user("gone", "d1")
        await ward.api.delete(PODS, "gone", NS, grace_period_s=0)
        await ward.claim("idle", "shared", shareID="00000000-0000-4000-8000-000000000000")
        before = {item["metadata"]["name"]: item for item in await ward.api.list(CLAIMS, NS)}
        code, answer = await ward.doctor("--settle=0s", "--fix")
        assert (code, [one["result"] for one in answer["outcomes"]]) == (2, ["would be done"] * 2)
        assert {item["metadata"]["name"]: item for item in await ward.api.list(CLAIMS, NS)} == before
        code, answer = await ward.doctor("--settle=0s", "--fix", "--yes")
        assert (code, [one["result"] for one in answer["outcomes"]]) == (2, ["done"] * 2)
        after = {item["metadata"]["name"]: item for item in await ward.api.list(CLAIMS, NS)}
        assert [name for name in before if after[name] != before[name]] == ["gone", "idle"]
        assert all("allocation" not in after[name].get("status", {}) for name in ("gone", "idle"))
        code, answer = await ward.doctor("--settle=0s")
        assert [one["check"] for one in answer["diagnosis"]["findings"]] == ["device-held-twice"]


async def test_who_may_only_read_is_told_so(ward: Ward) -> None:
    """Rights to list are enough to find; a repair without the right to write fails with the missing rule."""
    await idle(ward)
    roles = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
    bindings = Resource(
        "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
    )
    rules = [
        {"apiGroups": [""], "resources": ["nodes", "pods"], "verbs": ["get", "list"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["get", "list"]},
    ]
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looker"}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "looker"}
    try:
        await ward.api.create(roles, {"metadata": {"name": "looker"}, "rules": rules})
        await ward.api.create(bindings, {"metadata": {"name": "looker"}, "roleRef": reference, "subjects": [subject]})
        kubeconfig = ward.plane.kubeconfig_for("looker")
        command = f"{sys.executable} -m scheduler.cli.main doctor --kubeconfig={kubeconfig} --settle=0s --fix"

        async def found() -> bool:
            code, out = await ward.shell(command)
            return code == 2 and "allocated-unreserved" in out and "failed: clear the allocation" in out

        await eventually(found, "the finding is told and the repair is refused", interval_s=0.5)
    finally:
        for resource in (bindings, roles):
            await ward.api.delete(resource, "looker", missing_ok=True)


async def test_from_files_of_kubectl(ward: Ward, tmp_path: Path) -> None:
    """kubectl get -o yaml is enough to find, by the same words."""
    await twice(ward)
    _, text = await ward.shell("kubectl get pods,resourceclaims,resourceslices,nodes -A -o yaml")
    (tmp_path / "dump.yaml").write_text(text)
    code, out = await ward.shell(f"{sys.executable} -m scheduler.cli.main doctor -f {tmp_path}/dump.yaml -o json")
    _, live = await ward.doctor("--settle=0s")
    assert code == 2
    assert json.loads(out)["diagnosis"]["findings"] == live["diagnosis"]["findings"]


async def test_two_schedulers_are_told_how_to_part(ward: Ward, tmp_path: Path) -> None:
    """Both hold devices of one pool: a warning, which goes once the profile has a Partition that leaves it out."""
    for name, scheduler in (("ours", "dra-scheduler"), ("theirs", "default-scheduler")):
        body = pod(name, claims={"gpu": name}, nodeName="node-0", scheduler=scheduler)
        stored = await ward.api.create(PODS, body, NS)
        user = {"name": name, "uid": stored["metadata"]["uid"]}
        await ward.claim(name, {"ours": "d0", "theirs": "d1"}[name], users=[user])
    code, answer = await ward.doctor("--settle=0s")
    (finding,) = answer["diagnosis"]["findings"]
    assert (code, finding["check"], finding["severity"]) == (2, "schedulers-overlap", "warning")
    assert "default-scheduler and dra-scheduler both give away devices of pool node-0" in finding["what"]
    config = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{
            "schedulerName": "dra-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "Partition"}]}},
            "pluginConfig": [{"name": "Partition", "args": {"drivers": [CLASS], "pools": ["node-1"]}}],
        }],
    }  # fmt: skip
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    assert (await ward.doctor("--settle=0s", f"--config={tmp_path}/config.yaml"))[0] == 0


LOAD_S = 14.0


async def test_a_healthy_cluster_under_load_has_no_finding(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Pods with claims come, run and go all the time; whatever the LISTs catch in between, nothing is told."""
    api = clean_cluster
    driver = PretendedDriver(api, CLASS)
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    for number in range(4):
        await add_node(api, f"node-{number}")
        await driver.publish_node(f"node-{number}", 4)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    ward = Ward(api, control_plane, driver)
    ended = asyncio.Event()

    async def churn() -> int:
        number = 0
        while not ended.is_set():
            fields: dict[str, Any] = {"templates": {"gpu": "one-gpu"}, "annotations": {RUN_SECONDS_ANNOTATION: "0.5"}}
            await create_pods(api, [f"churn-{number + index}" for index in range(4)], **fields)
            number += 4
            for item in await api.list(PODS, NS):
                if item["status"].get("phase") == "Succeeded" or number % 20 == 0:
                    try:
                        await api.delete(PODS, item["metadata"]["name"], NS, missing_ok=True)
                    except ApiError as error:
                        if error.status != 409:
                            raise
            await asyncio.sleep(0.3)
        return number

    async with PretendedKubelet(api.session):
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
            churning = asyncio.create_task(churn())
            runs: list[tuple[int, Object]] = []
            try:
                loop = asyncio.get_running_loop()
                until = loop.time() + LOAD_S
                while loop.time() < until or len(runs) < 3:
                    runs.append(await ward.doctor("--settle=6s"))
            finally:
                ended.set()
                created = await churning
    assert [answer["diagnosis"]["findings"] for _, answer in runs if answer["diagnosis"]["findings"]] == []
    assert {code for code, _ in runs} == {0}
    print(f"{len(runs)} runs of the doctor while {created} Pods came and went: no finding")


async def test_after_everything_is_bound_it_is_content(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A full, quiet cluster: one look, nothing found, code 0."""
    driver = PretendedDriver(clean_cluster, CLASS)
    await clean_cluster.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await add_node(clean_cluster, "node-0")
    await driver.publish_node("node-0", 3)
    await clean_cluster.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(clean_cluster, [f"pod-{number}" for number in range(4)], templates={"gpu": "one-gpu"})
        await eventually(bound_are(clean_cluster, 3), "all devices are taken")
        assert await content(Ward(clean_cluster, control_plane, driver))
