"""NodeName: a Pod that names its node fits nowhere else."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from plugins.base import CONTINUE, PluginBase
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import SUCCESS, Code, VerdictTable
from scheduler.state.nodes import NodeTable


class NodeName(PluginBase):
    """Source: kube-scheduler 1.37, NodeName (spec 3.3). Matters for simulations: such Pods are not queued."""

    name = "NodeName"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        reason = "node(s) didn't match the requested node name"
        self._other_node = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Only the named node is worth a look."""
        name = cycle.pod.spec.nodeName
        return PreFilterResult(SUCCESS, frozenset((name,))) if name else CONTINUE

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The name asked for."""
        return cycle.pod.spec.nodeName or ""

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Every node but the named one is rejected."""
        name = cycle.pod.spec.nodeName
        if not name:
            return np.zeros(len(rows), np.int64)
        return np.where(rows == nodes.row_of(name), 0, self._other_node)

    def events(self) -> Sequence[Registration]:
        """A node appeared."""
        return (Registration(Resource.NODE, Action.ADD),)
