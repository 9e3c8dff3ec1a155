"""Every combination of devices, checked as a whole: slow, and independent of the search, its undo and its shortcuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import Any

from scheduler.api.resource import RESULTS_MAX
from scheduler.dra.constraints import MATCH, Constraint
from scheduler.dra.features import Features
from scheduler.dra.ledger import Usage
from scheduler.dra.pools import NodeView
from scheduler.dra.requests import Alternative, Plan
from scheduler.dra.suitability import Known, Suitability

Taken = list[tuple[Alternative, int]]
LIMIT = 30_000


class TooManyError(Exception):
    """More combinations than a test may look at."""


def suitable(view: NodeView, alternative: Alternative, features: Features) -> list[int]:
    """Devices that suit, whatever is in use. Raises TooManyError when one is in state error."""
    suitability, answers = Suitability(view, features), Known()
    for position in range(len(view.devices)):
        suitability.ask(alternative, answers, position)
    if answers.error:
        raise TooManyError
    return [position for position in range(len(view.devices)) if answers.yes >> position & 1]


def choices(view: NodeView, plan: Plan, features: Features) -> Iterator[Taken]:
    """All ways to pick devices for all requests, valid or not."""
    options: list[list[Taken]] = []
    size = 1
    for claim in plan.claims:
        for request in claim.requests:
            ways: list[Taken] = []
            for alternative in request.alternatives:
                devices = suitable(view, alternative, features)
                if alternative.take_all:
                    if devices:
                        ways.append([(alternative, position) for position in devices])
                    continue
                ways += [[(alternative, p) for p in chosen] for chosen in combinations(devices, alternative.count)]
            options.append(ways)
            size *= max(len(ways), 1)
            if size > LIMIT:
                raise TooManyError
    for combination in product(*options):
        yield [pick for part in combination for pick in part]


def fits(view: NodeView, plan: Plan, usage: Usage, features: Features) -> bool:
    """Whether any combination is valid."""
    return any(valid(taken, view, plan, usage, features) for taken in choices(view, plan, features))


def valid(
    taken: Sequence[tuple[Alternative, int]], view: NodeView, plan: Plan, usage: Usage, features: Features
) -> bool:
    """Whether devices taken in this order break no rule."""
    for claim in range(len(plan.claims)):
        if sum(1 for alternative, _ in taken if alternative.claim == claim) > RESULTS_MAX:
            return False
    return (
        _nobody_twice(taken, view, usage, features)
        and _capacities(taken, view, usage, features)
        and _counters(taken, view, usage)
        and _taints(taken, view, features)
        and all(
            _constraint(constraint, index, taken, view, features) for index, constraint in enumerate(plan.constraints)
        )
    )


def _nobody_twice(taken: Sequence[tuple[Alternative, int]], view: NodeView, usage: Usage, features: Features) -> bool:
    held: set[int] = {position for position in range(len(view.devices)) if usage.used >> position & 1}
    by_claim: set[tuple[int, int]] = set()
    for alternative, position in taken:
        shared = view.devices[position].multi and features.consumable_capacity
        if alternative.admin:
            if (alternative.claim, position) in by_claim:
                return False
        elif position in held:
            return False
        if not shared:
            held.add(position)
            by_claim.add((alternative.claim, position))
    return True


def _capacities(taken: Sequence[tuple[Alternative, int]], view: NodeView, usage: Usage, features: Features) -> bool:
    if not features.consumable_capacity:
        return True
    suitability = Suitability(view, features)
    sums: dict[tuple[int, str], int] = {}
    for alternative, position in taken:
        info = view.devices[position]
        for share in suitability.capacity(alternative, info).effective:
            before = sums.get((position, share.name), usage.consumed.get(position, {}).get(share.name, 0))
            if before + share.nano > info.capacities[share.name].nano:
                return False
            if info.multi:
                sums[(position, share.name)] = before + share.nano
    return True


def _counters(taken: Sequence[tuple[Alternative, int]], view: NodeView, usage: Usage) -> bool:
    running: dict[Any, int] = {}
    paid: set[int] = set()
    for _, position in taken:
        info = view.devices[position]
        if not info.consumption or (info.multi and (usage.shared >> position & 1 or position in paid)):
            continue
        paid.add(position)
        key = view.pool_of[position].key
        if any(left < 0 for left in usage.available[key]):
            return False
        for counter, amount in view.charges[position]:
            running[(key, counter)] = running.get((key, counter), 0) + amount
            if running[(key, counter)] > usage.available[key][counter]:
                return False
    return True


def _taints(taken: Sequence[tuple[Alternative, int]], view: NodeView, features: Features) -> bool:
    suitability = Suitability(view, features)
    return not any(suitability.tainted(alternative, view.devices[position]) for alternative, position in taken)


def _constraint(
    constraint: Constraint, index: int, taken: Sequence[tuple[Alternative, int]], view: NodeView, features: Features
) -> bool:
    values = [view.devices[position].attribute(constraint.attribute) for a, position in taken if index in a.constraints]
    if any(value is None for value in values):
        return False
    scalars = [value for value in values if value is not None]
    if constraint.kind == MATCH:
        return all(value == scalars[0] for value in scalars)
    return len(set(scalars)) == len(scalars)
