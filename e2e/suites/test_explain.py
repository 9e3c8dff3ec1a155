"""explain, inventory and lint on the real control plane: from kubectl's files and from the cluster, the same truth."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from e2e.api import CLAIMS, EVENTS, NODES, PODS, SLICES, Api, Object
from e2e.controlplane import ControlPlane, build
from e2e.device_cluster import Cluster, device_cluster
from e2e.objects import claim, device, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_devices import CLASS, NS, bound_are, create_pods, gpu_cluster
from e2e.waiting import eventually
from scheduler.app.snapshot import from_files
from scheduler.config import load_config
from scheduler.embedded.kubelet import PretendedKubelet
from scheduler.explain.facts import Explanation
from scheduler.explain.hints import find_hints
from scheduler.explain.pods import explain_pod

KINDS = "nodes,pods,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces"


async def _run(*command: str, environment: dict[str, str] | None = None) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    out, error = await asyncio.wait_for(process.communicate(), 180)
    assert b"Traceback" not in error, error.decode()
    return process.returncode or 0, out.decode()


async def _ask(*arguments: str) -> tuple[int, Object]:
    code, out = await _run(sys.executable, "-m", "scheduler.cli.main", *arguments, "-o", "json")
    answer: Object = json.loads(out)
    return code, answer


async def test_the_waiting_pod_is_explained_the_same_way_everywhere(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Eight devices are taken, one Pod wants two: condition, event, files and live cluster agree on why.

    What the hint says is then done (one claim's Pod ends), and the scheduler places the Pod on the node it named.
    """
    api = clean_cluster
    await gpu_cluster(api, 2, 2)
    kubeconfig = str(control_plane.kubeconfig_for())
    async with PretendedKubelet(api.session):
        with SchedulerProcess(tmp_path, Path(kubeconfig)):
            await create_pods(api, [f"pod-{n}" for n in range(3)], templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, 3), "three of four devices are taken")
            await api.create(CLAIMS, claim("two", exactly(CLASS, count=2)), NS)
            await api.create(PODS, pod("big", claims={"gpu": "two"}), NS)

            async def told() -> bool:
                return any(e["regarding"]["name"] == "big" for e in await api.list(EVENTS, NS))

            await eventually(told, "the Pod is told why it waits")
            message = condition(await api.get(PODS, "big", NS))["message"]
            (note,) = [e["note"] for e in await api.list(EVENTS, NS) if e["regarding"]["name"] == "big"]
            assert note.startswith(f"{message} Devices: ")
            assert "3 in use, 1 would do" in note
            dump = tmp_path / "dump.yaml"
            kubectl = str(Path(build.control_plane_binaries()) / "kubectl")
            _, text = await _run(kubectl, "--kubeconfig", kubeconfig, "get", KINDS, "-A", "-o", "yaml")
            dump.write_text(text)
            code, from_file = await _ask("explain", "pod/big", "-f", str(dump))
            live_code, live = await _ask("explain", "pod/big", "--kubeconfig", kubeconfig)
            assert (code, live_code) == (2, 2)
            # kubectl itself finds the plug-in on the PATH.
            plugged = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
            asked = kubectl, "dra", "explain", "pod/big", "--kubeconfig", kubeconfig, "-o", "json"
            plugin_code, said = await _run(*asked, environment=plugged)
            assert (plugin_code, json.loads(said)) == (2, live)
            # One list of several kinds does not tell which of them were asked for and are empty.
            assert [caveat.partition(":")[0] for caveat in from_file["caveats"]] == ["no DeviceTaintRule in the input"]
            assert {**from_file, "caveats": []} == live
            assert from_file["message"] == message
            hint = next(hint for hint in live["hints"] if hint["change"] == "claim ends")
            code, found = await _ask("inventory", "--kubeconfig", kubeconfig)
            assert (code, found["lines"][0]["used"], found["lines"][0]["free"]) == (0, 3, 1)
            code, findings = await _ask("lint", "-f", str(dump))
            assert (code, findings["findings"]) == (0, [])
            holder = await api.get(CLAIMS, hint["subject"].partition("/")[2], NS)
            await api.delete(PODS, holder["status"]["reservedFor"][0]["name"], NS)

            async def placed() -> bool:
                return bool((await api.get(PODS, "big", NS))["spec"].get("nodeName"))

            await eventually(placed, "the Pod is placed once the device is free")
            assert (await api.get(PODS, "big", NS))["spec"]["nodeName"] == hint["node"]
            code, explained = await _ask("explain", "pod/big", "--kubeconfig", kubeconfig)
            assert (code, explained["phase"], explained["node"]) == (0, "scheduled", hint["node"])
            assert len(explained["held"][0]["devices"]) == 2


def _model(model: str) -> str:
    return f'device.attributes["{CLASS}"].model == "{model}"'


TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
ROOT = f"{CLASS}/root"
WAITING: dict[str, tuple[Object, list[Object], str]] = {
    "taken": (exactly(CLASS, _model("U")), [], "in use by claim"),
    "wrong": (exactly(CLASS, _model("X")), [], "selector false"),
    "unguarded": (exactly(CLASS, f'device.attributes["{CLASS}"].nope == 1'), [], "selector error"),
    "avoided": (exactly(CLASS, _model("T")), [], "tainted"),
    "large": (exactly(CLASS, _model("S"), capacity={"requests": {"memory": "64Gi"}}), [], "capacity short by"),
    "apart": (exactly(CLASS, _model("A"), count=2), [{"matchAttribute": ROOT}], "match broken against"),
    "alike": (
        exactly(CLASS, _model("A"), count=2),
        [{"distinctAttribute": f"{CLASS}/model"}],
        "distinct broken against",
    ),
    "unknown": (exactly(CLASS, _model("A")), [{"matchAttribute": f"{CLASS}/numa"}], "attribute missing"),
}
"""Name of a Pod → its request, its constraints, and the reason that must be told."""


