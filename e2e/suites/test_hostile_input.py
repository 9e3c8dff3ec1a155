"""Hostile objects that the real API server stores."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from e2e.api import CLAIMS, PODS, Api
from e2e.controlplane import ControlPlane
from e2e.objects import claim, exactly, pod
from e2e.scheduler import SchedulerProcess, condition
from e2e.spaced import PARAMETERS, allocated_spaced, create_raw, spaced_claim
from e2e.suites.test_devices import CLASS, NS, create_pods, gpu_cluster, is_bound
from e2e.waiting import eventually
from scheduler.api.exact import PROTOBUF

LEVELS = 3000
"""Beyond what the decoder's recursion takes; the API server stores up to 10,000."""


@pytest.mark.parametrize(
    "raw",
    ["[" * LEVELS + '"end"' + "]" * LEVELS, '"x\\ud800y"', '{"nothing":null,"half":"\\udc00"}'],
    ids=["deep", "half a character", "beside a null"],
)
async def test_parameters_that_no_library_takes_are_passed_on(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path, raw: str
) -> None:
    """The claim is allocated with its parameters as they were; Pods beside it are bound, before and after a restart.

    And its device stays its own, also beside fields that are null.
    """
    api = clean_cluster
    await gpu_cluster(api, 2, 4)
    body = claim("deep", exactly(CLASS))
    marker = '"the parameters"'
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": CLASS, "parameters": {"a": "the parameters"}}}]
    await create_raw(api, body, marker, raw)
    await api.create(PODS, pod("deep", claims={"gpu": "deep"}), NS)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["beside"], templates={"gpu": "one-gpu"})
        await eventually(is_bound(api, "beside"), "the Pod beside is bound")
        await eventually(is_bound(api, "deep"), "the Pod with the deep claim is bound")
    async with api.session.get(CLAIMS.path(NS, "deep")) as answer:
        stored = await answer.text()
    assert stored.replace(" ", "").count(raw) == 2, "in the spec and in the allocation"
    await _tell_device_without_conditions(api)
    names = [f"after-{number}" for number in range(6)]
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
        await create_pods(api, names, templates={"gpu": "one-gpu"})
        for name in names:
            await eventually(is_bound(api, name), "a Pod is bound by a scheduler that lists such a claim")
        await create_pods(api, ["over"], templates={"gpu": "one-gpu"})

        async def waits() -> bool:
            return "cannot allocate all claims" in condition(await api.get(PODS, "over", NS)).get("message", "")

        await eventually(waits, "the ninth Pod waits: the claim's device is known to be taken")
        assert scheduler.errors() == []


async def _tell_device_without_conditions(api: Api) -> None:
    """As a driver does; the server stores null for the conditions."""
    async with api.session.get(CLAIMS.path(NS, "deep")) as answer:
        told = await answer.text()
    found = re.search(r'"driver":"([^"]+)","pool":"([^"]+)","device":"([^"]+)"', told)
    assert found is not None
    device = {"driver": found.group(1), "pool": found.group(2), "device": found.group(3)}
    path, headers = CLAIMS.path(NS, "deep", "status"), {"Content-Type": "application/merge-patch+json"}
    async with api.session.patch(path, json={"status": {"devices": [device]}}, headers=headers) as answer:
        stored = await answer.text()
        assert answer.status == 200, stored
    assert '"conditions":null' in stored


async def test_parameters_that_json_cannot_carry_as_they_are(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """A client that writes JSON with spaces (Python's does) made the claim; another scheduler allocated one like it.

    In JSON the server takes any write of these for a change of what is immutable. Ours arrive all the same: finalizer,
    allocation, a second reservation; and the parameters stay as they were, byte for byte.
    """
    api = clean_cluster
    await gpu_cluster(api, 2, 4)
    await spaced_claim(api, "spaced", NS, CLASS)
    first = {"resource": "pods", "name": "first", "uid": "uid-of-first"}
    shared = await spaced_claim(api, "shared", NS, CLASS)
    await allocated_spaced(api, shared, CLASS, "node-1", "gpu-3", first)
    for name in ("spaced", "shared"):
        await api.create(PODS, pod(name, claims={"gpu": name}), NS)
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
        for name in ("spaced", "shared"):
            await eventually(is_bound(api, name), f"the Pod of the claim {name} is bound")
        assert scheduler.errors() == []
    for name in ("spaced", "shared"):
        headers = {"Accept": PROTOBUF}
        async with api.session.get(CLAIMS.path(NS, name), headers=headers) as answer:
            stored = await answer.read()
        assert PARAMETERS.encode() in stored, "the spec is what it was"
    reserved = (await api.get(CLAIMS, "shared", NS))["status"]["reservedFor"]
    assert "shared" in [one["name"] for one in reserved], "first, whose Pod there never was, may be gone again"
