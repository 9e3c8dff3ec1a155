"""Metrics of the audit trail and the recording; only there when they are switched on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge


class AuditMetrics:
    """What the writers count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "dra_scheduler_audit_records_total",
            "Audit records by result: written, or dropped because the file did not take them in time.",
            ("result",),
            registry=registry,
        )
        self._failures = Counter(
            "dra_scheduler_audit_write_failures_total", "Batches that the audit file did not take.", registry=registry
        )
        self._bytes = Gauge("dra_scheduler_audit_file_bytes", "Size of the audit file.", registry=registry)
        self._gaps = Counter(
            "dra_scheduler_record_gaps_total",
            "Times the recording had to begin anew; decisions before cannot be replayed without a gap.",
            registry=registry,
        )
        for result in ("written", "dropped"):
            self._records.labels(result)

    def audit_written(self, count: int, size_bytes: int) -> None:
        """Records are in the file."""
        self._records.labels("written").inc(count)
        self._bytes.set(size_bytes)

    def audit_dropped(self, count: int) -> None:
        """Records that no file will ever have."""
        self._records.labels("dropped").inc(count)

    def audit_failed(self) -> None:
        """The file refused a batch."""
        self._failures.inc()

    def record_gap(self) -> None:
        """The recording lost something and began anew."""
        self._gaps.inc()
