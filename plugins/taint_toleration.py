"""TaintToleration: hard taints keep Pods away, soft ones make a node less liked."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from plugins.base import CONTINUE, PluginBase, default_normalize, per_taint_set
from scheduler.api.core import Node, Pod
from scheduler.api.taints import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, first_untolerated, tolerated
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Scores, Verdicts
from scheduler.framework.status import SUCCESS, Code, Status, VerdictTable
from scheduler.state.nodes import NodeTable


class TaintToleration(PluginBase):
    """Source: kube-scheduler 1.37, TaintToleration (spec 3.5)."""

    name = "TaintToleration"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        reason = "node(s) had untolerated taint(s)"
        self._tainted = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Always something to look at, as upstream."""
        return CONTINUE

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The tolerations."""
        return cycle.pod.spec.tolerations

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes with a NoSchedule or NoExecute taint that nothing tolerates."""
        tolerations = cycle.pod.spec.tolerations
        return per_taint_set(
            nodes, rows, lambda taints: self._tainted if first_untolerated(taints, tolerations) is not None else 0
        )

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Every taint that nothing tolerates."""
        for taint in nodes.taint_sets[int(nodes.taint_set_ids[row])]:
            if taint.effect in (NO_SCHEDULE, NO_EXECUTE) and not tolerated(taint, cycle.pod.spec.tolerations):
                shown = f"{taint.key}={taint.value}:{taint.effect}"
                yield Because(f"taint {shown}", f"taint {shown} is not tolerated", {"taint": shown})

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Never skipped: without soft taints every node scores 100."""
        return SUCCESS

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """Number of PreferNoSchedule taints not tolerated by tolerations of that effect or of all."""
        tolerations = [t for t in cycle.pod.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE)]
        return per_taint_set(
            nodes,
            rows,
            lambda taints: sum(t.effect == PREFER_NO_SCHEDULE and not tolerated(t, tolerations) for t in taints),
        )

    def normalize(self, cycle: Cycle, nodes: NodeTable, rows: Rows, scores: Scores) -> Scores:
        """The fewer, the better."""
        return default_normalize(scores, reverse=True)

    def events(self) -> Sequence[Registration]:
        """A node's taints are tolerated now, or the Pod's tolerations changed."""
        return (
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, _tolerated_now),
            Registration(Resource.TARGET_POD, Action.UPDATE_POD_TOLERATION),
        )


def _tolerated_now(pod: Pod, old: Node | None, new: Node) -> bool:
    def repelled(node: Node) -> bool:
        return first_untolerated(node.spec.taints, pod.spec.tolerations) is not None

    return not repelled(new) and (old is None or repelled(old))
