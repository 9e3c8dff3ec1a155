"""Verification by watch order on the real API server: the foreign write comes before ours or after it, in every way of
seeing it late: a watch that shows nothing, one that is cut, one that starts anew, one that is too slow for the bound.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from e2e.api import CLAIMS, EVENTS, PODS, Api
from e2e.chaos.faults import Fault, FaultPlan
from e2e.chaos.proxy import FaultProxy
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.history_check import judge
from e2e.history_recorder import recording
from e2e.objects import claim, exactly, pod
from e2e.scheduler import SchedulerProcess
from e2e.suites.test_devices import CLASS, NS, gpu_cluster, is_bound
from e2e.waiting import eventually

FIRST_PICK = {"request": "gpu", "driver": CLASS, "pool": "node-0", "device": "gpu-0"}


class Races:
    """One node with two devices, a claim of ours that is known, and a watch of claims that can be held back."""

    def __init__(self, api: Api, proxy: FaultProxy, scheduler: SchedulerProcess) -> None:
        self.api, self.proxy, self.scheduler = api, proxy, scheduler

    async def prepare(self) -> None:
        """A fresh cluster, seen by the scheduler: a Pod was bound in it."""
        await clean(self.api)
        await gpu_cluster(self.api, 1, 2)
        await self.api.create(CLAIMS, claim("ours", exactly(CLASS)), NS)
        await self.api.create(CLAIMS, claim("theirs", exactly(CLASS)), NS)
        await self.api.create(PODS, pod("first", claims={"gpu": "ours"}), NS)
        await eventually(is_bound(self.api, "first"), "the scheduler has seen everything", timeout_s=40)
        await self.api.delete(PODS, "first", NS, grace_period_s=0)

        async def free() -> bool:
            return not ((await self.api.get(CLAIMS, "ours", NS)).get("status") or {}).get("allocation")

        await eventually(free, "the claim is free again")

        async def known() -> bool:
            return self._events() >= before + 1

        before = self._events()
        await self.api.patch(CLAIMS, "theirs", {"metadata": {"labels": {"seen": "yes"}}}, NS)
        await eventually(known, "the watch of claims is up to date")

    def _events(self) -> float:
        resource = "resourceclaims.resource.k8s.io"
        return self.scheduler.metric("dra_scheduler_watch_events_total", resource=resource)

    async def foreign(self) -> None:
        """Another scheduler gives away what ours picks first."""
        allocation = {"devices": {"results": [FIRST_PICK]}}
        await self.api.patch(CLAIMS, "theirs", {"status": {"allocation": allocation}}, NS, "status")

    async def ours(self) -> None:
        """Until our allocation is stored."""

        async def stored() -> bool:
            return bool(((await self.api.get(CLAIMS, "ours", NS)).get("status") or {}).get("allocation"))

        await eventually(stored, "our allocation is written", timeout_s=40)

    async def device(self) -> str:
        """What our claim holds once the Pod is bound."""
        await eventually(is_bound(self.api, "p"), "our Pod is bound", timeout_s=60)
        found = await self.api.get(CLAIMS, "ours", NS)
        return str(found["status"]["allocation"]["devices"]["results"][0]["device"])

    def ended(self, result: str) -> float:
        """How many verifications ended so."""
        return self.scheduler.metric("dra_scheduler_verifications_total", result=result)

    async def reasons(self) -> set[str]:
        """Reasons of the Events about our Pod."""
        return {e["reason"] for e in await self.api.list(EVENTS, NS) if e["regarding"]["name"] == "p"}


@asynccontextmanager
async def _races(api: Api, plane: ControlPlane, folder: Path) -> AsyncIterator[Races]:
    plan = FaultPlan(random.Random(0))
    async with FaultProxy(plane.url, plane.ca_file, plane.serving_files("fault-proxy"), plan) as proxy:
        kubeconfig = proxy.kubeconfig(plane.kubeconfig_for(), folder / "proxy.kubeconfig")
        scheduler = SchedulerProcess(folder, kubeconfig)
        await asyncio.to_thread(scheduler.start)
        try:
            yield Races(api, proxy, scheduler)
        finally:
            await asyncio.to_thread(scheduler.stop)


async def test_the_order_of_writes_decides_whatever_the_watch_does(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """First wins, second is reported, unknown gives way, too late gives way; a cut that resumes changes nothing."""
    async with _races(clean_cluster, control_plane, tmp_path) as races:
        await _foreign_first(races)
        await _foreign_second(races, cut=False)
        await _foreign_second(races, cut=True)
        await _order_unknown(races)
        await _too_late(races)


async def _foreign_first(races: Races) -> None:
    """The watch shows nothing while both write; then it shows that we were second: the Pod gets the other device."""
    await races.prepare()
    async with recording(races.api) as recorder:
        lost = races.ended("lost")
        assert races.proxy.hold_watches("resourceclaims") == 1
        await races.foreign()
        await races.api.create(PODS, pod("p", claims={"gpu": "ours"}), NS)
        await races.ours()
        races.proxy.release_watches()
        assert await races.device() == "gpu-1"
        assert races.ended("lost") == lost + 1
        assert "LostRace" in await races.reasons()
        await recorder.caught_up()
        checker = judge(recorder.take_all(), deleted=set())
        # The foreign claim is allocated and reserved for nobody, by e2e: that is not ours to judge.
        assert checker.violations == []


async def _foreign_second(races: Races, cut: bool) -> None:
    """Both write unseen, we were first: we keep it and bind. With ``cut`` the watch breaks and resumes meanwhile."""
    await races.prepare()
    pairs = races.ended("pair")
    assert races.proxy.hold_watches("resourceclaims") == 1
    await races.api.create(PODS, pod("p", claims={"gpu": "ours"}), NS)
    await races.ours()
    await races.foreign()
    if cut:
        races.proxy.spoil_watches(Fault.WATCH_CUT, "resourceclaims")
    races.proxy.release_watches()
    assert await races.device() == "gpu-0"

    async def told() -> bool:
        return "DeviceGivenTwice" in await races.reasons()

    await eventually(told, "the pair is reported")
    if not cut:
        assert races.ended("pair") == pairs + 1


async def _order_unknown(races: Races) -> None:
    """The watch ends with 410 before it has shown anything: a LIST shows both and no order. We give way."""
    await races.prepare()
    lost = races.ended("lost")
    assert races.proxy.hold_watches("resourceclaims") == 1
    await races.api.create(PODS, pod("p", claims={"gpu": "ours"}), NS)
    await races.ours()
    await races.foreign()
    races.proxy.spoil_watches(Fault.WATCH_GONE, "resourceclaims")
    races.proxy.release_watches()
    assert await races.device() == "gpu-1"
    assert races.ended("lost") == lost + 1


async def _too_late(races: Races) -> None:
    """The watch shows nothing for longer than the bound: the device is given back, and given when it is back."""
    await races.prepare()
    late = races.ended("late")
    assert races.proxy.hold_watches("resourceclaims") == 1
    await races.api.create(PODS, pod("p", claims={"gpu": "ours"}), NS)

    async def given_up() -> bool:
        return races.ended("late") > late

    await eventually(given_up, "the verification was given up", timeout_s=40)
    assert not (await races.api.get(PODS, "p", NS))["spec"].get("nodeName")
    races.proxy.release_watches()
    assert await races.device() in ("gpu-0", "gpu-1")
