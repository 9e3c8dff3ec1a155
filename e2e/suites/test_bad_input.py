"""Bad input on the real API server: a clear text on the Pod, in condition and event, and everybody else is served."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, EVENTS, PODS, Api, Object
from e2e.controlplane import ControlPlane
from e2e.objects import claim, claim_template, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_devices import CLASS, NS, create_pods, gpu_cluster, is_bound
from e2e.waiting import eventually


async def _prepare(api: Api) -> None:
    """One case each; the Pod bears the case's name."""
    await api.create(CLAIMS, claim("dangling-class", exactly("no-such-class")), NS)
    await api.create(PODS, pod("dangling-class", claims={"gpu": "dangling-class"}), NS)
    await api.create(PODS, pod("dangling-claim", claims={"gpu": "no-such-claim"}), NS)
    await api.create(PODS, pod("dangling-template", templates={"gpu": "no-such-template"}), NS)
    await api.create(DEVICE_CLASSES, device_class("cel-error", 'device.attributes["gpu.example.com"].nothing == "x"'))
    await api.create(CLAIMS, claim("cel-runtime", exactly("cel-error")), NS)
    await api.create(PODS, pod("cel-runtime", claims={"gpu": "cel-runtime"}), NS)
    await api.create(
        CLAIMS,
        {**claim("deleting", exactly(CLASS)), "metadata": {"name": "deleting", "finalizers": ["e2e.example/held"]}},
        NS,
    )
    await api.delete(CLAIMS, "deleting", NS)
    await api.create(PODS, pod("deleting", claims={"gpu": "deleting"}), NS)
    requests = [exactly(CLASS, name=f"r{i}", count=11) for i in range(3)]
    await api.create(CLAIMS, claim("too-many", *requests), NS)
    await api.create(PODS, pod("too-many", claims={"gpu": "too-many"}), NS)
    await api.create(CLAIM_TEMPLATES, claim_template("foreign", exactly(CLASS)), NS)
    await api.create(PODS, pod("owner", scheduler="nobody", templates={"gpu": "foreign"}), NS)


async def _foreign_claim(api: Api) -> None:
    """A Pod whose generated claim belongs to another Pod: its status is made to point there."""

    async def generated() -> bool:
        return bool((await api.get(PODS, "owner", NS)).get("status", {}).get("resourceClaimStatuses"))

    await eventually(generated, "the owner's claim is generated")
    name = (await api.get(PODS, "owner", NS))["status"]["resourceClaimStatuses"][0]["resourceClaimName"]
    # Another template's Pod, held back by a gate until its status lies.
    thief = pod("foreign-claim", templates={"gpu": "no-such-template"}, schedulingGates=[{"name": "e2e.example/wait"}])
    await api.create(PODS, thief, NS)
    lie = {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": name}]}}
    await api.patch(PODS, "foreign-claim", lie, NS, "status")
    await api.patch(PODS, "foreign-claim", {"spec": {"schedulingGates": None}}, NS)


EXPECTED = {
    "dangling-class": "device class no-such-class does not exist",
    "cel-runtime": "no such key: nothing",
    "too-many": "exceeds the claim limit of 32",
    "dangling-claim": 'could not find ResourceClaim "default/no-such-claim"',
    "dangling-template": "ResourceClaim not created yet",
    "deleting": 'resourceclaim "deleting" is being deleted',
    "foreign-claim": "Pod is not owner",
}
"""Pod → a part of its condition and of its event."""


async def test_every_bad_thing_is_told_and_stops_nobody(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Dangling names, CEL errors, a claim being deleted or another's, too many devices; a good Pod is bound beside."""
    api = clean_cluster
    await gpu_cluster(api, 2, 8)
    await _prepare(api)
    await _foreign_claim(api)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["good"], templates={"gpu": "one-gpu"})
        await eventually(is_bound(api, "good"), "the good Pod is bound")

        async def told() -> bool:
            found = {p["metadata"]["name"]: condition(p).get("message", "") for p in await api.list(PODS, NS)}
            notes: dict[str, str] = {}
            for event in await api.list(EVENTS, NS):
                if event["reason"] == "FailedScheduling":
                    notes[event["regarding"]["name"]] = notes.get(event["regarding"]["name"], "") + event["note"]
            return all(text in found.get(name, "") and text in notes.get(name, "") for name, text in EXPECTED.items())

        await eventually(told, f"condition and event of {sorted(EXPECTED)}", timeout_s=20)

        assert not any(p["spec"].get("nodeName") for p in await api.list(PODS, NS) if p["metadata"]["name"] != "good")
        # And the loop is still alive: another good Pod.
        await create_pods(api, ["good-again"], templates={"gpu": "one-gpu"})
        await eventually(is_bound(api, "good-again"), "another good Pod is bound")


async def test_a_healed_reference_lets_the_pod_in(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The claim a Pod names appears later: the Pod is woken and bound."""
    api = clean_cluster
    await gpu_cluster(api, 1, 1)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["early"], claims={"gpu": "late"})
        await asyncio.sleep(0.5)
        await api.create(CLAIMS, claim("late", exactly(CLASS)), NS)
        await eventually(is_bound(api, "early"), "the Pod is bound")


def _profile(plugin: str) -> dict[str, Any]:
    return {
        "profiles": [
            {
                "schedulerName": "dra-scheduler",
                "plugins": {"score": {"enabled": [{"name": f"e2e.plugins.broken:{plugin}", "weight": 1}]}},
            }
        ]
    }


async def test_a_plugin_that_breaks_costs_only_the_attempt(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A user plugin that raises, or leaves 0..100, is named in the event; Pods it serves well are bound."""
    api = clean_cluster
    await gpu_cluster(api, 2, 1)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for(), config=_profile("Broken")):
        for how in ("raise", "range"):
            body: Object = pod(how, labels={"break": how})
            await api.create(PODS, body, NS)
        await api.create(PODS, pod("fine"), NS)
        await eventually(is_bound(api, "fine"), "the Pod the plugin serves well is bound")

        async def named() -> bool:
            notes = {e["regarding"]["name"]: e["note"] for e in await api.list(EVENTS, NS)}
            return "Broken" in notes.get("raise", "") and "Broken" in notes.get("range", "")

        await eventually(named, "events that name the plugin")
        bound = {p["metadata"]["name"] for p in await api.list(PODS, NS) if p["spec"].get("nodeName")}
        assert bound == {"fine"}
