"""The checker finds each broken promise, and finds nothing where all are kept: a judge that passes all is none."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e import history_check as check
from e2e.history import ClaimFact, Fact, PodFact, load, save
from e2e.history_check import Checker, HistoryOrderError, judge
from tests.history.histories import OURS, THEIRS, Story, good_history, gpu, pool, share


def bound(story: Story, name: str, *taken: object, by: str = OURS) -> Story:
    """A Pod with one claim, written as it should be."""
    story.pod(name, name).claim(name).claim(name, *taken, reserved=(name,), by=by)  # type: ignore[arg-type]  # Taken
    return story.change(name, node="n")


BROKEN: dict[str, tuple[str, Callable[[Story], object]]] = {
    "two of ours on one device": (
        check.HELD_TWICE,
        lambda s: s.claim("a", gpu("gpu-0")).claim("b", gpu("gpu-0")),
    ),
    "one claim with one device twice": (check.HELD_TWICE, lambda s: s.claim("a", gpu("gpu-0"), gpu("gpu-0"))),
    "given again before the first was given back": (
        check.HELD_TWICE,
        lambda s: s.claim("a", gpu("gpu-0")).claim("b", gpu("gpu-1")).claim("b").claim("b", gpu("gpu-0")).claim("a"),
    ),
    "a whole device beside a share of it": (
        check.HELD_TWICE,
        lambda s: s.claim("a", share("big", "s", 1)).claim("b", gpu("big")),
    ),
    "a share beside the whole device": (
        check.HELD_TWICE,
        lambda s: s.claim("a", gpu("big")).claim("b", share("big", "s", 1)),
    ),
    "shares beyond the capacity": (
        check.CAPACITY,
        lambda s: s.claim("a", share("big", "s", 6)).claim("b", share("big", "t", 5)),
    ),
    "one share beyond the capacity": (check.CAPACITY, lambda s: s.claim("a", share("big", "s", 11))),
    "two shares of one claim beyond it": (
        check.CAPACITY,
        lambda s: s.claim("a", share("big", "s", 6), share("big", "t", 5)),
    ),
    "partitions beyond the counters": (
        check.COUNTERS,
        lambda s: s.claim("a", gpu("part-0"), gpu("part-1")).claim("b", gpu("part-2")),
    ),
    "bound second on a foreign device": (
        check.LATER,
        lambda s: bound(s.claim("f", gpu("gpu-0"), by=THEIRS), "a", gpu("gpu-0")),
    ),
    "bound second on foreign capacity": (
        check.LATER,
        lambda s: bound(s.claim("f", share("big", "s", 6), by=THEIRS), "a", share("big", "t", 5)),
    ),
    "bound second on foreign counters": (
        check.LATER,
        lambda s: bound(s.claim("f", gpu("part-0"), gpu("part-1"), by=THEIRS), "a", gpu("part-2")),
    ),
    "bound before the reservation": (
        check.UNRESERVED,
        lambda s: (
            s.pod("a", "a").claim("a", gpu("gpu-0")).change("a", node="n").claim("a", gpu("gpu-0"), reserved=("a",))
        ),
    ),
    "bound before the allocation": (
        check.UNRESERVED,
        lambda s: s.pod("a", "a").claim("a").change("a", node="n").claim("a", gpu("gpu-0"), reserved=("a",)),
    ),
    "bound with one of two claims": (
        check.UNRESERVED,
        lambda s: s.pod("a", "a", "b").claim("a", gpu("gpu-0"), reserved=("a",)).claim("b").change("a", node="n"),
    ),
    "bound with a claim that is gone": (
        check.UNRESERVED,
        lambda s: s.pod("a", "a").claim("a", gpu("gpu-0"), reserved=("a",)).no_claim("a").change("a", node="n"),
    ),
    "bound with a claim that was made again": (
        check.UNRESERVED,
        lambda s: (
            s.pod("a", "a").claim("a", gpu("gpu-0"), reserved=("a",)).no_claim("a").claim("a").change("a", node="n")
        ),
    ),
    "bound before its claim was made": (check.UNRESERVED, lambda s: s.pod("a", unmade=1).change("a", node="n")),
    "bound with a reservation of its predecessor": (
        check.UNRESERVED,
        lambda s: s.pod("a", "c").claim("c", gpu("gpu-0"), reserved=("old",)).change("a", node="n"),
    ),
    "unreserved under a bound Pod": (
        check.TAKEN_AWAY,
        lambda s: bound(s, "a", gpu("gpu-0")).claim("a", gpu("gpu-0")),
    ),
    "deallocated under a bound Pod": (check.TAKEN_AWAY, lambda s: bound(s, "a", gpu("gpu-0")).claim("a")),
    "deleted under a bound Pod": (check.TAKEN_AWAY, lambda s: bound(s, "a", gpu("gpu-0")).no_claim("a")),
    "another device under a bound Pod": (
        check.TAKEN_AWAY,
        lambda s: bound(s, "a", gpu("gpu-0")).claim("a", gpu("gpu-1"), reserved=("a",)),
    ),
    "a Pod forgotten": (check.SILENT, lambda s: s.pod("a")),
    "a Pod deleted by nobody": (check.VANISHED, lambda s: s.pod("a", told="waits").no_pod("a")),
    "the second Pod of a name deleted by nobody": (
        check.VANISHED,
        lambda s: s.pod("a", told="waits").delete_pod("a").pod("a", uid="uid-2", told="waits").no_pod("a"),
    ),
    "a reservation for a Pod that is gone": (
        check.RESERVATION,
        lambda s: s.pod("b", told="waits").claim("a", gpu("gpu-0"), reserved=("a",)),
    ),
    "a reservation for a Pod that waits": (
        check.RESERVATION,
        lambda s: s.pod("a", "a", told="waits").claim("a", gpu("gpu-0"), reserved=("a",)),
    ),
    "a reservation for a Pod that has ended": (
        check.RESERVATION,
        lambda s: bound(s, "a", gpu("gpu-0")).change("a", finished=True),
    ),
    "our reservation in a foreign allocation, the Pod is gone": (
        check.RESERVATION,
        lambda s: s.pod("a", "f", told="waits").claim("f", gpu("gpu-0"), reserved=("a",), by=THEIRS).delete_pod("a"),
    ),
    "our reservation in a foreign allocation, the Pod waits": (
        check.RESERVATION,
        lambda s: s.pod("a", "f", told="waits").claim("f", gpu("gpu-0"), reserved=("a",), by=THEIRS),
    ),
    "our reservation in a foreign allocation, the Pod has ended": (
        check.RESERVATION,
        lambda s: bound(s, "a", gpu("gpu-0"), by=THEIRS).change("a", finished=True),
    ),
    "an allocation for nobody": (check.ALLOCATION, lambda s: s.claim("a", gpu("gpu-0"))),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_history_is_found(name: str) -> None:
    """The rule that was broken is among those reported, at a revision of the history or at its end."""
    rule, tell = BROKEN[name]
    story = Story()
    tell(story)
    found = judge(story.facts, deleted=story.deleted).violations
    assert rule in {violation.rule for violation in found}, found
    assert all(0 <= violation.revision < story.next for violation in found)


@pytest.mark.parametrize("name", BROKEN)
def test_each_broken_history_is_found_within_a_long_good_one(name: str) -> None:
    """What is right before does not hide it; devices of another node, so that nothing collides by chance."""
    rule, tell = BROKEN[name]
    story = good_history(7, 40)
    for pod in [name for name, pod in story.pods.items() if pod.node and not pod.gone]:
        story.change(pod, finished=True).claim(pod).delete_pod(pod).no_claim(pod)
    assert judge(story.facts, deleted=story.deleted).violations == []
    tell(story)
    assert rule in {violation.rule for violation in judge(story.facts, deleted=story.deleted).violations}


GOOD: dict[str, Callable[[Story], object]] = {
    "foreign second on ours": lambda s: bound(s, "a", gpu("gpu-0")).claim("f", gpu("gpu-0"), by=THEIRS),
    "ours second, given back": lambda s: (
        s.claim("f", gpu("gpu-0"), by=THEIRS)
        .pod("a", "a", told="lost")
        .claim("a", gpu("gpu-0"), reserved=("a",))
        .claim("a")
    ),
    "others among themselves": lambda s: s.claim("f", gpu("gpu-0"), by=THEIRS).claim("g", gpu("gpu-0"), by=THEIRS),
    "given again after it was given back": lambda s: (
        bound(s, "a", gpu("gpu-0"))
        .change("a", finished=True)
        .claim("a")
        .pod("b", "b")
        .claim("b", gpu("gpu-0"), reserved=("b",))
        .change("b", node="n")
    ),
    "shares up to the capacity": lambda s: bound(bound(s, "a", share("big", "s", 5)), "b", share("big", "t", 5)),
    "counters up to the total": lambda s: bound(bound(s, "a", gpu("part-0")), "b", gpu("part-2")),
    "a shared claim": lambda s: (
        bound(s, "a", gpu("gpu-0")).pod("b", "a").claim("a", gpu("gpu-0"), reserved=("a", "b")).change("b", node="n")
    ),
    "a Pod the suite deleted": lambda s: s.pod("gone", told="waits").delete_pod("gone"),
    "two Pods of one name, both deleted by the suite": lambda s: (
        s.pod("a", told="waits").delete_pod("a").pod("a", uid="uid-2", told="waits").delete_pod("a")
    ),
    "another scheduler's silent Pod": lambda s: s.pod("a", by="nobody"),
    "a Pod forced away, its claim after it": lambda s: (
        bound(s, "gone", gpu("gpu-0")).delete_pod("gone").no_claim("gone")
    ),
    "foreign reservations in foreign allocations": lambda s: (
        s.pod("f", "f", by="default-scheduler")
        .claim("f", gpu("gpu-0"), reserved=("f",), by=THEIRS)
        .no_pod("f")
        .pod("g", "g", by="default-scheduler")
        .claim("g", gpu("gpu-1"), reserved=("g", "never seen"), by=THEIRS)
    ),
    "a Pod of ours runs with a foreign allocation": lambda s: (
        s.pod("f", "f", by="default-scheduler")
        .claim("f", gpu("gpu-0"), reserved=("f",), by=THEIRS)
        .pod("a", "f")
        .claim("f", gpu("gpu-0"), reserved=("f", "a"), by=THEIRS)
        .change("a", node="n")
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_is_allowed_is_not_reported(name: str) -> None:
    """Races that somebody else lost, hand-overs and shared claims are no violations."""
    story = Story()
    GOOD[name](story)
    assert judge(story.facts, deleted=story.deleted).violations == []


def test_what_was_there_before_is_taken_as_it_is() -> None:
    """A Pod bound before the recording is not judged by claims that have come to their end since; a later one is."""
    story = Story()
    story.pod("old", "old", node="n", finished=True, listed=True)
    assert judge(story.facts).violations == []
    story.facts.append(msgspec.structs.replace(story.claim("f", gpu("gpu-0"), by=THEIRS).claims["f"], listed=True))
    bound(story, "a", gpu("gpu-0"))
    assert [violation.rule for violation in judge(story.facts).violations] == [check.LATER]


def test_admin_access_holds_nothing() -> None:
    """B4 and the monitoring case: admin results collide with nobody."""
    admin = msgspec.structs.replace(gpu("gpu-0"), admin=True)
    story = bound(bound(Story(), "a", gpu("gpu-0")), "b", admin, admin)
    assert judge(story.facts).violations == []


def test_amounts_are_those_of_the_newest_generation() -> None:
    """A pool published again counts once, with its new totals."""
    story = Story()
    story.facts += [*pool(2, generation=2)]
    bound(bound(story, "a", share("big", "s", 5)), "b", share("big", "t", 5))
    assert judge(story.facts).violations == []


def test_pairs_are_counted_by_who_came_second() -> None:
    """A run without a single pair proves nothing about races: the numbers must be there."""
    story = bound(Story(), "a", gpu("gpu-0")).claim("f", gpu("gpu-0"), by=THEIRS)
    stats = judge(story.facts).stats
    assert stats["pair: dra-scheduler then kube-scheduler"] == 1
    assert stats["bound by dra-scheduler"] == 1
    assert stats["allocated by kube-scheduler"] == 1


def test_facts_out_of_order_are_refused() -> None:
    """A history whose revisions go back cannot be judged."""
    checker = Checker()
    checker.see(PodFact(5, "u", "default", "a", OURS))
    with pytest.raises(HistoryOrderError):
        checker.see(PodFact(4, "u", "default", "a", OURS))


def test_a_history_survives_its_file(tmp_path: Path) -> None:
    """Saved and loaded, it is the same."""
    facts = good_history(3, 30).facts
    save(facts, tmp_path / "history.jsonl")
    assert load(tmp_path / "history.jsonl") == facts


@given(st.integers(0, 2**32), st.integers(0, 60))
def test_a_good_history_of_any_shape_passes(seed: int, steps: int) -> None:
    """Whatever order of arrivals, ends and foreign second allocations."""
    assert judge(good_history(seed, steps).facts).violations == []


def _corrupt(facts: list[Fact], rng: random.Random) -> tuple[list[Fact], str] | None:
    """One promise of a good history broken at a random place; None where there is no such place."""
    bindings = [i for i, f in enumerate(facts) if isinstance(f, PodFact) and f.node and not f.gone and not f.finished]
    if not bindings:
        return None
    place = rng.choice(bindings)
    pod = facts[place]
    assert isinstance(pod, PodFact)
    own = next(i for i in range(place, -1, -1) if isinstance(facts[i], ClaimFact) and facts[i].uid == pod.uid)
    claim = facts[own]
    assert isinstance(claim, ClaimFact)
    broken = list(facts)
    kind = rng.choice(["early", "twice", "unreserved", "taken"])
    if kind == "early":  # the Binding and the reservation change places
        broken[own] = msgspec.structs.replace(pod, revision=claim.revision)
        broken[place] = msgspec.structs.replace(claim, revision=pod.revision)
        return broken, check.UNRESERVED
    if kind == "unreserved":
        broken[own] = msgspec.structs.replace(claim, reserved=())
        return broken, check.UNRESERVED
    if kind == "taken":  # deallocated right behind the Binding
        broken.insert(place + 1, msgspec.structs.replace(claim, revision=pod.revision, allocated=False, results=()))
        return broken, check.TAKEN_AWAY
    if claim.results[0].share_id:
        return None
    twin = msgspec.structs.replace(claim, uid="twin", name="twin", revision=pod.revision, reserved=())
    broken.insert(place + 1, twin)
    return broken, check.HELD_TWICE


@given(st.integers(0, 2**32), st.integers(1, 50), st.randoms(use_true_random=False))
def test_one_broken_promise_anywhere_is_found(seed: int, steps: int, rng: random.Random) -> None:
    """A good history of any shape, spoilt at one random place: the checker names what was broken."""
    corrupted = _corrupt(good_history(seed, steps).facts, rng)
    if corrupted is not None:
        facts, rule = corrupted
        assert rule in {violation.rule for violation in judge(facts).violations}
