"""Extended resources that a DeviceClass stands for, counted in devices, for nodes that offer none themselves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scheduler.api.podrequests import is_scalar
from scheduler.api.resource import DeviceClass
from scheduler.dra.pools import NodeView
from scheduler.dra.selectors import Program, SelectorCache, SelectorFailure
from scheduler.framework.plugin import Rows
from scheduler.state.cluster import ClusterState
from scheduler.state.nodes import NodeTable


class DeviceCounter:
    """Counts, per node, the devices that match a class and those of them that some claim holds.

    Source: kube-scheduler 1.37, resource allocation scorer (spec 3.8.4). Two differences: only devices of complete
    pools of the newest generation count, and an answer of a selector is not kept when the device changes.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._selectors = SelectorCache()

    def fill(
        self, nodes: NodeTable, rows: Rows, resource: str, capacity: NDArray[np.int64], used: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """``capacity`` and ``used`` with device counts where ``capacity`` is 0; unchanged when no class serves it.

        Cost: the devices of these rows, selectors answered from memory.
        """
        served = self._state.devices.classes.for_extended_resource(resource) if is_scalar(resource) else None
        missing = np.flatnonzero(capacity == 0)
        if served is None or not len(missing):
            return capacity, used
        capacity, used = capacity.copy(), used.copy()
        for position in missing.tolist():
            view = self._state.devices.slices.view(nodes.node(int(rows[position])))
            matching, held = self._count(served, view)
            if matching:
                capacity[position], used[position] = matching, held
        return capacity, used

    def _count(self, served: DeviceClass, view: NodeView) -> tuple[int, int]:
        """(matching, held); nothing when a selector fails on any device."""
        expressions = tuple(s.cel.expression for s in served.spec.selectors if s.cel is not None)
        program = Program(served.name, expressions, (), self._selectors)
        matching = held = 0
        for position, device in enumerate(view.devices):
            if not view.here >> position & 1:
                continue
            answer = program.answer(device)
            if isinstance(answer, SelectorFailure):
                return 0, 0
            if answer:
                matching += 1
                held += self._state.devices.ledger.holding(device.key) is not None
        return matching, held
