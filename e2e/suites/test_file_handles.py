"""The process may open no more files: it says so, lives on, and goes on by itself when it may."""

from __future__ import annotations

import asyncio
import resource
from pathlib import Path

import yaml

from e2e.api import Api
from e2e.controlplane import ControlPlane
from e2e.proxy import CuttingProxy, port_of
from e2e.scheduler import SchedulerProcess
from e2e.suites.test_devices import create_pods, gpu_cluster, is_bound
from e2e.waiting import eventually

FEW = 8


async def test_without_file_handles_it_says_so_and_recovers(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Every connection is lost while no new one can be opened; a Pod that came meanwhile is bound afterwards.

    And without handles it still ends in good order.
    """
    api = clean_cluster
    await gpu_cluster(api, 2, 2)
    original = control_plane.kubeconfig_for()
    async with CuttingProxy(port_of(yaml.safe_load(original.read_text()))) as proxy:
        scheduler = SchedulerProcess(tmp_path, proxy.kubeconfig(original, tmp_path))
        await asyncio.to_thread(scheduler.start_and_wait)
        try:
            await create_pods(api, ["before"], templates={"gpu": "one-gpu"})
            await eventually(is_bound(api, "before"), "all is well at first", timeout_s=40)
            pid = scheduler.pid
            assert pid is not None
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, limits[1]))
            proxy.cut_all()
            await create_pods(api, ["meanwhile"], templates={"gpu": "one-gpu"})

            async def told() -> bool:
                return "Too many open files" in scheduler.log()

            await eventually(told, "the log names the cause", timeout_s=40)
            assert not await is_bound(api, "meanwhile")()
            assert scheduler.pid == pid
            lines = scheduler.log().count("\n")
            await asyncio.sleep(2.0)
            assert scheduler.log().count("\n") - lines < 500, "no hot loop of complaints"
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            await eventually(is_bound(api, "meanwhile"), "it goes on by itself", timeout_s=60)
            assert scheduler.pid == pid
            assert "Traceback" not in scheduler.log()

            async def healthy() -> bool:
                return await asyncio.to_thread(scheduler.get, "/livez") == "ok"

            await eventually(healthy, "its own port answers again")
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (FEW, limits[1]))
            assert await asyncio.to_thread(scheduler.stop) == 0
            assert "Traceback" not in scheduler.log(), "closing the loop takes handles, too"
            assert not scheduler.errors()
        finally:
            await asyncio.to_thread(scheduler.stop)
