"""The guard stands in the world of the mutants: it sees them, judges beside them, and what breaks there is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from e2e.fuzz.guard import ASKED, ASKING
from e2e.fuzz.mutate import Mutant
from e2e.fuzz.objects import samples
from e2e.fuzz.samples import DRIVER, Object
from e2e.fuzz.world import World
from scheduler.dra.admissions import Admissions
from scheduler.dra.devices import DeviceKey
from scheduler.dra.judge import Judge, Refusal
from scheduler.guard.reads import Reads
from scheduler.guard.reviewer import Reviewer

KINDS = ("ResourceClaim", "ResourceSlice", "DeviceTaintRule")


def broken(*_: object, **__: object) -> None:
    """Stands for what must not fail."""
    raise KeyError("seeded")


async def met(kind_name: str, change: Callable[[Object], object] = lambda body: None) -> tuple[World, list[str]]:
    """What the world says about the first sample of a kind with a change made to it."""
    ((kind, body), *_) = samples(kind_name)
    async with World() as world:
        document = json.loads(world.encoded(kind, body))
        change(document)
        return world, await world.meet(kind, body, Mutant("by hand", json.dumps(document).encode()))


async def test_nothing_forbids_what_is_asked_for_while_nothing_is_spoilt() -> None:
    """So every rule of the judge is gone through, to its end."""
    async with World() as world:
        asking = world.guard.book.claims[ASKING]
        assert [world.guard.book.judge(asking, allocation) for allocation in ASKED] == [(), ()]


async def test_the_guard_sees_what_the_watches_show() -> None:
    """A spoilt slice takes a device away, a spoilt rule taints one, a spoilt claim holds it: each is refused."""

    def empty(slice_: Object) -> None:
        slice_["spec"]["devices"] = []

    def taint(rule: Object) -> None:
        rule["spec"]["taint"]["effect"] = "NoExecute"

    def whole(claim: Object) -> None:
        (held,) = claim["status"]["allocation"]["devices"]["results"]
        del held["shareID"], held["consumedCapacity"]

    for kind_name, change, words in (
        ("ResourceSlice", empty, "is not in its pool"),
        ("DeviceTaintRule", taint, "has the taint"),
        ("ResourceClaim", whole, "is held by claim default/held"),
    ):
        world, faults = await met(kind_name, change)
        assert not faults
        assert any(words in text for text in world.guard.texts), (kind_name, world.guard.texts)


@pytest.mark.parametrize("kind_name", KINDS)
async def test_the_book_is_as_before_once_a_mutant_is_gone(kind_name: str) -> None:
    """Even after one with another UID and the highest revision: the next mutant meets a guard that sees."""

    def other(document: Object) -> None:
        document["metadata"] |= {"uid": "uid-mutant", "resourceVersion": "9223372036854775807"}

    ((kind, body), *_) = samples(kind_name)
    async with World() as world:
        before = world.guard.book.ledger.state()
        document = json.loads(world.encoded(kind, body))
        for change in (other, lambda document: document["metadata"].update(resourceVersion="9" * 19)):
            change(document)
            assert not await world.meet(kind, body, Mutant("by hand", json.dumps(document).encode()))
            stores = world.service.reflectors
            assert {claim.key: claim for claim in world.guard.book.claims.values()} == stores["ResourceClaim"].store
            assert world.guard.book.ledger.state() == before
            assert not world.guard.book.reservations()
            asking = world.guard.book.claims[ASKING]
            assert [world.guard.book.judge(asking, allocation) for allocation in ASKED] == [(), ()]


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        (Admissions, "take", "the guard's watch of ResourceClaim would end"),
        (Judge, "refusals", "the guard's review of default/held broke"),
        (Admissions, "reserve", "the guard's review of default/held broke"),
        (Reads, "settle", "the guard's sweep would end"),
    ],
)
async def test_the_world_notices_a_guard_that_breaks(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, words: str
) -> None:
    """In its watch, in a review, and in the sweep after it."""
    ((kind, body), *_) = samples("ResourceClaim")
    async with World() as world:
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, broken)
            faults = await world.meet(kind, body, Mutant("none", world.encoded(kind, body)))
    assert any(words in fault and "KeyError" in fault for fault in faults), faults


async def test_the_world_notices_a_refusal_without_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client would be told nothing; nor may it be told the name of an error of Python."""
    for text, words in (("", "the guard says"), ("device x: KeyError('y')", "KeyError")):
        refusal = Refusal("held", DeviceKey(DRIVER, "n2", "g0"), text)
        monkeypatch.setattr(Judge, "refusals", lambda *_, refusal=refusal: (refusal,))
        _, faults = await met("DeviceTaintRule")
        assert any(words in fault for fault in faults), faults


async def test_the_guard_meets_only_what_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mutant of another kind costs no review."""
    reviews = list[object]()

    async def counted(*_: object, **__: object) -> None:
        reviews.append(_)

    monkeypatch.setattr(Reviewer, "review", counted)
    await met("DeviceClass")
    assert not reviews
