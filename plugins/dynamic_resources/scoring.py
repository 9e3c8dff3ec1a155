"""Scores of prioritized lists: 8 points for the first alternative, 1 for the eighth.

Source: kube-scheduler 1.37, DynamicResources Score.
"""

from __future__ import annotations

from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.dra.allocator import Allocated, Outcome

FIRST_SCORE = 8


def raw_score(claim: ResourceClaim, allocation: AllocationResult | None) -> int:
    """Points of one claim for the alternatives its allocation uses; requests with ``exactly`` add nothing."""
    if allocation is None:
        return 0
    used = {result.request for result in allocation.devices.results}
    return sum(
        FIRST_SCORE - place
        for request in claim.spec.devices.requests
        for place, sub in enumerate(request.firstAvailable)
        if f"{request.name}/{sub.name}" in used
    )


def chosen_score(outcome: Outcome | None) -> int:
    """Points for the alternatives a finished search has chosen on its node."""
    if not isinstance(outcome, Allocated):
        return 0
    chosen = {
        pick.alternative.index: pick.alternative.place
        for picks in outcome.picks
        for pick in picks
        if pick.alternative.name != pick.alternative.request
    }
    return sum(FIRST_SCORE - place for place in chosen.values())
