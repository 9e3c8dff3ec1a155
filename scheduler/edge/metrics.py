"""Metrics: upstream's names, labels and buckets first, then our own under ``dra_scheduler_``.

Source: kube-scheduler 1.37 metrics (spec 11.1), client-go's rest_client_* and leader_election_*. Buckets written
exp(a, f, n) there are a, a*f, ... n of them, and +Inf.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler import __version__
from scheduler.api.kinds import Kind
from scheduler.edge.group_metrics import GroupMetrics
from scheduler.edge.reflector import Counters
from scheduler.edge.tallies import TallyCounter, TallyHistogram

ATTEMPTS_LABEL_MAX = 15
PAUSE_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
QUEUES = ("active", "backoff", "unschedulable", "gated")


def exponential(first: float, factor: float, count: int) -> tuple[float, ...]:
    """Bucket borders first, first*factor, ...; rounded to what Go prints."""
    return tuple(float(f"{first * factor**power:.15g}") for power in range(count))


def attempts_label(attempts: int) -> str:
    """1..14 as they are, then ``15+``."""
    return str(attempts) if attempts < ATTEMPTS_LABEL_MAX else f"{ATTEMPTS_LABEL_MAX}+"


class Watched(Protocol):
    """A reflector, as far as metrics read it."""

    kind: Kind
    counters: Counters


class Dropping(Protocol):
    """An event recorder, as far as metrics read it."""

    dropped: int


class _Readings(Collector):
    """Numbers that others count anyway, read off when somebody asks."""

    def __init__(self, watched: Sequence[Watched], recorder: Dropping) -> None:
        self._watched, self._recorder = watched, recorder

    def collect(self) -> Iterator[Metric]:
        columns = (
            ("dra_scheduler_lists", "Complete lists; more than one per kind means gaps in its watch.", "lists"),
            ("dra_scheduler_watches", "Watch streams opened.", "watches"),
            ("dra_scheduler_watch_events", "Watch events taken in.", "events"),
            ("dra_scheduler_watch_failures", "Lists and watches that failed and were retried.", "failures"),
        )
        for name, text, field in columns:
            family = CounterMetricFamily(name, text, labels=["resource"])
            for reflector in self._watched:
                family.add_metric([reflector.kind.resource], getattr(reflector.counters, field))
            yield family
        dropped = CounterMetricFamily("dra_scheduler_events_dropped", "Events that were never written.")
        dropped.add_metric([], self._recorder.dropped)
        yield dropped


class Metrics:
    """All metrics of one scheduler in a registry of its own, so that several can live in one process.

    ``hidden``: with those that upstream hides by default. ``disabled``: names that are not exposed.
    ``groups``: with those of PodGroup cycles.
    """

    def __init__(self, *, hidden: bool = False, disabled: Container[str] = (), groups: bool = False) -> None:
        self._hidden = hidden
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library ships it without annotations
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._scheduling()
        self._plugins()
        self._waits()
        self._queueing()
        self._preemption_and_cache()
        self._never_fed()
        self._kubernetes()
        self._client()
        self._own()
        self.groups = GroupMetrics(self.registry) if groups else None
        for collector in self._named(disabled):
            self.registry.unregister(collector)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=tuple(buckets), registry=self.registry)

    def _tally(self, name: str, text: str, *labels: str) -> TallyCounter:
        return TallyCounter(name, text, labels, self.registry)

    def _tally_histogram(self, name: str, text: str, buckets: Iterable[float], *labels: str) -> TallyHistogram:
        return TallyHistogram(name, text, tuple(buckets), labels, self.registry)

    def _scheduling(self) -> None:
        self.schedule_attempts = self._tally(
            "scheduler_schedule_attempts_total",
            "Attempts by result: scheduled, unschedulable, error.",
            "result",
            "profile",
        )
        self.attempt_duration = self._tally_histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Duration of an attempt: algorithm and binding.",
            exponential(0.001, 2, 15),
            "result",
            "profile",
        )
        self.algorithm_duration = self._histogram(
            "scheduler_scheduling_algorithm_duration_seconds", "Duration of the algorithm.", exponential(0.001, 2, 15)
        )
        self.sli_duration = self._tally_histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From the first entry into the active queue until bound.",
            exponential(0.01, 2, 20),
            "attempts",
        )
        self.pod_attempts = self._histogram(
            "scheduler_pod_scheduling_attempts", "Attempts a bound Pod needed.", exponential(1, 2, 5)
        )

    def _plugins(self) -> None:
        self.extension_point_duration = self._tally_histogram(
            "scheduler_framework_extension_point_duration_seconds",
            "Duration of all plugins of an extension point.",
            exponential(0.0001, 2, 12),
            "extension_point",
            "status",
            "profile",
        )
        self.plugin_duration = self._tally_histogram(
            "scheduler_plugin_execution_duration_seconds",
            "Duration of one plugin at one extension point, sampled.",
            exponential(0.00001, 1.5, 20),
            "plugin",
            "extension_point",
            "status",
        )
        self.plugin_evaluations = TallyCounter(
            "scheduler_plugin_evaluation_total",
            "Pods (PreFilter, PreScore) and nodes (Filter, Score) a plugin was asked about.",
            ("plugin", "extension_point", "profile"),
            self.registry,
        )

    def _waits(self) -> None:
        self.permit_wait = self._histogram(
            "scheduler_permit_wait_duration_seconds",
            "Time spent waiting at Permit.",
            exponential(0.001, 2, 15),
            "result",
        )
        self.binding_conditions = self._counter(
            "scheduler_dra_bindingconditions_allocations_total",
            "Allocations that waited for binding conditions.",
            "profile",
            "driver",
            "status",
        )
        self.binding_conditions_wait = self._histogram(
            "scheduler_dra_bindingconditions_wait_duration_seconds",
            "Time spent waiting for binding conditions.",
            exponential(0.1, 2, 14),
            "profile",
            "driver",
            "status",
        )

    def _queueing(self) -> None:
        self.pending_pods = self._gauge("scheduler_pending_pods", "Waiting Pods by queue.", "queue")
        for queue in QUEUES:
            self.pending_pods.labels(queue)
        self.queued_entities = self._gauge("scheduler_queued_entities", "Waiting entities.", "queue", "type")
        self.queue_incoming = TallyCounter(
            "scheduler_queue_incoming_pods_total",
            "Pods entering a queue, by event.",
            ("queue", "event"),
            self.registry,
        )
        self.queue_incoming_entities = TallyCounter(
            "scheduler_queue_incoming_entities_total",
            "Entities entering a queue, by event.",
            ("queue", "event", "type"),
            self.registry,
        )
        self.unschedulable_pods = self._gauge(
            "scheduler_unschedulable_pods", "Unschedulable Pods by the plugin that rejected them.", "plugin", "profile"
        )
        self.inflight_events = self._gauge("scheduler_inflight_events", "Events kept for Pods in flight.", "event")
        self.scheduled_after_flush = self._counter(
            "scheduler_pod_scheduled_after_flush_total", "Pods bound after the periodic flush moved them."
        )
        self.event_handling_duration = self._tally_histogram(
            "scheduler_event_handling_duration_seconds", "Duration of one event.", exponential(0.0001, 2, 12), "event"
        )
        self.hint_duration = self._tally_histogram(
            "scheduler_queueing_hint_execution_duration_seconds",
            "Duration of one queueing hint.",
            exponential(0.00001, 1.5, 20),
            "plugin",
            "event",
            "hint",
        )
        self.prehint_evaluations = self._counter(
            "scheduler_pre_queueing_hint_evaluations_total", "Pre-hint evaluations.", "plugin", "result"
        )

    def _preemption_and_cache(self) -> None:
        self.preemption_victims = self._histogram(
            "scheduler_preemption_victims", "Victims of one preemption.", exponential(1, 2, 7)
        )
        self.preemption_attempts = self._counter("scheduler_preemption_attempts_total", "Preemption attempts.")
        self.preemption_executions = self._counter(
            "scheduler_preemption_goroutines_execution_total", "Preemptions carried out in the background.", "result"
        )
        self.preemption_durations = Histogram(
            "scheduler_preemption_goroutines_duration_seconds",
            "Duration of preemptions carried out in the background. Deprecated in 1.37.0, hidden unless asked for.",
            ["result"],
            buckets=exponential(0.01, 2, 20),
            registry=self.registry if self._hidden else None,
        )
        self.claim_creations = self._counter(
            "dynamic_resource_allocation_resourceclaim_creates_total",
            "Claims created for extended resources.",
            "status",
            "admin_access",
            "owner_api_group",
            "owner_api_kind",
        )
        self.cache_size = self._gauge(
            "scheduler_cache_size", "Objects in the cache: nodes, pods, assumed_pods.", "type"
        )
        self.goroutines = self._gauge("scheduler_goroutines", "Work under way by operation.", "operation")

    def _never_fed(self) -> None:
        """What belongs to parts of kube-scheduler that are not here; named so that queries find them. See docs."""
        self._counter("scheduler_batch_attempts_total", "Opportunistic batching is not done.", "profile", "result")
        self._counter("scheduler_batch_cache_flushed_total", "As above.", "profile", "reason")
        self._counter("scheduler_batch_rescore_attempts_total", "As above.", "profile")
        microseconds = exponential(0.00001, 2, 12)
        self._histogram("scheduler_batch_rescore_duration_seconds", "As above.", microseconds, "profile")
        self._histogram("scheduler_get_node_hint_duration_seconds", "As above.", microseconds, "hinted", "profile")
        self._histogram("scheduler_store_schedule_results_duration_seconds", "As above.", microseconds, "profile")
        self._counter("scheduler_volume_binder_cache_requests_total", "There is no such cache.", "operation")
        self._counter("scheduler_volume_scheduling_stage_error_total", "Errors are told per Pod.", "operation")

    def _kubernetes(self) -> None:
        """What every component of Kubernetes says of itself. Our version stands where Kubernetes' own would."""
        names = ("major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version",
                 "compiler", "platform")  # fmt: skip
        build = self._gauge("kubernetes_build_info", "1, with the version followed.", *names)
        python = f"python{platform.python_version()}"
        build.labels("1", "37", "v1.37.2", "", "", "", python, platform.python_implementation(), sys.platform).set(1)
        self.features = self._gauge("kubernetes_feature_enabled", "1 for a gate that is on.", "name", "stage")

    def _client(self) -> None:
        self.requests = self._tally(
            "rest_client_requests_total", "Requests to the API server.", "code", "host", "method"
        )
        self.request_duration = self._tally_histogram(
            "rest_client_request_duration_seconds",
            "Duration of requests to the API server.",
            (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0),
            "host",
            "verb",
        )
        self.leader = self._gauge("leader_election_master_status", "1 while this replica leads.", "name")
        self.build_info = self._gauge("dra_scheduler_build_info", "1, with our version.", "version")
        self.build_info.labels(__version__).set(1)

    def _own(self) -> None:
        self.lost_races = self._counter(
            "dra_scheduler_lost_races_total", "Decisions given up because another scheduler was first.", "profile"
        )
        self.foreign_overlaps = self._counter(
            "dra_scheduler_foreign_overlaps_total", "Devices of ours that another scheduler gave away later."
        )
        self.repairs = self._counter(
            "dra_scheduler_reconcile_repairs_total",
            "Differences between state and a LIST that were repaired.",
            "resource",
        )
        self.ignored_slices = self._gauge("dra_scheduler_ignored_slices", "ResourceSlices in no usable pool.", "reason")
        self.bad_objects = self._counter(
            "dra_scheduler_bad_objects_total", "Objects that could not be decoded.", "resource"
        )
        self.internal_errors = self._counter(
            "dra_scheduler_internal_errors_total", "Faults of ours that cost a Pod its attempt."
        )
        self.binds = self._tally("dra_scheduler_bind_results_total", "Bindings by result.", "result")
        self.claim_writes = self._counter(
            "dra_scheduler_claim_writes_total", "Claim writes by operation and result.", "operation", "result"
        )
        self.verify_duration = self._histogram(
            "dra_scheduler_verify_duration_seconds",
            "How long a Binding waited for the claim watch to pass our writes, and for the look at who else wrote.",
            exponential(0.001, 2, 15),
        )
        self.verifications = self._counter(
            "dra_scheduler_verifications_total",
            "Verifications before a Binding: won, pair (another scheduler came second), lost, late (watch too slow).",
            "result",
        )
        self.loop_age = self._gauge("dra_scheduler_loop_beat_age_seconds", "Seconds since the loop last turned.")
        self.loop_pause = self._tally_histogram(
            "dra_scheduler_loop_pause_seconds",
            "How late the event loop served what became due, 100 times a second.",
            PAUSE_BUCKETS,
        )
        self.loop_pause_own = self._tally_histogram(
            "dra_scheduler_loop_pause_own_seconds",
            "The part of each pause in which the event loop was at work; the rest it waited for a core.",
            PAUSE_BUCKETS,
        )
        self.tasks = self._gauge("dra_scheduler_tasks", "Tasks of the event loop: watches, writers, Pods being bound.")
        self.plugin_errors = self._counter(
            "dra_scheduler_plugin_errors_total", "Attempts that a plugin's failure cost.", "plugin", "extension_point"
        )

    def _named(self, names: Container[str]) -> list[Collector]:
        """Collectors of a family in ``names``; a counter's goes by its name with ``_total`` too."""
        found = []
        for collector, families in self.registry._collector_to_names.items():
            if any(name in names for name in families):
                found.append(collector)
        return found

    def gates(self, gates: Mapping[str, bool]) -> None:
        """Show which feature gates are on."""
        for name, on in gates.items():
            self.features.labels(name, "").set(int(on))

    def read_from(self, watched: Iterable[Watched], recorder: Dropping) -> None:
        """Show the counters of these reflectors and this recorder too. Call it once."""
        self.registry.register(_Readings(tuple(watched), recorder))

    def attempt(self, result: str, profile: str, duration_s: float) -> None:
        """An attempt ended: scheduled, unschedulable or error."""
        self.schedule_attempts.add((result, profile))
        self.attempt_duration.observe((result, profile), duration_s)

    def pod_bound(self, attempts: int, since_first_s: float) -> None:
        """A Pod was bound at its ``attempts``-th attempt."""
        self.pod_attempts.observe(attempts)
        self.sli_duration.observe((attempts_label(attempts),), since_first_s)

    def request_seen(self, host: str, method: str, status: int, duration_s: float) -> None:
        """A request to the API server ended; status 0: without an answer (client-go says ``<error>``)."""
        self.requests.add((str(status) if status else "<error>", host, method))
        self.request_duration.observe((host, method), duration_s)

    def render(self) -> tuple[bytes, str]:
        """The text exposition and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
