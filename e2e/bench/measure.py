"""One run: a fresh control plane, the load, one scheduler, and what it cost."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, Api, Resource
from e2e.bench.workloads import CLASS, NAMESPACE, Object, Workload, node, slices
from e2e.controlplane import ControlPlane, ControlPlaneOptions
from e2e.controlplane.fixtures import make_api
from e2e.objects import device_class
from e2e.scheduler import SchedulerProcess

SERVICES = Resource("", "v1", "services", "Service")
AT_ONCE = 48
NO_LIMIT = {"qps": 100_000, "burst": 100_000}
OURS, THEIRS, FLOOR = "dra-scheduler", "kube-scheduler", "floor"
SETTLE_SHARE, SETTLE_MAX_S = 0.05, 30.0
"""A scheduler has settled when it uses less than this share of a CPU for a second: its events are written then, too."""
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass
class Result:
    """What one run measured. Times in seconds, CPU in milliseconds per Pod, memory in MB.

    ``requests``: verb and resource → requests per Pod that the API server saw, of everybody. ``own_requests``: verb →
    requests per Pod that the scheduler itself sent. ``pause_p99_ms``: how late our loop was; 0 for kube-scheduler.
    ``own_pause_p99_ms``: the part in which it was at work, not waiting for a core.
    """

    workload: str
    scheduler: str
    pods: int
    pods_per_s: float = 0.0
    wall_s: float = 0.0
    cpu_ms: dict[str, float] = field(default_factory=dict)
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    memory_mb: float = 0.0
    requests: dict[str, float] = field(default_factory=dict)
    own_requests: dict[str, float] = field(default_factory=dict)
    pause_p99_ms: float = 0.0
    own_pause_p99_ms: float = 0.0
    ready_s: float = 0.0
    bound: int = 0
    series: list[float] = field(default_factory=list)

    def record(self) -> Mapping[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


async def _all(calls: Iterable[Callable[[], Awaitable[Any]]]) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(call: Callable[[], Awaitable[Any]]) -> None:
        async with slots:
            await call()

    await asyncio.gather(*(one(call) for call in calls))


async def _load(api: Api, workload: Workload, scheduler: str) -> None:
    """Everything that is there before the scheduler starts."""

    async def make_node(index: int) -> None:
        body = node(index)
        await api.create(NODES, body)
        await api.patch(NODES, body["metadata"]["name"], {"status": body["status"]}, subresource="status")

    await _all(lambda i=i: make_node(i) for i in range(workload.nodes))  # type: ignore[misc]  # binds the number
    if workload.devices:
        await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
        await _all(lambda s=s: api.create(SLICES, s) for s in slices(workload))  # type: ignore[misc]  # as above
    for item in workload.templates:
        await api.create(CLAIM_TEMPLATES, item)
    for item in workload.services:
        await api.create(SERVICES, item)
    await _present(api, workload)
    await _unschedulable(api, workload, scheduler)


async def _present(api: Api, workload: Workload) -> None:
    """Pods that are bound already."""

    async def one(index: int) -> None:
        body = workload.pod(index + 1_000_000)
        body["spec"]["nodeName"] = f"node-{index % workload.nodes}"
        await api.create(PODS, body, NAMESPACE)

    await _all(lambda i=i: one(i) for i in range(workload.present))  # type: ignore[misc]  # binds the number


async def _unschedulable(api: Api, workload: Workload, scheduler: str) -> None:
    async def one(index: int) -> None:
        body = named(workload.pod(index + 2_000_000), scheduler)
        body["spec"]["nodeSelector"] = {"no": "such-node"}
        await api.create(PODS, body, NAMESPACE)

    await _all(lambda i=i: one(i) for i in range(workload.unschedulable))  # type: ignore[misc]  # binds the number


def named(pod: Object, scheduler: str) -> Object:
    """The Pod for one of the two schedulers: the only difference between the runs."""
    pod["spec"]["schedulerName"] = "default-scheduler" if scheduler == THEIRS else "dra-scheduler"
    return pod


class Bindings:
    """Notes when each Pod got its node, by a watch that looks at nothing but line starts."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.times: list[float] = []
        self._task: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        self._wanted = 1 << 60
        self._before = 0

    async def __aenter__(self) -> Bindings:
        listed = await self._list()
        self._before = len(listed["items"])
        self._task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        return self

    async def _list(self) -> Object:
        return await self._api.list_raw(PODS, NAMESPACE, fieldSelector="spec.nodeName!=")

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def wait(self, count: int, timeout_s: float) -> bool:
        """Until ``count`` Pods were bound since the watch began."""
        self._wanted = count
        if len(self.times) >= count:
            return True
        try:
            await asyncio.wait_for(self._enough.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    async def _follow(self, revision: str) -> None:
        """A server under load ends watches that are slow: what was bound meanwhile is counted when it is listed."""
        while True:
            with suppress(aiohttp.ClientPayloadError):
                await self._watch(revision)
            listed = await self._list()
            revision = listed["metadata"]["resourceVersion"]
            self._bound(len(listed["items"]) - self._before - len(self.times))
            await asyncio.sleep(0.2)

    def _bound(self, count: int) -> None:
        self.times += [time.monotonic()] * count
        if len(self.times) >= self._wanted:
            self._enough.set()

    async def _watch(self, revision: str) -> None:
        query = {"watch": "true", "resourceVersion": revision, "fieldSelector": "spec.nodeName!="}
        async with self._api.session.get(PODS.path(NAMESPACE), params=query) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                self._bound(sum(line.startswith(b'{"type":"ADDED"') for line in lines))


def cpu_s(pid: int) -> float:
    """User and system CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak_mb(pid: int) -> float:
    """Peak resident memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def own_requests(metrics: str) -> dict[str, float]:
    """verb → requests a scheduler has sent, from its own metrics; failed ones included."""
    found: dict[str, float] = {}
    for line in metrics.splitlines():
        if line.startswith("rest_client_requests_total{"):
            verb = line.partition('method="')[2].partition('"')[0]
            found[verb] = found.get(verb, 0.0) + float(line.rpartition(" ")[2])
    return found


def _requests(api_metrics: str) -> dict[str, float]:
    """verb resource → count of all requests the API server has seen."""
    found: dict[str, float] = {}
    for line in api_metrics.splitlines():
        if not line.startswith("apiserver_request_total{"):
            continue
        labels, _, value = line.partition("{")[2].rpartition("} ")
        parts = dict(part.split("=", 1) for part in labels.split(",") if "=" in part)
        name = f"{parts.get('verb', '')} {parts.get('resource', '')}/{parts.get('subresource', '')}"
        key = name.replace('"', "").rstrip("/")
        found[key] = found.get(key, 0.0) + float(value)
    return found


SLI = "scheduler_pod_scheduling_sli_duration_seconds"
PAUSES, OWN_PAUSES = "dra_scheduler_loop_pause_seconds", "dra_scheduler_loop_pause_own_seconds"


def quantile_ms(metrics: str, quantile: float, name: str = SLI) -> float:
    """A quantile of a histogram in milliseconds, linear inside a bucket, over all labels; 0 without samples."""
    buckets: dict[float, float] = {}
    for line in metrics.splitlines():
        if line.startswith(f"{name}_bucket"):
            until = float(line.partition('le="')[2].partition('"')[0].replace("+Inf", "inf"))
            buckets[until] = buckets.get(until, 0.0) + float(line.rpartition(" ")[2])
    total = max(buckets.values(), default=0.0)
    low, before = 0.0, 0.0
    for border in sorted(buckets):
        if buckets[border] >= quantile * total > 0:
            if border == float("inf"):
                return low * 1000
            share = (quantile * total - before) / max(buckets[border] - before, 1e-9)
            return (low + (border - low) * share) * 1000
        low, before = border, buckets[border]
    return 0.0


async def measure(workload: Workload, scheduler: str, folder: Path, timeout_s: float = 600.0) -> Result:
    """A fresh control plane with priority and fairness off and no client limits; its objects; then the scheduler."""
    options = ControlPlaneOptions(fairness=False)
    plane = await asyncio.to_thread(lambda: ControlPlane(options).__enter__())
    try:
        async with make_api(plane) as api:
            await _load(api, workload, scheduler)
            if not workload.churn_per_s:
                await _create(api, workload, scheduler)
            return await _run(plane, api, workload, scheduler, folder, timeout_s)
    finally:
        await asyncio.to_thread(plane.stop)


async def _create(api: Api, workload: Workload, scheduler: str) -> None:
    """All Pods, and their claims, before the scheduler starts."""
    await _all(
        lambda i=i: api.create(PODS, named(workload.pod(i), scheduler), NAMESPACE)  # type: ignore[misc]  # binds i
        for i in range(workload.pods)
    )
    expected = sum(bool(workload.pod(i)["spec"].get("resourceClaims")) for i in range(workload.pods))
    while expected and len(await api.list(CLAIMS, NAMESPACE)) < expected:  # noqa: ASYNC110  # another process makes them
        await asyncio.sleep(1.0)


async def _run(
    plane: ControlPlane, api: Api, workload: Workload, scheduler: str, folder: Path, timeout_s: float
) -> Result:
    result = Result(workload.name, scheduler, workload.pods)
    async with Bindings(api) as bindings:
        pids = {name: process.pid for name, process in plane.processes.items()}
        before = {name: cpu_s(pid) for name, pid in pids.items() if pid}
        seen_before = _requests(await _text(api, "/metrics"))
        started = time.monotonic()
        pid, stop, metrics = await asyncio.to_thread(_start, plane, workload, scheduler, folder)
        result.ready_s = time.monotonic() - started
        own_at_start = cpu_s(pid)
        if workload.churn_per_s:
            await _churn(api, workload, scheduler)
        done = await bindings.wait(workload.pods, timeout_s)
        ended = time.monotonic()
        await _settled(pid)
        after = {name: cpu_s(p) for name, p in pids.items() if p}
        own = cpu_s(pid)
        seen = _requests(await _text(api, "/metrics"))
        text = await asyncio.to_thread(metrics)
        result.memory_mb = peak_mb(pid)
        await asyncio.to_thread(stop)
        times = bindings.times[: workload.pods]
    if not done:
        print(f"   only {len(times)} of {workload.pods} Pods were bound in {timeout_s} s")
    count = max(len(times), 1)
    result.bound, result.wall_s = len(times), (times[-1] if times else ended) - started
    result.series = [round(moment - started, 3) for moment in times[:: max(1, count // 200)]]
    result.pods_per_s = pods_per_s(times)
    result.cpu_ms = {name: (after[name] - before[name]) * 1000 / count for name in after}
    result.cpu_ms["scheduler"] = own * 1000 / count
    result.cpu_ms["scheduler after start"] = (own - own_at_start) * 1000 / count
    result.requests = {
        name: round((value - seen_before.get(name, 0.0)) / count, 3)
        for name, value in seen.items()
        if value - seen_before.get(name, 0.0) > count * 0.05
    }
    result.own_requests = {verb: round(number / count, 3) for verb, number in sorted(own_requests(text).items())}
    result.p50_ms, result.p99_ms = quantile_ms(text, 0.5), quantile_ms(text, 0.99)
    result.pause_p99_ms = quantile_ms(text, 0.99, PAUSES)
    result.own_pause_p99_ms = quantile_ms(text, 0.99, OWN_PAUSES)
    return result


def pods_per_s(times: Sequence[float]) -> float:
    """Bound Pods a second between the first and the last tenth; 0 when none was bound."""
    count = len(times)
    if not count:
        return 0.0
    low, high = times[int(count * 0.1)], times[min(int(count * 0.9), count - 1)]
    return 0.8 * count / max(high - low, 1e-3)


async def _text(api: Api, path: str) -> str:
    async with api.session.get(path) as answer:
        return await answer.text()


async def _churn(api: Api, workload: Workload, scheduler: str) -> None:
    """So many Pods a second, evenly."""
    begun = time.monotonic()
    tasks = []
    for index in range(workload.pods):
        await asyncio.sleep(max(0.0, begun + index / workload.churn_per_s - time.monotonic()))
        body = named(workload.pod(index), scheduler)
        tasks.append(asyncio.create_task(api.create(PODS, body, NAMESPACE)))
    await asyncio.gather(*tasks)


async def _settled(pid: int) -> None:
    """Until the process has nothing left to do, its events included."""
    deadline, before = time.monotonic() + SETTLE_MAX_S, cpu_s(pid)
    while time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        now = cpu_s(pid)
        if now - before < SETTLE_SHARE:
            return
        before = now


def _start(
    plane: ControlPlane, workload: Workload, scheduler: str, folder: Path
) -> tuple[int, Callable[[], Any], Callable[[], str]]:
    """Start one scheduler; its process id, how to stop it, how to read its metrics."""
    if scheduler == THEIRS:
        kubeconfig = str(plane.kubeconfig_for("system:kube-scheduler"))
        process = plane.start_kube_scheduler({"clientConnection": {"kubeconfig": kubeconfig, **NO_LIMIT}})
        return process.pid or 0, plane.stop_kube_scheduler, lambda: _fetch(f"{plane.kube_scheduler_url}/metrics")
    if scheduler == FLOOR:
        arguments = [str(plane.kubeconfig_for()), str(workload.nodes), str(workload.devices)]
        child = subprocess.Popen([sys.executable, "-m", "e2e.bench.floor", *arguments])
        return child.pid, child.kill, str
    # Both log as they do without a flag: kube-scheduler says nothing of a Binding below -v=2.
    ours = SchedulerProcess(folder, plane.kubeconfig_for(), verify_caches=False, arguments=["-v=0"])
    ours.start_and_wait()
    return ours.pid or 0, ours.stop, lambda: ours.get("/metrics")


def _fetch(url: str) -> str:
    import ssl
    import urllib.request

    context = ssl._create_unverified_context()  # kube-scheduler's own certificate
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:
        return str(answer.read().decode())
