"""Verdicts of whole clusters kept per shape of claims: only nodes that a change concerns are asked again.

Pods of one template share a shape. An answer holds while the node object, the slices it sees and the holds in its pools
stay as they were; errors are never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.dra.requests import Plan
from scheduler.framework.plugin import Rows
from scheduler.state.devices import DeviceState
from scheduler.state.nodes import NodeTable

_SHAPES_MAX = 64
Int64 = NDArray[np.int64]


class Answers:
    """Answers to one shape. Arrays are indexed by row; ``static`` is the row's static version when asked, 0: never."""

    __slots__ = ("_ledger_version", "_slices_version", "plan", "scores", "static", "verdicts")

    def __init__(self, plan: Plan, devices: DeviceState) -> None:
        self.plan = plan
        self.verdicts: Int64 = np.zeros(0, np.int64)
        self.scores: Int64 = np.zeros(0, np.int64)
        self.static: Int64 = np.zeros(0, np.int64)
        self._slices_version = devices.slices.version
        self._ledger_version = devices.ledger.version

    def refresh(self, devices: DeviceState, nodes: NodeTable) -> None:
        """Forget what changes since the last time concern. Cost: O(changes)."""
        missing = nodes.capacity - len(self.static)
        if missing > 0:
            more = np.zeros(missing, np.int64)
            self.verdicts = np.concatenate((self.verdicts, more))
            self.scores = np.concatenate((self.scores, more))
            self.static = np.concatenate((self.static, more))
        slices, ledger = devices.slices, devices.ledger
        names = slices.changes.since(self._slices_version)
        pools = ledger.changes.since(self._ledger_version)
        self._slices_version, self._ledger_version = slices.version, ledger.version
        if names is None or pools is None:
            self.static[:] = 0
            return
        for pool in pools:
            names.update(slices.nodes_seeing(pool))
        for name in names:
            row = nodes.row_of(name)
            if row is not None:
                self.static[row] = 0

    def unknown(self, nodes: NodeTable, rows: Rows) -> NDArray[np.bool_]:
        """Which of ``rows`` must be asked."""
        differ: NDArray[np.bool_] = self.static.take(rows) != nodes.static_versions.take(rows)
        return differ

    def keep(self, row: int, static_version: int, verdict: int, score: int) -> None:
        """Note the answer of one row, asked when its static version was this."""
        self.verdicts[row], self.scores[row], self.static[row] = verdict, score, static_version


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Nodes of one attempt that have the same to allocate: places in the rows, what, and the answers kept for it.

    All places are a slice: numpy then looks at the rows themselves instead of copying them.
    """

    places: Int64 | slice
    plan: Plan
    answers: Answers

    def unknown(self, nodes: NodeTable, rows: Rows) -> list[int]:
        """The places that must be asked, in row order."""
        found = np.flatnonzero(self.answers.unknown(nodes, rows[self.places]))
        places: list[int] = (found if isinstance(self.places, slice) else self.places[found]).tolist()
        return places


class AnswerCache:
    """Answers by shape, least recently used ones dropped."""

    def __init__(self, limit: int = _SHAPES_MAX) -> None:
        self._limit = limit
        self._answers: OrderedDict[Hashable, Answers] = OrderedDict()

    def open(self, shape: Hashable, plan: Plan, devices: DeviceState, nodes: NodeTable) -> Answers:
        """The up-to-date answers of a shape, empty ones for a new shape."""
        answers = self._answers.get(shape)
        if answers is None:
            answers = self._answers[shape] = Answers(plan, devices)
            if len(self._answers) > self._limit:
                self._answers.popitem(last=False)
        else:
            self._answers.move_to_end(shape)
        answers.refresh(devices, nodes)
        return answers

    def all(self) -> tuple[Answers, ...]:
        """Everything kept, for verification."""
        return tuple(self._answers.values())
