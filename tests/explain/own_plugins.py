"""A user's filter plugin that explains itself."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.api.core import Pod
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.nodeview import NodeView
from scheduler.framework.plugin import Handle
from scheduler.framework.status import SUCCESS, Status, unschedulable
from scheduler.state.nodes import NodeTable


class ColdNodes:
    """Only nodes below 40 degrees; no Pod called hot at all."""

    name = "ColdNodes"

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    def pre_enqueue(self, pod: Pod) -> Status:
        """Held back by name."""
        return unschedulable("too hot for any node") if pod.metadata.name == "hot" else SUCCESS

    def because_held_back(self, pod: Pod) -> Iterator[Because]:
        """How hot."""
        yield Because("heat", "the Pod has 90 degrees", {"degrees": "90"})

    def check(self, cycle: Cycle, node: NodeView) -> Status:
        """By label."""
        return SUCCESS if int(node.labels.get("degrees", "0")) < 40 else unschedulable("node(s) were too warm")

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """How warm."""
        degrees = nodes.node(row).metadata.labels["degrees"]
        yield Because("temperature", f"{degrees} degrees, 40 at most", {"degrees": degrees}, int(degrees) - 40)
