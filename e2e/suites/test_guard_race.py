"""kube-scheduler and we race for the same devices behind the guard: no device has two holders at any revision."""

from __future__ import annotations

import asyncio
from pathlib import Path

from e2e.api import CLAIM_TEMPLATES, CLAIMS, EVENTS, PODS, Api
from e2e.controlplane import ControlPlane
from e2e.driver import add_node
from e2e.guard import SlowWebhook, guarded
from e2e.objects import claim, claim_template, device, exactly, pod
from e2e.race import race
from e2e.scheduler import SchedulerProcess, condition
from e2e.suites.test_devices import is_bound
from e2e.suites.test_guard import CLASS, NS, allocate, free, publish, result
from e2e.waiting import eventually

PODS_EACH, DEVICES = 60, 72


async def test_with_the_guard_nobody_gives_a_device_twice(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """60 Pods each for 72 devices: every device is given in the end, none has two holders at any revision, by anyone.

    The numbers of five rounds of 1,000 Pods each for 1,200 devices: python -m e2e.race --guard.
    """
    result = await race(clean_cluster, control_plane, tmp_path, pods=PODS_EACH, devices=DEVICES, guard=True)
    print(result.line())
    assert result.doubles == []
    assert result.unreserved == []
    assert sum(result.bound.values()) == DEVICES
    assert result.reviews >= DEVICES


async def told(api: Api, name: str, reason: str, words: str) -> None:
    """Wait for an Event of the Pod."""

    async def seen() -> bool:
        events = [e for e in await api.list(EVENTS, NS) if e["regarding"]["name"] == name and e["reason"] == reason]
        return any(words in e["note"] for e in events)

    await eventually(seen, f"an Event {reason} of pod {name} says {words!r}", timeout_s=60)


async def test_our_scheduler_takes_a_refusal_for_a_lost_race(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Refused by the guard: an Event names the holder, the Pod tries again and is bound when the device comes free."""
    api = clean_cluster
    await publish(api, device("a"))
    await add_node(api, "node-0")
    late = claim("late", exactly(CLASS))
    late["metadata"]["labels"] = {"slow": "yes"}
    await api.create(CLAIMS, late, NS)
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    async with (
        guarded(control_plane, api, tmp_path, settle_s=60.0, handed_over=True),
        SlowWebhook(control_plane, api) as slow,
    ):
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()) as scheduler:
            await slow.hold("late")
            writing = asyncio.create_task(allocate(api, "late", result("a")))

            async def under_way() -> bool:
                return slow.asked > 0

            await eventually(under_way, "a foreign allocation is admitted, but not stored yet")
            await api.create(PODS, pod("ours", templates={"gpu": "one-gpu"}), NS)
            await told(api, "ours", "LostRace", "is held by claim default/late")
            assert scheduler.metric("dra_scheduler_lost_races_total") >= 1
            slow.go.set()
            await writing
            await free(api, "late")
            await eventually(is_bound(api, "ours"), "our Pod is bound", timeout_s=60)
            assert scheduler.errors() == []


async def test_our_pods_wait_for_a_guard_and_say_so(
    clean_cluster: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """failurePolicy Fail and no guard: the Pod's condition says why, and it is bound once a guard answers again."""
    api = clean_cluster
    await publish(api, device("a"))
    await add_node(api, "node-0")
    await api.create(CLAIM_TEMPLATES, claim_template("one-gpu", exactly(CLASS)), NS)
    async with guarded(control_plane, api, tmp_path) as guard:
        await asyncio.to_thread(guard.kill)
        with SchedulerProcess(tmp_path, control_plane.kubeconfig_for()):
            await api.create(PODS, pod("ours", templates={"gpu": "one-gpu"}), NS)

            async def says_why() -> bool:
                message = condition(await api.get(PODS, "ours", NS)).get("message", "")
                return "because no guard answered (its failurePolicy is Fail)" in message

            await eventually(says_why, "the Pod's condition names the missing guard", timeout_s=60)
            await asyncio.to_thread(guard.start_and_wait)
            await eventually(is_bound(api, "ours"), "our Pod is bound", timeout_s=60)