async def _fill(cluster: Cluster) -> None:
    """One node with devices of five models; the one of model U is in use."""
    shared = device("s", {"model": "S"}, {"memory": "40Gi"}, allowMultipleAllocations=True)
    devices = [device("a", {"model": "A", "root": "r1"}), device("b", {"model": "A", "root": "r2"}),
               device("t", {"model": "T"}, taints=[TAINT]), shared, device("u", {"model": "U"})]  # fmt: skip
    await cluster.node("n", *devices)
    await cluster.pod("holder", exactly(CLASS, _model("U")))
    await cluster.bound("holder")
    for name, (request, constraints, _) in WAITING.items():
        await cluster.pod(name, request, constraints=constraints)
    for name in WAITING:
        await cluster.refused(name, " ")


def _reasons(found: Explanation) -> set[str]:
    return {
        part.reason
        for node in found.nodes
        for claim in node.claims
        for request in claim.requests
        for part in request.refused
    }


async def test_reasons_and_hints_hold_on_what_the_api_server_stores(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """From kubectl's dump: each Pod's message is its condition's, its reason is told, and its hints come true.

    Claims cannot be edited, so a hint about a request is carried out on a new Pod.
    """
    api, kubeconfig = clean_cluster, control_plane.kubeconfig_for()
    async with device_cluster(api, tmp_path, kubeconfig) as cluster:
        await _fill(cluster)
        kubectl = str(Path(build.control_plane_binaries()) / "kubectl")
        _, text = await _run(kubectl, "--kubeconfig", str(kubeconfig), "get", KINDS, "-A", "-o", "yaml")
        (tmp_path / "dump.yaml").write_text(text)
        snap = from_files([str(tmp_path / "dump.yaml")], load_config(""), {})
        hints: dict[str, dict[str, str]] = {}
        for name, (_, _, reason) in WAITING.items():
            waiting = snap.pod(NS, name)
            profile, _ = snap.profile_for(waiting)
            found = explain_pod(profile, waiting, snap.state, snap.now)
            assert found.phase == "waiting", name
            assert found.message == condition(await api.get(PODS, name, NS))["message"], name
            assert reason in _reasons(found), (name, _reasons(found))
            find_hints(profile, waiting, snap.state, snap.now, found)
            hints[name] = {hint.change: hint.subject for hint in found.hints}
        assert "tolerate device taint" in hints["avoided"]
        assert "less capacity" in hints["large"]
        assert "drop constraint" in hints["apart"]
        await cluster.pod("calm", exactly(CLASS, _model("T"), tolerations=[{**TAINT, "operator": "Equal"}]))
        amount = hints["large"]["less capacity"].split()[-1]
        await cluster.pod("small", exactly(CLASS, _model("S"), capacity={"requests": {"memory": amount}}))
        await cluster.pod("free", exactly(CLASS, _model("A"), count=2))
        for name in ("calm", "small", "free"):
            assert await cluster.bound(name) == "n"
        holder = await cluster.claim_of("holder")
        assert hints["taken"]["claim ends"] == f"{NS}/{holder['metadata']['name']}"
        await cluster.delete("holder")
        assert await cluster.bound("taken") == "n"


async def test_a_summary_that_changes_writes_nothing_on_the_real_api_server(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Devices change hands, the Pod is tried again, its sentence stays: the Pod is not written, no event is added."""
    api = clean_cluster
    await gpu_cluster(api, 1, 2)
    async with PretendedKubelet(api.session):
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
            await api.create(CLAIMS, claim("three", exactly(CLASS, count=3)), NS)
            await api.create(PODS, pod("waiting", claims={"gpu": "three"}), NS)

            async def told() -> bool:
                return bool(await _events(api))

            await eventually(told, "the Pod is told why it waits")
            before = await api.get(PODS, "waiting", NS)
            events = await _events(api)
            assert "Devices: " in events[0]["note"]
            attempts = scheduler.metric("scheduler_schedule_attempts_total", result="unschedulable")
            await create_pods(api, ["other"], templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, 1), "one device is taken")
            # A second slice of another driver wakes whoever waits for devices.
            await api.create(SLICES, _foreign_slice(next(iter(await api.list(NODES)))["metadata"]["name"]))

            async def tried_again() -> bool:
                return scheduler.metric("scheduler_schedule_attempts_total", result="unschedulable") > attempts

            await eventually(tried_again, "it was tried again", timeout_s=40)
            after = await api.get(PODS, "waiting", NS)
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
            assert [event["metadata"]["uid"] for event in await _events(api)] == [events[0]["metadata"]["uid"]]


async def _events(api: Api) -> list[Object]:
    return [event for event in await api.list(EVENTS, NS) if event["regarding"]["name"] == "waiting"]


def _foreign_slice(node: str) -> Object:
    pool = {"name": "other", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "other.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "x"}]}
    return {"metadata": {"name": "other"}, "spec": spec}
