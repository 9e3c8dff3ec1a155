"""Counters and histograms for hot paths: plain numbers, made into metric families when somebody asks.

A label look-up of prometheus-client costs microseconds and there are dozens per attempt; these cost tenths of one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry


class TallyCounter(Collector):
    """A counter with labels. ``sources`` are asked for (label values, number) of what they count themselves."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry) -> None:
        self._name, self._text, self._labels = name.removesuffix("_total"), text, tuple(labels)
        self._counts: dict[tuple[str, ...], float] = {}
        self.sources: list[Callable[[], Iterable[tuple[tuple[str, ...], float]]]] = []
        registry.register(self)

    def add(self, values: tuple[str, ...], count: float = 1.0) -> None:
        """Add ``count`` to the counter of these label values."""
        self._counts[values] = self._counts.get(values, 0.0) + count

    def describe(self) -> Iterator[Metric]:
        """The family without samples."""
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """The family with what was counted."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        found = [*self._counts.items(), *(entry for source in self.sources for entry in source())]
        for values, count in sorted(found):
            family.add_metric(values, count)
        yield family


class TallyHistogram(Collector):
    """A histogram with labels. ``buckets``: ascending upper bounds without +Inf."""

    def __init__(
        self, name: str, text: str, buckets: Sequence[float], labels: Sequence[str], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self._labels, self._bounds = name, text, tuple(labels), list(buckets)
        self._rows: dict[tuple[str, ...], list[float]] = {}
        registry.register(self)

    def observe(self, values: tuple[str, ...], amount: float) -> None:
        """Count ``amount`` under these label values. Cost: a dictionary look-up and a bisection."""
        row = self._rows.get(values)
        if row is None:
            row = self._rows[values] = [0.0] * (len(self._bounds) + 2)
        row[bisect_left(self._bounds, amount)] += 1
        row[-1] += amount

    def describe(self) -> Iterator[Metric]:
        """The family without samples."""
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """The family with what was observed, cumulative as the format wants it."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*(str(bound) for bound in self._bounds), "+Inf"]
        for values, row in sorted(self._rows.items()):
            total, buckets = 0.0, []
            for name, count in zip(names, row, strict=False):
                total += count
                buckets.append((name, total))
            family.add_metric(values, buckets, row[-1])
        yield family
