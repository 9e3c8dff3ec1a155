"""kill -9 at random moments under load: nothing given twice, nothing stuck, everything that fits ends bound."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from pathlib import Path

from e2e.api import CLAIMS, Api
from e2e.controlplane import ControlPlane
from e2e.scheduler import History, SchedulerProcess, device_keys, record
from e2e.suites.test_devices import bound_are, bound_count, create_pods, given_devices, gpu_cluster
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

KILLS = 10
NODES, DEVICES = 10, 8


async def _until_written(history: History, more: int) -> None:
    """Wait until the watch has shown so many further allocations and Bindings, or for a second when fewer come."""

    def seen() -> int:
        return len(history.bound) + sum(map(len, history.allocations.values()))

    wanted = seen() + more
    with suppress(TimeoutError):
        async with asyncio.timeout(1.0):
            while seen() < wanted:  # noqa: ASYNC110 - the history has no event to wait for
                await asyncio.sleep(0.002)


async def test_killed_ten_times_under_load(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Ten SIGKILLs while 120 Pods arrive for 80 devices: 80 bound, 40 wait, no device twice, no claim stuck."""
    api = clean_cluster
    rng = random.Random(20261129)
    await gpu_cluster(api, NODES, DEVICES)
    async with PretendedKubelet(api.session) as kubelet, record(api) as history:
        scheduler = SchedulerProcess(tmp_path, control_plane.kubeconfig_for())
        try:
            moments = []
            for round_number in range(KILLS):
                scheduler.start_and_wait()
                before = await bound_count(api)
                names = [f"pod-{round_number}-{i}" for i in range(120 // KILLS)]
                load = asyncio.create_task(create_pods(api, names, at_once=4, templates={"gpu": "one-gpu"}))
                # From before the first claim is written to after the last Binding of this batch, counted in writes
                # and not in time, so that a slow machine is hit in the middle, too.
                writes = rng.randrange(0, 2 * len(names))
                await _until_written(history, writes)
                scheduler.kill()
                await load
                moments.append(f"{writes} writes: {await bound_count(api) - before} bound")
            print("killed after", "; ".join(moments))
            assert any(not text.endswith(": 0 bound") for text in moments), "no kill came in the middle: test is void"
            scheduler.start_and_wait()
            await eventually(bound_are(api, NODES * DEVICES), "all Pods that fit are bound", timeout_s=90)
            given = await given_devices(api)
            assert len(given) == len(set(given)) == NODES * DEVICES
            assert history.double_given() == []
            assert history.bound_without_reservation() == []
            stuck = [
                c["metadata"]["name"]
                for c in await api.list(CLAIMS)
                if device_keys(c) and not c["status"].get("reservedFor")
            ]
            assert stuck == [], "allocated, but reserved for nobody"
        finally:
            scheduler.stop()
        assert kubelet.complaints() == []
