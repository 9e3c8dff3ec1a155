"""The same manifests twice on one control plane, once for kube-scheduler and once for us: the same outcome and words.

Only schedulerName differs. Both schedulers run all the time; between the two rounds the Pods go, the nodes stay.
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.api import CLAIMS, DEVICE_CLASSES, EVENTS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, Api
from e2e.controlplane import ControlPlane
from e2e.driver import Pool, PretendedDriver, add_node
from e2e.objects import device, device_class
from e2e.scheduler import SchedulerProcess
from e2e.suites.parity.scenarios import (
    BUDGETS,
    CLASS,
    DRIVER,
    HIGH,
    LABEL,
    NS,
    SCENARIOS,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    VOLUMES,
    Scenario,
)
from e2e.waiting import eventually
from scheduler.embedded.kubelet import PretendedKubelet

Object = dict[str, Any]
THEIRS, OURS = "default-scheduler", "dra-scheduler"
SETTLE_TIMEOUT_S = 15.0
_VICTIMS = re.compile(r"preempting (\d+) victims")
_WHILE_THEY_GO = "not eligible due to a terminating pod on the nominated node"


@dataclass(frozen=True)
class Outcome:
    """Where a Pod ended: its node or "", reason and message of its condition, the notes of its refusals."""

    node: str
    reason: str
    message: str
    refusals: tuple[str, ...]


async def _cluster(api: Api) -> None:
    """All nodes, devices and classes of all scenarios."""
    await api.create(NAMESPACES, {"metadata": {"name": NS, "labels": {"team": "parity"}}})
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{DRIVER}"'))
    for name, policy in ((HIGH, "PreemptLowerPriority"), (f"{HIGH}-never", "Never")):
        body = {"metadata": {"name": name}, "value": 1000, "preemptionPolicy": policy}
        await api.create(PRIORITY_CLASSES, body)
    await api.create(STORAGE_CLASSES, {"metadata": {"name": "parity-now"}, "provisioner": "parity.example.com"})
    driver = PretendedDriver(api, DRIVER)
    for scenario in SCENARIOS:
        for node in scenario.nodes:
            name = f"{scenario.name}-{node.name}"
            await add_node(
                api,
                name,
                cpu=node.cpu,
                pods=node.pods,
                extended=node.extended,
                zone=node.zone,
                labels={LABEL: scenario.name, **node.labels},
                taints=node.taints,
                images=node.images,
            )
            if node.cordoned:
                await api.patch(NODES, name, {"spec": {"unschedulable": True}})
            if node.devices:
                devices = [device(f"gpu-{place}", {"kind": kind}) for place, kind in enumerate(node.devices)]
                await driver.publish(Pool(name, devices, {"nodeName": name}))


def _manifest(scenario: Scenario, body: Object, scheduler: str) -> Object:
    """The scenario's Pod as it is applied: nothing but schedulerName depends on the round."""
    spec = body["spec"]
    selector = {**spec.get("nodeSelector", {}), LABEL: scenario.name}
    labels = {**body["metadata"]["labels"], LABEL: scenario.name}
    metadata = {"name": f"{scenario.name}-{body['metadata']['name']}", "labels": labels}
    return {"metadata": metadata, "spec": {**spec, "schedulerName": scheduler, "nodeSelector": selector}}


def _condition(pod: Object) -> Object:
    conditions = pod.get("status", {}).get("conditions") or ()
    return next((one for one in conditions if one["type"] == "PodScheduled"), {})


async def _play(api: Api, scenario: Scenario, scheduler: str) -> None:
    """Create everything of a scenario; each Pod once the one before was bound or refused."""
    for resource, body in scenario.objects:
        named = {**body, "metadata": {"name": f"{scenario.name}-{body['metadata']['name']}"}}
        named["metadata"] = {**body["metadata"], **named["metadata"]}
        await api.create(resource, named, NS if resource.namespaced else None)
        if resource is BUDGETS:
            await _allow_no_disruption(api, named["metadata"]["name"])
    for body in scenario.pods:
        manifest = _manifest(scenario, body, scheduler)
        await api.create(PODS, manifest, NS)
        name = manifest["metadata"]["name"]
        await eventually(
            lambda name=name: _answered(api, name),  # type: ignore[misc]  # a default argument binds the loop's name
            f"{scheduler} answers for {name}",
            timeout_s=2 * SETTLE_TIMEOUT_S,
            interval_s=0.2,
        )


async def _allow_no_disruption(api: Api, name: str) -> None:
    """What the disruption controller would find: every Pod is needed."""
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    await api.patch(BUDGETS, name, {"status": {**status, "expectedPods": 1}}, NS, "status")


async def _answered(api: Api, name: str) -> bool:
    pod = await api.find(PODS, name, NS)
    return pod is not None and bool(_condition(pod))


