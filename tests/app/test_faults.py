"""The whole scheduler among faults: every Pod that fits ends bound, every device given once, nothing stuck."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from scheduler.embedded import Fault
from scheduler.embedded.faults import Action
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.app.world import World, world

NODES, DEVICES, PODS = 4, 4, 14
CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"
OURS = "dra-scheduler*"
CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
"""


def cluster() -> list[dict[str, Any]]:
    names = [f"n{index}" for index in range(NODES)]
    return [
        gpu_class(),
        template("one"),
        claim("shared"),
        *(node(name) for name in names),
        *(gpu_slice(name, DEVICES) for name in names),
    ]


async def create_pods(w: World) -> set[str]:
    """Fourteen Pods with a device of their own, two that share one, three without; together they fit."""
    wanted = [pod(f"own-{index}", template="one") for index in range(PODS)]
    wanted += [pod(f"shared-{index}", claim="shared") for index in range(2)]
    wanted += [pod(f"plain-{index}") for index in range(3)]
    for body in wanted:
        await w.call("POST", "/api/v1/namespaces/default/pods", body)
    return {body["metadata"]["name"] for body in wanted}


async def all_bound(w: World, names: set[str], timeout_s: float = 60.0) -> None:
    async def bound() -> bool:
        return set(await w.bound()) == names

    await w.until(bound, "all Pods are bound", timeout_s)


async def check_cluster(w: World) -> None:
    """Each device in one claim; each bound Pod's claims allocated and reserved for it; one node per Pod and claim."""
    claims = {item["metadata"]["name"]: item for item in (await w.call("GET", CLAIMS_PATH))["items"]}
    given: dict[tuple[str, str], str] = {}
    for name, item in claims.items():
        allocation = (item.get("status") or {}).get("allocation")
        assert allocation, f"claim {name} is not allocated although every Pod is bound"
        for result in allocation["devices"]["results"]:
            key = (result["pool"], result["device"])
            assert key not in given, f"{key} is given to {given[key]} and {name}"
            given[key] = name
    for item in (await w.call("GET", "/api/v1/namespaces/default/pods"))["items"]:
        statuses = {entry["name"]: entry for entry in (item["status"].get("resourceClaimStatuses") or [])}
        for entry in item["spec"].get("resourceClaims") or []:
            name = entry.get("resourceClaimName") or statuses[entry["name"]]["resourceClaimName"]
            status = claims[name]["status"]
            uids = {reserved["uid"] for reserved in status["reservedFor"]}
            assert item["metadata"]["uid"] in uids, f"{name} is not reserved for {item['metadata']['name']}"
            assert {r["pool"] for r in status["allocation"]["devices"]["results"]} == {item["spec"]["nodeName"]}


def check_order(w: World) -> None:
    """No Binding took effect before the claim of its Pod was reserved (by the server's own record)."""
    reserved: dict[str, int] = {}
    for entry in w.server.audit.writes(kind="resourceclaims", user_agent=OURS):
        if entry.call.subresource == "status" and entry.code in (0, 200):
            owner = entry.call.name.rpartition("-gpu-")[0] or entry.call.name
            reserved.setdefault(owner, entry.sequence)
    for entry in w.server.audit.writes(kind="pods", user_agent=OURS):
        if entry.call.subresource == "binding" and entry.code == 201 and entry.call.name.startswith("own-"):
            assert reserved[entry.call.name] < entry.sequence, (
                f"{entry.call.name} was bound before its claim was written"
            )


def random_fault(rng: random.Random) -> Fault:
    verb, kind = rng.choice([("patch", "resourceclaims"), ("create", "pods"), ("patch", "pods"), ("get", "*")])
    common: dict[str, Any] = {"verb": verb, "kind": kind, "user_agent": OURS, "skip": rng.randrange(8)}
    dice = rng.random()
    if dice < 0.5:
        return Fault(rng.choice([Action.DROP_BEFORE, Action.DROP_AFTER]), times=rng.randrange(1, 3), **common)
    if dice < 0.9:
        code = rng.choice([409, 422, 429, 500, 503, 504])
        return Fault(Action.ANSWER, code=code, times=rng.randrange(1, 4), **common)
    return Fault(Action.DELAY, delay_s=rng.random() * 0.3, times=3, **common)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 8))])
async def test_random_faults_on_writes_and_watches(seed: int) -> None:
    """Answers lost before and after the effect, refusals of every kind, broken and compacted watches."""
    rng = random.Random(seed)
    async with world(cluster(), CONFIG) as w:
        faults = [w.server.faults.add(random_fault(rng)) for _ in range(12)]
        names = await create_pods(w)
        for _ in range(8):
            await asyncio.sleep(rng.random() * 0.2)
            if rng.random() < 0.3:
                w.server.compact()
            w.server.break_watches(rng.choice([Action.CUT, Action.CLOSE, Action.GONE]), user_agent="dra-scheduler")
        await all_bound(w, names)
        await check_cluster(w)
        check_order(w)
        assert sum(fault.hits for fault in faults) > 5


@pytest.mark.parametrize("verb_kind", [("patch", "resourceclaims"), ("create", "pods")])
async def test_every_answer_lost_after_its_effect(verb_kind: tuple[str, str]) -> None:
    """Not one answer of claim writes, or of Bindings, arrives for a while; what took effect is found, not repeated."""
    verb, kind = verb_kind
    async with world(cluster(), CONFIG) as w:
        w.server.faults.add(Fault(Action.DROP_AFTER, verb=verb, kind=kind, user_agent=OURS, times=60))
        names = await create_pods(w)
        await all_bound(w, names)
        await check_cluster(w)
        check_order(w)
        assert w.counts.seen["lost"] == 0


async def test_api_server_away_under_load() -> None:
    """The server stops in the middle and returns on the same port: the rest is bound without a restart."""
    async with world(cluster(), CONFIG) as w:
        w.server.faults.add(Fault(Action.DELAY, verb="create", kind="pods", delay_s=0.1, user_agent=OURS, times=None))
        names = await create_pods(w)
        port = int(w.server.url.rpartition(":")[2])
        await w.server.stop()
        await asyncio.sleep(1.0)
        w.server.faults.clear()
        await w.server.start(port)
        await all_bound(w, names)
        await check_cluster(w)
