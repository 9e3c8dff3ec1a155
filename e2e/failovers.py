"""``python -m e2e.failovers --takeovers 20``: the leader is killed, cut off, frozen, put to sleep; another takes over.

Pods with claims arrive all the time. Measured: from the fault until another replica holds the lease, and until a Pod
that came after the fault is bound. Judged: by the recorded history, and by the API server's audit log: no write of a
replica is carried out while another holds the lease, also not after it has come back to itself. Each takeover of the
lease must come within TAKEOVER_WITHIN_S of the fault; how long the next Pod takes is measured only.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from e2e.api import LEASES, PODS, Api, ApiError
from e2e.chaos.faults import FaultPlan
from e2e.chaos.proxy import FaultProxy
from e2e.clocks import Clocks
from e2e.controlplane import ControlPlane, ControlPlaneOptions
from e2e.controlplane.credentials import User
from e2e.controlplane.fixtures import make_api
from e2e.history_check import judge
from e2e.history_recorder import recording
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess
from e2e.server_audit import LEASE, arguments, read, terms, writes_out_of_term
from e2e.suites.test_devices import NS, gpu_cluster
from e2e.waiting import eventually
from scheduler.embedded.kubelet import RUN_SECONDS_ANNOTATION, PretendedKubelet

WAYS = ("SIGKILL", "connections cut", "API server hangs", "SIGSTOP", "clock jump", "SIGTERM")
SUSPENDED_S = 3600.0
TAKEOVER_MAX_S = 120.0
"""Only a bound for a hang; what is promised is judged from the measured times."""
TAKEOVER_WITHIN_S = 20.0
"""From the fault until another holds a lease of the default settings: 19.6 s at most (Election.pause_s)."""


class Takeover(msgspec.Struct, frozen=True):
    """One forced takeover: seconds until another held the lease, and until a new Pod was bound."""

    way: str
    lease_s: float
    bound_s: float


class Replica:
    """A process with its own user, proxy and clocks."""

    def __init__(self, process: SchedulerProcess, proxy: FaultProxy, clocks: Clocks, user: str) -> None:
        self.process, self.proxy, self.clocks, self.user = process, proxy, clocks, user
        self.left_alone = False

    async def hit(self, way: str) -> Callable[[], None]:
        """Let the fault happen; what is returned ends it."""
        if way == "SIGKILL":
            await asyncio.to_thread(self.process.kill)
        elif way == "SIGTERM":
            self.process.signal(signal.SIGTERM)
        elif way == "SIGSTOP":
            self.process.signal(signal.SIGSTOP)
            return lambda: self.process.signal(signal.SIGCONT)
        elif way == "clock jump":
            self.clocks.move(0.0, SUSPENDED_S)
        elif way == "API server hangs":
            self.proxy.stall()
            return self.proxy.flow
        else:
            await self.proxy.refuse()
        return lambda: None

    async def ended(self) -> bool:
        """The process is gone."""
        return self.process.pid is None

    async def restart(self) -> None:
        """As its kubelet would: the same replica again, with everything in order."""
        await asyncio.to_thread(self.process.stop)
        self.proxy.flow()
        await self.proxy.listen()
        self.clocks.move(0.0, 0.0)
        await asyncio.to_thread(self.process.start)
        self.left_alone = False
        await eventually(self.ready, f"{self.user} is ready again", timeout_s=TAKEOVER_MAX_S, interval_s=0.2)

    async def ready(self) -> bool:
        """What /readyz says."""
        return await asyncio.to_thread(self.process.get, "/readyz") == "ok"


class Trial:
    """Replicas on a control plane whose audit log names who wrote. Use ``trial``."""

    def __init__(self, api: Api, replicas: Sequence[Replica], log: Path) -> None:
        self.api, self.replicas, self._log = api, replicas, log
        self._numbers = itertools.count()

    async def create_pod(self, run_s: float = 3.0) -> str:
        """One more Pod with a device; its name."""
        name = f"pod-{next(self._numbers)}"
        annotations = {RUN_SECONDS_ANNOTATION: str(run_s)}
        await self.api.create(PODS, pod(name, templates={"gpu": "one-gpu"}, annotations=annotations), NS)
        return name

    async def load(self, per_s: float) -> None:
        """Pods come, and go when they have ended, until cancelled."""
        for number in itertools.count():
            await self.create_pod()
            if number % 10 == 0:
                for item in await self.api.list(PODS, NS, fieldSelector="status.phase=Succeeded"):
                    await self.api.delete(PODS, item["metadata"]["name"], NS, grace_period_s=0, missing_ok=True)
            await asyncio.sleep(1.0 / per_s)

    async def holder(self) -> str:
        """Who holds the lease, "" for nobody."""
        lease = await self.api.find(LEASES, LEASE, "kube-system")
        return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")

    async def leader(self) -> Replica:
        """The replica that says that it leads; waits for one."""
        found: list[Replica] = []

        async def leads() -> bool:
            for replica in self.replicas:
                if await asyncio.to_thread(replica.process.metric, "leader_election_master_status") == 1:
                    found[:] = [replica]
            return bool(found)

        await eventually(leads, "a replica leads", timeout_s=TAKEOVER_MAX_S)
        return found[0]

    async def force(self, way: str, stopped_s: float) -> Takeover:
        """One takeover. A frozen leader is thawed after ``stopped_s``, and must end by itself; then it is restarted."""
        leader, before = await self.leader(), await self.holder()
        leader.left_alone = True
        began = time.monotonic()
        end = await leader.hit(way)

        async def taken() -> bool:
            return await self.holder() not in ("", before)

        await eventually(taken, f"another replica holds the lease after {way}", timeout_s=TAKEOVER_MAX_S)
        lease_s = time.monotonic() - began
        name = await self.create_pod()

        async def bound() -> bool:
            return bool((await self.api.get(PODS, name, NS))["spec"].get("nodeName"))

        await eventually(bound, f"a Pod is bound after {way}", timeout_s=TAKEOVER_MAX_S)
        result = Takeover(way, lease_s, time.monotonic() - began)
        if way == "SIGSTOP":
            await asyncio.sleep(max(0.0, stopped_s - (time.monotonic() - began)))
        end()
        await eventually(leader.ended, f"the ex-leader ends by itself after {way}", timeout_s=TAKEOVER_MAX_S)
        await leader.restart()
        return result

    async def supervise(self) -> None:
        """As kubelets do: start a replica that has ended (a busy machine may cost any of them its lease)."""
        while True:
            for replica in self.replicas:
                if replica.process.pid is None and not replica.left_alone:
                    await asyncio.to_thread(replica.process.start)
            await asyncio.sleep(0.5)

    def findings(self) -> tuple[int, list[str]]:
        """Terms seen in the audit log, and the writes that were nobody's to make."""
        entries = read(self._log)
        return len([term for term in terms(entries) if term.user]), writes_out_of_term(entries)


