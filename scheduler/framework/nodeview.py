"""NodeView: one node as user plugins see it, a thin window on the node columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from scheduler.api.core import Node, Pod

if TYPE_CHECKING:
    from scheduler.state.nodes import NodeTable


class NodeView:
    """Read-only view of one row. Valid during the call it is passed to; do not keep it."""

    __slots__ = ("_row", "_table")

    def __init__(self, table: NodeTable, row: int) -> None:
        self._table, self._row = table, row

    @property
    def node(self) -> Node:
        """The Node object."""
        return self._table.node(self._row)

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.node.name

    @property
    def labels(self) -> Mapping[str, str]:
        """metadata.labels."""
        return self.node.metadata.labels

    @property
    def pods(self) -> tuple[Pod, ...]:
        """Pods on the node, assumed ones included."""
        return tuple(info.pod for info in self._table.pods(self._row))

    def allocatable(self, resource: str) -> int:
        """Allocatable amount: cpu in milli, memory and storage in bytes, others in units; 0 when absent."""
        return int(self._table.allocatable(resource)[self._row])

    def requested(self, resource: str) -> int:
        """Sum of the requests of the Pods on the node, same units."""
        return int(self._table.requested(resource)[self._row])
