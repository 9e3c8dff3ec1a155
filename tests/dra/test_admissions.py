"""The guard's book against a model of the API server: writes land late or never, the watch lags, guards die."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.api.kinds import RESOURCE_CLAIM, convert
from scheduler.api.resource import RESULTS_MAX, AllocationResult, ResourceClaim
from scheduler.dra import admissions as admissions_module
from scheduler.dra.admissions import RESERVATIONS_OF_CLAIM_MAX, NoRoomError
from scheduler.dra.devices import DeviceKey

from .guard_world import DRIVER, allocation, book, claim, published, result, why

LIFETIME_S = 40.0
DEVICES = ("a", "b")


def test_a_reservation_holds_until_the_claims_next_version() -> None:
    """Admitted is held; a version at or below the base says nothing; the next one settles it."""
    admissions = book(published("a"))
    admissions.take(claim("one", revision=5))
    assert admissions.reserve(claim("one", revision=7), allocation(result("a")), 0.0) is not None
    assert why(admissions, claim("two"), result("a")) == [
        f"held: device {DRIVER}/p/a is held by claim ns/one (being written now)"
    ]
    admissions.take(claim("one", revision=7))  # the finalizer, seen late
    assert len(why(admissions, claim("two"), result("a"))) == 1
    admissions.take(claim("one", revision=9))  # somebody else was faster: the write cannot be stored
    assert why(admissions, claim("two"), result("a")) == []
    admissions.verify()


def test_the_write_itself_settles_its_reservation() -> None:
    """Afterwards the stored allocation holds, once."""
    admissions = book(published("a"))
    admissions.reserve(claim("one", revision=7), allocation(result("a")), 0.0)
    admissions.take(claim("one", result("a"), revision=8))
    assert admissions.reservations() == ()
    assert admissions.ledger.state()[DeviceKey(DRIVER, "p", "a")][0] == {"one": 1}
    admissions.take(claim("one", revision=9))
    assert why(admissions, claim("two"), result("a")) == []


def test_a_write_on_a_version_that_has_passed_is_not_held() -> None:
    """The API server refuses it and asks again: a reservation would only be in the way."""
    admissions = book(published("a"))
    admissions.take(claim("one", revision=9))
    assert admissions.reserve(claim("one", revision=7), allocation(result("a")), 0.0) is None
    admissions.remove("one")
    assert admissions.reserve(claim("one", revision=10), allocation(result("a")), 0.0) is None


def test_two_writes_of_one_claim_are_both_held() -> None:
    """Two schedulers give one claim different devices: one write wins, but nobody knows which."""
    admissions = book(published("a", "b"))
    for device in DEVICES:
        admissions.reserve(claim("one", revision=7), allocation(result(device)), 0.0)
    assert len(why(admissions, claim("two"), result("a"), result("b"))) == 2
    admissions.take(claim("one", result("b"), revision=8))
    assert len(why(admissions, claim("two"), result("a"), result("b"))) == 1
    admissions.verify()


def test_a_write_that_never_came_expires() -> None:
    """After the longest life of a request and another look the reservation may be ended; idempotent."""
    admissions = book(published("a"))
    reservation = admissions.reserve(claim("one", revision=7), allocation(result("a")), 10.0)
    assert reservation is not None
    assert admissions.expired(49.9, LIFETIME_S) == []
    assert admissions.expired(50.0, LIFETIME_S) == [reservation]
    admissions.end(reservation)
    admissions.end(reservation)
    assert why(admissions, claim("two"), result("a")) == []
    admissions.verify()


def test_what_is_gone_does_not_come_back() -> None:
    """An answer that was read before the deletion must not bring the claim back."""
    admissions = book(published("a"))
    admissions.take(claim("one", result("a")))
    admissions.remove("one")
    assert not admissions.take(claim("one", result("a"), revision=2))
    assert why(admissions, claim("two"), result("a")) == []


def test_a_revision_that_no_server_gives_out_is_older_than_any_other() -> None:
    """Neither taking such a claim in nor holding something for it ends a task; what is known stays known."""
    endless = replace(claim("one").metadata, resourceVersion="9" * 5000)
    admissions = book(published("a"))
    odd = replace(claim("one", result("a")), metadata=endless)
    assert admissions.take(odd)
    assert len(why(admissions, claim("two"), result("a"))) == 1
    assert admissions.reserve(odd, allocation(result("a")), 0.0) is not None
    assert admissions.take(claim("one", revision=7))
    assert not admissions.take(odd)
    assert why(admissions, claim("two"), result("a")) == []
    admissions.verify()


def test_a_reservation_keeps_what_it_holds_and_nothing_else() -> None:
    """Labels, spec, parameters, tolerations, admin access: as large as a request may be, and not needed."""
    document = {
        "metadata": {
            "name": "one",
            "namespace": "ns",
            "uid": "one",
            "resourceVersion": "7",
            "labels": {"k": "x" * 9999},
        },
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        result("a", tolerations=[{"key": "k"}], consumedCapacity={"memory": "1"}),
                        result("b", "s1", consumedCapacity={"memory": "1"}),
                        result("c", adminAccess=True),
                    ],
                    "config": [{"opaque": {"driver": "d", "parameters": {"a": "y" * 9999}}}],
                },
                "nodeSelector": {"nodeSelectorTerms": []},
            }
        },
    }
    asking: ResourceClaim = convert(RESOURCE_CLAIM, document)
    assert asking.status.allocation is not None
    admissions = book(published("a", "b"))
    reservation = admissions.reserve(asking, asking.status.allocation, 0.0)
    assert reservation is not None
    assert reservation.allocation == allocation(
        result("a", request=""), result("b", "s1", request="", consumedCapacity={"memory": "1"})
    )
    kept = claim("one").metadata
    assert reservation.claim.metadata == replace(kept, resourceVersion="")
    assert (reservation.claim.spec, reservation.claim.status) == (ResourceClaim().spec, ResourceClaim().status)
    assert (reservation.size, admissions.held) == (4, 4)
    admissions.verify()


def test_a_write_asked_about_again_is_held_once_and_anew() -> None:
    """The same devices on the same base: one of the two is stored at most. It lives as long as the later one may."""
    admissions = book(published("a"))
    first = admissions.reserve(claim("one", revision=7), allocation(result("a")), 0.0)
    (old,) = admissions.expired(40.0, LIFETIME_S)
    assert old is first
    again = admissions.reserve(claim("one", revision=7), allocation(result("a")), 40.0)
    assert again is not None
    admissions.end(old)  # what had expired was being read again meanwhile
    assert admissions.reservations() == (again,)
    assert len(why(admissions, claim("two"), result("a"))) == 1
    assert admissions.expired(79.9, LIFETIME_S) == []
    admissions.verify()
    admissions.end(again)
    assert why(admissions, claim("two"), result("a")) == []
    assert admissions.held == 0


def test_a_claim_has_a_few_reservations_and_the_oldest_is_not_dropped() -> None:
    """Any of the writes on one base may be the one that is stored; a newer version settles them and makes room."""
    admissions = book()
    for index in range(RESERVATIONS_OF_CLAIM_MAX):
        assert not admissions.crowded("one")
        assert admissions.reserve(claim("one", revision=7), allocation(result(f"d{index}")), 0.0) is not None
    assert admissions.crowded("one")
    with pytest.raises(NoRoomError, match="16 other allocations of claim ns/one are being written now"):
        admissions.reserve(claim("one", revision=7), allocation(result("more")), 0.0)
    assert admissions.reserve(claim("one", revision=7), allocation(result("d0")), 0.0) is not None, "it is held already"
    assert admissions.reserve(claim("two", revision=7), allocation(result("more")), 0.0) is not None
    assert len(admissions.reservations()) == RESERVATIONS_OF_CLAIM_MAX + 1
    admissions.verify()
    admissions.take(claim("one", revision=8))
    assert len(admissions.reservations()) == 1
    assert admissions.reserve(claim("one", revision=8), allocation(result("more")), 0.0) is not None
    admissions.verify()


def test_what_is_held_at_once_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for whatever; once something is settled there is room again."""
    monkeypatch.setattr(admissions_module, "HELD_MAX", 100)
    admissions, held = book(), 0
    for index in range(200):
        devices = [result(f"d{index}-{place}") for place in range(index % 3)] or [result("x", f"s{index}")]
        with suppress(NoRoomError):
            admissions.reserve(claim(f"c{index}", revision=7), allocation(*devices), 0.0)
            held += 1
        assert admissions.held <= 100
    assert 30 < held < 60
    assert len(admissions.reservations()) == held
    with pytest.raises(NoRoomError, match="holds all it can"):
        admissions.reserve(claim("late", revision=7), allocation(result("y"), result("z"), result("x")), 0.0)
    admissions.verify()
    admissions.remove("c0")
    admissions.remove("c1")
    assert admissions.reserve(claim("late", revision=7), allocation(result("late")), 0.0) is not None
    admissions.verify()


