"""kubectl 1.37 against the embedded server: the commands the demo's user will type."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.controlplane import build
from e2e.controlplane.fixtures import require_binaries
from scheduler.embedded import EmbeddedServer

OBJECTS = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {capacity: {cpu: "4", memory: 8Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one-gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: train, labels: {app: train}}
spec:
  schedulerName: dra-scheduler
  containers: [{name: main, image: registry.example.com/train, resources: {claims: [{name: gpu}]}}]
  resourceClaims: [{name: gpu, resourceClaimTemplateName: one-gpu}]
"""


class Kubectl:
    """Runs kubectl with the embedded server's kubeconfig."""

    def __init__(self, binary: Path, kubeconfig: Path) -> None:
        self._command = [str(binary), "--kubeconfig", str(kubeconfig), "--cache-dir", str(kubeconfig.parent / "cache")]

    async def __call__(self, *arguments: str, code: int = 0, stdin: str = "") -> str:
        """Standard output; fails when the exit code is another than expected."""
        process = await asyncio.create_subprocess_exec(
            *self._command,
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(stdin.encode()), 30)
        assert process.returncode == code, (arguments, out.decode(), err.decode())
        return out.decode() if code == 0 else err.decode()


@pytest.fixture
async def server() -> AsyncIterator[EmbeddedServer]:
    """A started embedded server."""
    server = EmbeddedServer()
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def kubectl(server: EmbeddedServer, tmp_path: Path) -> Kubectl:
    """kubectl of the control plane's build, for this server."""
    require_binaries()
    return Kubectl(Path(build.control_plane_binaries()) / "kubectl", server.write_kubeconfig(tmp_path / "config"))


async def test_apply_creates_then_finds_nothing_to_do(kubectl: Kubectl) -> None:
    """apply --validate=false creates every kind; again it leaves Node, class and Pod unchanged; a change is made."""
    first = await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    assert first.count(" created") == 4
    second = await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    assert second.count(" unchanged") >= 3
    third = await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS.replace("app: train", "app: other"))
    assert "pod/train configured" in third
    assert await kubectl("get", "pod", "train", "-o", "jsonpath={.metadata.labels.app}") == "other"


async def test_get_shows_the_usual_columns(kubectl: Kubectl, server: EmbeddedServer) -> None:
    """get prints the columns of the real server, by short names, in wide form, as JSON and by selector."""
    await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    await server.settle()
    wide = await kubectl("get", "po", "-o", "wide")
    assert wide.splitlines()[0].split() == (
        ["NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "NOMINATED", "NODE", "READINESS", "GATES"]
    )
    assert wide.splitlines()[1].split()[:4] == ["train", "0/1", "Pending", "0"]
    claims = await kubectl("get", "resourceclaims", "-A")
    assert claims.splitlines()[0].split() == ["NAMESPACE", "NAME", "STATE", "AGE"]
    assert claims.splitlines()[1].split()[2] == "pending"
    assert "node/n1" in await kubectl("get", "no,deviceclasses", "-o", "name")
    listed = json.loads(await kubectl("get", "pods", "-l", "app=train", "-o", "json"))
    assert [item["metadata"]["name"] for item in listed["items"]] == ["train"]
    assert 'pods "nope" not found' in await kubectl("get", "pod", "nope", code=1)


async def test_describe_reads_events(kubectl: Kubectl, server: EmbeddedServer) -> None:
    """describe works on Pods, Nodes, claims and classes, and shows the Pod's Events."""
    await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    await server.settle()
    pod = server.store.get("pods", ("default", "train"))
    assert pod is not None
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "train", "uid": pod.uid}
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": regarding,
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "dra-scheduler",
        "reportingInstance": "dra-scheduler-host",
        "type": "Warning",
        "reason": "FailedScheduling",
        "action": "Scheduling",
        "note": "0/1 nodes are available: 1 cannot allocate all claims.",
    }
    server.load([event])
    text = await kubectl("describe", "pod", "train")
    assert "FailedScheduling" in text
    assert "cannot allocate all claims" in text
    assert "gpu.example.com" in await kubectl("describe", "resourceclaim")
    assert "Allocatable:" in await kubectl("describe", "node", "n1")
    assert "device.driver" in await kubectl("describe", "deviceclass", "gpu.example.com")
    assert "FailedScheduling" in await kubectl("get", "events")


async def test_delete_waits_until_it_is_gone(kubectl: Kubectl, server: EmbeddedServer) -> None:
    """delete of a Pod takes its generated claim along; delete -f removes the rest."""
    await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    await server.settle()
    assert server.store.table("resourceclaims").records
    assert 'pod "train" deleted' in await kubectl("delete", "pod", "train")
    await server.settle()
    assert not server.store.table("resourceclaims").records
    await kubectl("delete", "--ignore-not-found", "-f", "-", stdin=OBJECTS)
    assert not server.store.table("nodes").records


async def test_the_small_verbs(kubectl: Kubectl) -> None:
    """label, annotate, taint, cordon, api-resources and version work too."""
    await kubectl("apply", "--validate=false", "-f", "-", stdin=OBJECTS)
    await kubectl("label", "pod", "train", "a=b")
    await kubectl("annotate", "pod", "train", "c=d")
    await kubectl("taint", "node", "n1", "dedicated=gpu:NoSchedule")
    await kubectl("cordon", "n1")
    assert "SchedulingDisabled" in await kubectl("get", "nodes")
    assert "resourceclaims" in await kubectl("api-resources")
    assert "v1.37.2+embedded" in await kubectl("version")
