"""``python -m e2e.soak --minutes 60``: Pods with claims come and go for an hour; the scheduler stays as it was.

A real control plane, a pretended kubelet, one dra-scheduler as an operator runs it (caches are not recomputed). Every
change is recorded and judged as it happens. Exit code 1 when something was not flat or a promise was broken.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, PODS, Api, Object
from e2e.bench.measure import cpu_s
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.driver import PretendedDriver, add_node
from e2e.history import Fact
from e2e.history_check import Checker
from e2e.history_recorder import recording
from e2e.objects import claim, claim_template, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess
from e2e.soak_report import Sample, ends, growth, problems, write
from e2e.waiting import eventually
from scheduler.embedded.kubelet import RUN_SECONDS_ANNOTATION, PretendedKubelet

CLASS, NS = "gpu.example.com", "default"
NODES, DEVICES = 40, 8
SAMPLE_S = 5.0
PODS_MAX, HOLD_S = 240, 0.05
"""More Pods at a time would only measure how slow machine and control plane are: then fewer are created per second."""
WARM_MAX_S = 600.0
SLI = "scheduler_pod_scheduling_sli_duration_seconds_bucket"


class Churn:
    """Creates Pods at a steady rate and deletes those that have ended."""

    def __init__(self, api: Api, rate: float, seed: int) -> None:
        self._api, self._rate, self._rng = api, rate, random.Random(seed)
        self.created = self.deleted = 0
        self.stopped = False
        self._calls: set[asyncio.Task[None]] = set()
        self._deletions = asyncio.Semaphore(8)

    async def create(self) -> None:
        """Until ``stopped``: one Pod every 1/rate seconds, of changing kinds; held while too many are there."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        for number in itertools.count():
            if self.stopped:
                break
            await asyncio.sleep(max(0.0, due - loop.time()))
            while self.created + len(self._calls) - self.deleted > PODS_MAX and not self.stopped:  # noqa: ASYNC110 - no event
                await asyncio.sleep(HOLD_S)
            # What was missed is not made up for: a burst would be another load than the one asked for.
            due = max(due + 1 / self._rate, loop.time())
            call = asyncio.create_task(self._one(number))
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)
        await asyncio.gather(*self._calls)

    async def _one(self, number: int) -> None:
        seconds = str(round(self._rng.uniform(1.0, 6.0), 1))
        fields: dict[str, Any] = {"annotations": {RUN_SECONDS_ANNOTATION: seconds}}
        kind = self._rng.random()
        name = f"pod-{number}"
        if kind < 0.1:  # a claim of its own, made and deleted by hand
            await self._api.create(CLAIMS, claim(name, exactly(CLASS)), NS)
            body = pod(name, claims={"gpu": name}, **fields)
        elif kind < 0.2:  # two devices of one node
            body = pod(name, templates={"gpu": "one-gpu", "more": "one-gpu"}, **fields)
        elif kind < 0.23:  # fits nowhere: it waits until it is deleted
            body = pod(name, templates={"gpu": "too-many"}, **fields)
        else:
            body = pod(name, templates={"gpu": "one-gpu"}, **fields)
        await self._api.create(PODS, body, NS)
        self.created += 1

    async def delete(self) -> None:
        """Delete what has ended, and what has waited for long, until cancelled."""
        waiting: Counter[str] = Counter()
        while True:
            due = []
            for item in await self._api.list(PODS, NS):
                name = item["metadata"]["name"]
                if not item["spec"].get("nodeName"):
                    waiting[name] += 1
                if item["status"].get("phase") in ("Succeeded", "Failed") or waiting[name] > 10:
                    waiting.pop(name, None)
                    due.append(self._remove(item))
            # One after the other could not keep pace with creation on a busy machine.
            await asyncio.gather(*due)
            await asyncio.sleep(1.0)

    async def _remove(self, item: Object) -> None:
        async with self._deletions:
            await self._api.delete(PODS, item["metadata"]["name"], NS, grace_period_s=0, missing_ok=True)
            for entry in item["spec"].get("resourceClaims") or ():
                if "resourceClaimName" in entry:
                    await self._api.delete(CLAIMS, entry["resourceClaimName"], NS, missing_ok=True)
            self.deleted += 1

    async def emptied(self) -> bool:
        """No Pod and no claim is left."""
        return not await self._api.list(PODS, NS) and not await self._api.list(CLAIMS, NS)


