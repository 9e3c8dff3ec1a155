"""Five short random schedules of faults beside kube-scheduler: no promise is broken, everything that fits is bound."""

from __future__ import annotations

from pathlib import Path

from e2e.api import LEASES, Api
from e2e.chaos.faults import WATCH_FAULTS
from e2e.chaos.replicas import DISK, HANDLES, WALL
from e2e.chaos.run import session, totals
from e2e.controlplane import ControlPlane

SEEDS = (101, 102, 103, 104, 105)
SECONDS = 4.0


async def test_five_random_schedules_break_no_promise(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Histories without a violation; and faults, Bindings and endings of replicas enough to have shown one."""
    await clean_cluster.delete(LEASES, "dra-scheduler", "kube-system", missing_ok=True)
    outcomes = []
    async with session(clean_cluster, control_plane, tmp_path, SEEDS[0]) as runs:
        for seed in SEEDS:
            outcome = await runs.run(seed, SECONDS, last=seed == SEEDS[-1])
            print(outcome.line())
            assert outcome.problems == []
            assert outcome.unjudged == ""
            outcomes.append(outcome)
    faults, load, stats = totals(outcomes)
    print(f"faults: {dict(faults)}")
    assert stats["bound by dra-scheduler"] > 20
    assert stats["bound by default-scheduler"] > 20
    assert stats["allocated by dra-scheduler"] > 20, "the judge knows which allocations are ours"
    assert load["Pods deleted and created again under one name"] > 0
    assert stats["decisions replayed"] > 50
    assert sum(faults.values()) > 100
    assert {"SIGKILL", "SIGSTOP and SIGCONT", WALL} <= set(faults)
    assert {HANDLES, DISK} & set(faults)
    assert sum(fault.value in faults for fault in WATCH_FAULTS) >= 4
