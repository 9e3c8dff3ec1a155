"""NodeResourcesBalancedAllocation: likes nodes whose resources would be used evenly."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from plugins.base import MAX_SCORE, PluginBase
from plugins.device_counts import DeviceCounter
from plugins.fit_strategies import DEFAULT_RESOURCES
from plugins.resource_scoring import ResourceUse, resource_uses, resource_weights, row_uses
from scheduler.api.podrequests import is_scalar
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Depends, Handle, Rows, Scores
from scheduler.framework.status import SKIP, SUCCESS, Status
from scheduler.state.nodes import NodeTable

_HALF = MAX_SCORE // 2


class NodeResourcesBalancedAllocation(PluginBase):
    """Source: kube-scheduler 1.37, NodeResourcesBalancedAllocation (spec 3.9). Argument ``resources``, weights 1."""

    name = "NodeResourcesBalancedAllocation"
    depends = Depends.PODS
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        entries = handle.arguments.get("resources")
        self._resources = resource_weights(DEFAULT_RESOURCES if entries is None else entries, "resources")
        self._devices = DeviceCounter(handle.state)

    def signature(self, cycle: Cycle) -> Hashable | None:
        """What it takes of its node; not kept where devices are counted."""
        requests = cycle.info.node_requests
        if any(is_scalar(resource.name) and requests.get(resource.name, 0) for resource in self._resources):
            return None
        return tuple(requests.items())

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Skips Pods that request nothing of the configured resources, so that they spread by other scores."""
        requests = cycle.info.node_requests
        return SUCCESS if any(requests.get(resource.name, 0) for resource in self._resources) else SKIP

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """75 for no change in balance, up to 100 when the Pod evens it out, down to 50 when it does the opposite."""
        requests = cycle.info.node_requests
        uses = resource_uses(nodes, rows, self._resources, requests, self._devices, defaults=False)
        with_pod = _balance(uses, [use.wanted for use in uses], len(rows))
        without_pod = _balance(uses, [use.used for use in uses], len(rows))
        return _HALF + (_HALF + with_pod - without_pod) // 2

    def score_row(self, cycle: Cycle, nodes: NodeTable, row: int) -> int | None:
        """``score`` of one row with at most two resources, in the same float operations."""
        uses = row_uses(nodes, row, self._resources, cycle.info.node_requests, defaults=False)
        if uses is None:
            return None
        there = [use for use in uses if use[1]]
        if len(there) > 2:
            return None
        before, after = _balance_of_row(there, 2), _balance_of_row(there, 3)
        return _HALF + (_HALF + after - before) // 2


def _balance_of_row(uses: Sequence[tuple[int, int, int, int]], amount: int) -> int:
    """``_balance`` for one row with at most two resources; ``amount`` is the place of the amounts in the tuples."""
    if len(uses) < 2:
        return MAX_SCORE
    first, second = (min(float(use[amount]) / float(use[1]), 1.0) for use in uses)
    return int((1 - abs((first - second) / 2)) * float(MAX_SCORE))


def _balance(uses: Sequence[ResourceUse], amounts: Sequence[NDArray[np.int64]], count: int) -> NDArray[np.int64]:
    """100 for equal use of all resources, less by the standard deviation of the used fractions.

    Float operations in upstream's order: a different one may change the last digit.
    """
    present = [use.present for use in uses]
    fractions = [
        np.where(there, np.minimum(amount / np.maximum(use.capacity, 1), 1.0), 0.0)
        for use, amount, there in zip(uses, amounts, present, strict=True)
    ]
    number = np.zeros(count, np.int64)
    for there in present:
        number += there
    deviation = np.zeros(count, np.float64)
    for i in range(len(uses)):
        for j in range(i + 1, len(uses)):
            both = present[i] & present[j] & (number == 2)
            deviation = np.where(both, np.abs((fractions[i] - fractions[j]) / 2), deviation)
    if len(uses) > 2:
        deviation = np.where(number > 2, _deviation(fractions, present, number), deviation)
    return ((1 - deviation) * float(MAX_SCORE)).astype(np.int64)


def _deviation(
    fractions: Sequence[NDArray[np.float64]], present: Sequence[NDArray[np.bool_]], number: NDArray[np.int64]
) -> NDArray[np.float64]:
    divisor = np.maximum(number, 1)
    total = np.zeros(len(number), np.float64)
    for fraction in fractions:
        total = total + fraction
    mean = total / divisor
    squares = np.zeros(len(number), np.float64)
    for fraction, there in zip(fractions, present, strict=True):
        squares = squares + np.where(there, (fraction - mean) * (fraction - mean), 0.0)
    return np.asarray(np.sqrt(squares / divisor))