class Sampler:
    """Reads the scheduler's process and metrics every SAMPLE_S."""

    def __init__(self, scheduler: SchedulerProcess) -> None:
        self._scheduler = scheduler
        self._began = time.monotonic()
        self._buckets: dict[float, float] = {}
        self.samples: list[Sample] = []

    def take(self) -> Sample:
        """One more sample. Blocks for the time of one request."""
        pid = self._scheduler.pid
        text = self._scheduler.get("/metrics")
        status = Path(f"/proc/{pid}/status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        buckets = _buckets(text)
        since = {border: count - self._buckets.get(border, 0.0) for border, count in buckets.items()}
        self._buckets = buckets or self._buckets
        sample = Sample(
            time.monotonic() - self._began,
            int(fields["VmRSS"].split()[0]) / 1024,
            len(list(Path(f"/proc/{pid}/fd").iterdir())),
            int(fields["Threads"]),
            int(_sum(text, "dra_scheduler_tasks")),
            int(_sum(text, "scheduler_pending_pods")),
            int(max(buckets.values(), default=0.0)),
            _quantile(since, 0.5),
            _quantile(since, 0.99),
            cpu_s(pid or 0),
        )
        self.samples.append(sample)
        return sample


def _sum(text: str, name: str) -> float:
    lines = (line for line in text.splitlines() if line.partition("{")[0].partition(" ")[0] == name)
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _buckets(text: str) -> dict[float, float]:
    """Cumulative counts of the scheduling latency by border, over all labels."""
    found: dict[float, float] = {}
    for line in text.splitlines():
        if line.startswith(SLI):
            border = float(line.partition('le="')[2].partition('"')[0].replace("+Inf", "inf"))
            found[border] = found.get(border, 0.0) + float(line.rpartition(" ")[2])
    return found


def _quantile(buckets: dict[float, float], share: float) -> float:
    """The border, in ms, below which that share of the values lies; 0 without values."""
    total = buckets.get(float("inf"), 0.0)
    borders = [border for border in sorted(buckets) if total and buckets[border] >= share * total]
    return borders[0] * 1000 if borders and borders[0] != float("inf") else 0.0


async def prepare(api: Api) -> None:
    """Nodes, devices and templates."""
    driver = PretendedDriver(api, CLASS)
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    for index in range(NODES):
        await add_node(api, f"node-{index}", cpu="64")
        await driver.publish_node(f"node-{index}", DEVICES)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    await api.create(CLAIM_TEMPLATES, claim_template("too-many", exactly(CLASS, count=DEVICES + 1)), NS)


async def soak(arguments: argparse.Namespace) -> int:
    """The whole run; the exit code."""
    warm_s = min(WARM_MAX_S, arguments.minutes * 60 / 4)
    checker = Checker()
    with ControlPlane() as plane:
        async with make_api(plane) as api:
            await prepare(api)
            async with PretendedKubelet(api.session) as kubelet, recording(api) as recorder:
                scheduler = SchedulerProcess(arguments.out, plane.kubeconfig_for(), verify_caches=False)
                await asyncio.to_thread(scheduler.start_and_wait)
                try:
                    churn, sampler = Churn(api, arguments.rate, arguments.seed), Sampler(scheduler)
                    await _churn(arguments, churn, sampler, lambda: _judge(checker, recorder.settled()), warm_s)
                    await recorder.caught_up()
                    _judge(checker, recorder.take_all())
                    checker.finish()
                finally:
                    await asyncio.to_thread(scheduler.stop)
    return _verdict(arguments, sampler, checker, churn, kubelet, warm_s)


def _judge(checker: Checker, facts: Iterable[Fact]) -> int:
    for fact in facts:
        checker.see(fact)
    return len(checker.violations)


async def _churn(
    arguments: argparse.Namespace, churn: Churn, sampler: Sampler, judged: Callable[[], int], warm_s: float
) -> None:
    """Churn and samples for the whole time, then until the last Pod is gone."""
    creating, deleting = asyncio.create_task(churn.create()), asyncio.create_task(churn.delete())
    end = time.monotonic() + arguments.minutes * 60
    try:
        while time.monotonic() < end:
            await asyncio.sleep(SAMPLE_S)
            violations = judged()
            sample = await asyncio.to_thread(sampler.take)
            if len(sampler.samples) % 12 == 0:
                write(sampler.samples, warm_s, arguments.out, f"{arguments.rate:g} Pods/s")
                print(sample, f"{churn.created} created, {churn.deleted} deleted, {violations} violations", flush=True)
            for task in (creating, deleting):
                if task.done():
                    task.result()
        churn.stopped = True
        await creating
        await eventually(churn.emptied, "the last Pods end and go", timeout_s=120, interval_s=1.0)
    finally:
        creating.cancel()
        deleting.cancel()
        await asyncio.gather(creating, deleting, return_exceptions=True)


def _verdict(
    arguments: argparse.Namespace,
    sampler: Sampler,
    checker: Checker,
    churn: Churn,
    kubelet: PretendedKubelet,
    warm_s: float,
) -> int:
    samples = sampler.samples
    write(samples, warm_s, arguments.out, f"{arguments.rate:g} Pods/s")
    found = problems(samples, warm_s)
    found += [f"{v.rule}: {v.text} (revision {v.revision})" for v in checker.violations]
    found += kubelet.complaints()
    first, last = ends(samples, warm_s, lambda sample: sample.memory_mb)
    seconds = samples[-1].second
    print(
        f"{churn.created} Pods in {seconds:.0f} s ({churn.created / seconds:.1f}/s of {arguments.rate:g}/s wanted), "
        f"{samples[-1].bound} bound; memory {first:.1f} MB after {warm_s:.0f} s, {last:.1f} MB "
        f"at the end ({growth(samples, warm_s):+.1%}); {checker.stats['bound by dra-scheduler']} Bindings and "
        f"{checker.stats['allocated by dra-scheduler']} allocations judged, {len(checker.violations)} violations; "
        f"CPU {samples[-1].cpu_s / max(1, samples[-1].bound) * 1000:.2f} ms per Pod"
    )
    for line in found:
        print("NOT FLAT:", line)
    return 1 if found else 0


def main() -> None:
    """Read the arguments, run, end with the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="how long (default 60)")
    parser.add_argument("--rate", type=float, default=20.0, help="Pods per second (default 20)")
    parser.add_argument("--seed", type=int, default=1, help="of the kinds of Pods")
    parser.add_argument("--out", type=Path, default=Path("build/soak"), help="folder for samples.json and soak.svg")
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    sys.exit(asyncio.run(soak(arguments)))


if __name__ == "__main__":
    main()
