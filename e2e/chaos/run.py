"""One chaos run after the other on one control plane: faults, calm, the wait for everything that fits, the verdict."""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from e2e.api import PODS, Api
from e2e.chaos.fits import waiting
from e2e.chaos.load import NS, Load, prepare
from e2e.chaos.replicas import Replicas, replicas
from e2e.chaos.settling import settle
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.history import Fact, save
from e2e.history_recorder import recording
from e2e.objects import pod
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

CHANGES_MIN, STRETCH_MAX = 80, 4
"""A busy machine gets up to so many times the seconds for so many changes: a run without load proves nothing."""
LOAD_PAUSE_S = 0.05
FAULT_PAUSE_S = 0.3
FITS = "a Pod that fits was not bound within 60 s"


class Outcome(msgspec.Struct):
    """What one run did and found. ``settled_s``: from the end of the faults until nothing that fits waited.

    ``unjudged``: why its history could not be judged; such a run has not passed, whatever else was found or not.
    """

    seed: int
    problems: list[str] = []
    facts: int = 0
    settled_s: float = 0.0
    waiting: int = 0
    stats: dict[str, int] = {}
    load: dict[str, int] = {}
    faults: dict[str, int] = {}
    unjudged: str = ""

    def line(self) -> str:
        """One line for people."""
        bound = ", ".join(f"{name} {count}" for name, count in sorted(self.stats.items()))
        history = ", history UNJUDGED" if self.unjudged else ""
        return (
            f"seed {self.seed}: {len(self.problems)} violations{history}, {sum(self.faults.values())} faults, "
            f"{self.facts} facts, settled after {self.settled_s:.1f} s, {self.waiting} wait; {bound}"
        )


class Session:
    """Replicas and kube-scheduler that go on from run to run. Use ``session``."""

    def __init__(self, api: Api, plane: ControlPlane, group: Replicas, folder: Path) -> None:
        self.api, self.plane, self.group, self.folder = api, plane, group, folder
        self._waiting: tuple[list[str], list[str]] = [], []

    async def run(self, seed: int, seconds: float, *, last: bool = False) -> Outcome:
        """One run; after the last one audit trails are read and every recorded decision is made once more.

        Raises only for what is no fault of the scheduler (the suite's own requests, a history gap).
        """
        rng = random.Random(seed)
        before = self.group.injected()
        await clean(self.api)
        drivers = await prepare(self.api)
        await self._led()
        load = Load(self.api, drivers, random.Random(rng.random()))
        self.group.reseed(rng)
        async with PretendedKubelet(self.api.session) as kubelet, recording(self.api) as recorder:
            await self._disturb(load, seconds)
            began = time.monotonic()
            verdict = await settle(recorder, load.deleted, self._fit_and_wait, self.group.ready)
            settled_s = time.monotonic() - began
        # As of the last look of the wait: between that and another one a device may have come free, which is no fault.
        wrong, right = self._waiting
        outcome = Outcome(
            seed,
            [f"{v.rule}: {v.text} (revision {v.revision})" for v in verdict.violations],
            len(verdict.facts),
            settled_s,
            len(right),
            dict(verdict.checker.stats),
            dict(load.counts),
            dict(self.group.injected() - before),
            verdict.unjudged,
        )
        outcome.problems += [f"{FITS}: {name}" for name in wrong]
        outcome.problems += [f"the loop met an error: {line}" for line in self.group.errors()]
        outcome.problems += self._complaints(kubelet)
        if last:
            outcome.problems += await asyncio.to_thread(self.group.trails)
            outcome.stats["decisions replayed"] = sum(member.machine.replayed for member in self.group.members)
        if outcome.problems or outcome.unjudged:
            self._keep(outcome, verdict.facts)
        return outcome

    async def _fit_and_wait(self) -> bool:
        self._waiting = await waiting(self.api)
        return bool(self._waiting[0])

    async def _led(self) -> None:
        """Faults that meet no leader would prove little: some replica binds a Pod first."""
        await self.api.create(PODS, pod("first"), NS)

        async def bound() -> bool:
            return bool((await self.api.get(PODS, "first", NS))["spec"].get("nodeName"))

        await eventually(bound, "a replica leads and binds", timeout_s=60.0)
        await self.api.delete(PODS, "first", NS, grace_period_s=0)

    async def _disturb(self, load: Load, seconds: float) -> None:
        """Load and faults for so long; then neither."""
        tasks = [asyncio.create_task(load.run(LOAD_PAUSE_S)), asyncio.create_task(self.group.disturb(FAULT_PAUSE_S))]
        loop = asyncio.get_running_loop()
        began, end = loop.time(), loop.time() + seconds * STRETCH_MAX
        try:
            while not any(task.done() for task in tasks) and loop.time() < end:
                enough = loop.time() - began >= seconds and sum(load.counts.values()) >= CHANGES_MIN
                if enough:
                    break
                await asyncio.wait(tasks, timeout=0.1, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            await self.group.calm()
        for result in results:
            if isinstance(result, Exception):
                raise result
        await load.repair()

    @staticmethod
    def _complaints(kubelet: PretendedKubelet) -> list[str]:
        """What a node refused. Double uses are kube-scheduler's when it came second, and judged by the history."""
        ours = [verdict for verdict in kubelet.rejections if "OutOf" in verdict.reason]
        return [f"kubelet: {verdict.pod} on {verdict.node}: {verdict.reason}" for verdict in ours]

    def _keep(self, outcome: Outcome, facts: list[Fact]) -> None:
        """Everything that is needed to find out what went wrong."""
        folder = self.folder / f"seed-{outcome.seed}"
        folder.mkdir(parents=True, exist_ok=True)
        save(sorted(facts, key=lambda fact: fact.revision), folder / "history.jsonl")
        (folder / "outcome.json").write_bytes(msgspec.json.format(msgspec.json.encode(outcome)))
        for member in self.group.members:
            if member.process.log_file.exists():
                shutil.copy(member.process.log_file, folder)


@asynccontextmanager
async def session(
    api: Api, plane: ControlPlane, folder: Path, seed: int, count: int = 2, *, verify_caches: bool = True
) -> AsyncIterator[Session]:
    """Replicas and kube-scheduler run while the block runs."""
    await asyncio.to_thread(plane.start_kube_scheduler)
    try:
        async with replicas(
            plane, folder / f"replicas-{seed}", random.Random(seed), count, verify_caches=verify_caches
        ) as group:
            yield Session(api, plane, group, folder)
    finally:
        await asyncio.to_thread(plane.stop_kube_scheduler)


def totals(outcomes: Collection[Outcome]) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Faults, load and stats over all runs."""
    faults: Counter[str] = Counter()
    load: Counter[str] = Counter()
    stats: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
        load.update(outcome.load)
        stats.update(outcome.stats)
    return faults, load, stats
