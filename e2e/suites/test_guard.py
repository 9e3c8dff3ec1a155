"""The guard on a real API server: what it refuses, in which mode, and what goes on without it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from e2e.api import (
    APPLY_PATCH,
    CLAIMS,
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    EVENTS,
    JSON_PATCH,
    MERGE_PATCH,
    NAMESPACES,
    SLICES,
    STRATEGIC_MERGE_PATCH,
    Api,
    ApiError,
    Object,
)
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api
from e2e.driver import Pool, PretendedDriver
from e2e.guard import MODE_LABEL, GuardProcess, apply, called, point_at, remove
from e2e.guard import account as account_of
from e2e.objects import claim, device, device_class, exactly
from e2e.spaced import create_raw
from e2e.waiting import eventually

CLASS = "gpu.example.com"
NS = "default"
DENIED = 'admission webhook "enforce.guard.dra-scheduler" denied the request: '


def result(name: str, pool: str = "pool", **fields: Any) -> Object:
    """One result of request gpu."""
    return {"request": "gpu", "driver": CLASS, "pool": pool, "device": name, **fields}


def share(name: str, amount: str, number: int = 1) -> Object:
    """A share of a device; ``number`` tells shares apart."""
    share_id = f"00000000-0000-4000-8000-{number:012d}"
    return result(name, shareID=share_id, consumedCapacity={"memory": amount})


async def allocate(api: Api, name: str, *results: Object, namespace: str = NS, **params: str) -> Object:
    """Write an allocation, as any scheduler may."""
    status = {"allocation": {"devices": {"results": list(results)}}}
    return await api.patch(CLAIMS, name, {"status": status}, namespace, "status", **params)


async def refusal(api: Api, name: str, *results: Object, namespace: str = NS, **params: str) -> str:
    """What the guard says to an allocation that it must refuse."""
    with pytest.raises(ApiError) as refused:
        await allocate(api, name, *results, namespace=namespace, **params)
    assert refused.value.status == 403, refused.value
    assert refused.value.message.startswith(DENIED), refused.value
    return refused.value.message.removeprefix(DENIED)


async def free(api: Api, name: str, namespace: str = NS) -> None:
    """Clear an allocation."""
    await api.patch(CLAIMS, name, {"status": {"allocation": None, "reservedFor": None}}, namespace, "status")


async def publish(api: Api, *devices: Object, pool: str = "pool", **extra: Any) -> PretendedDriver:
    """A class and a pool for all nodes."""
    driver = PretendedDriver(api, CLASS)
    await api.create(DEVICE_CLASSES, device_class(CLASS, f'device.driver == "{CLASS}"'))
    await driver.publish(Pool(pool, list(devices), {"allNodes": True}, extra=extra))
    return driver


async def new_claims(api: Api, *names: str, namespace: str = NS, **request: Any) -> None:
    """Claims that ask for a device."""
    for name in names:
        await api.create(CLAIMS, claim(name, exactly(CLASS, **request)), namespace)


async def publish_partitions(api: Api, *amounts: str) -> None:
    """Pool "counted": devices p0, p1 ... that take these amounts of 7; counters stand in a slice of their own."""
    spec = {"driver": CLASS, "pool": {"name": "counted", "generation": 1, "resourceSliceCount": 2}, "allNodes": True}
    counters = {"name": "gpu", "counters": {"slices": {"value": "7"}}}
    await api.create(SLICES, {"metadata": {"name": "counted-0"}, "spec": {**spec, "sharedCounters": [counters]}})
    takes = [[{"counterSet": "gpu", "counters": {"slices": {"value": amount}}}] for amount in amounts]
    devices = [device(f"p{index}", consumesCounters=taken) for index, taken in enumerate(takes)]
    await api.create(SLICES, {"metadata": {"name": "counted-1"}, "spec": {**spec, "devices": devices}})


@pytest.fixture(scope="module")
def shared_guard(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardProcess]:
    """One guard for all tests that do not kill it."""

    async def begin() -> GuardProcess:
        async with make_api(control_plane) as api:
            await remove(api)
            apply(control_plane)
            made = GuardProcess(tmp_path_factory.mktemp("guard"), account_of(control_plane))
            await point_at(api, made.webhook_port)
            return made

    async def end() -> None:
        async with make_api(control_plane) as api:
            await remove(api)

    running = asyncio.run(begin())
    try:
        running.start_and_wait()
        yield running
    finally:
        asyncio.run(end())
        began = time.monotonic()
        code = running.stop()
        print(f"the guard stopped within {time.monotonic() - began:.1f} s")
    assert code == 0
    assert "Traceback" not in running.log()
    assert "[error" not in running.log()


@pytest.fixture
async def guard(clean_cluster: Api, shared_guard: GuardProcess) -> GuardProcess:
    """The guard in front of an empty cluster, called by the API server."""
    await called(clean_cluster)
    return shared_guard


async def test_a_second_holder_is_refused_by_name(clean_cluster: Api, guard: GuardProcess) -> None:
    """One device, two claims: the second write is refused, names the first, and works once the first has let go."""
    api = clean_cluster
    await publish(api, device("a"))
    await new_claims(api, "first", "second")
    stored = await allocate(api, "first", result("a"))
    assert stored["status"]["allocation"]["devices"]["results"][0]["device"] == "a"
    assert await refusal(api, "second", result("a")) == f"device {CLASS}/pool/a is held by claim {NS}/first"
    consumer = {"apiGroup": "example.com", "resource": "trainings", "name": "big", "uid": "u1"}
    await api.patch(CLAIMS, "first", {"status": {"reservedFor": [consumer]}}, NS, "status")
    assert (await refusal(api, "second", result("a"))).endswith(f"claim {NS}/first (for training big)")
    await free(api, "first")
    # The release may be news to the guard: it reads the holder again before it refuses.
    await allocate(api, "second", result("a"))
    assert (await refusal(api, "first", result("a"))).endswith(f"claim {NS}/second")
    await api.delete(CLAIMS, "second", NS)
    await allocate(api, "first", result("a"))
    assert guard.metric("dra_scheduler_guard_reviews_total", decision="refused", mode="enforce") >= 3

    async def told() -> bool:
        events = [e for e in await api.list(EVENTS, NS) if e["reason"] == "AllocationRefused"]
        return any(e["regarding"]["name"] == "second" and "held by claim default/first" in e["note"] for e in events)

    await eventually(told, "an Event of the claim tells of the refusal")


async def test_every_way_to_write_is_judged(clean_cluster: Api, guard: GuardProcess) -> None:
    """PUT, the four kinds of patch, and a status handed in with the creation: no way past the guard."""
    api = clean_cluster
    await publish(api, device("a"))
    await new_claims(api, "first", "second")
    await allocate(api, "first", result("a"))
    allocation = {"devices": {"results": [result("a")]}}
    path = CLAIMS.path(NS, "second", "status")
    whole = await api.get(CLAIMS, "second", NS)
    applied = {"apiVersion": CLAIMS.api_version, "kind": CLAIMS.kind, "metadata": {"name": "second", "namespace": NS}}
    applied["status"] = {"allocation": allocation}
    writes: list[tuple[str, Any, str, dict[str, str]]] = [
        ("PUT", {**whole, "status": {"allocation": allocation}}, "application/json", {}),
        ("PATCH", {"status": {"allocation": allocation}}, MERGE_PATCH, {}),
        ("PATCH", {"status": {"allocation": allocation}}, STRATEGIC_MERGE_PATCH, {}),
        ("PATCH", [{"op": "add", "path": "/status", "value": {"allocation": allocation}}], JSON_PATCH, {}),
        ("PATCH", applied, APPLY_PATCH, {"fieldManager": "e2e", "force": "true"}),
    ]
    for method, body, content_type, params in writes:
        with pytest.raises(ApiError) as refused:
            await api.request(method, path, body, params=params, content_type=content_type)
        assert "is held by claim default/first" in refused.value.message, (method, content_type)
    born = await api.create(CLAIMS, {**claim("born", exactly(CLASS)), "status": {"allocation": allocation}}, NS)
    assert not (born.get("status") or {}).get("allocation"), "the API server drops a status at creation"


async def test_a_stored_allocation_cannot_be_changed(clean_cluster: Api, guard: GuardProcess) -> None:
    """What the matchConditions build on: the API server refuses another allocation over a stored one by itself."""
    api = clean_cluster
    await publish(api, device("a"), device("b"))
    await new_claims(api, "one")
    await allocate(api, "one", result("a"))
    before = guard.metric("dra_scheduler_guard_reviews_total")
    with pytest.raises(ApiError) as refused:
        await allocate(api, "one", result("b"))
    assert refused.value.status == 422
    assert "field cannot be modified once set" in refused.value.message
    assert guard.metric("dra_scheduler_guard_reviews_total") == before


async def test_shares_counters_taints_and_generations(clean_cluster: Api, guard: GuardProcess) -> None:
    """Each further rule: capacity, counters, taints of slices and rules, half-published and older generations."""
    api = clean_cluster
    tainted = device("t", taints=[{"key": "broken", "value": "true", "effect": "NoSchedule"}])
    memory = device("m", capacity={"memory": "80Gi"}, allowMultipleAllocations=True)
    driver = await publish(api, memory, tainted, device("r"))
    await publish_partitions(api, "4", "3", "4")
    await new_claims(api, *(f"c{index}" for index in range(8)))
    await allocate(api, "c0", share("m", "50Gi"))
    assert await refusal(api, "c1", share("m", "40Gi", 2)) == (
        f"device {CLASS}/pool/m has 80Gi of memory, 40Gi asked, 50Gi held by claim {NS}/c0"
    )
    await allocate(api, "c1", share("m", "30Gi", 2))
    assert (await refusal(api, "c2", result("t"))).endswith(
        "broken=true:NoSchedule, which request gpu does not tolerate"
    )
    await new_claims(api, "tolerant", tolerations=[{"key": "broken", "operator": "Exists"}])
    await allocate(api, "tolerant", result("t"))
    taint = {"key": "maintenance", "effect": "NoExecute"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"device": "r"}, "taint": taint}}
    await api.create(DEVICE_TAINT_RULES, rule)

    async def rule_counts() -> bool:
        try:
            await allocate(api, "c3", result("r"), dryRun="All")
        except ApiError as error:
            return "maintenance:NoExecute" in error.message
        return False

    await eventually(rule_counts, "the taint rule keeps devices away")
    await api.delete(DEVICE_TAINT_RULES, "r")
    assert "is not in its pool" in await refusal(api, "c4", result("nix"))
    assert "no slice of pool gpu.example.com/nix is published" in await refusal(api, "c4", result("a", "nix"))
    await allocate(api, "c3", result("p0", "counted"))
    await allocate(api, "c4", result("p1", "counted"))
    short = await refusal(api, "c7", result("p2", "counted"))
    assert "needs 4 more of counter gpu/slices than pool gpu.example.com/counted has left of 7" in short
    assert "held by claim default/c3, claim default/c4" in short
    await driver.publish(Pool("half", [device("h1"), device("h2")], {"allNodes": True}, slice_count=2))
    await allocate(api, "c5", result("h1", "half"))
    await driver.publish_half("half")
    assert "pool gpu.example.com/half is incomplete: 1 of 2 slices of generation 2" in await refusal(
        api, "c6", result("h2", "half")
    )
    await driver.restore("half")
    await allocate(api, "c6", result("h2", "half"))


async def test_admin_access_dry_runs_and_several_devices(clean_cluster: Api, guard: GuardProcess) -> None:
    """Admin access is left alone; a dry run holds nothing; one bad device of several refuses the write as a whole."""
    api = clean_cluster
    await publish(api, device("a"), device("b"))
    await new_claims(api, "one", "two", "three")
    await allocate(api, "one", result("a"), dryRun="All")
    assert guard.metric("dra_scheduler_guard_reservations") == 0
    await allocate(api, "two", result("a"))
    assert "held by claim default/two" in await refusal(api, "one", result("b"), result("a"), dryRun="All")
    events = [e for e in await api.list(EVENTS, NS) if e["reason"] == "AllocationRefused"]
    assert not [e for e in events if e["regarding"]["name"] == "one"], "a dry run leaves no Event"
    assert "held by claim default/two" in await refusal(api, "one", result("b"), result("a"))
    await allocate(api, "one", result("b"))
    await api.patch(NAMESPACES, NS, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    try:
        await api.create(CLAIMS, claim("admin", exactly(CLASS, adminAccess=True)), NS)
        await allocate(api, "admin", result("a", adminAccess=True), result("b", adminAccess=True))
    finally:
        await api.patch(NAMESPACES, NS, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}})
    await free(api, "one")
    await allocate(api, "three", result("b"))


async def test_malformed_allocations_are_refused(clean_cluster: Api, guard: GuardProcess) -> None:
    """What the API server lets pass but spoils the sums: devices and shares named twice, amounts below zero."""
    api = clean_cluster
    await publish(api, device("a"), device("m", capacity={"memory": "80Gi"}, allowMultipleAllocations=True))
    await new_claims(api, "one")
    assert "is named twice by this allocation" in await refusal(api, "one", result("a"), result("a"))
    assert "is named twice by this allocation" in await refusal(api, "one", share("m", "1Gi"), share("m", "1Gi"))
    assert "is negative: -1Gi" in await refusal(api, "one", share("m", "-1Gi"))
    assert "cannot be shared" in await refusal(api, "one", share("a", "1Gi"))


async def test_modes_per_namespace(clean_cluster: Api, guard: GuardProcess) -> None:
    """warn stores and tells: a Warning header, an Event, a metric. off does not ask. What both store is counted."""
    api = clean_cluster
    await publish(api, device("a"), device("b"))
    for mode in ("warn", "off"):
        body = {"metadata": {"name": f"guard-{mode}", "labels": {MODE_LABEL: mode}}}
        if await api.find(NAMESPACES, f"guard-{mode}") is None:
            await api.create(NAMESPACES, body)
    await new_claims(api, "strict", "later")
    await new_claims(api, "warned", "free", namespace="guard-warn")
    await new_claims(api, "unasked", "free", namespace="guard-off")
    await allocate(api, "strict", result("a"))
    status = {"status": {"allocation": {"devices": {"results": [result("a")]}}}}
    warnings = await _warnings(api, CLAIMS.path("guard-warn", "warned", "status"), status)
    assert warnings == [f'299 - "device {CLASS}/pool/a is held by claim {NS}/strict"']
    assert guard.metric("dra_scheduler_guard_reviews_total", mode="warn", decision="warned") == 1

    async def told() -> bool:
        events = await api.list(EVENTS, "guard-warn")
        return any(e["reason"] == "AllocationConflict" and "stored all the same" in e["note"] for e in events)

    await eventually(told, "an Event tells what was stored all the same")
    asked = guard.metric("dra_scheduler_guard_reviews_total")
    await allocate(api, "unasked", result("a"), namespace="guard-off")
    assert guard.metric("dra_scheduler_guard_reviews_total") == asked
    assert await _warnings(api, CLAIMS.path("guard-warn", "free", "status"), {
        "status": {"allocation": {"devices": {"results": [result("b")]}}}
    }) == []  # fmt: skip
    assert (await refusal(api, "later", result("b"))).endswith("claim guard-warn/free")
    for namespace, name in (("guard-warn", "warned"), ("guard-warn", "free"), ("guard-off", "unasked")):
        await free(api, name, namespace)


async def _warnings(api: Api, path: str, body: Object) -> list[str]:
    """PATCH, and the Warning headers of the answer."""
    headers = {"Content-Type": "application/merge-patch+json"}
    async with api.session.patch(path, json=body, headers=headers) as answer:
        assert answer.status == 200, await answer.text()
        return answer.headers.getall("Warning", [])


@pytest.mark.parametrize("parameters", ["[" * 3000 + "1" + "]" * 3000, '"x\\ud800"'], ids=["deep", "half a character"])
async def test_a_claim_with_parameters_that_no_library_takes_is_guarded_like_any(
    clean_cluster: Api, guard: GuardProcess, parameters: str
) -> None:
    """Thousands of levels deep, or with half a character: that is neither a way past the guard nor a reason."""
    api = clean_cluster
    await publish(api, device("a"))
    await new_claims(api, "first")
    body = claim("deep", exactly(CLASS))
    body["spec"]["devices"]["config"] = [{"opaque": {"driver": CLASS, "parameters": {"a": "the parameters"}}}]
    await create_raw(api, body, '"the parameters"', parameters)
    assert await _allocate_deep(api, result("a")) == (200, "")
    assert await refusal(api, "first", result("a")) == f"device {CLASS}/pool/a is held by claim {NS}/deep"
    await api.session.patch(f"{CLAIMS.path(NS, 'deep')}/status", json={"status": {"allocation": None}}, headers=_MERGE)
    await allocate(api, "first", result("a"))
    status, told = await _allocate_deep(api, result("a"))
    assert (status, told.removeprefix(DENIED)) == (403, f"device {CLASS}/pool/a is held by claim {NS}/first")
    await free(api, "first")
    await api.session.delete(CLAIMS.path(NS, "deep"))


_MERGE = {"Content-Type": MERGE_PATCH}


async def _allocate_deep(api: Api, *results: Object) -> tuple[int, str]:
    """HTTP status and message; the claim itself is nested too deeply for the library of this client."""
    body = {"status": {"allocation": {"devices": {"results": list(results)}}}}
    async with api.session.patch(f"{CLAIMS.path(NS, 'deep')}/status", json=body, headers=_MERGE) as answer:
        return answer.status, "" if answer.status == 200 else (await answer.json())["message"]


async def test_admin_access_that_the_claim_does_not_ask_for_is_refused(clean_cluster: Api, guard: GuardProcess) -> None:
    """The API server stores what a scheduler says of an allocation; what holds nothing must have been asked for."""
    api = clean_cluster
    await publish(api, device("a"))
    await new_claims(api, "liar")
    await api.patch(NAMESPACES, NS, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}})
    try:
        text = await refusal(api, "liar", result("a", adminAccess=True))
    finally:
        await api.patch(NAMESPACES, NS, {"metadata": {"labels": {"resource.kubernetes.io/admin-access": None}}})
    assert text == f"device {CLASS}/pool/a is given with admin access, for which request gpu does not ask"
