"""Leader election as decisions: takeover, renewal, deadline, release; and that two never lead at once."""

from __future__ import annotations

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.api.bodies import Lease, LeaseMeta, LeaseSpec
from scheduler.edge.election import Election, ElectionSettings, LeaseWrite
from scheduler.errors import ConfigError

UTC = "2026-11-29T10:00:00.000000Z"


class LeaseServer:
    """The Lease as an API server keeps it: optimistic locking, nothing else."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self.revision = 0

    def write(self, write: LeaseWrite) -> Lease | None:
        """The stored Lease, None for a conflict."""
        expected = write.lease.metadata.resourceVersion if write.lease else None
        if (self.lease.metadata.resourceVersion if self.lease else None) != expected:
            return None
        self.revision += 1
        meta = LeaseMeta("dra-scheduler", "kube-system", "uid", str(self.revision))
        self.lease = Lease(meta, write.spec)
        return self.lease


def candidate(name: str = "a", **times: float) -> Election:
    return Election(ElectionSettings(identity=name, **times))


def turn(election: Election, server: LeaseServer, now_s: float) -> None:
    """One turn in which everything works and takes no time."""
    if election.needs_read:
        election.observed(server.lease, now_s)
    write = election.next_write(now_s, UTC)
    if write is not None:
        stored = server.write(write)
        if stored is None:
            election.failed(now_s)
        else:
            election.written(stored, now_s, now_s)


def test_first_candidate_creates_the_lease_and_leads() -> None:
    """Without a Lease the first one creates it; the second waits."""
    server, first, second = LeaseServer(), candidate("a"), candidate("b")
    turn(first, server, 0)
    turn(second, server, 1)
    assert (first.state, second.state) == ("leading", "standby")
    assert second.holder == "a"
    assert server.lease is not None
    assert server.lease.spec == LeaseSpec("a", 15, UTC, UTC, 0)
    assert first.remaining_s(3) == 12


def test_renewal_keeps_times_and_transitions() -> None:
    """A renewal changes renewTime alone; a takeover counts a transition and sets acquireTime."""
    server, first, second = LeaseServer(), candidate("a"), candidate("b")
    turn(first, server, 0)
    turn(first, server, 2)
    assert server.lease is not None
    assert server.lease.spec.leaseTransitions == 0
    assert first.remaining_s(2) == 15
    turn(second, server, 3)
    turn(second, server, 17.9)
    assert second.state == "standby"
    turn(second, server, 18.1)
    assert second.state == "leading"
    assert server.lease.spec.leaseTransitions == 1


def test_foreign_clocks_do_not_count() -> None:
    """A holder whose clock is years behind keeps its Lease as long as we see it change."""
    server, old, new = LeaseServer(), candidate("a"), candidate("b")
    turn(old, server, 0)
    for second in range(1, 60, 2):
        turn(old, server, second)
        assert server.lease is not None
        server.lease = msgspec.structs.replace(
            server.lease, spec=msgspec.structs.replace(server.lease.spec, renewTime="1999-01-01T00:00:00.000000Z")
        )
        turn(new, server, second + 0.5)
    assert new.state == "standby"


def test_released_lease_is_taken_at_once() -> None:
    """After a release nobody waits; the one who released writes no more."""
    server, first, second = LeaseServer(), candidate("a"), candidate("b")
    turn(first, server, 0)
    turn(second, server, 1)
    write = first.release(UTC)
    assert write is not None
    assert write.spec.holderIdentity == ""
    server.write(write)
    assert not first.may_write(1)
    turn(second, server, 1.5)
    assert second.state == "leading"


def test_missed_deadline_and_stolen_lease_are_final() -> None:
    """Not renewed within the deadline, or held by another: lost, for ever, with the reason."""
    server, election = LeaseServer(), candidate("a")
    turn(election, server, 0)
    election.failed(9.9)
    assert election.state == "leading"
    election.failed(10)
    assert (election.state, election.lost_reason) == ("lost", "not renewed within 10 s")
    turn(election, server, 11)
    assert election.state == "lost"
    other = candidate("b")
    turn(other, LeaseServer(), 0)
    other.observed(Lease(LeaseMeta(resourceVersion="9"), LeaseSpec("c", 15)), 1)
    assert other.lost_reason == "c holds the lease now"


def test_stopped_process_finds_its_lease_ended() -> None:
    """After a stop longer than the lease the remaining time is negative and nothing may be written."""
    election = candidate("a")
    turn(election, LeaseServer(), 0)
    assert election.may_write(4.9)
    assert not election.may_write(10.0)
    assert election.remaining_s(100) < 0


def test_lost_answer_of_the_acquiring_write() -> None:
    """The write took effect but nobody told us: reading finds our own name, and the next write makes us leader."""
    server, election = LeaseServer(), candidate("a")
    election.observed(None, 0)
    write = election.next_write(0, UTC)
    assert write is not None
    server.write(write)
    election.failed(5)
    assert election.state == "standby"
    turn(election, server, 6)
    assert election.state == "leading"
    assert server.lease is not None
    assert server.lease.spec.leaseTransitions == 0


def test_nonsense_times_are_refused() -> None:
    """lease > deadline > retry x 1.2, identity given."""
    for wrong in (
        {"lease_duration_s": 10.0},
        {"renew_deadline_s": 2.4},
        {"retry_period_s": 0.0},
    ):
        with pytest.raises(ConfigError):
            candidate("a", **wrong)
    with pytest.raises(ConfigError):
        candidate("")


class World:
    """Three replicas with clocks of their own; requests and answers travel, hang and get lost, processes pause."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.server, self.now_s = rng, LeaseServer(), 0.0
        self.elections = {name: candidate(name) for name in "abc"}
        self.offsets = {name: rng.uniform(-1000, 1000) for name in "abc"}
        self.agenda = {name: rng.uniform(0, 3) for name in "abc"}
        self.sent: dict[str, tuple[float, LeaseWrite]] = {}
        self.stored: dict[str, tuple[float, Lease | None]] = {}
        self.reigns = 0

    def step(self) -> None:
        """The next thing that happens, and a check of the time until then."""
        name = min(self.agenda, key=lambda key: self.agenda[key])
        for instant_s in (self.now_s, (self.now_s + self.agenda[name]) / 2, self.agenda[name]):
            writers = [key for key in "abc" if self.elections[key].may_write(instant_s + self.offsets[key])]
            assert len(writers) <= 1, (instant_s, writers)
            self.reigns += len(writers)
        self.now_s = self.agenda[name]
        self.agenda[name] += self._act(name, self.now_s + self.offsets[name])
        if self.rng.random() < 0.03:
            self.agenda[name] += 40.0  # the process is stopped, its requests travel on

    def _act(self, name: str, local_s: float) -> float:
        """What ``name`` does now; seconds until it acts again."""
        election = self.elections[name]
        if name in self.sent:
            sent_at_s, write = self.sent.pop(name)
            self.stored[name] = (sent_at_s, self.server.write(write))
            return self.rng.choice([0.0, 0.1, 1.0, 6.0, 14.0])
        if name in self.stored:
            sent_at_s, lease = self.stored.pop(name)
            if lease is None or self.rng.random() < 0.2:
                election.failed(local_s)
            else:
                election.written(lease, sent_at_s, local_s)
            return self.rng.choice([0.0, 2.0, 4.0])
        if election.state == "lost":
            self.elections[name] = candidate(name + "'")  # restarted
            return 1.0
        if election.needs_read:
            election.observed(self.server.lease, local_s)
        planned = election.next_write(local_s, UTC)
        if planned is None:
            election.failed(local_s)
            return self.rng.choice([1.0, 2.0, 12.0])
        self.sent[name] = (local_s, planned)
        return self.rng.choice([0.0, 0.1, 1.0, 7.0, 20.0])


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**9))
def test_never_two_leaders(seed: int) -> None:
    """Delays, hangs, lost answers, stopped processes, clocks of any offset: at most one may write at any time."""
    world = World(random.Random(seed))
    for _ in range(200):
        world.step()
    assert world.reigns, "nobody ever led: the test would prove nothing"


