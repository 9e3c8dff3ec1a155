"""``python -m e2e.race``: kube-scheduler and we on the same devices, with and without the guard, counted.

Both schedulers get so many Pods each, there are fewer devices than Pods, and every change of claims and Pods is
recorded with its revision. What counts: devices that two claims held at one revision, and who wrote the later one.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from e2e.api import CLAIM_TEMPLATES, DEVICE_CLASSES, EVENTS, PODS, Api, ApiError
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.controlplane.processes import ProcessFailedError
from e2e.driver import PretendedDriver, add_node
from e2e.guard import GuardProcess, guarded
from e2e.objects import claim_template, device_class, exactly, pod
from e2e.scheduler import History, SchedulerProcess, claim_names, record

CLASS = "gpu.example.com"
NS = "default"
OURS, THEIRS = "dra-scheduler", "default-scheduler"
PER_NODE = 8
LEASE = ("--leader-elect-lease-duration=90s", "--leader-elect-renew-deadline=60s")
SIDE_BY_SIDE = 16


@dataclass
class RaceResult:
    """One round. ``doubles``: devices held by two claims at one revision, at any time, by anyone, in words.

    ``bound_pairs``: who wrote the later of two allocations that bound Pods held at one revision → how many.
    """

    bound: Counter[str] = field(default_factory=Counter)
    doubles: list[str] = field(default_factory=list)
    bound_pairs: Counter[str] = field(default_factory=Counter)
    unreserved: list[str] = field(default_factory=list)
    lost: int = 0
    refused: int = 0
    reviews: int = 0
    seconds: float = 0.0

    def line(self) -> str:
        """For people."""
        pairs = {f"later by {who}": count for who, count in self.bound_pairs.items()}
        return (
            f"bound {sum(self.bound.values())} ({dict(self.bound)}) in {self.seconds:.0f} s; devices with two holders "
            f"at any revision: {len(self.doubles)}; of two bound Pods: {pairs or 0}; our lost races: {self.lost}; "
            f"guard: {self.reviews} reviews, {self.refused} refused"
        )


async def race(
    api: Api, plane: ControlPlane, folder: Path, *, pods: int, devices: int, guard: bool, timeout_s: float = 1200.0
) -> RaceResult:
    """One round: ``pods`` Pods for each scheduler, one device each, ``devices`` devices; an empty cluster before."""
    loop = asyncio.get_running_loop()
    await _prepare(api, devices)
    plane.start_kube_scheduler()
    try:
        async with _maybe_guarded(plane, api, folder, guard) as running, record(api) as history:
            scheduler = SchedulerProcess(folder, plane.kubeconfig_for(), verify_caches=False)
            await asyncio.to_thread(scheduler.start_and_wait)
            try:
                began_s = loop.time()
                await _flood(api, pods)
                await _settle(history, min(devices, 2 * pods), timeout_s)
                result = judge(history)
                result.seconds = loop.time() - began_s
                result.lost = int(await asyncio.to_thread(scheduler.metric, "dra_scheduler_lost_races_total"))
                if running is not None:
                    if running.pid is None:
                        raise ProcessFailedError(f"the guard ended:\n{running.log_tail()}")
                    name = "dra_scheduler_guard_reviews_total"
                    result.reviews = int(await asyncio.to_thread(running.metric, name))
                    result.refused = int(await asyncio.to_thread(lambda: running.metric(name, decision="refused")))
                return result
            finally:
                await asyncio.to_thread(scheduler.stop)
    finally:
        plane.stop_kube_scheduler()


@asynccontextmanager
async def _maybe_guarded(
    plane: ControlPlane, api: Api, folder: Path, guard: bool
) -> AsyncIterator[GuardProcess | None]:
    if not guard:
        yield None
        return
    # Long lease times: one machine runs everything, and nobody restarts a guard here.
    async with guarded(plane, api, folder, arguments=LEASE) as running:
        yield running


async def _prepare(api: Api, devices: int) -> None:
    driver = PretendedDriver(api, CLASS)
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    left, index = devices, 0
    while left > 0:
        await add_node(api, f"node-{index}", cpu="64")
        await driver.publish_node(f"node-{index}", min(PER_NODE, left))
        left, index = left - PER_NODE, index + 1


async def _flood(api: Api, pods: int) -> None:
    slots = asyncio.Semaphore(SIDE_BY_SIDE)

    async def one(index: int, scheduler: str) -> None:
        async with slots:
            name = f"{'ours' if scheduler == OURS else 'theirs'}-{index}"
            body = pod(name, scheduler=scheduler, templates={"gpu": "one-gpu"})
            while True:
                try:
                    await api.create(PODS, body, NS)
                    return
                except TimeoutError:
                    continue  # a busy machine; perhaps it was made all the same
                except ApiError as error:
                    if error.reason == "AlreadyExists":
                        return
                    if error.status not in (429, 500, 503, 504):
                        raise

    await asyncio.gather(*(one(index, scheduler) for index in range(pods) for scheduler in (OURS, THEIRS)))


async def _settle(history: History, wanted: int, timeout_s: float, quiet_s: float = 10.0) -> None:
    """Until ``wanted`` Pods are bound and nothing moved for a moment; or, at the latest, for ``timeout_s``."""
    loop = asyncio.get_running_loop()
    deadline_s, last, since_s = loop.time() + timeout_s, -1, loop.time()
    while loop.time() < deadline_s:
        if len(history.bound) != last:
            last, since_s = len(history.bound), loop.time()
        # Whoever lost waits out its back-off (10 s at most) before it tries again.
        if loop.time() - since_s > (1.0 if last >= wanted else 6 * quiet_s):
            return
        await asyncio.sleep(0.2)


def judge(history: History) -> RaceResult:
    """What the history says."""
    by_name = {c["metadata"]["name"]: uid for uid, c in history.claims.items()}
    owner = {
        by_name[name]: item["spec"]["schedulerName"]
        for item in history.pods.values()
        for name in claim_names(item)
        if name in by_name
    }
    result = RaceResult(unreserved=history.bound_without_reservation())
    for uid in history.bound:
        result.bound[history.pods[uid]["spec"]["schedulerName"]] += 1
    for device, earlier, later, text in history.double_given():
        result.doubles.append(f"{text} ({owner.get(earlier, '?')} then {owner.get(later, '?')})")
        if _bound_with(history, earlier, device) and _bound_with(history, later, device):
            result.bound_pairs[owner.get(later, "?")] += 1
    return result


def _bound_with(history: History, claim_uid: str, device: str) -> bool:
    """Whether a Pod was bound while its claim held the device: what was given back before is harmless."""
    for consumer in (history.claims.get(claim_uid, {}).get("status") or {}).get("reservedFor") or []:
        bound = history.bound.get(consumer["uid"])
        if bound is not None and device in {"/".join(key) for key in history.devices_at(claim_uid, bound)}:
            return True
    return False


async def _empty(api: Api) -> None:
    """Nothing left from the round before; a busy machine may need several tries."""
    while True:
        try:
            for resource in (PODS, EVENTS):
                await api.delete_all(resource, NS, grace_period_s=0 if resource is PODS else None)
            await clean(api, timeout_s=600)
            return
        except TimeoutError:
            continue


async def rounds(plane: ControlPlane, *, pods: int, devices: int, guard: bool, count: int) -> list[RaceResult]:
    """Several rounds on one control plane; prints each."""
    results = []
    async with make_api(plane) as api:
        for number in range(count):
            await _empty(api)
            with tempfile.TemporaryDirectory(prefix="dra-race-") as folder:
                result = await race(api, plane, Path(folder), pods=pods, devices=devices, guard=guard)
            results.append(result)
            print(f"round {number + 1}: {result.line()}", flush=True)
            for text in result.doubles[:5]:
                print("   ", text)
    return results


def main() -> int:
    """0 when what is promised held: nothing double by us; with the guard, nothing double by anyone at any revision."""
    parser = argparse.ArgumentParser(prog="python -m e2e.race", description=__doc__)
    parser.add_argument("--pods", type=int, default=1000, help="Pods for each of the two schedulers (default 1000)")
    parser.add_argument("--devices", type=int, default=1200, help="devices for all of them (default 1200)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds (default 5)")
    parser.add_argument("--guard", action="store_true", help="with the guard in mode enforce")
    asked = parser.parse_args()
    with ControlPlane() as plane:
        results = asyncio.run(
            rounds(plane, pods=asked.pods, devices=asked.devices, guard=asked.guard, count=asked.rounds)
        )
    bad = [text for result in results for text in result.unreserved]
    bad += [f"given second by {OURS}" for result in results for _ in range(result.bound_pairs[OURS])]
    if asked.guard:
        bad += [text for result in results for text in result.doubles]
    print("broken:" if bad else "kept in every round", *bad[:20], sep="\n  " if bad else "")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
