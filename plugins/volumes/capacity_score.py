"""Scores of VolumeBinding: the larger the stock a claim would be served from, the better (spec 3.15.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from plugins.base import percent
from plugins.volumes.claims import amount_bytes
from plugins.volumes.matching import UNMATCHED
from plugins.volumes.plan import Plan
from scheduler.api.storage import STORAGE
from scheduler.framework.plugin import Scores
from scheduler.state.columns import Int64

_Stocks = dict[str, tuple[Int64, Int64]]
"""Storage class → (bytes requested, bytes there) per place; requested is -1 where the class does not count."""


def capacity_scores(plan: Plan, table: NDArray[np.int64]) -> Scores:
    """0..100 per place: the average over storage classes of ``table[use in percent]``; 0 where nothing counts."""
    count = len(plan.flags)
    static = np.zeros(count, np.bool_)
    for match in plan.matches:
        static |= match.choice != UNMATCHED
    by_match = _average(list(_matched(plan).values()), table, count)
    by_provision = _average(list(_provisioned(plan).values()), table, count)
    return np.where(static, by_match, by_provision)


def _matched(plan: Plan) -> _Stocks:
    stocks: _Stocks = {}
    for match in plan.matches:
        requested_bytes = amount_bytes(match.claim.requested)
        sizes = np.asarray(
            [amount_bytes(volume.spec.capacity.get(STORAGE)) for volume in match.volumes] or [0], np.int64
        )
        there = match.choice != UNMATCHED
        requested, capacity = _stock(stocks, match.claim.class_name, len(there))
        requested[there] = np.maximum(requested[there], 0) + requested_bytes
        capacity[there] += sizes[match.choice[there]]
    return stocks


def _provisioned(plan: Plan) -> _Stocks:
    """A stock counts once, however many claims it would serve."""
    stocks: _Stocks = {}
    for provision in plan.provisions:
        there = provision.needed & (provision.capacity_bytes >= 0)
        requested, capacity = _stock(stocks, provision.claim.class_name, len(there))
        requested[there] = np.maximum(requested[there], 0) + amount_bytes(provision.claim.requested)
        capacity[there] = provision.capacity_bytes[there]
    return stocks


def _stock(stocks: _Stocks, name: str, count: int) -> tuple[Int64, Int64]:
    return stocks.setdefault(name, (np.full(count, -1, np.int64), np.zeros(count, np.int64)))


def _average(stocks: Sequence[tuple[Int64, Int64]], table: NDArray[np.int64], count: int) -> Scores:
    total, classes = np.zeros(count, np.int64), np.zeros(count, np.int64)
    for requested, capacity in stocks:
        counted = requested >= 0
        full = (capacity == 0) | (requested > capacity)
        use = np.where(full, 100, percent(np.clip(requested, 0, capacity), capacity))
        total += np.where(counted, table[use], 0)
        classes += counted
    return np.floor(total / np.maximum(classes, 1) + 0.5).astype(np.int64)
