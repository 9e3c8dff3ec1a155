"""Metrics of what is asked of a running scheduler, and its inventory as gauges.

The inventory is counted beside the loop when somebody scrapes, at most every ``INVENTORY_EVERY_S`` seconds; a scrape
gets the last complete one, the first one gets none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from scheduler.explain.inventory_facts import Inventory
from scheduler.explain.inventory_metrics import GAUGES, PREFIX, Sample, metric_samples

INVENTORY_EVERY_S = 15.0
_SLICES_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

TakeInventory = Callable[[], Awaitable[Inventory]]


class QuestionMetrics(Collector):
    """Registers itself. ``take`` counts devices by model; ``clock`` counts seconds. ``disabled``: names left out."""

    def __init__(
        self,
        registry: CollectorRegistry,
        clock: Callable[[], float],
        *,
        disabled: Container[str] = (),
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.slices = Histogram(
            "dra_scheduler_question_slice_seconds",
            "How long a question held the loop at a time.",
            buckets=_SLICES_S,
            registry=registry,
        )
        self.questions = Counter(
            "dra_scheduler_questions_total",
            "Questions answered, by kind and HTTP code.",
            ("question", "code"),
            registry=registry,
        )
        self._clock, self._disabled, self._on_trouble = clock, disabled, on_trouble
        self._take: TakeInventory | None = None
        self._samples: list[Sample] = []
        self._due = float("-inf")
        self._task: asyncio.Task[None] | None = None
        registry.register(self)

    def answered(self, question: str, code: int) -> None:
        """A question was answered with this HTTP code."""
        self.questions.labels(question, str(code)).inc()

    def inventory_from(self, take: TakeInventory) -> None:
        """Where the inventory comes from."""
        self._take = take

    def collect(self) -> Iterator[Metric]:
        """The gauges of the last inventory; begins a new one when it is due. Called in the loop."""
        self._begin()
        families: dict[str, GaugeMetricFamily] = {}
        for sample in self._samples:
            if sample.name in self._disabled:
                continue
            family = families.get(sample.name)
            if family is None:
                names = [name for name, _ in sample.labels]
                text = GAUGES[sample.name.removeprefix(PREFIX)]
                family = families[sample.name] = GaugeMetricFamily(sample.name, text, labels=names)
            family.add_metric([value for _, value in sample.labels], sample.value)
        yield from families.values()

    def _begin(self) -> None:
        running = self._task is not None and not self._task.done()
        if self._take is None or running or self._clock() < self._due:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # rendered by somebody without a loop: the last one will do
        self._due = self._clock() + INVENTORY_EVERY_S
        self._task = loop.create_task(self._count(self._take))

    async def _count(self, take: TakeInventory) -> None:
        try:
            self._samples = list(metric_samples(await take()))
        except Exception as error:  # foreign objects: the metrics go on without an inventory
            self._samples = []
            self._on_trouble(f"the inventory could not be counted: {type(error).__name__}: {error}")

    def close(self) -> None:
        """End what is under way."""
        if self._task is not None:
            self._task.cancel()
