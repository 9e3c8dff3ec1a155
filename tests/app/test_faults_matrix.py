"""One fault at a time, for each kind of write and each kind of watch: the service recovers without a restart."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from scheduler.embedded.faults import Action, Fault
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod, template
from tests.app.world import World, world

OURS = "dra-scheduler*"
PODS_PATH = "/api/v1/namespaces/default/pods"
CLAIMS_PATH = "/apis/resource.k8s.io/v1/resourceclaims"
WRITES: dict[str, dict[str, str]] = {
    "finalizer": {"verb": "patch", "kind": "resourceclaims", "subresource": ""},
    "claim status": {"verb": "patch", "kind": "resourceclaims", "subresource": "status"},
    "binding": {"verb": "create", "kind": "pods", "subresource": "binding"},
    "condition": {"verb": "patch", "kind": "pods", "subresource": "status"},
    "event": {"verb": "create", "kind": "events"},
}
ANSWERS = (409, 422, 429, 500, 503, 504)
FITTING = {"own-0", "own-1", "shared-0", "shared-1", "plain"}
WAITING = "too-big"
SOME_HITS = {("event", "504"), ("event", "lost before"), ("event", "lost after"), ("condition", "422")}
"""Written again only after a pause longer than this test, or not at all: an object the server finds invalid."""


def cluster() -> list[dict[str, Any]]:
    """Two nodes with two devices each; three are asked for."""
    names = ("n1", "n2")
    return [
        gpu_class(),
        template("one"),
        claim("shared"),
        *(node(name) for name in names),
        *(gpu_slice(name, 2) for name in names),
    ]


async def create_pods(w: World) -> None:
    """Five Pods that fit and one that never does."""
    bodies = [pod("own-0", template="one"), pod("own-1", template="one"), pod("plain")]
    bodies += [pod(f"shared-{index}", claim="shared") for index in range(2)]
    for body in [*bodies, pod(WAITING, cpu="99")]:
        await w.call("POST", PODS_PATH, body)


async def condition(w: World, name: str) -> str:
    """The message of the Pod's PodScheduled condition, "" without one."""
    found = (await w.pod(name))["status"].get("conditions") or []
    return next((str(c.get("message", "")) for c in found if c["type"] == "PodScheduled"), "")


async def all_is_well(w: World, *, told: bool = True) -> None:
    """Every Pod that fits is bound with devices of its own, the other one is told why it is not; nothing is stuck."""

    async def settled() -> bool:
        if set(await w.bound()) != FITTING:
            return False
        return not told or "Insufficient cpu" in await condition(w, WAITING)

    await w.until(settled, "Pods bound and told", 20.0)
    given: Counter[tuple[str, str]] = Counter()
    for item in (await w.call("GET", CLAIMS_PATH))["items"]:
        results = item["status"]["allocation"]["devices"]["results"]
        given.update((result["pool"], result["device"]) for result in results)
        assert item["status"]["reservedFor"]
    assert len(given) == given.total() == 3
    assert not w.service.loop._commits
    assert w.service.queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 1, "gated": 0}


def check_writes(w: World) -> None:
    """Nothing took effect twice, and retries are few."""
    audit = w.server.audit
    bindings = Counter(
        entry.call.name
        for entry in audit.writes(kind="pods", user_agent=OURS)
        if entry.call.subresource == "binding" and entry.code == 201
    )
    assert all(count == 1 for count in bindings.values()), bindings
    per_claim = Counter(entry.call.name for entry in audit.writes(kind="resourceclaims", user_agent=OURS))
    assert max(per_claim.values()) <= 12, per_claim
    assert len(audit.writes(user_agent=OURS)) < 80


async def events_by_pod(w: World) -> Counter[tuple[str, str]]:
    """(Pod, reason) → events."""
    await w.service.recorder.drain(5.0)
    listed = await w.call("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    return Counter((item["regarding"]["name"], item["reason"]) for item in listed["items"])


def faults_of(kind: str) -> dict[str, Fault]:
    """Fault name → fault, for one kind of write. Twice in a row, so that one retry is not enough."""
    where: dict[str, Any] = {**WRITES[kind], "user_agent": OURS, "times": 2}
    found = {str(code): Fault(Action.ANSWER, code=code, **where) for code in ANSWERS}
    found["429"].retry_after_s = 1
    found["429"].times = 1
    found["lost before"] = Fault(Action.DROP_BEFORE, **where)
    found["lost after"] = Fault(Action.DROP_AFTER, **where)
    return found


@pytest.mark.parametrize("kind", WRITES)
@pytest.mark.parametrize("fault_name", [*map(str, ANSWERS), "lost before", "lost after"])
async def test_one_kind_of_write_fails(kind: str, fault_name: str) -> None:
    """Refused, overloaded, broken or silent: Pods end bound, each device given once, no write has its effect twice."""
    fault = faults_of(kind)[fault_name]
    async with world(cluster(), faults=[fault]) as w:
        await create_pods(w)
        await all_is_well(w, told=(kind, fault_name) != ("condition", "422"))
        check_writes(w)
        assert fault.hits == fault.times or (fault.hits and (kind, fault_name) in SOME_HITS)
        if kind != "event":
            events = await events_by_pod(w)
            assert all(events[(name, "Scheduled")] == 1 for name in FITTING), events


STREAMS = {
    "410 as answer": Fault(Action.ANSWER, verb="watch", code=410),
    "410 as event": Fault(Action.GONE, verb="watch"),
    "410 after an event": Fault(Action.GONE, verb="watch", after_events=1),
    "cut in mid-line": Fault(Action.CUT, verb="watch", after_events=1),
    "closed for being slow": Fault(Action.CLOSE, verb="watch", after_events=1),
    "watch refused": Fault(Action.ANSWER, verb="watch", code=500),
    "list refused": Fault(Action.ANSWER, verb="list", code=503),
    "list lost": Fault(Action.DROP_AFTER, verb="list"),
    "watch late": Fault(Action.DELAY, verb="watch", delay_s=0.3),
}


@pytest.mark.parametrize(
    "kind",
    [
        "pods",
        "resourceclaims",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("nodes", "resourceslices", "deviceclasses")),
    ],
)
@pytest.mark.parametrize("name", STREAMS)
async def test_one_kind_of_watch_fails(kind: str, name: str) -> None:
    """From the first synchronisation on: whatever happens to one stream, the copy is complete again soon."""
    planned = STREAMS[name]
    fault = Fault(
        planned.action,
        verb=planned.verb,
        kind=kind,
        user_agent=OURS,
        code=planned.code,
        delay_s=planned.delay_s,
        after_events=planned.after_events,
    )
    # Only a server that does not list by a watch is asked for a LIST in pages.
    plain = [Fault(Action.ANSWER, verb="watch", kind=kind, user_agent=OURS, code=422)] if fault.verb == "list" else []
    async with world(cluster(), faults=[*plain, fault]) as w:
        await create_pods(w)
        await all_is_well(w)
        check_writes(w)
        assert fault.hits == 1


async def test_every_watch_is_compacted_again_and_again() -> None:
    """410 on all watches at once, five times while Pods are placed: each gap is closed by a comparison."""
    async with world(cluster()) as w:
        await create_pods(w)
        for _ in range(5):
            w.server.compact()
            w.server.break_watches(Action.GONE, user_agent="dra-scheduler")
            await w.service.recorder.drain(0.05)
        await all_is_well(w)
        check_writes(w)
