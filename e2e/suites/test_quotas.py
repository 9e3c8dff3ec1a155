"""What a quota counts of claims, and the Pod that waits because of it, on the real API server."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

from e2e.api import CLAIMS, DEVICE_CLASSES, EVENTS, PODS, RESOURCE_QUOTAS, Api, Object
from e2e.controlplane import ControlPlane, build
from e2e.objects import claim, exactly, pod
from e2e.suites.test_devices import CLASS, NS, gpu_cluster
from e2e.waiting import eventually
from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.explain.quotas import claim_usage

COUNT, GPUS = "count/resourceclaims.resource.k8s.io", f"{CLASS}.deviceclass.resource.k8s.io/devices"
NAMED = {"named.example.com": "example.com/gpu"}
IMPLICIT, EXPLICIT = "requests.deviceclass.resource.kubernetes.io/named.example.com", "requests.example.com/gpu"
KINDS = "nodes,pods,resourceslices,resourceclaims,resourceclaimtemplates,deviceclasses,namespaces,resourcequotas"


async def _explained(*arguments: str) -> Object:
    command = sys.executable, "-m", "scheduler.cli.main", "explain", "pod/late", *arguments, "-o", "json"
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 2
    found: Object = json.loads(out)
    return found


async def test_a_quota_that_is_used_up_is_told(clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    """The API server charges as we count; the claim it refuses is named with limit and use, live and from a dump."""
    api, kubeconfig = clean_cluster, str(control_plane.kubeconfig_for())
    await gpu_cluster(api, 1, 2)
    for name, resource in NAMED.items():
        named = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}
        await api.create(DEVICE_CLASSES, named)
    hard = {COUNT: "9", GPUS: "40", IMPLICIT: "9", EXPLICIT: "9"}
    await api.create(RESOURCE_QUOTAS, {"metadata": {"name": "tenant"}, "spec": {"hard": hard}}, NS)
    # The quota controller, which counts what is there already, does not run here.
    status = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    await api.patch(RESOURCE_QUOTAS, "tenant", status, NS, subresource="status")
    worst = {
        "firstAvailable": [{"name": name, "deviceClassName": CLASS, "count": n} for name, n in (("a", 2), ("b", 5))]
    }
    every = exactly(CLASS)
    every["exactly"] = {"deviceClassName": CLASS, "allocationMode": "All"}
    expected: Counter[str] = Counter()
    requests = {
        "two": exactly(CLASS, count=2),
        "worst": {"name": "gpu", **worst},
        "every": every,
        "named": exactly("named.example.com", count=2),
    }
    for name, request in requests.items():
        made = await api.create(CLAIMS, claim(name, request), NS)
        usage = claim_usage(convert(RESOURCE_CLAIM, made), NAMED)
        expected.update({name: count for name, count in usage.items() if name in hard})

        async def charged() -> bool:
            used = (await api.get(RESOURCE_QUOTAS, "tenant", NS))["status"]["used"]
            return {resource: int(count) for resource, count in used.items() if count != "0"} == expected

        await eventually(charged, f"claim {name} is charged")
    assert expected == {COUNT: 4, GPUS: 2 + 5 + 32, IMPLICIT: 2, EXPLICIT: 2}
    await api.create(CLAIMS, claim("last", exactly(CLASS)), NS)
    await api.create(PODS, pod("late", templates={"gpu": "one-gpu"}), NS)

    async def refused() -> bool:
        notes = [event["note"] for event in await api.list(EVENTS, NS) if event["regarding"].get("name") == "late"]
        return any("exceeded quota: tenant" in note for note in notes)

    await eventually(refused, "the claim controller tells that the quota refuses its claim")
    kubectl = str(Path(build.control_plane_binaries()) / "kubectl")
    process = await asyncio.create_subprocess_exec(
        kubectl, "--kubeconfig", kubeconfig, "get", KINDS, "-A", "-o", "yaml", stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    (tmp_path / "dump.yaml").write_bytes(out)
    for where in (("--kubeconfig", kubeconfig), ("-f", str(tmp_path / "dump.yaml"))):
        found = await _explained(*where)
        assert (found["phase"], found["culprit"]) == ("held back", "DynamicResources")
        (cause,) = [one for one in found["because"] if one["about"] == "quota"]
        numbers = {"asked": "1", "used": "40", "limit": "40"}
        assert cause["facts"].items() >= {"quota": f"{NS}/tenant", "resource": GPUS, **numbers}.items()
        assert cause["text"].endswith(f"ResourceQuota {NS}/tenant: {GPUS}: 1 asked, 40 of 40 used")
