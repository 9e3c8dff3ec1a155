"""Hostile objects that the real API server stores."""

from __future__ import annotations

from pathlib import Path

from e2e.api import CLAIMS, PODS, Api
from e2e.controlplane import ControlPlane
from e2e.objects import claim, exactly, pod
from e2e.scheduler import SchedulerProcess
from e2e.spaced import PARAMETERS, allocated_spaced, create_raw, spaced_claim
from e2e.suites.test_devices import CLASS, NS, create_pods, gpu_cluster, is_bound
from e2e.waiting import eventually
from scheduler.api.exact import PROTOBUF

LEVELS = 3000
"""Beyond what the decoder's recursion takes; the API server stores up to 10,000."""


async def test_parameters_of_any_depth_are_passed_on(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """The claim is allocated with its parameters as they were; a Pod beside it is bound, before and after a restart."""
    api = clean_cluster
    await gpu_cluster(api, 2, 4)
    body = claim("deep", exactly(CLASS))
    raw = "[" * LEVELS + '"end"' + "]" * LEVELS
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
    with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
        await create_pods(api, ["after"], templates={"gpu": "one-gpu"})
        await eventually(is_bound(api, "after"), "a Pod is bound by a scheduler that lists the deep claim")


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
