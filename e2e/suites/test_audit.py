"""The audit trail and the recording on the real control plane: what they tell is what the API server showed."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import yaml

from e2e.api import CLAIMS, PODS, Api, Object
from e2e.controlplane import ControlPlane, build
from e2e.controlplane.fixtures import require_binaries
from e2e.scheduler import History, SchedulerProcess, record
from e2e.suites.test_devices import NS, bound_are, create_pods, gpu_cluster, is_bound
from e2e.waiting import eventually
from scheduler.api.quantity import parse_quantity
from scheduler.cli.audit import DEFAULT_FILE
from scheduler.cli.audit_flags import audit_options
from scheduler.cli.options import Parser, go_style
from scheduler.cli.run_options import add_run_arguments
from scheduler.embedded.kubelet import PretendedKubelet

NODES, DEVICES = 3, 4
OVERLAY = Path(__file__).resolve().parents[2] / "manifests/overlays/audit"


async def _ask(*arguments: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "scheduler.cli.main", *arguments,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 120)
    assert b"Traceback" not in error, error.decode()
    return process.returncode or 0, out.decode()


async def _records(file: Path) -> list[Object]:
    code, out = await _ask("audit", "export", "--file", str(file))
    assert code == 0
    return [json.loads(line) for line in out.splitlines()]


def _bound(records: list[Object]) -> dict[str, Object]:
    return {one["pod_uid"]: one for one in records if one["kind"] == "decision" and one["outcome"] == "bound"}


def _agree(records: list[Object], history: History) -> None:
    """Every bound decision names the node and the devices that the API server showed."""
    for uid, decision in _bound(records).items():
        assert history.nodes[uid] == decision["node"]
        for use in decision.get("claims", []):
            told = {tuple(device["device"].split("/")) for device in use["devices"]}
            shown = [set(devices) for _, devices in history.allocations[use["uid"]] if devices]
            assert told in shown, decision["pod"]


async def test_everything_is_told_after_all_is_gone_and_every_decision_is_replayed(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Ours and kube-scheduler's Pods on the same devices, waiting, deletions, kill -9 and a second start.

    Trail and API server agree on every node and device; what kube-scheduler took is told as foreign; what was freed is
    told; the replay of the whole recording comes to the same answers.
    """
    api = clean_cluster
    file, folder = tmp_path / "audit.db", tmp_path / "journal"
    flags = [f"--audit-file={file}", f"--record={folder}"]
    await gpu_cluster(api, NODES, DEVICES)
    async with PretendedKubelet(api.session) as kubelet, record(api) as history:
        scheduler = SchedulerProcess(tmp_path, control_plane.kubeconfig_for(), arguments=flags)
        try:
            await asyncio.to_thread(scheduler.start_and_wait)
            await asyncio.to_thread(control_plane.start_kube_scheduler)
            await create_pods(api, ["theirs"], templates={"gpu": "one-gpu"}, scheduler="default-scheduler")
            await eventually(is_bound(api, "theirs"), "kube-scheduler takes a device")
            await asyncio.to_thread(control_plane.stop_kube_scheduler)
            names = [f"pod-{number}" for number in range(14)]
            await create_pods(api, names, templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, NODES * DEVICES), "all devices are taken")
            running = [item["metadata"]["name"] for item in await api.list(PODS, NS) if item["spec"].get("nodeName")]
            for name in [name for name in running if name != "theirs"][:3]:
                await api.delete(PODS, name, NS)

            async def nobody_waits() -> bool:
                return all(item["spec"].get("nodeName") for item in await api.list(PODS, NS))

            await eventually(nobody_waits, "those that waited get what came free")

            ours = set(history.bound) - {(await api.get(PODS, "theirs", NS))["metadata"]["uid"]}

            async def written() -> bool:
                return ours <= set(_bound(await _records(file)))

            await eventually(written, "the trail has every Binding")
            before = _bound(await _records(file))
            load = asyncio.create_task(create_pods(api, [f"more-{n}" for n in range(8)], at_once=2))
            await eventually(is_bound(api, "more-0"), "the first of a further batch is bound")
            scheduler.kill()
            await load
            await asyncio.to_thread(scheduler.start_and_wait)
            await create_pods(api, ["last"])
            await eventually(nobody_waits, "the second process binds the rest")
            for item in await api.list(PODS, NS):
                await api.delete(PODS, item["metadata"]["name"], NS)

            async def empty() -> bool:
                return not await api.list(CLAIMS, NS) and not await api.list(PODS, NS)

            await eventually(empty, "Pods and claims are gone", timeout_s=60)
            assert await asyncio.to_thread(scheduler.stop) == 0
        finally:
            await asyncio.to_thread(control_plane.stop_kube_scheduler)
            await asyncio.to_thread(scheduler.stop)
        assert kubelet.complaints() == []
        records = await _records(file)
        assert before.items() <= _bound(records).items(), "kill -9 took what was committed"
        _agree(records, history)
    foreign = [one for one in records if one["kind"] in ("foreign", "found") and one.get("pod") == f"{NS}/theirs"]
    assert foreign
    assert {one["kind"] for one in records if one["kind"] == "rejection"}
    freed = [one for one in records if one["kind"] == "freed"]
    given = {use["uid"] for one in _bound(records).values() for use in one.get("claims", [])}
    assert given <= {use["uid"] for one in freed for use in one.get("claims", [])}
    assert {one["by"] for one in freed} == {"claim controller"}
    a_pod = next(one for one in before.values() if one.get("claims"))
    device = a_pod["claims"][0]["devices"][0]["device"]
    for what, name in (("pod", a_pod["pod"]), ("claim", a_pod["claims"][0]["claim"]), ("device", device)):
        code, text = await _ask("audit", what, name, "--file", str(file))
        assert code == 0
        assert f"bound to node {a_pod['node']}" in text
        assert f"device {device} for request" in text
        assert "freed (" in text
        assert "still held" not in text
    code, out = await _ask("replay", str(folder), "-o", "json")
    replayed = json.loads(out)
    print({key: replayed[key] for key in ("decisions", "equal", "different", "refused")}, len(records), "records")
    assert code == 0, replayed["results"]
    assert len(replayed["segments"]) >= 2
    assert replayed["different"] == 0
    # kill -9 may have cut off the one decision that was under way.
    assert replayed["refused"] <= 1
    assert replayed["equal"] >= len(_bound(records))
    code, text = await _ask("replay", str(folder), "--decision", a_pod["id"])
    assert code == 0
    assert f"the same: node {a_pod['node']}" in text
    assert device in text
    assert (await _ask("replay", str(folder), "--pod", "nobody"))[0] == 1


