"""manifests/overlays/namespaced on a real API server: one namespace is served, and no other can be touched."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, EVENTS, NAMESPACES, PODS, PRIORITY_CLASSES, Api, ApiError
from e2e.controlplane import ControlPlane
from e2e.driver import PretendedDriver, add_node
from e2e.objects import claim, claim_template, device_class, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_rights import (
    ACCOUNT,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MANIFESTS,
    apply_base,
    base_config,
    granted,
)
from e2e.waiting import eventually

CLASS = "gpu.example.com"
SERVED, OTHER = "team-a", "team-b"


def pairs(*rule_lists: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(resource.group, verb) of rules."""
    return [
        (f"{resource}.{group}".rstrip("."), verb)
        for rules in rule_lists
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


def test_it_is_the_rights_of_base_in_two_parts() -> None:
    """Together what base gives, nothing twice; and no write to Pods, claims or Events is left cluster-wide."""
    folder = MANIFESTS / "overlays/namespaced"
    patches = yaml.safe_load((folder / "kustomization.yaml").read_text())["patches"]
    (role,) = (patch for patch in patches if patch["target"]["kind"] == "ClusterRole")
    (replaced,) = yaml.safe_load(role["patch"])
    served = next(yaml.safe_load_all((folder / "rbac.yaml").read_text()))
    wide, narrow = pairs(replaced["value"]), pairs(served["rules"])
    leases = {pair for pair in granted() if pair[0].startswith("leases")}
    assert sorted(wide + narrow) == sorted(granted() - leases)
    writes = {pair for pair in wide if pair[1] not in ("list", "watch")}
    assert {resource for resource, _ in writes} == {
        "persistentvolumes",
        "resourceclaims/binding.resource.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
    }


@pytest.fixture
async def teams(clean_cluster: Api, control_plane: ControlPlane) -> AsyncIterator[Api]:
    """Two namespaces, the overlay applied, one node with three devices."""
    api = clean_cluster
    for name in (SERVED, OTHER):
        if await api.find(NAMESPACES, name) is None:
            await api.create(NAMESPACES, {"metadata": {"name": name}})
        await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), name)
    await asyncio.to_thread(apply_base, control_plane, "overlays/namespaced")
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await add_node(api, "node-0", cpu="2")
    await PretendedDriver(api, CLASS).publish_node("node-0", 3)
    yield api
    for resource, name in ((CLUSTER_ROLE_BINDINGS, "dra-scheduler"), (CLUSTER_ROLES, "dra-scheduler"),
                           (CLUSTER_ROLES, "dra-scheduler-served")):  # fmt: skip
        await api.delete(resource, name, missing_ok=True)


async def test_one_namespace_is_served_and_no_other_touched(
    teams: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Devices, condition, events and preemption in the served namespace; nothing is even tried in the other one."""
    api = teams
    kubeconfig = control_plane.kubeconfig_for(service_account=ACCOUNT)
    config = base_config() | {"clientConnection": {"kubeconfig": str(kubeconfig)}}
    await api.create(PRIORITY_CLASSES, {"metadata": {"name": "namespaced-urgent"}, "value": 1000})
    scheduler = SchedulerProcess(tmp_path, kubeconfig, config=config, arguments=[f"--namespaces={SERVED}"])
    await asyncio.to_thread(scheduler.start_and_wait)
    try:
        await api.create(PODS, pod("left", templates={"gpu": "one-gpu"}), OTHER)
        await api.create(PODS, pod("taken", templates={"gpu": "one-gpu"}, requests={"cpu": "1"}), SERVED)
        await eventually(lambda: bound(api, "taken"), "the Pod in the served namespace is bound")
        # What the other namespace's Pods take counts, and they are no victims.
        bystander = pod("bystander", requests={"cpu": "1"}, nodeName="node-0", terminationGracePeriodSeconds=0)
        await api.create(PODS, bystander, OTHER)
        urgent: dict[str, Any] = {"priorityClassName": "namespaced-urgent", "terminationGracePeriodSeconds": 0}
        await api.create(PODS, pod("urgent", requests={"cpu": "2"}, **urgent), SERVED)

        async def told() -> bool:
            found = await api.get(PODS, "urgent", SERVED)
            events = await api.list(EVENTS, SERVED)
            named = any(event["regarding"]["name"] == "urgent" for event in events)
            return condition(found).get("reason") == "Unschedulable" and named

        await eventually(told, "the Pod without room is told so", timeout_s=40)
        await api.delete(PODS, "urgent", SERVED, grace_period_s=0)
        # Of its own, a less important one goes: it is gone before its deletion can be seen to wait for a kubelet.
        await api.create(PODS, pod("comes", requests={"cpu": "1"}, **urgent), SERVED)

        async def going() -> bool:
            found = await api.find(PODS, "taken", SERVED)
            return found is None or "deletionTimestamp" in found["metadata"]

        await eventually(going, "the less important Pod of the served namespace has to go", timeout_s=40)
        left = await api.get(PODS, "left", OTHER)
        assert "nodeName" not in left["spec"]
        assert condition(left) == {}
        assert await api.get(PODS, "bystander", OTHER)
        assert [event for event in await api.list(EVENTS, OTHER) if "dra-scheduler" in str(event)] == []
    finally:
        await asyncio.to_thread(scheduler.stop)
        await api.delete(PRIORITY_CLASSES, "namespaced-urgent", missing_ok=True)
    assert "forbidden" not in scheduler.log().lower()


async def bound(api: Api, name: str) -> bool:
    """Whether the Pod of the served namespace has a node."""
    return bool((await api.get(PODS, name, SERVED))["spec"].get("nodeName"))


async def test_the_account_can_do_nothing_elsewhere(teams: Api, control_plane: ControlPlane) -> None:
    """Whoever steals its token binds, deletes, patches and writes Events in the served namespace only."""
    token = await asyncio.to_thread(control_plane.service_account_token, *ACCOUNT)
    for namespace in (SERVED, OTHER):
        await teams.create(PODS, pod("p"), namespace)
        await teams.create(CLAIMS, claim("c", exactly(CLASS)), namespace)
    async with Api(control_plane.url, token=token, ca_file=control_plane.ca_file) as thief:
        tries: dict[str, Callable[[str], Awaitable[Any]]] = {
            "bind": lambda where: thief.bind(where, "p", "node-0"),
            "patch claim": lambda where: thief.patch(CLAIMS, "c", {"metadata": {"labels": {"x": "y"}}}, where),
            "patch status": lambda where: thief.patch(CLAIMS, "c", {"status": {"reservedFor": None}}, where, "status"),
            "delete claim": lambda where: thief.delete(CLAIMS, "c", where),
            "delete pod": lambda where: thief.delete(PODS, "p", where, grace_period_s=0),
            "read pod": lambda where: thief.get(PODS, "q", where),
        }

        async def code(name: str, namespace: str) -> int:
            try:
                await tries[name](namespace)
            except ApiError as error:
                return error.status
            return 200

        async def ready() -> bool:
            return await code("patch claim", SERVED) == 200

        await eventually(ready, "the rights are in force")
        assert {name: await code(name, OTHER) for name in tries} == dict.fromkeys(tries, 403)
        assert {await code(name, SERVED) for name in tries} == {200, 404}
