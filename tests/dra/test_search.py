"""The search: undo, agreement with brute force, and properties of its answers."""

from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from scheduler.cli.conformity import SHARE_ID, AllocateCase, features_of, run_allocate
from scheduler.dra import search as search_module
from scheduler.dra.allocator import Allocated, Allocation, Fatal, Outcome, allocate
from scheduler.dra.classes import ClassStore
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger, Usage
from scheduler.dra.pools import NodeView
from scheduler.dra.reporter import SILENT, Collector
from scheduler.dra.requests import Plan, prepare
from scheduler.dra.search import Search, Status
from scheduler.dra.selectors import SelectorCache
from scheduler.dra.slices import SliceStore
from scheduler.dra.suitability import known
from scheduler.dra.taking import FatalError, Taking

from . import brute_force, hard_cases
from .generate import Generator, Json

SEEDS = st.integers(0, 10**9)


def setting(case: Json) -> tuple[Plan, NodeView, Usage, Features]:
    """The parts of a case."""
    decoded = msgspec.json.decode(json.dumps(case).encode(), type=AllocateCase)
    features = features_of(decoded.features)
    slices, classes, ledger = SliceStore(features), ClassStore(), Ledger(features.consumable_capacity)
    for rule in decoded.taintRules or ():
        slices.apply_rule(None, rule)
    for item in decoded.slices or ():
        slices.apply(None, item)
    for item in decoded.classes or ():
        classes.apply(None, item)
    for item in decoded.allocated or ():
        ledger.set_claim(item)
    assert decoded.node is not None
    view = slices.view(decoded.node)
    return prepare(decoded.claims or (), classes, features, SelectorCache()), view, ledger.usage(view), features


def answer(case: Json) -> Json:
    """Our answer in the conformity format, without the time it took."""
    (line,) = run_allocate([json.dumps(case)])
    found: Json = json.loads(line)
    del found["elapsed_ms"]
    return found


def outcome_of(case: Json) -> Outcome:
    """The outcome of a case."""
    plan, view, usage, features = setting(case)
    return allocate(plan, view, usage, features, lambda: SHARE_ID)[0]


@settings(max_examples=150, deadline=None)
@given(SEEDS)
def test_any_refusal_leaves_the_state_as_it_was(seed: int) -> None:
    """Devices are taken and given back in random order: each undo restores counters, shares, constraints and marks."""
    plan, view, usage, features = setting(Generator(seed, alpha=seed % 2 == 0).case())
    assume(not view.error and len(view.devices) > 0)
    assume(not any(alternative.problem for alternative in plan.alternatives))
    randomness = random.Random(seed)
    taking = Taking(plan, view, usage, features, SILENT, lambda _: ())
    stack: list[tuple[int, Any]] = []
    for _ in range(60):
        if stack and randomness.random() < 0.4:
            depth = randomness.randrange(len(stack))
            mark, before = stack[depth]
            del stack[depth:]
            taking.trail.undo(mark)
            assert taking.snapshot() == before
            continue
        alternative = randomness.choice(plan.alternatives)
        position = randomness.randrange(len(view.devices))
        answers = known(view, alternative)
        taking.suitability.ask(alternative, answers, position)
        if not answers.yes >> position & 1 or not taking.free(alternative) >> position & 1:
            continue
        mark, before = taking.trail.mark(), taking.snapshot()
        try:
            took = taking.take(alternative, position)
        except FatalError:
            return
        if took:
            stack.append((mark, before))
        else:
            assert taking.snapshot() == before


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(SEEDS, st.sampled_from([0, 200]))
def test_fits_exactly_when_brute_force_finds_a_combination(seed: int, long_after: int) -> None:
    """An answer without error agrees with looking at every combination, with shortcuts from the start and without."""
    case = Generator(seed).case()
    plan, view, usage, features = setting(case)
    assume(not view.error and not plan.problem and plan.claims)
    previous, search_module._LONG = search_module._LONG, long_after
    try:
        outcome = outcome_of(case)
    finally:
        search_module._LONG = previous
    assume(not isinstance(outcome, Fatal))
    try:
        expected = brute_force.fits(view, plan, usage, features)
    except brute_force.TooManyError:
        assume(False)
    assert isinstance(outcome, Allocated) == expected


