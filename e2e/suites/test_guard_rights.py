"""manifests/guard on a real API server: the guard runs as its ServiceAccount, with exactly the rights it uses."""

from __future__ import annotations

import asyncio
import json
import ssl
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from e2e.api import CLAIMS, EVENTS, Api
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.guard import NAME, NAMESPACE, GuardProcess, guarded
from e2e.objects import device
from e2e.suites.test_guard import NS, allocate, new_claims, publish, refusal, result
from e2e.waiting import eventually

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests/guard"
USER = f"system:serviceaccount:{NAMESPACE}:{NAME}"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "users": [USER]}, {"level": "None"}],
}
Call = tuple[str, str]


def granted() -> set[Call]:
    """(resource.group, verb) of every rule."""
    documents = yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
    return {
        (f"{resource}.{group}".rstrip("."), verb)
        for role in documents
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def calls(audit: Path) -> Iterator[tuple[Call, int]]:
    """((resource.group, verb), HTTP status) of each call of the guard."""
    for line in audit.read_text().splitlines():
        entry = json.loads(line)
        reference = entry.get("objectRef")
        if reference is not None:
            call = f"{reference['resource']}.{reference.get('apiGroup', '')}".rstrip("."), entry["verb"]
            yield call, entry.get("responseStatus", {}).get("code", 0)


async def _use_every_right(api: Api, plane: ControlPlane, guard: GuardProcess) -> None:
    await publish(api, device("a"))
    await new_claims(api, "one", "two")
    await allocate(api, "one", result("a"))
    for _ in range(3):  # the second of equal Events makes it a series: a patch
        assert await refusal(api, "two", result("a"))

    async def series() -> bool:
        events = [e for e in await api.list(EVENTS, NS) if e["reason"] == "AllocationRefused"]
        return any((event.get("series") or {}).get("count", 0) > 1 for event in events)

    await eventually(series, "an Event became a series", timeout_s=60)

    async def renewed() -> bool:
        return "the serving certificate was renewed" in guard.log()

    await eventually(renewed, "the certificate in the Secret was renewed", timeout_s=60)
    request = urllib.request.Request(f"https://127.0.0.1:{guard.port}/metrics")
    request.add_header("Authorization", f"Bearer {plane.admin_token}")
    context = ssl._create_unverified_context()  # its certificate is self-signed, made at start
    answer = await asyncio.to_thread(urllib.request.urlopen, request, timeout=20, context=context)
    assert b"dra_scheduler_guard_active 1.0" in answer.read()
    await api.delete(CLAIMS, "one", NS)


async def test_the_guard_uses_every_right_it_has_and_needs_no_other(
    own_control_plane: Callable[..., ControlPlane], tmp_path: Path
) -> None:
    """Nothing is forbidden, and the audit log shows each rule in use: one less and a call made here would fail."""
    policy, audit = tmp_path / "policy.yaml", tmp_path / "audit.log"
    policy.write_text(yaml.safe_dump(AUDIT_POLICY))
    plane = await asyncio.to_thread(
        own_control_plane, apiserver_arguments=[f"--audit-policy-file={policy}", f"--audit-log-path={audit}"]
    )
    flags = ("--certificate-lifetime=30s", "--trust-loopback=false")
    async with make_api(plane) as api, guarded(plane, api, tmp_path / "guard", arguments=flags) as guard:
        await _use_every_right(api, plane, guard)
    seen = list(calls(audit))
    # When everything is taken away at the end, the Lease is gone before the guard gives it back.
    assert [call for call, status in seen if status in (401, 403)] == []
    assert {call for call, _ in seen} == granted()
