"""delayCacheUntilActive: a standby reads nothing, is ready all the same, and takes over by listing first."""

from __future__ import annotations

from pathlib import Path

from e2e.api import PODS, Api
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess
from e2e.waiting import eventually

NS = "default"
CONFIG = {
    "delayCacheUntilActive": True,
    "leaderElection": {
        "leaderElect": True,
        "leaseDuration": "3s",
        "renewDeadline": "2s",
        "retryPeriod": "500ms",
        "resourceName": "delayed",
        "resourceNamespace": "kube-system",
    },
}


async def test_a_standby_lists_only_once_it_leads(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The first replica binds; the second has listed nothing until the first stops, then binds the next Pod."""
    await add_node(clean_cluster, "a")

    async def is_bound(name: str) -> bool:
        return bool((await clean_cluster.get(PODS, name, NS))["spec"].get("nodeName"))

    kubeconfig = control_plane.kubeconfig_for()
    with SchedulerProcess(tmp_path / "one", kubeconfig, config=CONFIG) as first:
        await clean_cluster.create(PODS, pod("p"), NS)
        await eventually(lambda: is_bound("p"), "the first replica binds")
        second = SchedulerProcess(tmp_path / "two", kubeconfig, config=CONFIG)
        with second:
            assert first.metric("dra_scheduler_lists_total") > 0
            assert second.metric("dra_scheduler_lists_total") == 0
            assert second.metric("leader_election_master_status") == 0
            first.stop()
            await clean_cluster.create(PODS, pod("q"), NS)
            await eventually(lambda: is_bound("q"), "the second replica binds")
            assert second.metric("dra_scheduler_lists_total") > 0
