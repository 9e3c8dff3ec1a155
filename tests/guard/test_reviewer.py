"""Reviews: only new allocations, never a refusal on stale news, dry runs hold nothing, modes, and who may answer."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Collection
from typing import Any

import pytest

from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.api.resource import ResourceClaim
from scheduler.dra import admissions
from scheduler.dra.admissions import RESERVATIONS_OF_CLAIM_MAX, Admissions
from scheduler.dra.slices import SliceStore
from scheduler.guard.activity import Activity
from scheduler.guard.reviewer import Answer, Mode, NotActiveError, Reviewer
from tests.dra.guard_world import DRIVER, allocation, book, claim, published, result, rule

TAINT = {"key": "broken", "effect": "NoExecute"}


class Fresh:
    """What another look at the API server would show."""

    def __init__(self, admissions: Admissions) -> None:
        self.book, self.newer = admissions, list[ResourceClaim]()
        self.store: SliceStore | None = None
        self.asked: list[str] = []
        self.gate: asyncio.Event | None = None
        self.there = True

    async def unknown(self, claim: ResourceClaim) -> bool:
        """There, unless the test says otherwise."""
        self.asked.append(f"unknown {claim.uid}")
        if self.gate is not None:
            await self.gate.wait()
        if self.there:
            self.book.take(claim)
        return self.there

    async def claims(self, uids: Collection[str]) -> None:
        """Enter what is newer."""
        self.asked += [f"claim {uid}" for uid in sorted(uids)]
        if self.gate is not None:
            await self.gate.wait()
        for item in self.newer:
            self.book.take(item)

    async def slices(self, drivers: Collection[str]) -> SliceStore | None:
        """The store that was prepared."""
        self.asked += [f"slices {driver}" for driver in sorted(drivers)]
        return self.store


class World:
    """A reviewer over one book with device a and b."""

    def __init__(self) -> None:
        self.book = book(published("a", "b"))
        self.fresh = Fresh(self.book)
        self.active = self.watched = True
        self.reviewer = Reviewer(self.book, self.fresh, self._check, lambda: 0.0)

    def _check(self) -> None:
        if not self.active:
            raise NotActiveError("standing by")

    async def ask(self, uid: str, *devices: str, mode: str = "enforce", dry_run: bool = False) -> Answer:
        """Claim ``uid`` (revision 5) is to be given these devices."""
        after = claim(uid, *(result(name) for name in devices), revision=5)
        if self.watched:
            self.book.take(claim(uid, revision=5))
        return await self.reviewer.review(mode, claim(uid, revision=5), after, dry_run)  # type: ignore[arg-type]


async def test_the_second_of_two_reviews_is_refused_before_the_first_is_stored() -> None:
    """An admitted allocation is held at once."""
    world = World()
    assert await world.ask("one", "a") == Answer(True, (), True)
    answer = await world.ask("two", "a")
    assert not answer.allowed
    assert answer.text == f"device {DRIVER}/p/a is held by claim ns/one (being written now)"


async def test_nothing_is_held_for_a_claim_that_nobody_knows() -> None:
    """A review of an invented claim, from whoever reaches the port, must not keep a device from others."""
    world = World()
    world.watched, world.fresh.there = False, False
    for mode in ("enforce", "warn"):
        with pytest.raises(NotActiveError, match="claim ns/ghost with UID ghost could not be found"):
            await world.ask("ghost", "a", mode=mode)
    assert world.book.reservations() == ()
    world.fresh.there = True  # one that is there and that the watch has not shown yet
    assert await world.ask("young", "a") == Answer(True, (), True)
    assert world.fresh.asked == ["unknown ghost", "unknown ghost", "unknown young"]


async def test_a_dry_run_holds_nothing_and_is_judged() -> None:
    """dryRun: the same answer, no trace."""
    world = World()
    assert await world.ask("one", "a", dry_run=True) == Answer(True, (), False)
    assert (await world.ask("two", "a")).allowed
    assert not (await world.ask("one", "a", dry_run=True)).allowed
    assert len(world.book.reservations()) == 1


async def test_warn_stores_what_it_warns_about_and_counts_it() -> None:
    """Mode warn allows a second holder, says so, and holds it, too."""
    world = World()
    await world.ask("one", "a")
    answer = await world.ask("two", "a", "b", mode="warn")
    assert (answer.allowed, answer.reserved, len(answer.refusals)) == (True, True, 1)
    assert "ns/two" in (await world.ask("three", "b")).text


async def test_releases_and_other_changes_are_allowed_without_a_look() -> None:
    """No new allocation: allowed, whatever the state of this replica."""
    world = World()
    world.active = False
    allocated, empty = claim("one", result("nix"), revision=5), claim("one", revision=5)
    for old, new in ((allocated, empty), (allocated, allocated), (empty, empty)):
        assert await world.reviewer.review("enforce", old, new, False) == Answer(True)
    assert world.book.reservations() == ()


async def test_a_replica_that_stands_by_answers_nothing() -> None:
    """Neither yes nor no: the API server has to ask another."""
    world = World()
    world.active = False
    with pytest.raises(NotActiveError):
        await world.ask("one", "a")


async def test_leadership_lost_during_the_second_look_gives_no_answer() -> None:
    """Judging again takes a moment; who lost the lease meanwhile must not reserve."""
    world = World()
    world.book.take(claim("old", result("a")))
    world.fresh.gate = asyncio.Event()
    asking = asyncio.create_task(world.ask("one", "a"))
    await asyncio.sleep(0)
    world.active = False
    world.fresh.gate.set()
    with pytest.raises(NotActiveError):
        await asking


@pytest.mark.parametrize("there", [True, False])
async def test_leadership_lost_while_an_unknown_claim_is_read_gives_no_answer(there: bool) -> None:
    """Nothing has to be read again afterwards: without this look at the lease the answer would be yes."""
    world = World()
    world.watched, world.fresh.there = False, there
    world.fresh.gate = asyncio.Event()
    asking = asyncio.create_task(world.ask("young", "a"))
    await asyncio.sleep(0)
    world.active = False
    world.fresh.gate.set()
    with pytest.raises(NotActiveError, match="standing by"):
        await asking
    assert world.fresh.asked == ["unknown young"]
    assert world.book.reservations() == ()


async def test_leadership_lost_while_a_crowded_claim_is_read_gives_no_answer() -> None:
    """Nor after this look at the API server."""
    world = World()
    for index in range(RESERVATIONS_OF_CLAIM_MAX):
        world.book.reserve(claim("one", revision=5), allocation(result(f"d{index}")), 0.0)
    world.fresh.newer = [claim("one", revision=5)]
    world.fresh.gate = asyncio.Event()
    asking = asyncio.create_task(world.ask("one", "a"))
    await asyncio.sleep(0)
    world.active = False
    world.fresh.gate.set()
    with pytest.raises(NotActiveError, match="standing by"):
        await asking


async def test_a_claim_of_another_name_is_not_the_one_with_that_uid() -> None:
    """No API server sends that; log, event and reservation must not carry what a stranger made up."""
    world = World()
    world.book.take(claim("one", revision=5))
    old, new = (claim("one", *given, revision=5, name="x" * 9999) for given in ((), (result("a"),)))
    with pytest.raises(NotActiveError, match="could not be found"):
        await world.reviewer.review("enforce", old, new, False)


async def test_the_spec_that_counts_is_the_books() -> None:
    """Whoever reaches the port cannot give a claim a toleration, or admin access, that it does not have."""
    world = World()
    world.book.take(claim("one", revision=5))
    lie = {"deviceClassName": "c", "adminAccess": True}
    old = claim("one", revision=5, request=lie)
    new = claim("one", result("a", adminAccess=True), revision=5, request=lie)
    answer = await world.reviewer.review("enforce", old, new, False)
    assert not answer.allowed
    assert "for which request r does not ask" in answer.text


async def test_a_claim_with_too_many_writes_under_way_is_read_again_before_it_is_refused() -> None:
    """A version that the watch has not shown yet may have settled them. A dry run needs no room."""
    world = World()
    for index in range(RESERVATIONS_OF_CLAIM_MAX):
        world.book.reserve(claim("one", revision=5), allocation(result(f"d{index}")), 0.0)
    answer = await world.ask("one", "a")
    assert (answer.allowed, answer.reserved, [refusal.reason for refusal in answer.refusals]) == (
        False,
        False,
        ["full"],
    )
    assert answer.text.startswith("16 other allocations of claim ns/one are being written now")
    assert await world.ask("one", "a", mode="warn") == Answer(True, answer.refusals, False)
    assert await world.ask("one", "a", dry_run=True) == Answer(True)
    assert world.fresh.asked == ["claim one"] * 2
    assert (await world.ask("two", "a")).reserved
    world.fresh.newer = [claim("one", revision=6)]
    newer = claim("one", revision=6), claim("one", result("b"), revision=6)
    assert (await world.reviewer.review("enforce", *newer, False)).reserved
    assert len(world.book.reservations()) == 2


async def test_what_cannot_be_held_is_not_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused, and not "no answer": with failurePolicy Ignore that would be stored, and its device given again."""
    world = World()
    monkeypatch.setattr(admissions, "HELD_MAX", 3)
    assert (await world.ask("one", "a")).reserved
    answer = await world.ask("two", "b")
    assert (answer.allowed, [refusal.reason for refusal in answer.refusals]) == (False, ["full"])
    assert answer.text.startswith("the guard holds all it can")
    assert [refusal.reason for refusal in (await world.ask("two", "a", mode="warn")).refusals] == ["held", "full"]
    world.book.take(claim("one", result("a"), revision=6))
    assert (await world.ask("two", "b")).reserved


