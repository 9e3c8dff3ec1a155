"""Who leads: the decisions of leader election on a Lease, without clock, thread or network.

Only times at which *this* process saw something count, never the times written in the Lease: clocks of other machines
may be wrong and ours may jump. A write that succeeded holds the Lease from the moment *before* it was sent.
Source: client-go's leader election, 1.37 (lease, deadline, retry period; takeover after the duration the holder wrote).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from scheduler.api.bodies import Lease, LeaseSpec
from scheduler.errors import ConfigError

JITTER_FACTOR = 1.2
TAKEOVER_JITTER_S = 0.2
"""Spreads the standbys that wait for the same moment."""


class ElectionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Who we are, where the Lease is, and the three times (kube-scheduler's defaults)."""

    identity: str
    namespace: str = "kube-system"
    name: str = "dra-scheduler"
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0

    @property
    def margin_s(self) -> float:
        """No write is sent when less than this is left of the lease."""
        return self.lease_duration_s - self.renew_deadline_s

    def check(self) -> None:
        """Raise ConfigError unless lease > deadline > retry period x 1.2, all positive."""
        if not self.identity:
            raise ConfigError("leaderElection", "the identity is empty")
        if self.retry_period_s <= 0:
            raise ConfigError("leaderElection.retryPeriod", "must be greater than zero")
        if self.lease_duration_s <= self.renew_deadline_s:
            raise ConfigError("leaderElection.leaseDuration", "must be greater than renewDeadline")
        if self.renew_deadline_s <= JITTER_FACTOR * self.retry_period_s:
            raise ConfigError("leaderElection.renewDeadline", f"must be greater than retryPeriod*{JITTER_FACTOR}")


class LeaseWrite(msgspec.Struct, frozen=True):
    """Create the Lease (``lease`` None) or patch ``lease`` to ``spec``, refused when anybody wrote it since."""

    spec: LeaseSpec
    lease: Lease | None = None


State = Literal["standby", "leading", "lost"]


class Election:
    """One candidate. All ``now_s`` come from one monotonic clock of this process.

    Turn: ``observed`` when ``needs_read``, then ``next_write``; afterwards ``written`` or ``failed``. "lost" is final.
    """

    def __init__(self, settings: ElectionSettings) -> None:
        settings.check()
        self.settings = settings
        self.state: State = "standby"
        self.lost_reason = ""
        self.handed_over = False
        """True when the Lease that we took had been given back; False when it had run out or there was none."""
        self._lease: Lease | None = None
        self._seen_at_s = 0.0
        self._renewed_at_s = float("-inf")
        self._needs_read = True

    @property
    def holder(self) -> str:
        """The identity that held the Lease when we last saw it."""
        return self._lease.spec.holderIdentity if self._lease else ""

    @property
    def needs_read(self) -> bool:
        """True when the Lease must be read first: after a failure, and while standing by (it may be released)."""
        return self._needs_read or self.state == "standby"

    def remaining_s(self, now_s: float) -> float:
        """Seconds for which nobody else can take the Lease; negative when it has ended or we never had it."""
        if self.state != "leading":
            return float("-inf")
        return self._renewed_at_s + self.settings.lease_duration_s - now_s

    def pause_s(self, now_s: float, chance: float) -> float:
        """Seconds until the next turn; ``chance`` is random, from 0 to 1.

        A standby does not sleep past the moment at which the holder's Lease runs out, as client-go may: with the
        default times a takeover takes 19.6 s at most.
        """
        pause_s = self.settings.retry_period_s
        if self.state != "standby":
            return pause_s
        pause_s *= 1.0 + JITTER_FACTOR * chance
        if self._lease is None or not self.holder:
            return pause_s
        free_s = self._seen_at_s + self._lease.spec.leaseDurationSeconds - now_s
        return pause_s if free_s <= 0.0 else min(pause_s, free_s + TAKEOVER_JITTER_S * chance)

    def may_write(self, now_s: float) -> bool:
        """True while we lead with more than the safety margin left."""
        return self.remaining_s(now_s) > self.settings.margin_s

    def observed(self, lease: Lease | None, now_s: float) -> None:
        """The Lease was read at ``now_s`` (taken after the answer); None: there is none."""
        self._needs_read = False
        if self._lease is None or lease is None or not _same(lease, self._lease):
            self._seen_at_s = now_s
        self._lease = lease
        if self.state == "leading" and self.holder != self.settings.identity:
            self._lose(f"{self.holder or 'nobody'} holds the lease now")

    def next_write(self, now_s: float, micro_now: str) -> LeaseWrite | None:
        """What to write now, None to wait. ``micro_now`` is the UTC time written into the Lease, for people."""
        self.check_deadline(now_s)
        if self.state == "lost" or self._needs_read:
            return None
        mine = self.settings.identity
        if self._lease is None:
            self.handed_over = False
            return LeaseWrite(self._spec(micro_now, micro_now, 0))
        spec = self._lease.spec
        if spec.holderIdentity == mine:
            return LeaseWrite(self._spec(spec.acquireTime or micro_now, micro_now, spec.leaseTransitions), self._lease)
        if spec.holderIdentity and now_s < self._seen_at_s + spec.leaseDurationSeconds:
            return None
        self.handed_over = not spec.holderIdentity
        return LeaseWrite(self._spec(micro_now, micro_now, spec.leaseTransitions + 1), self._lease)

    def written(self, lease: Lease, sent_at_s: float, now_s: float) -> None:
        """The write succeeded; ``lease`` is the answer, ``sent_at_s`` was taken before sending."""
        self._lease, self._seen_at_s, self._needs_read = lease, now_s, False
        if self.holder != self.settings.identity or self.state == "lost":
            self._needs_read = True
            return
        self._renewed_at_s = sent_at_s
        self.state = "leading"
        self.check_deadline(now_s)

    def failed(self, now_s: float) -> None:
        """The turn failed (refused, conflict, no answer): read before the next write."""
        self._needs_read = True
        self.check_deadline(now_s)

    def check_deadline(self, now_s: float) -> None:
        """Give up the leadership when the last renewal is older than the renew deadline."""
        if self.state == "leading" and now_s - self._renewed_at_s >= self.settings.renew_deadline_s:
            self._lose(f"not renewed within {self.settings.renew_deadline_s:g} s")

    def release(self, micro_now: str) -> LeaseWrite | None:
        """The write that gives the Lease back at once; None when we do not hold it. Ends the leadership."""
        leading, self.state = self.state == "leading", "lost"
        self.lost_reason = self.lost_reason or "released"
        if not leading or self._lease is None:
            return None
        spec = LeaseSpec("", 1, micro_now, micro_now, self._lease.spec.leaseTransitions)
        return LeaseWrite(spec, self._lease)

    def _lose(self, reason: str) -> None:
        self.state, self.lost_reason = "lost", reason

    def _spec(self, acquired: str, renewed: str, transitions: int) -> LeaseSpec:
        # The API takes whole seconds; rounded up, so that nobody takes over before we count the lease as ended.
        duration_s = -int(-self.settings.lease_duration_s // 1)
        return LeaseSpec(self.settings.identity, duration_s, acquired, renewed, transitions)


def _same(left: Lease, right: Lease) -> bool:
    return left.metadata.resourceVersion == right.metadata.resourceVersion and left.spec == right.spec