def test_what_the_api_server_has_no_place_for_is_not_held() -> None:
    """It cannot be stored, and a few of them would take all the room."""
    admissions = book()
    many = allocation(*(result(f"d{index}") for index in range(RESULTS_MAX + 1)))
    assert admissions.reserve(claim("one", revision=7), many, 0.0) is None
    assert admissions.reserve(claim("one", revision=7), allocation(result("d" * 64)), 0.0) is None
    assert admissions.reservations() == ()
    most = allocation(*(result(f"d{index}") for index in range(RESULTS_MAX)))
    reservation = admissions.reserve(claim("one", revision=7), most, 0.0)
    assert reservation is not None
    assert reservation.size == RESULTS_MAX + 1


# The model.


@dataclass
class Write:
    """An admitted write under way. ``dies_at_s``: the API server gives up on it."""

    uid: str
    base: int
    allocation: AllocationResult
    dies_at_s: float


class Server:
    """etcd and the API server: one revision counter, compare-and-swap writes, a log for watches."""

    def __init__(self) -> None:
        self.revision = 0
        self.stored: dict[str, ResourceClaim] = {}
        self.log: list[tuple[int, str, ResourceClaim | None]] = []
        for uid in "uvw":
            self.put(uid, None)

    def put(self, uid: str, given: AllocationResult | None) -> None:
        """Store a version."""
        self.revision += 1
        devices = () if given is None else tuple(result(r.device) for r in given.devices.results)
        self.stored[uid] = claim(uid, *devices, revision=self.revision)
        self.log.append((self.revision, uid, self.stored[uid]))

    def delete(self, uid: str) -> None:
        """Remove a claim and make another under the same letter, with another UID."""
        self.revision += 1
        del self.stored[uid]
        self.log.append((self.revision, uid, None))

    def holders(self, device: str) -> list[str]:
        """Who holds a device in the stored state."""
        return [
            uid
            for uid, item in self.stored.items()
            if item.status.allocation and device in {r.device for r in item.status.allocation.devices.results}
        ]


