"""The copy is compared with a fresh LIST: what the watch lost is repaired and counted, no more than that."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from typing import Any

import pytest

from scheduler.edge import reconcile
from scheduler.edge.reconcile import Reconciler
from scheduler.embedded.faults import Action, Fault
from scheduler.errors import InternalError
from tests.app.objects import claim, gpu_class, gpu_slice, node, pod
from tests.app.race import allocated
from tests.app.world import World, world

LOST = {
    "Pod": ("pods", "default/p", "/api/v1/namespaces/default/pods/p"),
    "Node": ("nodes", "n2", "/api/v1/nodes/n2"),
    "ResourceClaim": ("claims", "default/c", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"),
    "ResourceSlice": ("slices", "n2-gpu", "/apis/resource.k8s.io/v1/resourceslices/n2-gpu"),
    "DeviceClass": ("classes", "gpu", "/apis/resource.k8s.io/v1/deviceclasses/gpu"),
}


def objects() -> list[dict[str, Any]]:
    return [
        gpu_class(),
        node("n1"),
        node("n2"),
        gpu_slice("n2", 1),
        allocated("c", "n2", "gpu-0"),
        pod("p", nodeName="n2"),
    ]


def known(w: World, kind: str) -> bool:
    """Whether the state still counts the object."""
    state = w.service.state
    return {
        "Pod": any(found.pod.metadata.name == "p" for found in (p.info for p in state.placements.values())),
        "Node": state.nodes.row_of("n2") is not None,
        "ResourceClaim": bool(state.devices.ledger.state()),
        "ResourceSlice": state.devices.slices.get("n2-gpu") is not None,
        "DeviceClass": state.devices.classes.get("gpu") is not None,
    }[kind]


def lose_next_deletion(w: World, kind: str) -> None:
    """The reflector's next DELETED event is lost, as if the stream had swallowed it."""
    reflector = w.service.reflectors[kind]
    take = reflector._event

    def forgetful(line: bytes, batch: list[Any]) -> int:
        store = dict(reflector.store)
        revision = take(line, batch)
        if batch and batch[-1].new is None:
            batch.pop()
            reflector.store = store
        return revision

    reflector._event = forgetful  # type: ignore[method-assign]  # a fault no server can be made to commit


@pytest.mark.parametrize("kind", LOST)
async def test_a_lost_deletion_is_repaired_and_counted(kind: str) -> None:
    """The object is gone from the server, the watch never said so: the next pass removes it."""
    async with world(objects()) as w:
        lose_next_deletion(w, kind)
        await w.call("DELETE", LOST[kind][2], {"gracePeriodSeconds": 0})
        async with asyncio.timeout(5):
            while w.service.reflectors[kind].revision < w.server.store.revision:  # noqa: ASYNC110 - nothing to wait for
                await asyncio.sleep(0.01)
        assert known(w, kind)
        assert await w.service.reconciler.reconcile() == 1
        assert not known(w, kind)
        assert w.counts.seen[f"repaired {kind}"] == 1
        assert await w.service.reconciler.reconcile() == 0
        w.service.loop.check()


async def test_no_false_repairs_while_pods_are_placed() -> None:
    """Passes one after the other while events are under way repair nothing."""
    async with world([gpu_class(), node("n1"), gpu_slice("n1", 4), *(claim(f"c{i}") for i in range(4))]) as w:
        for index in range(4):
            await w.call("POST", "/api/v1/namespaces/default/pods", pod(f"p{index}", claim=f"c{index}"))
            assert await w.service.reconciler.reconcile() == 0

        async def bound() -> bool:
            return len(await w.bound()) == 4

        await w.until(bound, "all are bound")
        assert await w.service.reconciler.reconcile() == 0
        assert not [name for name in w.counts.seen if name.startswith("repaired")]


async def test_a_list_that_fails_is_told_and_the_next_kind_is_looked_at() -> None:
    """One kind cannot be listed: the others are still compared."""
    async with world(objects()) as w:
        lose_next_deletion(w, "ResourceClaim")
        await w.call("DELETE", LOST["ResourceClaim"][2])
        async with asyncio.timeout(5):
            while w.service.reflectors["ResourceClaim"].revision < w.server.store.revision:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        w.server.faults.add(Fault(Action.ANSWER, verb="list", kind="nodes", code=403, user_agent="dra-scheduler*"))
        assert await w.service.reconciler.reconcile() == 1
        assert any("reconcile of nodes" in str(fields.get("message")) for _, _, fields in w.log.lines)


