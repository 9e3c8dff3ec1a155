"""The plugin: extension points."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Mapping, Sequence

import numpy as np

from plugins.base import PluginBase
from plugins.default_preemption.choice import best, importance
from scheduler.api.core import Pod
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.diagnosis import Diagnosis, nodes_available_text
from scheduler.framework.dryrun import Candidate, DryRun, dry_run
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.extender_calls import ExtenderError
from scheduler.framework.extenders import preempt_by_extenders
from scheduler.framework.instructions import Instruction, PreemptionProgress, PreemptPods
from scheduler.framework.plugin import Handle, PostFilterResult, Rows
from scheduler.framework.status import SUCCESS, Code, Status, error, unresolvable, unschedulable

DISRUPTION_TARGET = "DisruptionTarget"
PREEMPTED_BY_SCHEDULER = "PreemptionByScheduler"

_PREFIX = "preemption: "
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_WAITING = unresolvable("waiting for the preemption for this pod to be finished")


class DefaultPreemption(PluginBase):
    """Source: kube-scheduler 1.37, DefaultPreemption (spec 3.18), with asynchronous preemption.

    Arguments: ``minCandidateNodesPercentage`` and ``minCandidateNodesAbsolute``, which say how many candidates end the
    search. It begins at a node that follows from the Pod's uid, so that equal input gives equal output and Pods do
    not all begin at the same one.
    """

    name = "DefaultPreemption"

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._percentage = int(handle.arguments.get("minCandidateNodesPercentage", 10))
        self._absolute = int(handle.arguments.get("minCandidateNodesAbsolute", 100))
        self._running: dict[str, PreemptionProgress] = {}

    def events(self) -> Sequence[Registration]:
        """Asked for so that the going of victims is recorded for Pods in flight; it decides nothing itself."""
        return (Registration(Resource.ASSIGNED_POD, Action.DELETE, _never),)

    def pre_enqueue(self, pod: Pod) -> Status:
        """A preemptor waits until its last victim is going."""
        progress = self._running.get(pod.uid)
        if progress is None:
            return SUCCESS
        if progress.ended or (progress.last is not None and self._going(progress.last)):
            del self._running[pod.uid]
            return SUCCESS
        return _WAITING

    def post_filter(
        self, cycle: Cycle, statuses: Mapping[str, Status]
    ) -> Generator[Instruction | None, str | None, PostFilterResult]:
        """Find the best node to make room on, and ask for its victims to be evicted."""
        diagnosis = cycle.diagnosis
        if diagnosis is None or cycle.profile is None:
            return PostFilterResult(error(f"{_PREFIX}the attempt left no diagnosis"))
        refusal = self._not_eligible(cycle, statuses, diagnosis)
        if refusal:
            return PostFilterResult(unschedulable(_PREFIX + refusal))
        rows = self._potential_rows(cycle, statuses, diagnosis)
        wanted = min(len(rows), max(len(rows) * self._percentage // 100, self._absolute))
        run = DryRun()
        if len(rows):
            try:
                steps = dry_run(cycle.profile, cycle, rows, wanted, importance(cycle.now))
                run = yield from steps
            except PluginError as problem:
                return PostFilterResult(error(_PREFIX + str(problem)))
        if not run.candidates:
            if run.errors:
                return PostFilterResult(error(_PREFIX + _joined(run.errors)))
            return PostFilterResult(unschedulable(_PREFIX + _in_vain(diagnosis, run.statuses)), nominated_node="")
        try:
            candidates = yield from preempt_by_extenders(
                cycle.profile.extenders, cycle.pod, cycle.state.nodes, run.candidates
            )
        except ExtenderError as problem:
            return PostFilterResult(error(_PREFIX + str(problem)))
        if not candidates:
            return PostFilterResult(unschedulable(f"{_PREFIX}no candidate node for preemption"))
        chosen = best(candidates, cycle.now)
        failure = yield self._preemption(cycle, chosen)
        if failure is not None:
            self._running.pop(cycle.pod.uid, None)
            return PostFilterResult(error(_PREFIX + failure))
        text = (
            f"{_PREFIX}found a potential placement for pod on node {chosen.node}, "
            f"preempting {len(chosen.victims)} victims"
        )
        return PostFilterResult(Status(Code.SUCCESS, (text,)), chosen.node, chosen.victims)

    def _not_eligible(self, cycle: Cycle, statuses: Mapping[str, Status], diagnosis: Diagnosis) -> str:
        """Why the Pod may not preempt, "" when it may."""
        pod = cycle.pod
        if pod.spec.preemptionPolicy == "Never":
            return "not eligible due to preemptionPolicy=Never."
        node = cycle.state.nominator.node_of(pod.uid) or pod.status.nominatedNodeName
        if not node or statuses.get(node, diagnosis.absent).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return ""
        if cycle.state.nodes.row_of(node) is None:
            return ""
        # kube-scheduler waits for victims only once the watch shows that they go. Between that and the choice a Pod
        # whose own victims are gone already would take others' on another node, though room comes on this one.
        victims = cycle.state.victims
        for info in cycle.state.nodes.pods_on(node):
            if info.pod.priority < pod.priority and (info.pod.uid in victims or _preempted_and_going(info.pod)):
                return "not eligible due to a terminating pod on the nominated node."
        return ""

    def _potential_rows(self, cycle: Cycle, statuses: Mapping[str, Status], diagnosis: Diagnosis) -> Rows:
        """Nodes whose rejection the going of Pods may lift, in scan order."""
        nodes = cycle.state.nodes
        rows = [
            row
            for row in nodes.order().tolist()
            if statuses.get(nodes.name_of(row), diagnosis.absent).code is Code.UNSCHEDULABLE
        ]
        start = zlib.crc32(cycle.pod.uid.encode()) % len(rows) if rows else 0
        return np.asarray([*rows[start:], *rows[:start]], np.int64)

    def _preemption(self, cycle: Cycle, chosen: Candidate) -> PreemptPods:
        """What is left to do; the preemptor is held back only while there are victims that do not go yet."""
        progress = PreemptionProgress()
        if any(victim.metadata.deletionTimestamp is None for victim in chosen.victims):
            known = self.state.pods
            self._running = {uid: other for uid, other in self._running.items() if uid in known and not other.ended}
            self._running[cycle.pod.uid] = progress
        displaced = tuple(
            info.pod
            for info in cycle.state.nominator.on(chosen.node)
            if info.pod.priority < cycle.pod.priority and cycle.state.serves(info.pod)
        )
        return PreemptPods(cycle.pod, chosen.node, chosen.victims, displaced, progress)

    def _going(self, victim: Pod) -> bool:
        newest = self.state.pods.get(victim.uid)
        return newest is None or newest.metadata.deletionTimestamp is not None


def _never(pod: Pod, old: Pod, new: None) -> bool:
    return False


def _preempted_and_going(pod: Pod) -> bool:
    if pod.metadata.deletionTimestamp is None:
        return False
    for condition in pod.status.conditions:
        if condition.type == DISRUPTION_TARGET:
            return condition.status == "True" and condition.reason == PREEMPTED_BY_SCHEDULER
    return False


def _in_vain(diagnosis: Diagnosis, statuses: Mapping[str, Status]) -> str:
    """The fit error over all nodes: what the dry run found, and for the others that preemption does not help."""
    reasons: dict[str, int] = {}
    for status in statuses.values():
        for reason in status.reasons:
            reasons[reason] = reasons.get(reason, 0) + 1
    others = diagnosis.node_count - len(statuses)
    if others > 0:
        reasons[_NOT_HELPFUL] = reasons.get(_NOT_HELPFUL, 0) + others
    return nodes_available_text(diagnosis.node_count, reasons)


def _joined(errors: Sequence[str]) -> str:
    """Errors as Go's aggregate prints them: each text once, in brackets when there are several."""
    texts = list(dict.fromkeys(errors))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
