"""What explanations cost a running scheduler: ``python -m e2e.bench.explaining`` (or ``make bench-explain``).

On a real control plane with 500 nodes of 10 devices: how long one explanation takes, from the running scheduler and
from files; and the time from a Pod's creation to its node at a steady rate of Pods with claims, without questions and
with ten explanations a second (of ten Pods that wait), in turns. No time measured here decides any test.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from e2e.api import CLAIM_TEMPLATES, DEVICE_CLASSES, NODES, PODS, SLICES, Api, Object
from e2e.bench.measure import cpu_s
from e2e.bench.workloads import node
from e2e.controlplane import ControlPlane, ControlPlaneOptions
from e2e.controlplane.fixtures import make_api
from e2e.objects import claim_template, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually

CLASS, NS = "gpu.example.com", "default"
WAITING = 10
AT_ONCE = 32


@dataclass
class Phase:
    """One stretch of load: milliseconds from creation to node, and what became of the questions.

    ``cpu_ms``: what the scheduler's own process used per second, children left out; other than the times it does not
    depend on what else the machine does.
    """

    asked: bool
    bound_ms: list[float] = field(default_factory=list)
    answered_s: list[float] = field(default_factory=list)
    refused: int = 0
    cpu_ms: float = 0.0

    def words(self) -> str:
        """One line."""
        half, most = quantile(self.bound_ms, 0.5), quantile(self.bound_ms, 0.99)
        told = f"{len(self.bound_ms)} Pods, p50 {half:.1f} ms, p99 {most:.1f} ms, {self.cpu_ms:.0f} ms CPU per second"
        if not self.asked:
            return f"without questions: {told}"
        answers = (
            f"{len(self.answered_s)} answers, median {quantile(self.answered_s, 0.5):.2f} s, {self.refused} refused"
        )
        return f"with questions:    {told}; {answers}"


def quantile(values: list[float], part: float) -> float:
    """The value below which ``part`` of the values are; 0 without any."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


async def _all(calls: list[Object], create: object) -> None:
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(item: Object) -> None:
        async with slots:
            await create(item)  # type: ignore[operator]  # a coroutine function

    await asyncio.gather(*(one(item) for item in calls))


def _slice(index: int, devices: int) -> Object:
    name = f"node-{index}"
    models = ("A100", "H100")
    return {
        "metadata": {"name": f"{name}-gpus"},
        "spec": {
            "driver": CLASS,
            "nodeName": name,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [
                {"name": f"gpu-{n}", "attributes": {"model": {"string": models[n % 2]}, "index": {"int": n}}}
                for n in range(devices)
            ],
        },
    }


async def load(api: Api, nodes: int, devices: int) -> None:
    """Nodes, devices, templates, and the Pods that will wait."""

    async def make_node(body: Object) -> None:
        await api.create(NODES, body)
        await api.patch(NODES, body["metadata"]["name"], {"status": body["status"]}, subresource="status")

    async def make_slice(body: Object) -> None:
        await api.create(SLICES, body)

    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await _all([node(index) for index in range(nodes)], make_node)
    await _all([_slice(index, devices) for index in range(nodes)], make_slice)
    await api.create(CLAIM_TEMPLATES, claim_template("one", exactly(CLASS)), NS)
    selector = f'device.attributes["{CLASS}"].model == "H100"'
    for number in range(WAITING):
        asked = exactly(CLASS, selector, count=devices // 2 + 1 + number % 3)
        await api.create(CLAIM_TEMPLATES, claim_template(f"much-{number}", asked), NS)
        await api.create(PODS, pod(f"waits-{number}", templates={"gpu": f"much-{number}"}), NS)


class Watch:
    """When each Pod was first seen with a node."""

    def __init__(self, api: Api) -> None:
        self._api, self.seen = api, dict[str, float]()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Watch]:
        """Follows while the block lasts."""
        listed = await self._api.list_raw(PODS, NS, fieldSelector="spec.nodeName!=")
        task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _follow(self, revision: str) -> None:
        query = {"watch": "true", "resourceVersion": revision, "fieldSelector": "spec.nodeName!="}
        async with self._api.session.get(PODS.path(NS), params=query) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                now = time.monotonic()
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    if line.startswith(b'{"type":"ADDED"'):
                        self.seen.setdefault(json.loads(line)["object"]["metadata"]["name"], now)


