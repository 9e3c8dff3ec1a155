"""Turns what happens into the numbers of edge.metrics."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from scheduler.edge.metrics import Metrics
from scheduler.queue.pod import Place
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState

_QUEUE_LABEL = {
    Place.ACTIVE: "active",
    Place.BACKOFF: "backoff",
    Place.ERROR_BACKOFF: "backoff",
    Place.UNSCHEDULABLE: "unschedulable",
}


class ServiceMeter:
    """The Meter of reports, queue and watches in production."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def attempt(self, result: str, profile: str, duration_s: float) -> None:
        """An attempt ended: scheduled, unschedulable or error."""
        self._metrics.attempt(result, profile, duration_s)

    def group_attempt(self, result: str, profile: str, duration_s: float, algorithm_s: float) -> None:
        """A PodGroup's cycle ended: scheduled, unschedulable or error."""
        if self._metrics.groups is not None:
            self._metrics.groups.attempt(result, profile, duration_s, algorithm_s)

    def scheduled(self, attempts: int, waited_s: float) -> None:
        """A Pod was bound."""
        self._metrics.pod_bound(attempts, waited_s)
        self._metrics.binds.add(("bound",))

    def scheduled_after_flush(self) -> None:
        """A Pod was bound that only the periodic flush had woken."""
        self._metrics.scheduled_after_flush.inc()

    def algorithm(self, duration_s: float) -> None:
        """The deciding part of an attempt took so long."""
        self._metrics.algorithm_duration.observe(duration_s)

    def lost_race(self, profile: str) -> None:
        """A decision was given up because another scheduler was first."""
        self._metrics.lost_races.labels(profile).inc()
        self._metrics.binds.add(("lost",))

    def verified(self, result: str, waited_s: float) -> None:
        """A verification ended: won, pair, lost or late."""
        self._metrics.verifications.labels(result).inc()
        self._metrics.verify_duration.observe(waited_s)

    def claim_written(self, operation: str, result: str) -> None:
        """A write of a claim ended: success, conflict or error."""
        self._metrics.claim_writes.labels(operation, result).inc()

    def foreign_overlap(self, profile: str, count: int) -> None:
        """Another scheduler gave away ``count`` devices that are ours."""
        self._metrics.foreign_overlaps.inc(count)

    def broken(self, where: str) -> None:
        """An internal error was caught."""
        self._metrics.internal_errors.inc()

    def permit_waited(self, result: str, duration_s: float) -> None:
        """A Pod waited at Permit; ``result`` is the verdict's code."""
        self._metrics.permit_wait.labels(result).observe(duration_s)

    def preemption_attempt(self) -> None:
        """A Pod that fits nowhere looked for victims."""
        self._metrics.preemption_attempts.inc()

    def preemption_begun(self, victims: int) -> None:
        """``victims`` Pods have to go for one."""
        self._metrics.preemption_victims.observe(victims)

    def preemption_ended(self, result: str, duration_s: float) -> None:
        """The background part of a preemption ended: success or error."""
        self._metrics.preemption_executions.labels(result).inc()
        self._metrics.preemption_durations.labels(result).observe(duration_s)

    def claim_created(self, status: str) -> None:
        """A claim was created for a Pod's extended resources: success or failure."""
        self._metrics.claim_creations.labels(status, "false", "", "Pod").inc()

    def incoming(self, place: Place, event_label: str) -> None:
        """A Pod entered a queue."""
        label = _QUEUE_LABEL.get(place)
        if label is not None:
            self._metrics.queue_incoming.add((label, event_label))
            self._metrics.queue_incoming_entities.add((label, event_label, "pod"))

    def bad_object(self, kind: str) -> None:
        """An object could not be decoded."""
        self._metrics.bad_objects.labels(kind).inc()

    def repaired(self, kind: str, count: int) -> None:
        """The reconcile repaired ``count`` differences."""
        self._metrics.repairs.labels(kind).inc(count)


def refresh_gauges(
    metrics: Metrics,
    queue: SchedulingQueue,
    state: ClusterState,
    beat_age_s: float,
    operations: Mapping[str, int] = MappingProxyType({}),
) -> None:
    """Gauges are read off when somebody asks for the metrics. ``operations``: work under way by upstream's name."""
    for name, count in queue.counts().items():
        metrics.pending_pods.labels(name).set(count)
        metrics.queued_entities.labels(name, "pod").set(count)
    metrics.cache_size.labels("nodes").set(len(state.nodes))
    metrics.cache_size.labels("pods").set(len(state.placements))
    metrics.cache_size.labels("assumed_pods").set(state.assumed_count())
    metrics.unschedulable_pods.clear()
    for (plugin, profile), count in queue.rejections().items():
        metrics.unschedulable_pods.labels(plugin, profile).set(count)
    metrics.inflight_events.clear()
    for label, count in queue.in_flight_events().items():
        metrics.inflight_events.labels(label).set(count)
    for operation, count in operations.items():
        metrics.goroutines.labels(operation).set(count)
    metrics.loop_age.set(beat_age_s)