@settings(max_examples=250, deadline=None)
@given(SEEDS)
def test_every_solution_is_valid(seed: int) -> None:
    """What is allocated breaks no rule: nobody twice, capacities, counters, taints, constraints."""
    case = Generator(seed).case()
    plan, view, usage, features = setting(case)
    outcome = outcome_of(case)
    if isinstance(outcome, Allocated):
        taken = [
            (pick.alternative, view.positions[view.devices[pick.position].key]) for p in outcome.picks for pick in p
        ]
        again = {alternative.index: alternative for alternative in plan.alternatives}
        assert brute_force.valid([(again[a.index], p) for a, p in taken], view, plan, usage, features)


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_freeing_a_device_never_turns_a_fit_into_a_misfit(seed: int) -> None:
    """Fewer allocated claims: what fitted still fits, or a device that was hidden by its use is in error."""
    case = Generator(seed).case()
    assume(case["allocated"])
    if isinstance(outcome_of(case), Allocated):
        outcome = outcome_of(case | {"allocated": case["allocated"][1:]})
        assert isinstance(outcome, Allocated | Fatal)


@settings(max_examples=60, deadline=None)
@given(SEEDS)
def test_same_input_same_bytes(seed: int) -> None:
    """Nothing in an answer depends on anything but the case, nor on how the work is sliced."""
    case = Generator(seed, alpha=True).case()
    assert json.dumps(answer(case)) == json.dumps(answer(case))
    plan, view, usage, features = setting(case)
    sliced = Allocation(plan, view, usage, features)
    while sliced.run(1) is None:
        pass
    assert repr(type(sliced.outcome)) == repr(type(outcome_of(case)))


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_explaining_gives_the_same_verdict_and_names_every_refused_device(seed: int) -> None:
    """With a reporter there are no shortcuts: same outcome; a lone simple request has one reason per refused device."""
    case = Generator(seed).case()
    plan, view, usage, features = setting(case)
    plain = allocate(plan, view, usage, features, lambda: SHARE_ID)[0]
    collector = Collector()
    told = Allocation(plan, view, usage, features, collector)
    assume(told.run(20_000) is not None)
    assert type(told.outcome) is type(plain)
    if plan.simple is not None and not isinstance(plain, Allocated | Fatal):
        named = {rejection.device for rejection in collector.rejections.values() if rejection.device is not None}
        kept = [info.key for info in view.devices if info.key not in named]
        assert len(kept) < plan.simple.count


@pytest.mark.parametrize("build", list(hard_cases.CASES), ids=[build.__name__ for build in hard_cases.CASES])
def test_hard_cases_are_answered_in_few_steps(build: Any) -> None:
    """Where a plain search explodes the answer comes within 20,000 steps, and is the right one."""
    plan, view, usage, features = setting(build())
    allocation = Allocation(plan, view, usage, features)
    outcome = allocation.run(20_000)
    assert outcome is not None
    assert isinstance(outcome, Allocated) is hard_cases.CASES[build]


def test_a_search_can_be_stopped_and_says_so() -> None:
    """stop() ends a running search as timed out."""
    plan, view, usage, features = setting(hard_cases.partition_packing())
    allocation = Allocation(plan, view, usage, features)
    assert allocation.run(5) is None
    assert type(allocation.stop()).__name__ == "Timeout"


def test_a_search_goes_on_where_it_was() -> None:
    """One step at a time leads to the same end as all at once."""
    plan, view, usage, features = setting(hard_cases.partition_fits())
    ends = []
    for steps in (1, 7, 10**9):
        taking = Taking(plan, view, usage, features, SILENT, lambda _: ())
        search = Search(taking, [a.count for a in plan.alternatives], [()] * len(plan.alternatives))
        while search.run(steps) is Status.RUNNING:
            pass
        ends.append([[pick.position for pick in picks] for picks in taking.picks])
    assert ends[0] == ends[1] == ends[2]


