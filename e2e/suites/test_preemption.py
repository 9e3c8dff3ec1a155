"""Preemption on the real API server: each scenario once for kube-scheduler and once for us, with the same outcome."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from e2e.api import EVENTS, PODS, PRIORITY_CLASSES, Api, Object, Resource
from e2e.cleaning import clean
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.objects import pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

NS = "default"
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITIES: dict[str, tuple[int, str]] = {
    "low": (1, "PreemptLowerPriority"),
    "middle": (50, "PreemptLowerPriority"),
    "high": (100, "PreemptLowerPriority"),
    "polite": (100, "Never"),
}


def of(priority: str, name: str, cpu: str, node: str = "", **options: Any) -> Object:
    """A Pod of a priority; ``node`` pins it by its node selector, so that the start is the same for both."""
    selector: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return pod(
        name,
        requests={"cpu": cpu},
        priorityClassName=priority,
        terminationGracePeriodSeconds=1,
        **selector,
        **options,
    )


@dataclass(frozen=True)
class Scenario:
    """``nodes``: name → CPUs. ``present`` are bound first, then ``preemptor`` comes.

    ``budgets``: label app → disruptions allowed; ``fits``: whether the preemptor gets a node in the end.
    """

    nodes: dict[str, str]
    present: tuple[Object, ...]
    preemptor: Object
    budgets: dict[str, int] = field(default_factory=dict)
    fits: bool = True


SCENARIOS = {
    "the least important go": Scenario(
        {"n1": "2", "n2": "2"},
        (of("low", "a", "1", "n1"), of("low", "b", "1", "n1"), of("middle", "c", "2", "n2")),
        of("high", "big", "2"),
    ),
    "only who must": Scenario(
        {"n1": "4"},
        (of("low", "a", "1", "n1"), of("middle", "b", "1", "n1"), of("low", "c", "2", "n1")),
        of("high", "big", "2"),
    ),
    "a budget protects": Scenario(
        {"n1": "1", "n2": "1"},
        (of("low", "db", "1", "n1", labels={"app": "db"}), of("middle", "free", "1", "n2")),
        of("high", "big", "1"),
        {"db": 0},
    ),
    "anti-affinity of a victim": Scenario(
        {"n1": "4"},
        (
            of(
                "low",
                "loner",
                "1",
                "n1",
                affinity={
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "labelSelector": {"matchLabels": {"app": "web"}},
                                "topologyKey": "kubernetes.io/hostname",
                            }
                        ]
                    }
                },
            ),
            of("low", "other", "1", "n1"),
        ),
        of("high", "big", "1", labels={"app": "web"}),
    ),
    "never": Scenario({"n1": "1"}, (of("low", "a", "1", "n1"),), of("polite", "big", "1"), fits=False),
    "of no help": Scenario(
        {"n1": "1", "n2": "2"},
        (of("low", "a", "1", "n1"), of("high", "b", "2", "n2")),
        of("high", "big", "2"),
        fits=False,
    ),
}


async def _outcome(api: Api, scenario: Scenario, scheduler: str) -> Object:
    """What is left after the preemptor came: who is where, who was told what."""
    for name, cpu in scenario.nodes.items():
        await add_node(api, name, cpu=cpu)
    for app, allowed in scenario.budgets.items():
        spec = {"selector": {"matchLabels": {"app": app}}, "minAvailable": 1}
        await api.create(BUDGETS, {"metadata": {"name": app}, "spec": spec}, NS)
        await api.patch(BUDGETS, app, {"status": _budget_status(allowed)}, NS, subresource="status")
    for item in scenario.present:
        await api.create(PODS, _for(item, scheduler), NS)
    await eventually(lambda: _all_run(api, scenario.present), "the first Pods run")
    created = await api.create(PODS, _for(scenario.preemptor, scheduler), NS)
    name = created["metadata"]["name"]
    if scenario.fits:
        await eventually(lambda: _all_run(api, [scenario.preemptor]), "the preemptor runs", timeout_s=40)
    else:
        await eventually(lambda: _told(api, name), "the preemptor is told")
        await asyncio.sleep(0.5)
    await eventually(lambda: _has_event(api, name, "FailedScheduling"), "the failure is told in an event")
    if scenario.fits:
        gone = {item["metadata"]["name"] for item in scenario.present} - {
            p["metadata"]["name"] for p in await _pods(api)
        }
        await eventually(lambda: _all_told(api, gone), f"{sorted(gone)} are told")
    events = [item for item in await api.list(EVENTS, NS) if item["reportingController"] == scheduler]
    uid = created["metadata"]["uid"]
    failed = [e for e in events if e["reason"] == "FailedScheduling" and e["regarding"]["name"] == name]
    failed.sort(key=lambda e: str(e["eventTime"]))
    return {
        "nodes": {item["metadata"]["name"]: item["spec"].get("nodeName") for item in await api.list(PODS, NS)},
        # Later attempts differ: whether there is one before the last victim has gone is a matter of time.
        "failed": [e["note"] for e in failed][:1],
        "preempted": sorted(
            (e["regarding"]["name"], e["type"], e["action"], e["note"].replace(uid, "<uid>"))
            for e in events
            if e["reason"] == "Preempted"
        ),
    }


async def _all_told(api: Api, victims: set[str]) -> bool:
    return all([await _has_event(api, name, "Preempted") for name in victims])


async def _pods(api: Api) -> list[Object]:
    return await api.list(PODS, NS)


def _for(item: Object, scheduler: str) -> Object:
    return {**item, "spec": {**item["spec"], "schedulerName": scheduler}}


def _budget_status(allowed: int) -> Object:
    return {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}


async def _all_run(api: Api, pods: Iterable[Object]) -> bool:
    phases = {item["metadata"]["name"]: item["status"].get("phase") for item in await api.list(PODS, NS)}
    return all(phases.get(item["metadata"]["name"]) == "Running" for item in pods)


async def _told(api: Api, name: str) -> bool:
    return bool(condition(await api.get(PODS, name, NS)).get("message"))


async def _has_event(api: Api, name: str, reason: str) -> bool:
    return any(e["regarding"]["name"] == name and e["reason"] == reason for e in await api.list(EVENTS, NS))


@asynccontextmanager
async def _prepared(api: Api) -> AsyncIterator[None]:
    """An empty cluster with the priorities; nothing of it is left behind."""
    await _sweep(api)
    for name, (value, policy) in PRIORITIES.items():
        body = {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy}
        await api.create(PRIORITY_CLASSES, body)
    try:
        yield
    finally:
        await _sweep(api)


async def _sweep(api: Api) -> None:
    await clean(api)
    for event in await api.list(EVENTS, NS):
        await api.delete(EVENTS, event["metadata"]["name"], NS, missing_ok=True)
    for budget in await api.list(BUDGETS, NS):
        await api.delete(BUDGETS, budget["metadata"]["name"], NS, missing_ok=True)
    for name in PRIORITIES:
        await api.delete(PRIORITY_CLASSES, name, missing_ok=True)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_same_outcome_as_kube_scheduler(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path, name: str
) -> None:
    """The same Pods are left on the same nodes, and the same words were said about it."""
    api, scenario = clean_cluster, SCENARIOS[name]
    async with PretendedKubelet(api.session) as kubelet:
        async with _prepared(api):
            await asyncio.to_thread(control_plane.start_kube_scheduler)
            try:
                expected = await _outcome(api, scenario, "default-scheduler")
            finally:
                await asyncio.to_thread(control_plane.stop_kube_scheduler)
        async with _prepared(api):
            scheduler = SchedulerProcess(tmp_path, control_plane.kubeconfig_for())
            await asyncio.to_thread(scheduler.start_and_wait)
            try:
                ours = await _outcome(api, scenario, "dra-scheduler")
                attempts = await asyncio.to_thread(scheduler.metric, "scheduler_preemption_attempts_total")
            finally:
                await asyncio.to_thread(scheduler.stop)
        assert kubelet.complaints() == []
    assert ours == expected
    assert attempts >= 1
    assert bool(expected["preempted"]) == scenario.fits


async def test_a_storm_of_important_pods_preempts_no_more_than_it_must(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Twenty important Pods on ten nodes full of eighty lesser ones: each finds room, no node is overfull, and of the
    lesser ones go the forty that must.
    """
    api = clean_cluster
    async with PretendedKubelet(api.session) as kubelet, _prepared(api):
        for index in range(10):
            await add_node(api, f"n{index}", cpu="8")
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
            lesser = [of("low", f"low-{index}", "1") for index in range(80)]
            await asyncio.gather(*(api.create(PODS, item, NS) for item in lesser))
            await eventually(lambda: _all_run(api, lesser), "the nodes are full", timeout_s=60)
            important = [of("high", f"high-{index}", "2") for index in range(20)]
            await asyncio.gather(*(api.create(PODS, item, NS) for item in important))
            await eventually(lambda: _all_run(api, important), "all important Pods run", timeout_s=90)
            await asyncio.sleep(2.0)  # whoever was evicted beyond need would be going now
            victims = await asyncio.to_thread(scheduler.metric, "scheduler_preemption_victims_sum")
            left = [p for p in await api.list(PODS, NS) if p["metadata"]["name"].startswith("low")]
            print(f"20 preemptors named {victims:.0f} victims, {80 - len(left)} of 80 lesser Pods went")
            assert len(left) == 40
            assert not any(p["metadata"].get("deletionTimestamp") for p in left)
        assert kubelet.complaints() == []


