"""The tools of the chaos suite: mutants that still fit the code, decks that deal every card, a judge of what fits."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from e2e.api import Object
from e2e.chaos.faults import OPENING_FAULTS, REQUEST_FAULTS, WATCH_FAULTS, WRITE_FAULTS, Deck, Fault, FaultPlan
from e2e.chaos.fits import fits, free_room
from e2e.chaos.load import BIG, GPU, PART
from e2e.chaos.mutants import MUTANTS, Mutant
from e2e.chaos.replicas import is_fault
from e2e.chaos.report import report
from e2e.chaos.run import Outcome
from e2e.objects import pod

REPO = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_mutant_changes_one_place(mutant: Mutant) -> None:
    """A line that was rewritten meanwhile would make the mutant harmless, and its survival a riddle."""
    assert (REPO / mutant.file).read_text().count(mutant.old) == 1


def test_a_deck_deals_every_card_before_it_repeats_one() -> None:
    """So that no kind of fault is missed by chance."""
    deck = Deck(range(5), random.Random(1))
    for _ in range(3):
        assert sorted(deck.draw() for _ in range(5)) == list(range(5))


def test_a_fault_meets_only_requests_it_is_meant_for() -> None:
    """Conflicts meet writes, 410 LISTs and watches, and a watch is opened or refused, not delayed."""
    plan = FaultPlan(random.Random(2))
    plan.storm(REQUEST_FAULTS, 1.0)
    reads = {plan.draw("GET", watch=False, listing=False) for _ in range(50)}
    assert not reads & {*WRITE_FAULTS, Fault.GONE}
    for fault in REQUEST_FAULTS:
        plan.storm([fault], 1.0)
        assert (plan.draw("GET", watch=True, listing=False) is fault) == (fault in OPENING_FAULTS)
    plan.calm()
    assert plan.draw("PATCH", watch=False, listing=False) is None
    assert set(WATCH_FAULTS) | set(REQUEST_FAULTS) == set(Fault)


def claim(name: str, driver: str = "", node: str = "", count: int = 1, **meta: str) -> Object:
    """A claim that holds devices of one node, or nothing."""
    results = [{"driver": driver, "pool": node, "device": str(i)} for i in range(count)] if driver else []
    status = {"allocation": {"devices": {"results": results}}} if results else {}
    return {"metadata": {"name": name, **meta}, "status": status}


def waiting(kind: str, *claims: str) -> Object:
    """A Pod whose generated claims have these names."""
    found = pod("p", templates={name: name for name in claims}, labels={"kind": kind})
    found["status"] = {"resourceClaimStatuses": [{"name": name, "resourceClaimName": name} for name in claims]}
    return found


def test_what_fits_is_counted_by_hand() -> None:
    """Free where nobody holds; a pair needs both on one node; what a Pod holds already binds it to its node."""
    full = [claim(f"c{n}", GPU, f"node-{n}", 4) for n in range(3)]
    free = free_room(full)
    assert free["node-0"] == Counter({BIG: 4, PART: 2, GPU: 0})
    own = {"gpu": claim("gpu"), "part": claim("part")}
    assert fits(waiting("gpu", "gpu"), own, free)
    assert fits(waiting("pair", "gpu", "part"), own, free)
    taken = free_room([*full, claim("x", GPU, "node-3", 4)])
    assert not fits(waiting("gpu", "gpu"), own, taken)
    elsewhere = free_room([*full, claim("x", PART, "node-3", 2)])
    assert not fits(waiting("pair", "gpu", "part"), own, elsewhere)
    held = {"gpu": claim("gpu"), "part": claim("part", PART, "node-0")}
    assert not fits(waiting("pair", "gpu", "part"), held, free)


def test_a_claim_that_is_missing_or_going_fits_nowhere() -> None:
    """The Pod waits in right."""
    named = pod("p", claims={"gpu": "shared"})
    free = free_room([])
    assert not fits(named, {}, free)
    assert not fits(named, {"shared": claim("shared", deletionTimestamp="now")}, free)
    assert fits(named, {"shared": claim("shared")}, free)
    assert fits(named, {"shared": claim("shared", GPU, "node-0", 4)}, free_room([]))


def test_the_report_names_seeds_sums_and_violations() -> None:
    """What docs/reliability.md shows comes from the runs, unfavourable ones included."""
    fine = Outcome(1, [], 10, 2.0, 0, {"bound by dra-scheduler": 3}, {"Pods created": 4}, {Fault.GONE.value: 5})
    bad = Outcome(3, ["a Pod vanished: pod a"], 5, 61.0, 1)
    text = report([fine, msgspec.structs.replace(fine, seed=2), bad])
    assert text.startswith("3 runs, seeds 1 to 3: 1 with violations (3). 25 facts judged; 6 Bindings by dra-scheduler")
    assert f"| {Fault.GONE.value} | 10 |" in text
    assert f"| {Fault.DELAYED.value} | 0 |" in text, "a fault that never came up is seen, too"
    assert "| Pods created | 8 |" in text


def test_the_judge_of_logs_knows_errors_in_the_form_they_are_written() -> None:
    """Errors of the text log and tracebacks; not the loss of a lease, nor what another scheduler did."""
    line = "2026-12-01T11:43:27.678082Z [error    ] {} component=dra-scheduler"
    assert is_fault(line.format("internal error"))
    assert is_fault("Traceback (most recent call last):")
    assert not is_fault(line.format("Leaderelection lost"))
    assert not is_fault(line.format("device given twice"))
    assert not is_fault(line.replace("error    ", "warning  ").format("trouble"))
