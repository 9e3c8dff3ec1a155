"""What a Pod holds that is held back goes back; a Pod on a node, or one whose claims others use, loses nothing."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM
from scheduler.edge.leftovers import PAUSES_S, Leftovers
from scheduler.framework.instructions import DeallocateClaim, Instruction, UnreserveClaim
from scheduler.state.cluster import ClusterState
from tests.cycle.attempt_world import make_node
from tests.edge.test_commit import claim, pod


class Writes:
    """Carries out nothing; answers with the given failures, one after the other, then with success."""

    def __init__(self, *failures: str) -> None:
        self.failures = list(failures)
        self.log: list[str] = []
        self.pauses_s: list[float] = []
        self.hold = asyncio.Event()
        self.hold.set()

    async def perform(self, pod_: Pod, instruction: Instruction) -> str | None:
        await self.hold.wait()
        assert isinstance(instruction, DeallocateClaim | UnreserveClaim)
        kind = "deallocate" if isinstance(instruction, DeallocateClaim) else "unreserve"
        self.log.append(f"{kind} {instruction.claim.metadata.name}")
        return self.failures.pop(0) if self.failures else None

    async def sleep(self, pause_s: float) -> None:
        self.pauses_s.append(pause_s)


def world(*reserved: str, writes: Writes | None = None) -> tuple[ClusterState, Pod, Writes, Leftovers]:
    """A Pod with claims a and b; those named are allocated and reserved for it."""
    state, writes = ClusterState(), writes or Writes()
    for name in ("a", "b"):
        consumers = ["p"] if name in reserved else []
        device = "x" if name in reserved else ""
        state.apply(Change(RESOURCE_CLAIM, None, claim(name, 1, device, consumers)))
    waiting = pod("a", "b")
    state.apply(Change(POD, None, waiting))
    return state, waiting, writes, Leftovers(state, writes.perform, writes.sleep)


async def idle(leftovers: Leftovers, waiting: Pod) -> None:
    """Until nothing is under way."""
    async with asyncio.timeout(5):
        while leftovers.busy(waiting.uid):  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)


async def test_what_is_reserved_is_given_back() -> None:
    """Only the claim that lists the Pod; while that lasts the Pod is busy, so that no attempt counts on it."""
    _, waiting, writes, leftovers = world("a")
    writes.hold.clear()
    leftovers.let_go(waiting)
    leftovers.let_go(waiting)
    assert leftovers.busy(waiting.uid)
    writes.hold.set()
    await idle(leftovers, waiting)
    assert writes.log == ["deallocate a"]


async def test_a_claim_that_others_use_keeps_its_devices() -> None:
    """The allocation cannot be cleared: the Pod's name goes, and no more."""
    _, waiting, writes, leftovers = world("a", writes=Writes("reserved for others"))
    leftovers.let_go(waiting)
    await idle(leftovers, waiting)
    assert writes.log == ["deallocate a", "unreserve a"]


async def test_it_is_tried_again_and_given_up() -> None:
    """A server that answers nothing: a bounded number of tries with growing pauses."""
    _, waiting, writes, leftovers = world("a", writes=Writes(*["away"] * 20))
    leftovers.let_go(waiting)
    await idle(leftovers, waiting)
    assert writes.pauses_s == list(PAUSES_S)
    assert len(writes.log) == 2 * len(PAUSES_S)


@pytest.mark.parametrize("reserved", [(), ("a", "b")])
async def test_nothing_to_give_back_and_a_pod_on_a_node(reserved: tuple[str, ...]) -> None:
    """Without a reservation there is nothing to do; a Pod that is assumed on a node counts on its claims."""
    state, waiting, writes, leftovers = world(*reserved)
    if reserved:
        state.apply(Change(NODE, None, make_node("n1")))
        state.assume(waiting, "n1")
    leftovers.let_go(waiting)
    assert not leftovers.busy(waiting.uid)
    assert writes.log == []


async def test_stopping_ends_it() -> None:
    """A pause of half a minute does not keep the process."""
    _, waiting, writes, leftovers = world("a")
    writes.hold.clear()
    leftovers.let_go(waiting)
    await leftovers.finish()
    assert not leftovers.busy(waiting.uid)


@pytest.mark.parametrize("gone", [False, True])
async def test_after_a_failed_attempt_a_pod_without_all_its_claims_keeps_nothing(gone: bool) -> None:
    """A claim that is being deleted waits for the Pods that it is reserved for: they would wait for each other."""
    state, waiting, writes, leftovers = world("a")
    leftovers.after_failure(waiting)
    assert not leftovers.busy(waiting.uid)  # all claims are there: the next attempt uses or clears them
    other, newer = claim("b", 1), claim("b", 2)
    meta = msgspec.structs.replace(newer.metadata, deletionTimestamp="2026-01-01T00:00:00Z")
    going = msgspec.structs.replace(newer, metadata=meta)
    state.apply(Change(RESOURCE_CLAIM, other, None if gone else going))
    leftovers.after_failure(waiting)
    await idle(leftovers, waiting)
    assert writes.log == ["deallocate a"]


async def test_two_pods_that_share_a_claim_which_is_being_deleted_both_let_go() -> None:
    """The one after the other; the last one clears it."""
    state, writes = ClusterState(), Writes("reserved for others")
    shared = claim("a", 1, "x", ["p", "q"])
    meta = msgspec.structs.replace(shared.metadata, deletionTimestamp="2026-01-01T00:00:00Z")
    state.apply(Change(RESOURCE_CLAIM, None, msgspec.structs.replace(shared, metadata=meta)))
    leftovers = Leftovers(state, writes.perform, writes.sleep)
    for name in ("p", "q"):
        waiting = pod("a")
        named = msgspec.structs.replace(waiting.metadata, name=name, uid=f"uid-{name}")
        waiting = msgspec.structs.replace(waiting, metadata=named)
        state.apply(Change(POD, None, waiting))
        leftovers.after_failure(waiting)
        await idle(leftovers, waiting)
    assert writes.log == ["deallocate a", "unreserve a", "deallocate a"]