def test_the_overlay_gives_each_replica_a_volume_of_its_own() -> None:
    """Both files lie on the claimed volume, the flags are ones that run takes, and the selectors still fit."""
    require_binaries()
    kubectl = build.control_plane_binaries() / "kubectl"
    done = subprocess.run(
        [str(kubectl), "kustomize", str(OVERLAY)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    rendered = list(yaml.safe_load_all(done.stdout))
    for document in rendered:
        kubernetes_validate.validate(document, "1.37", strict=True)
    by_kind = {document["kind"]: document for document in rendered}
    assert "Deployment" not in by_kind
    spec = by_kind["StatefulSet"]["spec"]
    container = spec["template"]["spec"]["containers"][0]
    (volume,) = spec["volumeClaimTemplates"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == volume["metadata"]["name"]]
    parser = Parser(prog="run")
    add_run_arguments(parser)
    flags = go_style(parser, container["args"][1:])
    audit = audit_options(parser.parse_args(flags))
    assert audit.file == f"{mount['mountPath']}/audit.db" == DEFAULT_FILE
    assert audit.record.startswith(f"{mount['mountPath']}/")
    assert (
        audit.max_size_bytes + audit.record_max_bytes
        <= 0.8 * parse_quantity(volume["spec"]["resources"]["requests"]["storage"]).value()
    )
    labels = spec["template"]["metadata"]["labels"].items()
    assert spec["selector"]["matchLabels"].items() <= labels
    assert by_kind["Service"]["spec"]["selector"].items() <= labels
    assert by_kind["Service"]["metadata"]["name"] == spec["serviceName"]


async def test_a_trail_that_cannot_be_written_stops_nothing(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """File and folder cannot be made: Pods are bound, the log names both, the metrics count, SIGTERM ends in time."""
    api = clean_cluster
    (tmp_path / "blocked").write_text("a file where a folder is needed")
    flags = [f"--audit-file={tmp_path}/blocked/audit.db", f"--record={tmp_path}/blocked/journal"]
    await gpu_cluster(api, 1, 2)
    async with PretendedKubelet(api.session):
        scheduler = SchedulerProcess(tmp_path, control_plane.kubeconfig_for(), arguments=flags)
        try:
            await asyncio.to_thread(scheduler.start_and_wait)
            await create_pods(api, ["a", "b"], templates={"gpu": "one-gpu"})
            await eventually(bound_are(api, 2), "both Pods are bound")

            async def told() -> bool:
                failures = await asyncio.to_thread(scheduler.metric, "dra_scheduler_audit_write_failures_total")
                return failures >= 1 and "records cannot be written" in scheduler.log()

            await eventually(told, "the audit file's trouble is told and counted")
            await create_pods(api, ["plain"])
            await eventually(is_bound(api, "plain"), "Pods go on being bound")

            async def gap() -> bool:
                gaps = await asyncio.to_thread(scheduler.metric, "dra_scheduler_record_gaps_total")
                return gaps >= 1 and "recording: " in scheduler.log()

            await eventually(gap, "the recording's trouble is told and counted")
            assert str(tmp_path / "blocked") in scheduler.log()
            assert await asyncio.to_thread(scheduler.stop) == 0
        finally:
            await asyncio.to_thread(scheduler.stop)