class GuardModel:
    """One guard: a book that follows the log with a lag. It answers once it is ready."""

    def __init__(self, server: Server, ready_at_s: float) -> None:
        self.book, self.server, self.ready_at_s, self.listed = book(published(*DEVICES)), server, ready_at_s, False
        self.place = len(server.log)
        self._list()

    def _list(self) -> None:
        for item in self.server.stored.values():
            self.book.take(item)

    def see(self, events: int) -> None:
        """The watch delivers some more events."""
        for _, uid, item in self.server.log[self.place : self.place + events]:
            if item is None:
                self.book.remove(uid)
            else:
                self.book.take(item)
        self.place = min(self.place + events, len(self.server.log))

    def admit(self, uid: str, given: AllocationResult, now_s: float, stale: int) -> bool:
        """One review; ``stale``: how many versions the API server's cache is behind."""
        if now_s < self.ready_at_s:
            return False
        if not self.listed:
            self._list()
            self.listed = True
        versions = [item for _, name, item in self.server.log if name == uid and item is not None]
        base = versions[max(0, len(versions) - 1 - stale)]
        if base.status.allocation is not None or self.book.judge(base, given):
            return False
        self.book.reserve(base, given, now_s)
        return True


# Few claims and mostly one device: a breach needs five or six steps that fit together.
STEPS = ["ask"] * 4 + ["land"] * 3 + ["see"] * 2 + ["touch", "free", "drop", "tick", "expire", "crash"]
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(STEPS),
        st.sampled_from("uuvvw"),
        st.sampled_from([("a",), ("a",), ("b",), ("a", "b")]),
        st.sampled_from([0, 0, 0, 1, 2]),
    ),
    min_size=10,
    max_size=50,
)


@settings(max_examples=300, deadline=None)
@given(ACTIONS)
def test_no_device_ever_has_two_holders(actions: list[tuple[str, str, tuple[str, ...], int]]) -> None:
    """Whatever is asked, lands, is lost or seen late, and however often the guard dies: one holder at most.

    The rules of the model: a write lands only on its base and only within its life; a successor answers once no write
    that its predecessor admitted can still land, and lists again before its first answer.
    """
    server = Server()
    guard, flying, now_s = GuardModel(server, 0.0), list[Write](), 0.0
    for action, uid, devices, number in actions:
        given_ = allocation(*(result(device) for device in devices))
        if action == "ask" and uid in server.stored:
            versions = [item for _, name, item in server.log if name == uid and item is not None]
            base = versions[max(0, len(versions) - 1 - number)]
            if guard.admit(uid, given_, now_s, number):
                flying.append(Write(uid, int(base.metadata.resourceVersion), given_, now_s + LIFETIME_S))
        elif action == "land" and flying:
            write = flying.pop(number % len(flying))
            known = server.stored.get(write.uid)
            if known is not None and int(known.metadata.resourceVersion) == write.base and now_s < write.dies_at_s:
                server.put(write.uid, write.allocation)
        elif action == "see":
            guard.see(1 + number)
        elif action == "free" and uid in server.stored:
            server.put(uid, None)
        elif action == "touch" and uid in server.stored:
            server.put(uid, server.stored[uid].status.allocation)
        elif action == "drop" and uid in server.stored and number == 0:
            server.delete(uid)
        elif action == "tick":
            now_s += 10.0 * (1 + number)
        elif action == "expire":
            for reservation in guard.book.expired(now_s, LIFETIME_S):
                newest = server.stored.get(reservation.uid)
                if newest is not None:
                    guard.book.take(newest)
                guard.book.end(reservation)
        elif action == "crash":
            guard = GuardModel(server, now_s + LIFETIME_S)
        guard.book.verify()
        for device in DEVICES:
            assert len(server.holders(device)) <= 1, f"{device}: {server.holders(device)}"


def test_what_holds_nothing_takes_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Admin access alone: stored also when the guard can hold nothing more."""
    monkeypatch.setattr(admissions_module, "HELD_MAX", 0)
    admissions = book(published("a"))
    admissions.take(claim("one", revision=5))
    nothing = allocation(result("a", adminAccess=True))
    assert admissions.reserve(claim("one", revision=5), nothing, 0.0) is None
    with pytest.raises(NoRoomError):
        admissions.reserve(claim("one", revision=5), allocation(result("a")), 0.0)