def large(number: int) -> tuple[ResourceClaim, ResourceClaim]:
    """A claim of a megabyte before and after it is given a device, each time another text; like a forged review."""
    document: dict[str, Any] = {
        "metadata": {"name": "one", "namespace": "ns", "uid": "one", "resourceVersion": "5"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        "status": {},
    }
    document["metadata"]["labels"] = {f"{number}-{index}": "x" * 1000 for index in range(200)}
    old: ResourceClaim = convert(RESOURCE_CLAIM, json.loads(json.dumps(document)))
    config = [{"opaque": {"driver": "d", "parameters": {"a": "y" * 800_000}}}]
    devices = {"results": [result("a", consumedCapacity={"memory": str(number)})], "config": config}
    document["status"] = {"allocation": {"devices": devices}}
    return old, convert(RESOURCE_CLAIM, json.loads(json.dumps(document)))


@pytest.mark.parametrize("mode", ["enforce", "warn"])
async def test_reviews_of_any_size_and_number_leave_little_behind(mode: Mode) -> None:
    """Forty megabytes of reviews of one claim, then of many devices: the memory of a few names remains."""
    world = World()
    world.book.take(claim("one", revision=5))
    tracemalloc.start()
    try:
        for number in range(40):
            assert (await world.reviewer.review(mode, *large(number), False)).reserved
        assert len(world.book.reservations()) == 1
        for number in range(100):
            devices = [result(f"d{number}-{index}") for index in range(1000)]
            new = claim("one", *devices, revision=5)
            answer = await world.reviewer.review(mode, claim("one", revision=5), new, False)
            assert (answer.allowed, answer.reserved) == (mode == "warn", False)
            assert answer.text == "the allocation names 1000 devices, the API lets it name 32"
            await world.reviewer.review(mode, claim("one", revision=5), claim("one", devices[0], revision=5), False)
        del new, answer, devices
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(world.book.reservations()) == (RESERVATIONS_OF_CLAIM_MAX if mode == "warn" else 1)
    assert kept < 300_000
    world.book.verify()


async def test_what_the_api_server_has_no_place_for_costs_no_read() -> None:
    """A review of a thousand drivers would cause a thousand LISTs."""
    world = World()
    world.book.take(claim("one", revision=5))
    new = claim("one", *(result("a", driver=f"d{index}") for index in range(1000)), revision=5)
    assert not (await world.reviewer.review("enforce", claim("one", revision=5), new, False)).allowed
    assert world.fresh.asked == []


async def test_a_device_withdrawn_or_tainted_is_given_while_the_watch_has_not_shown_it() -> None:
    """A yes rests on the watch: nothing is read for it. The first change that is shown ends that."""
    world = World()
    store = world.fresh.store = SliceStore(world.book.features)
    store.apply(None, published("b", generation=2))
    assert (await world.ask("one", "a")).allowed
    assert world.fresh.asked == []
    world.book.apply_slice(published("a", "b"), published({"name": "b", "taints": [TAINT]}, generation=2))
    assert not (await world.ask("two", "a")).allowed
    world.book.remove("one")
    answer = await world.ask("two", "a")
    assert (answer.allowed, "is not in its pool (generation 2)" in answer.text) == (False, True)


async def test_half_a_generation_is_refused_whatever_the_watch_lags_behind() -> None:
    """The watch has shown one slice of two, and the read says no other; then it says both."""
    world = World()
    half = [published("a", "b", generation=1), published("a", generation=2, slices=2, index=1)]
    world.book.apply_slice(None, half[1])
    world.fresh.store = SliceStore(world.book.features)
    for slice_ in half:
        world.fresh.store.apply(None, slice_)
    answer = await world.ask("one", "a")
    assert (answer.allowed, "is incomplete: 1 of 2 slices of generation 2" in answer.text) == (False, True)
    world.fresh.store.apply(half[0], published("b", generation=2, slices=2))
    assert (await world.ask("one", "a")).allowed
    assert world.fresh.asked == [f"slices {DRIVER}"] * 2


async def test_a_taint_is_read_again_before_it_refuses_a_device() -> None:
    """One that was lifted, and one that is new, by slice or by rule, while the slice watch lags."""
    world = World()
    world.book.apply_slice(published("a", "b"), published({"name": "a", "taints": [TAINT]}, "b"))
    assert (await world.ask("one", "a")).text == (
        f"device {DRIVER}/p/a has the taint broken:NoExecute, which request r does not tolerate"
    )
    store = world.fresh.store = SliceStore(world.book.features)
    store.apply(None, published("a", {"name": "b", "taints": [TAINT]}))
    answer = await world.ask("one", "a", "b")
    assert answer.text == f"device {DRIVER}/p/b has the taint broken:NoExecute, which request r does not tolerate"
    store.apply_rule(None, rule("r", TAINT, device="a"))
    assert not (await world.ask("one", "a")).allowed
    store.apply_rule(rule("r", TAINT, device="a"), None)
    assert (await world.ask("one", "a")).reserved


async def test_a_holder_that_has_let_go_is_no_reason() -> None:
    """The watch is late: the holder is read again and the device is given."""
    world = World()
    world.book.take(claim("old", result("a"), revision=2))
    world.fresh.newer = [claim("old", revision=3)]
    assert (await world.ask("one", "a")).allowed
    assert world.fresh.asked == ["claim old"]


async def test_during_the_second_look_another_review_may_win() -> None:
    """Two reviews look again side by side; the device is given once."""
    world = World()
    world.book.take(claim("old", result("a"), revision=2))
    world.fresh.newer = [claim("old", revision=3)]
    world.fresh.gate = asyncio.Event()
    asking = [asyncio.create_task(world.ask(uid, "a")) for uid in ("one", "two")]
    await asyncio.sleep(0)
    world.fresh.gate.set()
    answers = await asyncio.gather(*asking)
    assert sorted(answer.allowed for answer in answers) == [False, True]


async def test_slices_are_read_again_before_a_device_is_called_unpublished() -> None:
    """A new generation that the watch has not shown yet; without an answer the known slices decide."""
    world = World()
    assert not (await world.ask("one", "new")).allowed
    world.fresh.store = SliceStore(world.book.features)
    world.fresh.store.apply(None, published("new", generation=2))
    assert (await world.ask("one", "new")).allowed
    assert world.fresh.asked == [f"slices {DRIVER}"] * 2


async def test_three_refusals_are_told_the_rest_is_counted() -> None:
    """The answer stays readable."""
    world = World()
    answer = await world.ask("one", "p", "q", "r", "s", "t")
    assert answer.text.endswith("; and 2 more")


class Election:
    """What the election says."""

    leading, handed_over, holder = False, False, "another"


def activity(election: Election, slept: list[float], relists: list[object]) -> Activity:
    """An activity whose waits are only noted; ``relists``: what each LIST raises, None for success."""

    async def sleep(pause_s: float) -> None:
        slept.append(pause_s)

    async def relist() -> None:
        outcome = relists.pop(0)
        if isinstance(outcome, Exception):
            raise outcome

    return Activity(election, lambda: True, relist, lifetime_s=40.0, sleep=sleep)


async def test_after_a_crash_a_successor_waits_as_long_as_a_write_may_live() -> None:
    """The lease ran out: 40 s, then a LIST, tried again when it fails; before that no answer."""
    election, slept = Election(), list[float]()
    from scheduler.errors import ClusterError

    found = activity(election, slept, [ClusterError("no"), None])
    assert found.why_not() == "standing by, another holds the lease"
    election.leading = True
    assert "predecessor" in found.why_not()
    await found.settle()
    assert slept == [40.0, 1.0]
    found.check()
    election.leading = False
    with pytest.raises(NotActiveError):
        found.check()


async def test_a_lease_that_was_given_back_needs_no_waiting() -> None:
    """Whoever gives it back has seen all it admitted; the claims are listed all the same."""
    election, slept, relists = Election(), list[float](), [None]
    election.leading = election.handed_over = True
    found = activity(election, slept, list(relists))
    await found.settle()
    assert slept == []
    found.check()
    found.stopping = True
    assert found.why_not() == "this replica is stopping"
