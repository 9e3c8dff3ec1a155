"""Metrics of PodGroup cycles, under kube-scheduler's names; only there with the gate GenericWorkload (spec 11)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = tuple(0.001 * 2**power for power in range(15))
NAMES = (
    "scheduler_podgroup_schedule_attempts_total",
    "scheduler_podgroup_scheduling_attempt_duration_seconds",
    "scheduler_podgroup_scheduling_algorithm_duration_seconds",
)


class GroupMetrics:
    """Cycles by result (scheduled, unschedulable, error) and profile. Seconds everywhere."""

    def __init__(self, registry: CollectorRegistry) -> None:
        attempts, attempt_duration, algorithm_duration = NAMES
        labels = ("result", "profile")
        self._attempts = Counter(attempts, "PodGroup cycles by result.", labels, registry=registry)
        self._attempt_duration = Histogram(
            attempt_duration,
            "Duration of a PodGroup cycle: algorithm and what follows in memory.",
            labels,
            buckets=_BUCKETS,
            registry=registry,
        )
        self._algorithm_duration = Histogram(
            algorithm_duration, "Duration of a PodGroup cycle's algorithm.", buckets=_BUCKETS, registry=registry
        )

    def attempt(self, result: str, profile: str, duration_s: float, algorithm_s: float) -> None:
        """A cycle ended."""
        self._attempts.labels(result, profile).inc()
        self._attempt_duration.labels(result, profile).observe(duration_s)
        self._algorithm_duration.observe(algorithm_s)
