"""dra-scheduler as a child process, the way an operator runs it, and the history that judges it."""

from __future__ import annotations

import asyncio
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from e2e.api import CLAIMS, PODS, Api, Object, Resource
from e2e.controlplane.processes import ManagedProcess, free_port

READY_TIMEOUT_S = 40.0
_REPO = Path(__file__).resolve().parent.parent


class SchedulerProcess(ManagedProcess):
    """``dra-scheduler run`` with its own configuration file, log and port. A context manager that stops it.

    config: fields beside apiVersion and kind; caches are always verified; leader election is off unless configured.
    """

    def __init__(
        self,
        folder: Path,
        kubeconfig: Path,
        *,
        name: str = "dra-scheduler",
        config: Mapping[str, Any] | None = None,
        arguments: Sequence[str] = (),
        python_path: Sequence[Path] = (),
        verify_caches: bool = True,
        trust_loopback: bool = True,
    ) -> None:
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "leaderElection": {"leaderElect": False},
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            **(config or {}),
        }
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        flags = [f"--config={file}", "--bind-address=127.0.0.1", f"--secure-port={self.port}", "-v=2"]
        if trust_loopback:
            flags.append("--trust-loopback")  # suites read metrics without a token
        if verify_caches:
            flags.append("--verify-caches")
        command = [sys.executable, "-m", "scheduler.cli.main", "run", *flags, *arguments]
        super().__init__(name, command, folder / f"{name}.log")
        self._python_path = [str(path) for path in (*python_path, _REPO)]

    def start(self) -> None:
        """Start the child with the modules of python_path importable; does not wait."""
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(self._python_path)
        try:
            super().start()
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before

    def start_and_wait(self) -> SchedulerProcess:
        """Start and wait until /readyz answers ok."""
        self.start()
        self.wait_ready(lambda: self.get("/readyz") == "ok", READY_TIMEOUT_S)
        return self

    def __enter__(self) -> SchedulerProcess:
        return self.start_and_wait()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def get(self, path: str) -> str:
        """The body of an endpoint, "" when it does not answer or refuses."""
        context = ssl._create_unverified_context()  # its certificate is self-signed, made at start
        try:
            with urllib.request.urlopen(self.url + path, timeout=5, context=context) as answer:
                return str(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ""

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels; 0 without any."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            sample, _, value = line.rpartition(" ")
            bare, _, inside = sample.partition("{")
            if bare == name and all(f'{key}="{text}"' in inside for key, text in labels.items()):
                total += float(value)
        return total

    def errors(self) -> list[str]:
        """Lines of the log at level error or above, in either format."""
        marks = ("[error", "[critical", '"level":"error"', '"level":"critical"', "Traceback")
        return [line for line in self.log().splitlines() if any(mark in line for mark in marks)]

    def log(self) -> str:
        """The whole log."""
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""


@dataclass
class History:
    """Everything a watch showed of Pods and claims since ``record`` began, with the revisions at which it happened.

    bound: Pod uid -> revision of the first object with a node name; nodes: Pod uid -> that node. reserved: (claim uid,
    Pod uid) -> revision at which the reservation was first seen beside an allocation. allocations: claim uid -> list
    of (revision, device keys), one entry whenever the set of devices changed (an empty set: deallocated).
    """

    pods: dict[str, Object] = field(default_factory=dict)
    claims: dict[str, Object] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)
    nodes: dict[str, str] = field(default_factory=dict)
    reserved: dict[tuple[str, str], int] = field(default_factory=dict)
    allocations: dict[str, list[tuple[int, frozenset[tuple[str, str, str]]]]] = field(default_factory=dict)
    pod_claims: dict[str, list[str]] = field(default_factory=dict)

    def see_pod(self, pod: Object, revision: int, gone: bool) -> None:
        """Take in one Pod event."""
        uid = pod["metadata"]["uid"]
        if gone:
            self.pods.pop(uid, None)
            return
        self.pods[uid] = pod
        if pod["spec"].get("nodeName") and uid not in self.bound:
            self.bound[uid] = revision
            self.nodes[uid] = pod["spec"]["nodeName"]
            self.pod_claims[uid] = claim_names(pod)

    def see_claim(self, claim: Object, revision: int, gone: bool) -> None:
        """Take in one claim event."""
        uid = claim["metadata"]["uid"]
        status = {} if gone else claim.get("status") or {}
        devices = device_keys(claim) if status.get("allocation") else frozenset()
        changes = self.allocations.setdefault(uid, [])
        if (changes[-1][1] if changes else frozenset()) != devices:
            changes.append((revision, devices))
        if gone:
            self.claims.pop(uid, None)
            return
        self.claims[uid] = claim
        if status.get("allocation"):
            for consumer in status.get("reservedFor") or []:
                self.reserved.setdefault((uid, consumer["uid"]), revision)

    def devices_at(self, claim_uid: str, revision: int) -> frozenset[tuple[str, str, str]]:
        """What the claim held at a revision."""
        held: frozenset[tuple[str, str, str]] = frozenset()
        for changed, devices in self.allocations.get(claim_uid, []):
            if changed <= revision:
                held = devices
        return held

    def bound_without_reservation(self) -> list[str]:
        """Bound Pods of which some claim was not allocated and reserved for them at a lower revision."""
        by_name = {
            (c["metadata"]["namespace"], c["metadata"]["name"]): c["metadata"]["uid"] for c in self.claims.values()
        }
        bad = []
        for uid, revision in self.bound.items():
            pod = self.pods.get(uid)
            if pod is None:
                continue
            for name in self.pod_claims[uid]:
                claim = by_name.get((pod["metadata"]["namespace"], name))
                reserved = self.reserved.get((claim, uid)) if claim else None
                if claim is not None and (reserved is None or reserved >= revision):
                    bad.append(f"{pod['metadata']['name']}: claim {name} reserved at {reserved}, bound at {revision}")
        return bad

    def double_given(self) -> list[tuple[str, str, str, str]]:
        """(device, earlier claim uid, later claim uid, text) of each device two claims held at the same time.

        Earlier and later by the revision at which each allocation appeared.
        """
        intervals: dict[tuple[str, str, str], list[tuple[int, float, str]]] = {}
        for uid, changes in self.allocations.items():
            for index, (revision, devices) in enumerate(changes):
                end = changes[index + 1][0] if index + 1 < len(changes) else float("inf")
                for device in devices:
                    intervals.setdefault(device, []).append((revision, end, uid))
        found = []
        for device, spans in intervals.items():
            spans.sort()
            for index, (start, end, uid) in enumerate(spans):
                for later_start, _, later in spans[index + 1 :]:
                    if later_start < end and later != uid:
                        text = f"{'/'.join(device)}: {uid} since {start}, {later} since {later_start}"
                        found.append(("/".join(device), uid, later, text))
        return found


