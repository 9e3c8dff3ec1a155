"""/metrics/slis: how the health checks went, as often as they were asked, as every Kubernetes component tells it."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest


class HealthSlis:
    """Counts results per check and endpoint in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._current = Gauge(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("type", "name"),
            registry=self._registry,
        )
        self._total = Counter(
            "kubernetes_healthchecks_total",
            "This metric records the results of all healthcheck.",
            ("type", "name", "status"),
            registry=self._registry,
        )

    def observe(self, endpoint: str, check: str, well: bool) -> None:
        """``check`` of ``endpoint`` was asked."""
        self._current.labels(endpoint, check).set(int(well))
        self._total.labels(endpoint, check, "success" if well else "error").inc()

    def render(self) -> tuple[bytes, str]:
        """The text exposition and its content type."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST
