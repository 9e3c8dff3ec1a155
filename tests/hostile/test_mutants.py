"""Mutated objects of every kind through watch, state and every decision: nothing breaks, nothing is named twice.

A short, seeded part of ``make fuzz``.
"""

from __future__ import annotations

import pytest

from e2e.fuzz.mutate import Mutant, Mutator
from e2e.fuzz.objects import VARIANTS, kinds_of, run_kind, samples
from e2e.fuzz.world import World
from scheduler.api.kinds import POD, DecodeError, decode
from scheduler.framework.cycle import Cycle
from scheduler.state.cluster import ClusterState

RUNS = 12


@pytest.mark.parametrize("variant", VARIANTS)
async def test_mutants_of_every_kind_break_nothing(variant: str) -> None:
    """Neither a watch nor a decision nor a review of the guard nor what is kept; nor is memory left behind.

    An object that cannot be decoded is named once, by its name.
    """
    found = []
    for name in kinds_of(variant):
        runs = RUNS if name not in ("Pod", "ResourceClaim") else 3 * RUNS
        outcome = await run_kind(name, runs, 7, variant)
        assert outcome.runs == runs
        found += [f"{outcome.kind}, mutant {number} ({how}): {fault}" for number, how, fault in outcome.faults]
        found += outcome.memory
    assert not found


def test_equal_seeds_give_equal_mutants() -> None:
    """A fault that was found can be looked at again."""
    ((_, body), *_) = samples("Pod")
    first, second, other = (Mutator(POD, seed) for seed in (5, 5, 6))
    mutants = [first.mutate(body) for _ in range(50)]
    assert mutants == [second.mutate(body) for _ in range(50)]
    assert mutants != [other.mutate(body) for _ in range(50)]


def test_a_third_of_the_mutants_is_refused_and_the_rest_is_met() -> None:
    """Mutants that nobody could decode would test the decoder alone."""
    ((kind, body), *_) = samples("Pod")
    mutator, refused = Mutator(POD, 3), 0
    for _ in range(300):
        try:
            decode(kind, mutator.mutate(body).raw)
        except DecodeError:
            refused += 1
    assert 30 < refused < 200


async def _broken_by(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, function: object) -> list[str]:
    """What the world says about a harmless mutant while ``owner.name`` is ``function``."""
    ((kind, body), *_) = samples("Service")
    async with World() as world:
        monkeypatch.setattr(owner, name, function)
        return await world.meet(kind, body, Mutant("none", world.encoded(kind, body)))


async def test_the_world_notices_a_state_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception while a change is applied."""

    def apply(self: ClusterState, change: object) -> list[object]:
        raise KeyError("seeded")

    faults = await _broken_by(monkeypatch, ClusterState, "apply", apply)
    assert any("applying a change of Service" in fault for fault in faults)


async def test_the_world_notices_a_decision_that_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception inside an attempt, which costs a Pod its attempt."""

    def broken(self: Cycle, *_: object, **__: object) -> None:
        raise TypeError("seeded")

    faults = await _broken_by(monkeypatch, Cycle, "__init__", broken)
    assert any("TypeError" in fault and "attempt for pod" in fault for fault in faults)


async def test_the_world_notices_a_wrong_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    """A derived number that does not follow its objects."""
    ((kind, body), *_) = samples("Node")
    async with World() as world:
        world.service.state.nodes.pod_counts[0] += 1
        faults = await world.meet(kind, body, Mutant("none", world.encoded(kind, body)))
    assert any("InternalError" in fault for fault in faults)