@pytest.mark.parametrize("forking", [True, False])
@pytest.mark.parametrize("error", [InternalError("a sum is wrong", ("kept: 1", "fresh: 2")), KeyError("row")])
async def test_a_wrong_number_is_told_and_counted(
    error: Exception, forking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the check raises, in a child or here: the scheduler goes on, and the fault is seen with its story."""
    monkeypatch.setattr(reconcile, "can_fork", lambda: forking)
    told: list[str] = []
    counted: Counter[str] = Counter()

    def check() -> None:
        raise error

    reconciler = Reconciler([], check, lambda kind, count: counted.update({kind: count}), told.append)
    assert await reconciler.reconcile() == 0
    assert counted == {"derived": 1}
    assert told == [str(error) if isinstance(error, InternalError) else "KeyError: 'row'"]


async def test_the_verification_holds_the_loop_for_no_longer_than_a_fork() -> None:
    """It is done in a child: half a second at 5,000 nodes would be a pause for everything else."""
    turns: list[int] = []

    async def turn() -> None:
        while True:
            turns.append(len(turns))
            await asyncio.sleep(0)

    here: list[str] = []

    def check() -> None:
        here.append("checked")
        time.sleep(0.3)

    reconciler = Reconciler([], check, lambda kind, count: None, lambda text: None)
    turning = asyncio.create_task(turn())
    await reconciler.reconcile()
    turning.cancel()
    assert here == []
    assert len(turns) > 50


async def test_a_verification_without_an_end_is_no_wrong_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that was killed found nothing: told, not counted."""
    told: list[str] = []
    counted: list[str] = []
    reconciler = Reconciler([], lambda: os._exit(1), lambda kind, count: counted.append(kind), told.append)
    assert await reconciler.reconcile() == 0
    assert counted == []
    assert told == ["what is derived was not verified: the process that looked for it ended without an answer"]


async def test_without_a_child_it_is_verified_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, too many processes: slow is better than not at all."""

    async def refused(*_: Any) -> None:
        raise OSError("no child")

    monkeypatch.setattr(reconcile, "in_child", refused)
    here: list[str] = []
    await Reconciler([], lambda: here.append("checked"), lambda kind, count: None, lambda text: None).reconcile()
    assert here == ["checked"]


async def test_passes_come_at_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass after each pause, for ever."""
    monkeypatch.setattr(reconcile, "can_fork", lambda: False)  # counted here
    pauses: list[float] = []
    passes: list[int] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            raise asyncio.CancelledError

    reconciler = Reconciler(
        [], lambda: passes.append(1), lambda kind, count: None, lambda text: None, interval_s=7, sleep=sleep
    )
    with pytest.raises(asyncio.CancelledError):
        await reconciler.run()
    assert pauses == [7, 7, 7, 7]
    assert len(passes) == 3


@pytest.mark.parametrize("kind", LOST)
async def test_an_event_whose_handling_broke_is_caught_up_with(kind: str) -> None:
    """The copy has the object, the state raised over it: told at once, repaired by the next pass, counted."""
    plain = [found for found in objects() if found["kind"] != kind]
    (late,) = [found for found in objects() if found["kind"] == kind and found["metadata"]["name"] != "n1"]
    async with world(plain) as w:
        state, apply = w.service.state, w.service.state.apply
        broken: list[str] = []
        events = 2 if kind == "ResourceClaim" else 1  # created, then allocated

        def fail_once(change: Any) -> Any:
            if change.kind.name == kind and len(broken) < events:
                broken.append(kind)
                raise ValueError("boom")
            return apply(change)

        state.apply = fail_once  # type: ignore[method-assign]  # a bug that is not there
        w.server.load([late])
        async with asyncio.timeout(5):
            while len(broken) < events:  # noqa: ASYNC110 - nothing to wait for
                await asyncio.sleep(0.01)
        assert w.counts.seen["broken"] == events
        w.counts.seen["broken"] = 0
        assert not known(w, kind)
        assert await w.service.reconciler.reconcile() >= 1
        assert known(w, kind)
        assert await w.service.reconciler.reconcile() == 0


async def test_a_pod_that_fell_out_of_the_queue_is_found() -> None:
    """It waits at the server and nowhere here: the next pass brings it back, and it is bound."""
    async with world([node("n1")]) as w:
        add = w.service.queue.add
        dropped: list[str] = []

        def drop_once(found: Any, now: float) -> None:
            if dropped:
                add(found, now)
            else:
                dropped.append(found.metadata.name)

        w.service.queue.add = drop_once  # type: ignore[method-assign]  # as above
        await w.call("POST", "/api/v1/namespaces/default/pods", pod("p"))
        async with asyncio.timeout(5):
            while not dropped:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.01)
        assert await w.service.reconciler.reconcile() == 1

        async def bound() -> bool:
            return await w.bound() == {"p": "n1"}

        await w.until(bound, "the Pod is bound")
        assert w.counts.seen["repaired Pod"] == 1