@asynccontextmanager
async def trial(
    plane: ControlPlane, log: Path, folder: Path, election: Mapping[str, Any], count: int
) -> AsyncIterator[Trial]:
    """So many replicas that are ready, and a cluster with devices."""
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(make_api(plane))
        await gpu_cluster(api, 8, 8, cpu="64")
        certificate = plane.serving_files("fault-proxy")
        replicas = []
        for index in range(count):
            user = f"replica-{index}"
            plan = FaultPlan(random.Random(index))
            proxy = await stack.enter_async_context(FaultProxy(plane.url, plane.ca_file, certificate, plan))
            kubeconfig = proxy.kubeconfig(plane.kubeconfig_for(user), folder / f"{user}.kubeconfig")
            clocks = Clocks(folder / f"{user}-clocks")
            settings = {"leaderElection": {"leaderElect": True, **election}}
            process = SchedulerProcess(folder, kubeconfig, name=user, config=settings, python_path=[clocks.folder])
            stack.push_async_callback(asyncio.to_thread, process.stop)
            replicas.append(Replica(process, proxy, clocks, user))
            await asyncio.to_thread(process.start)
            await eventually(replicas[-1].ready, f"{user} is ready", timeout_s=TAKEOVER_MAX_S, interval_s=0.2)
        here = Trial(api, replicas, log)
        supervisor = asyncio.create_task(here.supervise())
        try:
            yield here
        finally:
            supervisor.cancel()
            await asyncio.gather(supervisor, return_exceptions=True)


