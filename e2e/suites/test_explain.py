"""explain, inventory and lint on the real control plane: from kubectl's files and from the cluster, the same truth."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from e2e.api import CLAIMS, EVENTS, PODS, Api, Object
from e2e.controlplane import ControlPlane, build
from e2e.objects import claim, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_devices import CLASS, NS, bound_are, create_pods, gpu_cluster
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

KINDS = "nodes,pods,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces"


async def _run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, error = await asyncio.wait_for(process.communicate(), 60)
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
            assert from_file == live
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
