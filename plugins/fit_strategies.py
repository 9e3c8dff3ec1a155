"""Scoring strategies of NodeResourcesFit. Source: kube-scheduler 1.37 (spec 3.8.5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from plugins.base import MAX_SCORE, percent, weighted_average
from plugins.resource_scoring import ResourceUse, ResourceWeight, resource_weights
from scheduler.errors import ConfigError
from scheduler.framework.plugin import Scores

DEFAULT_RESOURCES = ({"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1})
_SCORE_SCALE = MAX_SCORE // 10
"""Points of a shape score 0..10."""

_PerResource = Callable[[ResourceUse], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class Strategy:
    """``per_resource`` scores one resource, ``combine`` makes one score of the weighted scores."""

    resources: tuple[ResourceWeight, ...]
    per_resource: _PerResource
    combine: Callable[[NDArray[np.int64], NDArray[np.int64]], Scores]
    skips_zero: bool = False
    one: Callable[[int, int], int] | None = None
    """``per_resource`` and ``combine`` for one row that has the resource: (capacity, wanted) → score, averages cut."""

    def score_row(self, uses: Sequence[tuple[int, int, int, int]]) -> int | None:
        """``score`` of one row, from (weight, capacity, used, wanted); None for strategies without such a form."""
        if self.one is None:
            return None
        total = weight_sum = 0
        for weight, capacity, _, wanted in uses:
            if capacity:
                total += self.one(capacity, wanted) * weight
                weight_sum += weight
        return total // max(weight_sum, 1)

    def score(self, uses: Sequence[ResourceUse], count: int) -> Scores:
        """One score per row; 0 where no resource counts."""
        if not uses:
            return np.zeros(count, np.int64)
        values = [self.per_resource(use) for use in uses]
        present = [use.present for use in uses]
        if self.skips_zero:
            present = [there & (value > 0) for there, value in zip(present, values, strict=True)]
        return self.combine(*weighted_average(values, present, [use.weight for use in uses]))


def build_strategy(arguments: Mapping[str, Any], path: str) -> Strategy:
    """The strategy that ``scoringStrategy`` asks for; raises ConfigError with the field."""
    entries = arguments.get("resources")
    resources = resource_weights(DEFAULT_RESOURCES if entries is None else entries, f"{path}.resources")
    kind = arguments.get("type") or "LeastAllocated"
    if kind == "LeastAllocated":
        return Strategy(resources, _least_allocated, _divide, one=_least_of_one)
    if kind == "MostAllocated":
        return Strategy(resources, _most_allocated, _divide, one=_most_of_one)
    if kind == "RequestedToCapacityRatio":
        ratio = arguments.get("requestedToCapacityRatio") or {}
        table = shape_table(ratio.get("shape") or (), f"{path}.requestedToCapacityRatio.shape")
        return Strategy(resources, lambda use: table[_utilization(use)], _round, skips_zero=True)
    raise ConfigError(f"{path}.type", f'unknown strategy "{kind}"')


def shape_table(points: Sequence[Mapping[str, int]], path: str) -> NDArray[np.int64]:
    """Score for each utilization 0..100 on the broken line through ``points``; divisions truncate toward zero."""
    if not points:
        raise ConfigError(path, "at least one point must be specified")
    line = [(point["utilization"], point["score"] * _SCORE_SCALE) for point in points]
    return np.asarray([_on_line(line, utilization) for utilization in range(101)], np.int64)


def _on_line(line: Sequence[tuple[int, int]], utilization: int) -> int:
    for index, (x, y) in enumerate(line):
        if utilization <= x:
            if index == 0:
                return y
            x0, y0 = line[index - 1]
            rise, run = (y - y0) * (utilization - x0), x - x0
            return y0 + (abs(rise) // run if rise >= 0 else -(abs(rise) // run))
    return line[-1][1]


def _least_allocated(use: ResourceUse) -> NDArray[np.int64]:
    return percent(np.maximum(use.capacity - use.wanted, 0), use.capacity)


def _most_allocated(use: ResourceUse) -> NDArray[np.int64]:
    return percent(np.minimum(use.wanted, use.capacity), use.capacity)


def _least_of_one(capacity: int, wanted: int) -> int:
    return max(capacity - wanted, 0) * MAX_SCORE // capacity


def _most_of_one(capacity: int, wanted: int) -> int:
    return min(wanted, capacity) * MAX_SCORE // capacity


def _utilization(use: ResourceUse) -> NDArray[np.int64]:
    """0..100; a node that would be overfull counts as full."""
    return np.where(use.wanted > use.capacity, MAX_SCORE, percent(np.minimum(use.wanted, use.capacity), use.capacity))


def _divide(total: NDArray[np.int64], weight_sum: NDArray[np.int64]) -> Scores:
    return total // np.maximum(weight_sum, 1)


def _round(total: NDArray[np.int64], weight_sum: NDArray[np.int64]) -> Scores:
    """Half away from zero; scores are never negative."""
    return np.floor(total / np.maximum(weight_sum, 1) + 0.5).astype(np.int64)