class Asker:
    """Ten questions a second, each about the next of the waiting Pods."""

    def __init__(self, url: str, token: str, per_s: float) -> None:
        self._url, self._token, self._per_s = url, token, per_s

    async def one(self, session: aiohttp.ClientSession, number: int) -> float | None:
        """Seconds until the answer, None when it was refused for now."""
        started = time.monotonic()
        path = f"/questions/v1/namespaces/{NS}/pods/waits-{number % WAITING}/explanation"
        headers = {"Authorization": f"Bearer {self._token}"}
        async with session.get(self._url + path, headers=headers, ssl=False) as answer:
            await answer.read()
            return time.monotonic() - started if answer.status == 200 else None

    async def go_on(self, phase: Phase) -> None:
        """Until cancelled."""
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=60)) as session,
            asyncio.TaskGroup() as group,
        ):

            async def noted(number: int) -> None:
                took_s = await self.one(session, number)
                if took_s is None:
                    phase.refused += 1
                else:
                    phase.answered_s.append(took_s)

            number = 0
            while True:
                group.create_task(noted(number))
                number += 1
                await asyncio.sleep(1 / self._per_s)


async def run_phase(api: Api, asker: Asker, ask: bool, name: str, pods_per_s: float, seconds: float, pid: int) -> Phase:
    """Pods at a steady rate; each takes one device."""
    phase = Phase(ask)
    created: dict[str, float] = {}
    async with Watch(api).running() as watch:
        asking = asyncio.create_task(asker.go_on(phase)) if ask else None
        await asyncio.sleep(1.0)

        async def create(pod_name: str) -> None:
            created[pod_name] = time.monotonic()
            await api.create(PODS, pod(pod_name, templates={"gpu": "one"}), NS)

        started, cpu_before_s = time.monotonic(), cpu_s(pid)
        async with asyncio.TaskGroup() as group:
            for number in range(int(pods_per_s * seconds)):
                await asyncio.sleep(max(0.0, started + number / pods_per_s - time.monotonic()))
                group.create_task(create(f"{name}-{number}"))

        async def all_bound() -> bool:
            return len(watch.seen) >= len(created)

        await eventually(all_bound, f"every Pod of {name} is bound", timeout_s=120)
        phase.cpu_ms = 1000 * (cpu_s(pid) - cpu_before_s) / (time.monotonic() - started)
        if asking is not None:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
    phase.bound_ms = [1000 * (watch.seen[name] - at) for name, at in created.items()]
    return phase


async def _told(api: Api) -> bool:
    pods = await api.list(PODS, NS)
    return len([one for one in pods if condition(one).get("reason") == "Unschedulable"]) == WAITING


async def _single(scheduler: SchedulerProcess, asker: Asker, kubeconfig: str, folder: Path, kubectl: Path) -> None:
    """One explanation at a time, from the running scheduler and from files."""
    async with aiohttp.ClientSession() as session:
        first = await asker.one(session, 0)
        took = [await asker.one(session, number) for number in range(1, WAITING)]
    later = [one for one in took if one is not None]
    print(
        f"explain, running scheduler: first {first or 0:.2f} s, then {min(later):.2f} to {max(later):.2f} s", flush=True
    )
    dump = folder / "dump.json"
    kinds = "nodes,pods,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces"
    command = [str(kubectl), "--kubeconfig", kubeconfig, "get", kinds, "-A", "-o", "json"]
    dump.write_bytes(await asyncio.to_thread(subprocess.check_output, command))
    started = time.monotonic()
    ours = [sys.executable, "-m", "scheduler.cli.main", "explain", "pod/waits-0", "-f", str(dump), "-o", "json"]
    done = await asyncio.to_thread(subprocess.run, ours, capture_output=True, check=False)
    size = dump.stat().st_size / 1e6
    print(
        f"explain, from files ({size:.1f} MB): {time.monotonic() - started:.2f} s, exit code {done.returncode}",
        flush=True,
    )