def test_a_successor_knows_whether_the_lease_was_given_back() -> None:
    """Given back is not the same as run out, nor as never there: only the first says that the holder has ended well."""
    server, first, second, third = LeaseServer(), candidate("a"), candidate("b"), candidate("c")
    turn(first, server, 0)
    assert not first.handed_over
    turn(second, server, 1)
    turn(second, server, 17)
    assert (second.state, second.handed_over) == ("leading", False)
    write = second.release(UTC)
    assert write is not None
    server.write(write)
    turn(third, server, 18)
    assert (third.state, third.handed_over) == ("leading", True)


def test_a_lease_that_was_lost_to_a_faster_one_leaves_no_word_of_a_handover() -> None:
    """B tries a Lease that was given back, C is faster, the Lease is deleted: what B creates nobody handed over."""
    server, first, second, third = LeaseServer(), candidate("a"), candidate("b"), candidate("c")
    turn(first, server, 0)
    write = first.release(UTC)
    assert write is not None
    server.write(write)
    second.observed(server.lease, 1)
    tried = second.next_write(1, UTC)
    assert tried is not None
    assert second.handed_over
    turn(third, server, 1)
    assert (third.state, third.handed_over) == ("leading", True)
    assert server.write(tried) is None, "C was faster"
    second.failed(1)
    server.lease = None
    turn(second, server, 2)
    assert (second.state, second.handed_over) == ("leading", False)


@given(st.floats(0.0, 60.0), st.randoms(use_true_random=False))
def test_a_standby_takes_over_within_twenty_seconds(fault_s: float, rng: random.Random) -> None:
    """Default times, a leader that dies at any moment: it is not slept past the end of the Lease."""
    server, leader, standby = LeaseServer(), candidate("a"), candidate("b")
    turn(leader, server, 0.0)
    renewal_s, now_s = 2.0, rng.uniform(0.0, 4.4)
    while standby.state != "leading":
        while renewal_s <= min(now_s, fault_s):
            turn(leader, server, renewal_s)
            renewal_s += 2.0
        turn(standby, server, now_s)
        taken_s = now_s
        now_s += standby.pause_s(now_s, rng.random())
    assert 0.0 < taken_s - fault_s <= 20.0
    assert taken_s >= renewal_s - 2.0 + 15.0, "not before the Lease has run out"