async def _unsettled(api: Api) -> list[str]:
    """Pods that the scenarios expect on a node and that have none, and victims that have not gone."""
    pods = {pod["metadata"]["name"]: pod for pod in await api.list(PODS, NS)}
    expected = [f"{scenario.name}-{name}" for scenario in SCENARIOS for name in scenario.bound]
    missing = [name for name in expected if not pods.get(name, {}).get("spec", {}).get("nodeName")]
    return missing + [name for name, pod in pods.items() if pod["metadata"].get("deletionTimestamp")]


async def _settle(api: Api, scheduler: str) -> None:
    """Wait until all expected is done; what is not is told by the outcomes."""
    deadline_s = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
    while left := await _unsettled(api):
        if asyncio.get_running_loop().time() > deadline_s:
            print(f"{scheduler} has not done: {left}")
            return
        await asyncio.sleep(0.3)


async def _refusals(api: Api) -> dict[str, set[str]]:
    """Pod name -> notes of its FailedScheduling events, waited for: events are written after all else.

    A preemptor may or may not be tried once more while its victims go; that is left out.
    """
    told: dict[str, set[str]] = {}
    deadline_s = asyncio.get_running_loop().time() + SETTLE_TIMEOUT_S
    while asyncio.get_running_loop().time() < deadline_s:
        refused = {
            pod["metadata"]["name"]
            for pod in await api.list(PODS, NS)
            if pod["spec"].get("priorityClassName") == HIGH or _condition(pod).get("reason") == "Unschedulable"
        }
        told = {}
        for event in await api.list(EVENTS, NS):
            if event["reason"] == "FailedScheduling" and _WHILE_THEY_GO not in event["note"]:
                # We add what is wrong with the devices, after upstream's text and in the event alone.
                told.setdefault(event["regarding"]["name"], set()).add(event["note"].partition(" Devices: ")[0])
        if refused <= set(told):
            break
        await asyncio.sleep(0.3)
    return {name: _first_preemption(notes) for name, notes in told.items()}


def _first_preemption(notes: set[str]) -> set[str]:
    """``notes`` without the preemptions of a later try, made when some of the victims had gone already."""
    victims = {note: int(found[1]) for note in notes if (found := _VICTIMS.search(note))}
    most = max(victims.values(), default=0)
    return {note for note in notes if victims.get(note, most) == most}


async def _round(api: Api, scheduler: str) -> dict[str, Outcome]:
    """All scenarios at once for one scheduler; Pod name -> outcome. Everything is removed afterwards."""
    await asyncio.gather(*(_play(api, scenario, scheduler) for scenario in SCENARIOS))
    await _settle(api, scheduler)
    refusals = await _refusals(api)
    outcomes = {}
    for pod in await api.list(PODS, NS):
        name, condition = pod["metadata"]["name"], _condition(pod)
        outcomes[name] = Outcome(
            pod["spec"].get("nodeName", ""),
            condition.get("reason", ""),
            condition.get("message", ""),
            tuple(sorted(refusals.get(name, ()))),
        )
    await eventually(lambda: _removed(api), "the round is removed")
    return outcomes


async def _removed(api: Api) -> bool:
    left = 0
    for resource in (PODS, BUDGETS, CLAIMS, VOLUME_CLAIMS, VOLUMES, EVENTS):
        namespace = NS if resource.namespaced else None
        for item in await api.list(resource, namespace):
            left += 1
            name, grace = item["metadata"]["name"], 0 if resource is PODS else None
            await api.delete(resource, name, namespace, missing_ok=True, grace_period_s=grace)
            if resource in (VOLUMES, VOLUME_CLAIMS) and await api.find(resource, name, namespace) is not None:
                # Nobody is there who would take the protection off.
                await api.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
    return left == 0


async def test_same_manifests_same_outcome(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """Every scenario ends alike: the same node or none, the same condition, the same refusals, word for word."""
    api = clean_cluster
    assert len(SCENARIOS) >= 40
    assert len({scenario.name for scenario in SCENARIOS}) == len(SCENARIOS)
    await _cluster(api)
    control_plane.start_kube_scheduler({"percentageOfNodesToScore": 100})
    async with PretendedKubelet(api.session):
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
            theirs = await _round(api, THEIRS)
            ours = await _round(api, OURS)
    control_plane.stop_kube_scheduler()
    bound = {f"{scenario.name}-{name}" for scenario in SCENARIOS for name in scenario.bound}
    assert {name for name, outcome in theirs.items() if outcome.node} == bound
    differing = {
        name: (ours.get(name), theirs.get(name))
        for name in sorted({*ours, *theirs})
        if ours.get(name) != theirs.get(name)
    }
    for name, (one, other) in differing.items():
        print(f"{name}\n  ours   {one}\n  theirs {other}")
    assert differing == {}
