"""NodeUnschedulable: cordoned nodes take only Pods that tolerate it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from plugins.base import CONTINUE, PluginBase
from scheduler.api.core import Node, Pod
from scheduler.api.taints import NO_SCHEDULE, Taint, tolerated
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.nodes import NodeTable

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


class NodeUnschedulable(PluginBase):
    """Source: kube-scheduler 1.37, NodeUnschedulable (spec 3.4)."""

    name = "NodeUnschedulable"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        self._cordoned = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, ("node(s) were unschedulable",))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Always something to look at, as upstream."""
        return CONTINUE

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The tolerations."""
        return tolerated(_TAINT, cycle.pod.spec.tolerations)

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes with spec.unschedulable unless the Pod tolerates the taint of that name."""
        cordoned = nodes.unschedulable[rows]
        if not cordoned.any() or tolerated(_TAINT, cycle.pod.spec.tolerations):
            return np.zeros(len(rows), np.int64)
        return np.where(cordoned, self._cordoned, 0)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Always the same."""
        text = f"the node is cordoned (spec.unschedulable), and the Pod does not tolerate {_TAINT.key}"
        yield Because("cordoned", text, {"taint": _TAINT.key})

    def events(self) -> Sequence[Registration]:
        """A node came or was uncordoned, or the Pod got a toleration."""
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _node_opened),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION, _pod_tolerates_now),
        )


def _node_opened(pod: Pod, old: Node | None, new: Node) -> bool:
    return not new.spec.unschedulable and (old is None or old.spec.unschedulable)


def _pod_tolerates_now(pod: Pod, old: Pod, new: Pod) -> bool:
    return tolerated(_TAINT, new.spec.tolerations)
