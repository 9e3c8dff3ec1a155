"""What was found out about the devices of single nodes, kept from one explanation to the next.

Most nodes have not changed when the same Pod is asked about again, or the next one of a set.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field

from scheduler.dra.ledger import Usage
from scheduler.dra.pools import NodeView
from scheduler.explain.facts import ClaimReport, PoolTrouble

REPORTS_MAX = 10_000
"""Node reports kept in all; one takes some kilobytes."""


@dataclass(slots=True)
class DeviceReport:
    """Why one node's devices do not serve: not to be changed. As in ``facts.NodeGroup``."""

    claims: list[ClaimReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    troubles: list[PoolTrouble] = field(default_factory=list)


class KeptReports:
    """Reports by question (claims with all they ask for) and node; questions that were not asked for longest go first.

    One holds while the node's devices and their use are the very same objects: both are made anew with every change.
    """

    def __init__(self, limit: int = REPORTS_MAX) -> None:
        self._limit, self._count = limit, 0
        self._kept: OrderedDict[Hashable, dict[str, tuple[NodeView, Usage, DeviceReport]]] = OrderedDict()

    def get(self, question: Hashable, view: NodeView, usage: Usage) -> DeviceReport | None:
        """The report, None when there is none that holds."""
        of_nodes = self._kept.get(question)
        if of_nodes is None:
            return None
        self._kept.move_to_end(question)
        found = of_nodes.get(view.node_name)
        return found[2] if found is not None and found[0] is view and found[1] is usage else None

    def put(self, question: Hashable, view: NodeView, usage: Usage, report: DeviceReport) -> None:
        """Keep a report."""
        of_nodes = self._kept.setdefault(question, {})
        self._kept.move_to_end(question)
        new = view.node_name not in of_nodes
        while new and self._count >= self._limit and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._count -= len(self._kept.pop(oldest))
        if new and self._count >= self._limit:
            return  # of a question about more nodes than that the first ones are kept
        self._count += new
        of_nodes[view.node_name] = view, usage, report

    def __len__(self) -> int:
        return self._count