async def bench(arguments: argparse.Namespace) -> None:
    """Everything once."""
    with tempfile.TemporaryDirectory(prefix="dra-bench-") as name:
        folder = Path(name)
        with ControlPlane(ControlPlaneOptions(fairness=False)) as plane:
            async with make_api(plane, "bench") as api:
                await load(api, arguments.nodes, arguments.devices)
                kubeconfig = plane.kubeconfig_for()
                config = {"clientConnection": {"kubeconfig": str(kubeconfig), "qps": 100_000, "burst": 100_000}}
                scheduler = SchedulerProcess(folder, kubeconfig, config=config, verify_caches=False)
                await asyncio.to_thread(scheduler.start_and_wait)
                try:
                    await eventually(lambda: _told(api), "the waiting Pods are told", timeout_s=120)
                    asker = Asker(scheduler.url, plane.admin_token, arguments.explains)
                    await _single(scheduler, asker, str(kubeconfig), folder, plane.binaries / "kubectl")
                    assert scheduler.pid is not None  # it runs
                    await _phases(api, asker, arguments, scheduler.pid)
                    _slices(scheduler)
                finally:
                    await asyncio.to_thread(scheduler.stop)


async def _phases(api: Api, asker: Asker, arguments: argparse.Namespace, pid: int) -> None:
    phases: list[Phase] = []
    for number in range(2 * arguments.rounds):
        phase = await run_phase(api, asker, bool(number % 2), f"p{number}", arguments.rate, arguments.seconds, pid)
        print(phase.words(), flush=True)
        phases.append(phase)
    for part in (0.5, 0.99):
        without, with_them = (
            statistics.median(quantile(one.bound_ms, part) for one in phases if one.asked is asked)
            for asked in (False, True)
        )
        change = 100 * (with_them / without - 1)
        print(f"p{round(100 * part)}: {without:.1f} ms without, {with_them:.1f} ms with questions: {change:+.1f} %")
    without, with_them = (
        statistics.median(one.cpu_ms for one in phases if one.asked is asked) for asked in (False, True)
    )
    print(f"CPU of the scheduler per second: {without:.0f} ms without, {with_them:.0f} ms with questions")


def _slices(scheduler: SchedulerProcess) -> None:
    """How long questions held the loop at a time, from the scheduler's own metric."""
    name = "dra_scheduler_question_slice_seconds"
    lines = [line for line in scheduler.get("/metrics").splitlines() if line.startswith(name)]
    found = {line.rpartition(" ")[0].removeprefix(name): float(line.rpartition(" ")[2]) for line in lines}
    count = max(1.0, found["_count"])
    print(f"held by questions: {count:.0f} times, on average {1000 * found['_sum'] / count:.1f} ms", end="")
    for border in ("0.005", "0.01", "0.02", "0.05", "0.1"):
        below = found[f'_bucket{{le="{border}"}}']
        print(f"; {100 * below / count:.1f} % below {1000 * float(border):.0f} ms", end="")
    print()


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.explaining", description=__doc__)
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--devices", type=int, default=10, help="devices per node")
    parser.add_argument("--rate", type=float, default=20.0, help="Pods per second (default 20)")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of one phase (default 20)")
    parser.add_argument("--explains", type=float, default=10.0, help="explanations per second (default 10)")
    parser.add_argument("--rounds", type=int, default=3, help="phases of each kind, in turns (default 3)")
    asyncio.run(bench(parser.parse_args()))


if __name__ == "__main__":
    main()
