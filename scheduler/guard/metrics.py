"""Metrics of the guard, in a registry of its own."""

from __future__ import annotations

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

from scheduler import __version__
from scheduler.edge.metrics import exponential
from scheduler.guard.reviewer import Answer, Mode


class GuardMetrics:
    """What reviews were answered, how fast, and what is open."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library ships it without annotations
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.reviews = Counter(
            "dra_scheduler_guard_reviews_total",
            "Reviews answered: allowed, refused, warned (allowed in mode warn although forbidden).",
            ("mode", "decision", "dry_run"),
            registry=registry,
        )
        self.refusals = Counter(
            "dra_scheduler_guard_refusals_total",
            "Devices that were refused or warned about, by reason.",
            ("mode", "reason"),
            registry=registry,
        )
        self.requests = Histogram(
            "dra_scheduler_guard_request_duration_seconds",
            "Duration of a request to the webhook, by HTTP status.",
            ("mode", "code"),
            buckets=exponential(0.0005, 2, 14),
            registry=registry,
        )
        self.active = Gauge("dra_scheduler_guard_active", "1 while this replica answers reviews.", registry=registry)
        self.reservations = Gauge(
            "dra_scheduler_guard_reservations", "Admitted allocations not seen stored yet.", registry=registry
        )
        self.expired = Counter(
            "dra_scheduler_guard_reservations_expired_total",
            "Admitted allocations that were never stored.",
            registry=registry,
        )
        self.certificate = Gauge(
            "dra_scheduler_guard_certificate_expiry_timestamp_seconds",
            "End of the serving certificate, 0 when it was given as a file.",
            registry=registry,
        )
        self.bad_objects = Counter(
            "dra_scheduler_guard_bad_objects_total", "Objects that could not be decoded.", ("kind",), registry=registry
        )
        build = Gauge("dra_scheduler_build_info", "1, labelled with the version.", ("version",), registry=registry)
        build.labels(__version__).set(1)

    def answered(self, mode: Mode, answer: Answer, dry_run: bool) -> None:
        """One review."""
        decision = "refused" if not answer.allowed else "warned" if answer.refusals else "allowed"
        self.reviews.labels(mode, decision, str(dry_run).lower()).inc()
        for refusal in answer.refusals:
            self.refusals.labels(mode, refusal.reason).inc()

    def requested(self, mode: str, status: int, duration_s: float) -> None:
        """One HTTP request."""
        self.requests.labels(mode, str(status)).observe(duration_s)

    def render(self) -> tuple[bytes, str]:
        """Text and content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST
