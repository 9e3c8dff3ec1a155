"""Measures plugins, hints and events into the numbers of edge.metrics: the clock that the core has not got."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator

from scheduler.api.changes import Change
from scheduler.api.kinds import POD
from scheduler.edge.metrics import Metrics
from scheduler.framework.events import ClusterEvent
from scheduler.framework.profile import Profile
from scheduler.framework.timings import PluginTimer, Timings

SAMPLE_EVERY = 10
"""One cycle of so many has its plugins measured one by one. Upstream draws 10 % at random."""


class ProfileTimings(Timings):
    """The timings of one profile. Cost: about a microsecond per extension point."""

    def __init__(self, profile: Profile, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._profile, self._clock = profile.name, clock
        names = {
            "PreFilter": profile.pre_filter,
            "Filter": profile.filter,
            "PreScore": profile.pre_score,
            "Score": profile.score,
        }
        self._names = {point: [str(plugin.name) for plugin in plugins] for point, plugins in names.items()}
        self._asked: dict[tuple[str, frozenset[str]], int] = {}
        self._refused: dict[tuple[str, frozenset[str], str], int] = {}
        metrics.plugin_evaluations.sources.append(self.evaluations)
        self._points, self._plugins = metrics.extension_point_duration, metrics.plugin_duration
        self._conditions, self._conditions_wait = metrics.binding_conditions, metrics.binding_conditions_wait
        self._cycles = 0
        self._timer = PluginTimer(clock, self._took)

    def clock(self) -> float:
        """Now."""
        return self._clock()

    def sample(self) -> PluginTimer | None:
        """Every tenth cycle, the first among them."""
        self._cycles += 1
        return self._timer if self._cycles % SAMPLE_EVERY == 1 else None

    def point(self, point: str, status: str, began: float) -> None:
        """One duration more."""
        self._points.observe((point, status, self._profile), self._clock() - began)

    def waited(self, drivers: Iterable[str], status: str, began: float) -> None:
        """Count and observe, per driver."""
        for driver in drivers:
            self._conditions.labels(self._profile, driver, status).inc()
            self._conditions_wait.labels(self._profile, driver, status).observe(self._clock() - began)

    def asked(self, point: str, skipped: Collection[str], count: int, refused: Iterable[tuple[str, int]] = ()) -> None:
        """Add up per set of skipped plugins; ``evaluations`` makes numbers per plugin of it."""
        key = frozenset(skipped)
        self._asked[point, key] = self._asked.get((point, key), 0) + count
        for plugin, gone in refused:
            self._refused[point, key, plugin] = self._refused.get((point, key, plugin), 0) + gone

    def evaluations(self) -> Iterator[tuple[tuple[str, ...], float]]:
        """((plugin, point, profile), Pods or nodes it was asked about)."""
        totals = {(name, point): 0 for point, names in self._names.items() for name in names}
        for (point, skipped), count in self._asked.items():
            left = count
            for name in self._names[point]:
                if name not in skipped:
                    totals[name, point] += left
                    left -= self._refused.get((point, skipped, name), 0)
        for (name, point), total in totals.items():
            yield (name, point, self._profile), total

    def _took(self, plugin: str, point: str, status: str, duration_s: float) -> None:
        self._plugins.observe((plugin, point, status), duration_s)


class Measuring:
    """What a service measures. ``clock``: seconds from any start."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float] = time.perf_counter) -> None:
        self._metrics, self.clock = metrics, clock

    def timings(self, profile: Profile) -> Timings:
        """The timings of one profile."""
        return ProfileTimings(profile, self._metrics, self.clock)

    def hint_took(self, plugin: str, event: ClusterEvent, answer: str, duration_s: float) -> None:
        """A plugin's hint was asked."""
        self._metrics.hint_duration.observe((plugin, event.label, answer), duration_s)

    def deliver(self, batch: Iterable[Change], deliver: Callable[[Change], None]) -> None:
        """Hand over ``batch`` one change at a time and measure each."""
        before = self.clock()
        for change in batch:
            deliver(change)
            after = self.clock()
            self._metrics.event_handling_duration.observe((change_label(change),), after - before)
            before = after


def change_label(change: Change) -> str:
    """Upstream's label of a change: the kind, of Pods with or without a node, and what happened to it."""
    what = "Add" if change.old is None else "Delete" if change.new is None else "Update"
    if change.kind.name != POD.name:
        return change.kind.name + what
    pod = change.new or change.old
    where = "Assigned" if pod is not None and pod.spec.nodeName else "Unscheduled"
    return f"{where}Pod{what}"
