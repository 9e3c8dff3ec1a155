"""Reviews: only new allocations, never a refusal on stale news, dry runs hold nothing, modes, and who may answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from scheduler.api.resource import ResourceClaim
from scheduler.dra.admissions import Admissions
from scheduler.dra.slices import SliceStore
from scheduler.guard.activity import Activity
from scheduler.guard.reviewer import Answer, NotActiveError, Reviewer
from tests.dra.guard_world import DRIVER, book, claim, published, result


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