async def test_a_victim_that_will_not_go(own_control_plane: Callable[..., ControlPlane], tmp_path: Path) -> None:
    """Without the right to delete Pods the preemptor waits and is not tried in a hot loop; the log names the rule."""
    plane = await asyncio.to_thread(own_control_plane)
    from e2e.controlplane.fixtures import make_api
    from e2e.suites.test_rights import ACCOUNT, CLUSTER_ROLES, apply_base, base_config

    await asyncio.to_thread(apply_base, plane)
    async with make_api(plane) as api:
        role = await api.get(CLUSTER_ROLES, "dra-scheduler")
        rules = [rule for rule in role["rules"] if rule["verbs"] != ["delete"]]
        assert len(rules) == len(role["rules"]) - 1
        await api.patch(CLUSTER_ROLES, "dra-scheduler", {"rules": rules})
        kubeconfig = plane.kubeconfig_for(service_account=ACCOUNT)
        config = base_config() | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
        async with PretendedKubelet(api.session), _prepared(api):
            await add_node(api, "n1", cpu="1")
            scheduler = SchedulerProcess(tmp_path, kubeconfig, config=config)
            await asyncio.to_thread(scheduler.start_and_wait)
            try:
                await api.create(PODS, of("low", "a", "1"), NS)
                await eventually(lambda: _all_run(api, [of("low", "a", "1")]), "a runs")
                await api.create(PODS, of("high", "big", "1"), NS)
                await asyncio.sleep(5)
                attempts = await asyncio.to_thread(scheduler.metric, "scheduler_preemption_attempts_total")
                assert 2 <= attempts <= 10
                assert "missing RBAC rule" in scheduler.log()
                await asyncio.to_thread(apply_base, plane)
                await eventually(lambda: _all_run(api, [of("high", "big", "1")]), "big runs", timeout_s=40)
            finally:
                await asyncio.to_thread(scheduler.stop)
