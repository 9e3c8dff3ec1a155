"""``python -m e2e.bench.guard``: what the guard adds to an allocation, and how many it can answer.

The same allocations with no webhook at all, and with the guard; one after the other and 16 side by side. Then reviews
sent to the guard itself, without an API server in between.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import ssl
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp

from e2e.api import CLAIMS, SLICES, Api
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.controlplane.cluster import ControlPlaneOptions
from e2e.controlplane.fixtures import make_api
from e2e.guard import GuardProcess, guarded
from e2e.objects import claim, device, exactly

DRIVER, NS = "gpu.example.com", "default"
PER_POOL = 100


async def _publish(api: Api, devices: int) -> None:
    for index in range(0, devices, PER_POOL):
        spec = {
            "driver": DRIVER,
            "pool": {"name": f"pool-{index // PER_POOL}", "generation": 1, "resourceSliceCount": 1},
            "allNodes": True,
            "devices": [device(f"d{number}") for number in range(min(PER_POOL, devices - index))],
        }
        await api.create(SLICES, {"metadata": {"name": f"pool-{index // PER_POOL}"}, "spec": spec})


def _result(index: int) -> dict[str, str]:
    return {"request": "gpu", "driver": DRIVER, "pool": f"pool-{index // PER_POOL}", "device": f"d{index % PER_POOL}"}


async def _timed(call: Callable[[int], Awaitable[object]], count: int, side_by_side: int) -> tuple[list[float], float]:
    """Milliseconds of each of ``count`` calls, and calls per second."""
    slots, took = asyncio.Semaphore(side_by_side), list[float]()

    async def one(index: int) -> None:
        async with slots:
            began = time.perf_counter()
            await call(index)
            took.append(1000 * (time.perf_counter() - began))

    began = time.perf_counter()
    await asyncio.gather(*(one(index) for index in range(count)))
    return took, count / (time.perf_counter() - began)


def _row(name: str, side_by_side: int, took: list[float], rate: float) -> str:
    cuts = statistics.quantiles(took, n=100)
    return f"| {name} | {side_by_side} | {statistics.median(took):.2f} | {cuts[98]:.2f} | {rate:.0f} |"


async def _writes(api: Api, name: str, count: int, side_by_side: int) -> str:
    """Allocate ``count`` claims, timed; then release them, not timed."""

    async def allocate(index: int) -> None:
        status = {"allocation": {"devices": {"results": [_result(index)]}}}
        await api.patch(CLAIMS, f"c{index}", {"status": status}, NS, "status")

    async def release(index: int) -> None:
        await api.patch(CLAIMS, f"c{index}", {"status": {"allocation": None}}, NS, "status")

    took, rate = await _timed(allocate, count, side_by_side)
    await _timed(release, count, 16)
    return _row(name, side_by_side, took, rate)


async def _reviews(api: Api, guard: GuardProcess, count: int, side_by_side: int) -> str:
    """Reviews (dry runs) sent to the guard itself."""
    stored = await api.get(CLAIMS, "c0", NS)
    wanted = {**stored, "status": {"allocation": {"devices": {"results": [_result(0)]}}}}
    request = {
        "uid": "bench",
        "operation": "UPDATE",
        "subResource": "status",
        "resource": {"group": "resource.k8s.io", "version": "v1", "resource": "resourceclaims"},
        "userInfo": {"username": "bench"},
        "object": wanted,
        "oldObject": stored,
        "dryRun": True,
    }
    review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    body = json.dumps(review).encode()
    context = ssl._create_unverified_context()  # who serves is known; what is measured is the answer
    connector = aiohttp.TCPConnector(ssl=context, limit=side_by_side)
    async with aiohttp.ClientSession(f"https://127.0.0.1:{guard.webhook_port}", connector=connector) as session:

        async def ask(_: int) -> None:
            async with session.post("/enforce", data=body) as answer:
                assert (await answer.json())["response"]["allowed"] is True

        await ask(0)
        took, rate = await _timed(ask, count, side_by_side)
    return _row("review alone", side_by_side, took, rate)


async def bench(plane: ControlPlane, count: int) -> list[str]:
    """The rows of the table."""
    rows = ["| what | side by side | p50 ms | p99 ms | per second |", "| --- | --- | --- | --- | --- |"]
    async with make_api(plane) as api:
        await clean(api)
        await _publish(api, count)
        await _timed(lambda index: api.create(CLAIMS, claim(f"c{index}", exactly(DRIVER)), NS), count, 16)
        await _writes(api, "warm-up", count, 16)
        rows += [await _writes(api, "allocation, no guard", count, side_by_side) for side_by_side in (1, 16)]
        with tempfile.TemporaryDirectory(prefix="dra-guard-bench-") as folder:
            async with guarded(plane, api, Path(folder)) as guard:
                await _writes(api, "warm-up", count, 16)
                rows += [await _writes(api, "allocation, guard", count, side_by_side) for side_by_side in (1, 16)]
                rows += [await _reviews(api, guard, count, side_by_side) for side_by_side in (1, 16)]
        await clean(api, timeout_s=120)
    return rows


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(prog="python -m e2e.bench.guard", description=__doc__)
    parser.add_argument("--count", type=int, default=2000, help="allocations per row (default 2000)")
    count = parser.parse_args().count
    with ControlPlane(ControlPlaneOptions(fairness=False, controllers=())) as plane:
        print("\n".join(asyncio.run(bench(plane, count))))


if __name__ == "__main__":
    main()