def test_b24_costly_selectors_count_as_steps() -> None:
    """B24: a search yields between devices when selectors are expensive, and ends with the same answer."""
    devices = [{"name": f"d{i}", "attributes": {"n": {"int": i}}} for i in range(30)]
    expression = f'lists.range(500).all(x, x + device.attributes["{hard_cases.DRIVER}"].n >= 0)'
    for requests in ([hard_cases.exactly("r", 20, expression)], [{"name": "r", "exactly": _all(expression)}]):
        case = hard_cases.case("costly", devices, [hard_cases.claim("a", requests)])
        plan, view, usage, features = setting(case)
        allocation = Allocation(plan, view, usage, features)
        turns = 1
        while allocation.run(100) is None:
            turns += 1
        assert isinstance(allocation.outcome, Allocated)
        assert turns > 10
        assert allocation.steps > 1000
        again = Allocation(plan, view, usage, features)
        assert isinstance(again.run(100), Allocated)


def _all(expression: str) -> Json:
    return hard_cases.asked(0, expression) | {"allocationMode": "All"}


def _searched(allocation: Allocation) -> int:
    """Steps of the search; that devices are asked whether they suit is left out."""
    return 0 if allocation._search is None else allocation._search.steps


@pytest.mark.parametrize("build", list(hard_cases.CASES), ids=[build.__name__ for build in hard_cases.CASES])
def test_equal_nodes_are_searched_once(build: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node with other names and the same devices in the same use gets its answer from the first one's search."""
    monkeypatch.setattr(search_module, "_LONG", 3)
    plan, view, usage, features = setting(build())
    first = Allocation(plan, view, usage, features)
    first.run(100_000)
    renamed = json.loads(json.dumps(build()).replace("node-1", "node-2"))
    _, other_view, other_usage, _ = setting(renamed)
    second = Allocation(plan, other_view, other_usage, features)
    second.run(100_000)
    assert type(second.outcome) is type(first.outcome)
    if _searched(first) > 100:
        assert _searched(second) < 30
    if isinstance(first.outcome, Allocated) and isinstance(second.outcome, Allocated):
        fresh_plan, _, _, _ = setting(renamed)
        fresh = Allocation(fresh_plan, other_view, other_usage, features)
        fresh.run(100_000)
        assert isinstance(fresh.outcome, Allocated)
        places = [[pick.position for pick in picks] for picks in second.outcome.picks]
        assert places == [[pick.position for pick in picks] for picks in fresh.outcome.picks]


@settings(max_examples=100, deadline=None)
@given(SEEDS)
def test_an_answer_taken_from_an_equal_node_is_the_nodes_own(seed: int) -> None:
    """With all searches long: the answer for a node that was searched before under the same plan does not change."""
    case = Generator(seed, alpha=seed % 3 == 0).case()
    plan, view, usage, features = setting(case)
    previous, search_module._LONG = search_module._LONG, 0
    try:
        first, second = (Allocation(plan, view, usage, features) for _ in range(2))
        first.run(50_000)
        second.run(50_000)
    finally:
        search_module._LONG = previous
    assert first.outcome == second.outcome


def test_asking_about_devices_counts_as_work_without_a_search() -> None:
    """A claim with one request on a node with many devices is suspended and resumed like a search."""
    devices = [{"name": f"d{i}", "attributes": {"n": {"int": i}}} for i in range(60)]
    expression = f'device.attributes["{hard_cases.DRIVER}"].n >= 59'
    case = hard_cases.case("many", devices, [hard_cases.claim("a", [hard_cases.exactly("r", 1, expression)])])
    plan, view, usage, features = setting(case)
    allocation = Allocation(plan, view, usage, features)
    turns = 1
    while allocation.run(20) is None:
        turns += 1
    assert allocation._search is None
    assert isinstance(allocation.outcome, Allocated)
    assert turns > 5
    assert allocation.steps >= 60
    again = Allocation(plan, view, usage, features)
    again.run(20)
    assert (isinstance(again.outcome, Allocated), again.steps) == (True, 0), "what was asked is remembered"
