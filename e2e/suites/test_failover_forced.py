"""Leaders that are cut off, frozen, put to sleep or replaced under load; ``make failovers`` forces twenty takeovers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from e2e.api import PODS, ApiError
from e2e.controlplane import ControlPlane
from e2e.failovers import Trial, control_plane_options, takeovers, too_late, trial
from e2e.history_check import judge
from e2e.history_recorder import recording
from e2e.suites.test_devices import NS
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

ELECTION = {"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "1s"}
WAYS = ("connections cut", "SIGSTOP", "clock jump")
FROZEN_S = 12.0
TAKEOVER_WITHIN_S = 15.0
"""By the rules 10.4 s at most with this lease: 8 s, a look of the standby 2.2 s after the last renewal, 0.2 s of jitter
(Election.pause_s); the rest is for a busy machine."""


async def test_an_ex_leader_changes_nothing(own_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """Three takeovers under load, then clocks that jump, a rolling update, a replica that cannot reach its server.

    Every successful write in the API server's audit log belongs to the holder of the lease; the frozen leader wakes up
    four seconds after its lease has ended, in the middle of its work.
    """
    options, log = control_plane_options(tmp_path, 2)
    plane = own_control_plane(users=options.users, apiserver_arguments=options.apiserver_arguments)
    async with trial(plane, log, tmp_path / "replicas", ELECTION, 2) as here:
        results, problems = await takeovers(here, WAYS, per_s=4.0, stopped_s=FROZEN_S)
        assert problems == []
        assert too_late(results, TAKEOVER_WITHIN_S) == []
        assert [result.way for result in results] == list(WAYS)
        await _wall_clocks_do_not_matter(here)
        await _a_rolling_update_loses_nothing(here)
        await _readiness_tells_the_truth(here)
        assert here.findings()[1] == []


async def _wall_clocks_do_not_matter(here: Trial) -> None:
    """An hour ahead, then two behind: the leader stays, and Pods are bound."""
    leader = await here.leader()
    pid = leader.process.pid
    for jump_s in (3600.0, -7200.0):
        leader.clocks.move(jump_s, 0.0)
        await _is_bound(here, await here.create_pod())
        await asyncio.sleep(1.0)
    assert leader.process.pid == pid, "it has not ended"
    leader.clocks.move(0.0, 0.0)


async def _is_bound(here: Trial, name: str) -> None:
    async def bound() -> bool:
        return bool((await here.api.get(PODS, name, NS))["spec"].get("nodeName"))

    await eventually(bound, f"{name} is bound", timeout_s=40)


async def _a_rolling_update_loses_nothing(here: Trial) -> None:
    """Each replica in turn ends in good order and is replaced, while Pods arrive: all are bound, history in order."""
    async with PretendedKubelet(here.api.session) as kubelet, recording(here.api) as recorder:
        load = asyncio.create_task(here.load(4.0))
        for replica in here.replicas:
            replica.left_alone = True
            assert await asyncio.to_thread(replica.process.stop, 30.0) == 0, "SIGTERM ends with 0"
            await replica.restart()
        load.cancel()
        with suppress(asyncio.CancelledError, ApiError):
            await load

        async def all_bound() -> bool:
            return all(item["spec"].get("nodeName") for item in await here.api.list(PODS, NS))

        await eventually(all_bound, "every Pod is bound", timeout_s=60)
        await recorder.caught_up()
        checker = judge(recorder.take_all())
        assert checker.violations == []
        assert kubelet.complaints() == []
        print(f"{checker.stats['bound by dra-scheduler']} Pods bound during a rolling update")


async def _readiness_tells_the_truth(here: Trial) -> None:
    """Standing by is ready; cut off at the start is not, and becomes ready when the server can be reached."""
    first = here.replicas[0]
    assert await asyncio.to_thread(here.replicas[1].process.get, "/readyz") == "ok"
    first.left_alone = True
    await asyncio.to_thread(first.process.stop)
    await first.proxy.refuse()
    await asyncio.to_thread(first.process.start)
    await asyncio.sleep(2.0)
    assert await asyncio.to_thread(first.process.get, "/readyz") != "ok"
    await first.proxy.listen()

    async def ready() -> bool:
        return await asyncio.to_thread(first.process.get, "/readyz") == "ok"

    async def started() -> bool:
        # The kubelet's part: a replica that gave up at its start is started again.
        await asyncio.to_thread(first.process.start)
        return await ready()

    await eventually(started, "the replica is ready", timeout_s=60)