def claim_names(pod: Object) -> list[str]:
    """Names of the claims a Pod uses, generated ones included."""
    statuses = {s["name"]: s.get("resourceClaimName") for s in pod.get("status", {}).get("resourceClaimStatuses") or []}
    names = []
    for entry in pod["spec"].get("resourceClaims") or []:
        name = entry.get("resourceClaimName") or statuses.get(entry["name"])
        if name:
            names.append(name)
    return names


def device_keys(claim: Object) -> frozenset[tuple[str, str, str]]:
    """(driver, pool, device) of the claim's exclusive results."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    return frozenset(
        (r["driver"], r["pool"], r["device"])
        for r in allocation.get("devices", {}).get("results") or []
        if not r.get("adminAccess") and not r.get("shareID")
    )


@asynccontextmanager
async def record(api: Api, history: History | None = None) -> AsyncIterator[History]:
    """Watch Pods and claims while the block runs; the watch starts at the present. ``history``: one to write into."""
    history = history or History()
    tasks = [
        asyncio.create_task(_follow(api, PODS, history.see_pod)),
        asyncio.create_task(_follow(api, CLAIMS, history.see_claim)),
    ]
    try:
        yield history
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError):
                raise result


async def _follow(api: Api, resource: Resource, see: Any) -> None:
    """One kind's history; a broken stream resumes at the last revision, so that nothing is missed."""
    listed = await api.list_raw(resource)
    revision = int(listed["metadata"]["resourceVersion"])
    for item in listed.get("items") or []:
        see(item, int(item["metadata"]["resourceVersion"]), False)
    while True:
        try:
            async for kind, item in api.watch(resource, resource_version=str(revision)):
                revision = int(item["metadata"]["resourceVersion"])
                if kind != "BOOKMARK":
                    see(item, revision, kind == "DELETED")
        except (OSError, aiohttp.ClientError):
            pass  # the API server restarts in some suites: go on where the stream broke
        await asyncio.sleep(0.1)


def condition(pod: Object, kind: str = "PodScheduled") -> Object:
    """A Pod's condition of one type, {} without it."""
    for entry in pod.get("status", {}).get("conditions") or []:
        if entry["type"] == kind:
            found: Object = entry
            return found
    return {}
