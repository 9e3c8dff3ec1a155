"""Conveniences for plugins, the default ones and users' alike. Nothing here is required: a plugin is any class with a
``name`` and the methods of its extension points (``scheduler.framework.plugin``).

    class ColdNodes(PluginBase):
        name = "ColdNodes"

        def score(self, cycle, nodes, rows):
            return per_label(nodes, rows, "example.com/temperature", lambda value: 100 - int(value or 100))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler.api.taints import Taint
from scheduler.framework.plugin import Handle, PreFilterResult, Rows, Scores
from scheduler.framework.status import SKIP, SUCCESS
from scheduler.state.nodes import NodeTable

MAX_SCORE = 100
INT64_MAX = 2**63 - 1

_FEW_SETS = 32
"""So few taint sets are all asked about: cheaper than finding those that occur."""

CONTINUE = PreFilterResult(SUCCESS)
"""A PreFilter's answer when there is something to filter."""
SKIP_FILTER = PreFilterResult(SKIP)
"""A PreFilter's answer when its filter is not needed for this Pod."""


class PluginBase:
    """Keeps the handle; ``arguments`` are the plugin's pluginConfig args, ``state`` the live ClusterState."""

    name = ""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @property
    def arguments(self) -> Mapping[str, Any]:
        """pluginConfig args, defaults filled in for the default plugins."""
        return self.handle.arguments

    @property
    def state(self) -> Any:
        """The ClusterState; read only."""
        return self.handle.state


def per_label(nodes: NodeTable, rows: Rows, key: str, function: Callable[[str | None], int]) -> Scores:
    """``function(value)`` per row, called once per distinct value of label ``key`` (None: the node lacks it)."""
    column = nodes.labels(key)
    codes = column.codes[rows]
    present = np.unique(codes)
    answers = [function(column.values[code] if code >= 0 else None) for code in present.tolist()]
    return np.asarray(answers, np.int64)[np.searchsorted(present, codes)] if len(rows) else np.zeros(0, np.int64)


def per_taint_set(nodes: NodeTable, rows: Rows, function: Callable[[tuple[Taint, ...]], int]) -> Scores:
    """``function(taints)`` per row, called at most once per distinct list of taints."""
    ids = nodes.taint_set_ids[rows]
    if len(nodes.taint_sets) <= _FEW_SETS:
        return np.asarray([function(taints) for taints in nodes.taint_sets], np.int64)[ids]
    present = np.unique(ids)
    answers = [function(nodes.taint_sets[set_id]) for set_id in present.tolist()]
    return np.asarray(answers, np.int64)[np.searchsorted(present, ids)] if len(rows) else np.zeros(0, np.int64)


def percent(part: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.int64]:
    """``100 * part // whole`` for 0 <= part <= whole, exact for every int64; 0 where ``whole`` is 0."""
    divisor = np.maximum(whole, 1)
    if len(part) and int(part.max()) > INT64_MAX // 100:
        exact = part.astype(object) * 100 // divisor.astype(object)
        return np.asarray(exact.astype(np.int64))
    return part * 100 // divisor


def default_normalize(scores: Scores, *, reverse: bool = False) -> Scores:
    """Scale scores so that the largest becomes 100; ``reverse`` turns them around (spec 1.6).

    With no score above 0 they stay as they are, or all become 100 when reversed. Division truncates toward zero.
    """
    largest = int(scores.max()) if len(scores) else 0
    if largest <= 0:
        return np.full(len(scores), MAX_SCORE, np.int64) if reverse else scores
    signs, sizes = np.sign(scores), np.abs(scores)
    if int(sizes.max()) > INT64_MAX // 100:
        scaled = (sizes.astype(object) * 100 // largest).astype(np.int64) * signs
    else:
        scaled = sizes * 100 // largest * signs
    return MAX_SCORE - scaled if reverse else scaled


def weighted_average(
    values: Sequence[NDArray[np.int64]], present: Sequence[NDArray[np.bool_]], weights: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(sum of value * weight, sum of weights) per row over the values that are present there.

    Values are scores up to 100 and weights at most 100 by validation, so nothing can overflow.
    """
    total = np.zeros(len(values[0]), np.int64)
    weight_sum = np.zeros(len(values[0]), np.int64)
    for value, there, weight in zip(values, present, weights, strict=True):
        total += np.where(there, value, 0) * weight
        weight_sum += there * weight
    return total, weight_sum
