"""Permit plugins on the embedded API server: wait, allow, refuse, time out, give way."""

from __future__ import annotations

import pytest

from tests.app.objects import Object, node
from tests.app.race import PODS_PATH, shown
from tests.app.test_preemption import classes, deleted, events, of, until_bound
from tests.app.turnstile import Turnstile
from tests.app.world import World, world

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 1
profiles:
- plugins:
    multiPoint:
      enabled:
      - name: tests.app.turnstile:Turnstile
"""


def labelled(name: str, wish: str, priority: str = "low") -> Object:
    item = of(priority, name, cpu="1")
    item["metadata"]["labels"] = {"turnstile": wish}
    return item


async def waits(w: World, name: str) -> str:
    """Create nothing; wait until the Pod waits at Permit. Its uid."""
    uid: str = (await w.pod(name))["metadata"]["uid"]
    await shown(lambda: Turnstile.waiting.get(uid) is not None)
    return uid


async def test_a_pod_is_bound_when_the_plugin_allows_it() -> None:
    """Meanwhile its room is taken and its status names the node."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "wait"))
        uid = await waits(w, "a")

        async def nominated() -> bool:
            return bool((await w.pod("a"))["status"].get("nominatedNodeName") == "n1")

        await w.until(nominated, "the status names the node")
        assert await w.bound() == {}
        found = Turnstile.waiting.get(uid)
        assert found is not None
        found.allow(Turnstile.name)
        assert await until_bound(w, "a") == "n1"
        assert w.counts.seen["permit Success"] == 1
        await shown(lambda: Turnstile.told == ("a on n1",))


@pytest.mark.parametrize(
    ("wish", "message"),
    [
        ("closed", "0/1 nodes are available: 1 the turnstile is closed."),
        (
            "brief",
            "0/1 nodes are available: 1 rejected due to timeout after waiting 200ms at plugin "
            "tests.app.turnstile:Turnstile.",
        ),
    ],
)
async def test_a_refused_pod_is_told_and_gives_its_room_back(wish: str, message: str) -> None:
    """A refusal, and a wait that is over, are a fit error over that one node; the nomination is cleared."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", wish))

        async def told() -> bool:
            status = (await w.pod("a"))["status"]
            return message in [c.get("message") for c in status.get("conditions", [])]

        await w.until(told, message)
        await w.call("DELETE", f"{PODS_PATH}/a")
        await w.call("POST", PODS_PATH, of("low", "b", cpu="1"))
        assert await until_bound(w, "b") == "n1"


async def test_b110_a_deleted_pod_stops_waiting() -> None:
    """B110: the room of a Pod deleted at Permit is free at once."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "wait"))
        uid = await waits(w, "a")
        await w.call("DELETE", f"{PODS_PATH}/a")
        await shown(lambda: Turnstile.waiting.get(uid) is None)
        await w.call("POST", PODS_PATH, of("low", "b", cpu="1"))
        assert await until_bound(w, "b") == "n1"


async def test_a_waiting_pod_gives_way_to_a_more_important_one() -> None:
    """It is in memory only: no eviction is sent, it fails with "preempted", and the preemptor is tried at once."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "wait"))
        await waits(w, "a")
        await w.call("POST", PODS_PATH, of("high", "big", cpu="1"))
        assert await until_bound(w, "big") == "n1"
        uid = (await w.pod("big"))["metadata"]["uid"]
        told = await events(w, "Preempted")
        assert [item["note"] for item in told] == [f"Preempted by pod {uid} on node n1 (in kube-scheduler memory)."]
        assert deleted(w) == []
        notes = [item["note"] for item in await events(w, "FailedScheduling") if item["regarding"]["name"] == "a"]
        assert notes[0] == "waiting on permit for pod: preempted"


async def test_a_pod_that_waits_at_pre_bind_names_its_node() -> None:
    """6.3: its status names the node meanwhile; the Binding clears that."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "queue"))

        async def nominated() -> bool:
            return bool((await w.pod("a"))["status"].get("nominatedNodeName") == "n1")

        await w.until(nominated, "the status names the node")
        assert await w.bound() == {}
        Turnstile.opened = True
        assert await until_bound(w, "a") == "n1"
        assert not await nominated()


async def test_a_pod_at_pre_bind_gives_way_to_a_more_important_one() -> None:
    """It ends at its next step, its nomination is cleared, and the preemptor is tried at once."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "queue"))
        await shown(lambda: w.service.state.assumed_count() == 1)
        await w.call("POST", PODS_PATH, of("high", "big", cpu="1"))
        assert await until_bound(w, "big") == "n1"
        assert deleted(w) == []
        (told,) = await events(w, "Preempted")
        assert told["note"].endswith("on node n1 (in kube-scheduler memory).")
        notes = [item["note"] for item in await events(w, "FailedScheduling") if item["regarding"]["name"] == "a"]
        assert notes[0] == f'running PreBind plugin "{Turnstile.name}": preempted by DefaultPreemption'

        async def cleared() -> bool:
            return not (await w.pod("a"))["status"].get("nominatedNodeName")

        await w.until(cleared, "the nomination of a is cleared")


async def test_stopping_does_not_wait_for_permits() -> None:
    """A Pod that waits at Permit gives its place back when the scheduler stops."""
    async with world([*classes(), node("n1", cpu="1")], CONFIG) as w:
        await w.call("POST", PODS_PATH, labelled("a", "wait"))
        await waits(w, "a")
    assert w.counts.seen["permit Unschedulable"] == 1
