"""QueuedPod: what the queue remembers about one Pod that is not placed yet."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from scheduler.api.core import Pod


class Place(StrEnum):
    """Where a Pod is. UNSCHEDULABLE holds gated Pods too, as upstream's does; NOWHERE: deleted or bound."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    ERROR_BACKOFF = "errorBackoff"
    UNSCHEDULABLE = "unschedulable"
    IN_FLIGHT = "inFlight"
    NOWHERE = "nowhere"


class QueuedPod:
    """One Pod with its bookkeeping (kube-scheduler 1.37, queue; spec 4.2). Identity is the Pod's uid.

    Only the queue writes these fields. ``timestamp``: when last queued after an attempt (at first: when added).
    ``attempts`` counts pops. ``unschedulable_plugins`` and ``pending_plugins`` rejected the last attempt; both are
    empty after an internal error. ``gating_plugin`` is the plugin whose pre_enqueue holds the Pod back, "" when it is
    not gated. ``backoff_expiration`` is a whole second, 0 without back-off. ``group_size``: Pods decided together
    in the last attempt.
    """

    __slots__ = (
        "attempts",
        "backoff_expiration",
        "consecutive_errors",
        "flush_timestamp",
        "gating_plugin",
        "group_size",
        "initial_attempt_timestamp",
        "pending_plugins",
        "place",
        "pod",
        "timestamp",
        "unschedulable_count",
        "unschedulable_plugins",
        "was_flushed",
    )

    def __init__(self, pod: Pod, timestamp: float) -> None:
        self.pod = pod
        self.timestamp = timestamp
        self.place = Place.NOWHERE
        self.attempts = 0
        self.initial_attempt_timestamp: float | None = None
        self.unschedulable_count = 0
        self.consecutive_errors = 0
        self.unschedulable_plugins: frozenset[str] = frozenset()
        self.pending_plugins: frozenset[str] = frozenset()
        self.gating_plugin = ""
        self.group_size = 1
        self.backoff_expiration = 0
        self.flush_timestamp = 0.0
        self.was_flushed = False

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.pod.uid

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.pod.key

    @property
    def scheduler_name(self) -> str:
        """The profile that serves the Pod."""
        return self.pod.spec.schedulerName

    @property
    def gated(self) -> bool:
        """True while a pre_enqueue plugin holds the Pod back."""
        return bool(self.gating_plugin)

    @property
    def rejecting_plugins(self) -> frozenset[str]:
        """Every plugin that rejected the last attempt, pending ones included."""
        return self.unschedulable_plugins | self.pending_plugins

    def record_failure(self, unschedulable: frozenset[str], pending: frozenset[str], now: float) -> None:
        """Count a failed attempt (spec 4.6): one that no plugin rejected is an error and backs off on its own count."""
        if unschedulable or pending:
            self.unschedulable_count += 1
            self.consecutive_errors = 0
        else:
            self.consecutive_errors += 1
        self.unschedulable_plugins, self.pending_plugins = unschedulable, pending
        self.timestamp = now
        self.flush_timestamp, self.was_flushed = 0.0, False

    def as_record(self) -> Mapping[str, object]:
        """The bookkeeping as plain values, for dumps."""
        return {
            "pod": self.key,
            "uid": self.uid,
            "place": self.place.value,
            "attempts": self.attempts,
            "timestamp": self.timestamp,
            "initialAttemptTimestamp": self.initial_attempt_timestamp,
            "unschedulableCount": self.unschedulable_count,
            "consecutiveErrors": self.consecutive_errors,
            "unschedulablePlugins": sorted(self.unschedulable_plugins),
            "pendingPlugins": sorted(self.pending_plugins),
            "gatingPlugin": self.gating_plugin,
            "backoffExpiration": self.backoff_expiration,
            "wasFlushed": self.was_flushed,
        }
