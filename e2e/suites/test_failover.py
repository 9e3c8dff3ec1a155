"""Two replicas: the standby takes over from one that hangs, and the one that hung writes nothing afterwards."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from e2e.api import EVENTS, LEASES, PODS, Api
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess
from e2e.suites.test_devices import NS, is_bound
from e2e.waiting import eventually

ELECTION = {"leaderElect": True, "leaseDuration": "6s", "renewDeadline": "4s", "retryPeriod": "1s"}
BLOCKING = "e2e.plugins.blocking:Blocking"


def _blocking_config(seconds: float) -> dict[str, Any]:
    """A profile whose score plugin blocks the loop so long for each node, on Pods that ask for it."""
    profile = {
        "schedulerName": "dra-scheduler",
        "plugins": {"score": {"enabled": [{"name": BLOCKING, "weight": 1}]}},
        "pluginConfig": [{"name": BLOCKING, "args": {"seconds": seconds}}],
    }
    return {"leaderElection": ELECTION, "profiles": [profile]}


async def _holder(api: Api) -> str:
    lease = await api.find(LEASES, "dra-scheduler", "kube-system")
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


async def test_a_blocked_loop_loses_the_lease_and_writes_nothing_more(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A plugin blocks the leader for 15 s (lease 6 s): the standby leads and binds; the blocked one exits with 1."""
    api = clean_cluster
    await api.delete(LEASES, "dra-scheduler", "kube-system", missing_ok=True)
    await add_node(api, "node-0")
    await add_node(api, "node-1")
    kubeconfig = control_plane.kubeconfig_for()
    first = SchedulerProcess(tmp_path, kubeconfig, name="first", config=_blocking_config(7.5))
    second = SchedulerProcess(tmp_path, kubeconfig, name="second", config=_blocking_config(0))
    try:
        first.start_and_wait()

        async def first_leads() -> bool:
            return bool(await _holder(api))

        await eventually(first_leads, "the first replica leads", timeout_s=20)
        leader = await _holder(api)
        second.start_and_wait()
        await api.create(PODS, pod("blocker", labels={"block": "yes"}), NS)  # asked for two nodes: 15 s
        blocked_at = time.monotonic()

        async def taken_over() -> bool:
            return await _holder(api) not in ("", leader)

        await eventually(taken_over, "the standby took the lease", timeout_s=20)
        print(f"taken over {time.monotonic() - blocked_at:.1f} s after the loop was blocked (lease 6 s)")
        await eventually(is_bound(api, "blocker"), "the standby binds the Pod", timeout_s=20)
        bound = await api.get(PODS, "blocker", NS)
        await asyncio.sleep(max(0.0, 18.0 - (time.monotonic() - blocked_at)))
        # The blocked replica held a decision for this very Pod when it woke up, and an expired lease.
        assert first.pid is None, "the replica that lost its lease has ended"
        assert first.stop() == 1, "exit code 1 on a lost lease"
        after = await api.get(PODS, "blocker", NS)
        assert after["metadata"]["resourceVersion"] == bound["metadata"]["resourceVersion"]
        writers = {e["reportingInstance"] for e in await api.list(EVENTS, NS) if e["regarding"]["name"] == "blocker"}
        assert len(writers) == 1, f"only the standby reported on the Pod: {writers}"
    finally:
        first.stop()
        second.stop()


async def test_a_graceful_stop_hands_the_lease_over_at_once(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """SIGTERM releases the lease: the standby binds well before the lease would have expired."""
    api = clean_cluster
    await api.delete(LEASES, "dra-scheduler", "kube-system", missing_ok=True)
    await add_node(api, "node-0")
    config = {"leaderElection": {**ELECTION, "leaseDuration": "60s", "renewDeadline": "40s"}}
    kubeconfig = control_plane.kubeconfig_for()
    first = SchedulerProcess(tmp_path, kubeconfig, name="first", config=config)
    second = SchedulerProcess(tmp_path, kubeconfig, name="second", config=config)
    try:
        first.start_and_wait()

        async def led() -> bool:
            return bool(await _holder(api))

        await eventually(led, "the first replica leads", timeout_s=20)
        second.start_and_wait()
        assert first.stop() == 0
        await api.create(PODS, pod("next"), NS)
        await eventually(is_bound(api, "next"), "the standby binds within seconds", timeout_s=20)
    finally:
        first.stop()
        second.stop()
