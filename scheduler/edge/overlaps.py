"""Foreign allocations that come after ours were verified: nothing can stop them, but somebody must know."""

from __future__ import annotations

from collections.abc import Container, Iterator

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.dra.verify import Lost, WonPair
from scheduler.state.cluster import ClusterState


def given_again(state: ClusterState, claim: ResourceClaim, profiles: Container[str]) -> Iterator[tuple[Pod, str]]:
    """Pods of ours that hold a device of ``claim``, which has just been seen allocated; each with the event's words.

    Claims of ours that are still in flight are left out: their own verification sees ``claim``. One Pod stands for all
    that share a claim. Cost: O(holds on the claim's devices) while there is no pair.
    """
    ledger = state.devices.ledger
    entry = ledger.entry(claim.uid)
    holdings = (ledger.holding(hold.device) for hold in entry.holds) if entry is not None else ()
    others = {
        uid for found in holdings if found is not None for uid in (*found.exclusive, *(u for u, _ in found.shares))
    }
    for uid in sorted(others - {claim.uid}):
        other = ledger.entry(uid)
        held = None if other is None else state.devices.claims.get(other.key)
        if other is None or held is None or held.uid != uid or ledger.in_flight(uid) is not None:
            continue
        pod = _holder(state, held, profiles)
        row = None if pod is None else state.nodes.row_of(state.placements[pod.uid].node)
        if pod is None or row is None:
            continue
        verdict = state.devices.verify_write(held, state.nodes.node(row), other.revision or 0)
        conflicts = verdict.conflicts if isinstance(verdict, WonPair) else ()
        if isinstance(verdict, Lost) and entry is not None and entry.revision is None:
            conflicts = (verdict.conflict,)  # seen in a LIST after a gap: who was first is unknown, the pair is not
        for conflict in conflicts:
            if conflict.uid == claim.uid:
                yield pod, f"{conflict.what} of claim {held.key}: also {conflict.claim}"


def _holder(state: ClusterState, claim: ResourceClaim, profiles: Container[str]) -> Pod | None:
    for consumer in claim.consumers:
        placement = state.placements.get(consumer.uid)
        if placement is not None and placement.info.pod.spec.schedulerName in profiles:
            return placement.info.pod if state.serves(placement.info.pod) else None
    return None
