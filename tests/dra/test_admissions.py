"""The guard's book against a model of the API server: writes land late or never, the watch lags, guards die."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler.api.resource import AllocationResult, ResourceClaim
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