def control_plane_options(folder: Path, count: int) -> tuple[ControlPlaneOptions, Path]:
    """A control plane whose audit log has the writes of so many replicas; and where the log is."""
    users = {f"replica-{index}-token": User(f"replica-{index}", ("system:masters",)) for index in range(count)}
    flags, log = arguments(folder, [user.name for user in users.values()])
    return ControlPlaneOptions(users=users, apiserver_arguments=flags), log


async def takeovers(
    here: Trial, ways: Sequence[str], per_s: float, stopped_s: float
) -> tuple[list[Takeover], list[str]]:
    """One takeover after the other under load; the measured times, and everything that was wrong."""
    results, problems = [], []
    async with PretendedKubelet(here.api.session) as kubelet, recording(here.api) as recorder:
        load = asyncio.create_task(here.load(per_s))
        try:
            for way in ways:
                results.append(await here.force(way, stopped_s))
                print(f"{way}: lease after {results[-1].lease_s:.1f} s, a Pod bound after {results[-1].bound_s:.1f} s")
                if load.done():
                    load.result()
        finally:
            load.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await load
        await eventually(lambda: _all_bound(here.api), "every Pod is bound", timeout_s=60)
        await recorder.caught_up()
        checker = judge(recorder.take_all())
        problems += [f"{v.rule}: {v.text}" for v in checker.violations] + kubelet.complaints()
        print(f"{checker.stats['bound by dra-scheduler']} Bindings judged")
    seen, writes = here.findings()
    print(f"{seen} terms in the audit log, {len(writes)} writes out of term")
    if seen <= len(ways):
        problems.append(f"the audit log shows {seen} terms only")
    return results, problems + writes


def too_late(results: Iterable[Takeover], within_s: float) -> list[str]:
    """A sentence for each takeover of the lease that took longer."""
    return [
        f"takeover too late: after {result.way} another replica held the lease after {result.lease_s:.1f} s, "
        f"{within_s:g} s are promised"
        for result in results
        if result.lease_s > within_s
    ]


async def _all_bound(api: Api) -> bool:
    return all(item["spec"].get("nodeName") for item in await api.list(PODS, NS))


async def _run(arguments_: argparse.Namespace) -> int:
    folder = Path(tempfile.mkdtemp(prefix="dra-scheduler-failovers-"))
    options, log = control_plane_options(folder, arguments_.replicas)
    ways = list(itertools.islice(itertools.cycle(arguments_.ways or WAYS), arguments_.takeovers))
    try:
        with ControlPlane(options) as plane:
            async with trial(plane, log, folder / "replicas", {}, arguments_.replicas) as here:
                results, problems = await takeovers(here, ways, arguments_.rate, arguments_.stopped)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return conclude(results, problems)


def conclude(results: Sequence[Takeover], problems: Sequence[str]) -> int:
    """Print the times of takeovers with the default lease and all that was wrong; the exit code."""
    for way in dict.fromkeys(result.way for result in results):
        leases = [result.lease_s for result in results if result.way == way]
        print(f"{way:18} {len(leases):3} times, longest {max(leases):.1f} s, median {statistics.median(leases):.1f} s")
    leases = [result.lease_s for result in results]
    bounds = [result.bound_s for result in results]
    print(
        f"{len(results)} takeovers: lease after {statistics.median(leases):.1f} s (median), {max(leases):.1f} s "
        f"(longest); next Pod bound after {statistics.median(bounds):.1f} s (median), {max(bounds):.1f} s (longest)"
    )
    wrong = [*problems, *too_late(results, TAKEOVER_WITHIN_S)]
    for problem in wrong:
        print("VIOLATION", problem)
    return 1 if wrong else 0


def main() -> None:
    """Read the arguments, run, end with the exit code."""
    parser = argparse.ArgumentParser(prog="python -m e2e.failovers", description=__doc__)
    parser.add_argument("--takeovers", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--replicas", type=int, default=3, help="how many (default 3)")
    parser.add_argument("--rate", type=float, default=4.0, help="Pods per second meanwhile (default 4)")
    parser.add_argument("--stopped", type=float, default=30.0, help="seconds a leader stays frozen (default 30)")
    parser.add_argument("--ways", nargs="*", choices=WAYS, help="kinds of faults, in turn (default: all)")
    sys.exit(asyncio.run(_run(parser.parse_args())))


if __name__ == "__main__":
    main()
