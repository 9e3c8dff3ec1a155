"""What the watches deliver: into the state, from there to the queue; nothing here waits.

``Intake.deliver`` is called by the reflectors in the loop's own thread, so state and queue are always as new as the
watch.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from itertools import islice
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, RESOURCE_CLAIM, Kind
from scheduler.edge.loop_ports import Reports
from scheduler.edge.overlaps import given_again
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.framework.permit import WaitingPods
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status
from scheduler.queue.pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState
from scheduler.state.copies import unapplied

GATE_LOOK_S = 0.5
GATE_REPORT_S = 3.0
"""How long a Pod may be held back by a PreEnqueue plugin before it is told why: claims from templates take a moment."""

_SILENT_GATES = frozenset(("SchedulingGates", "DefaultPreemption"))


class Intake:
    """``wake`` is called after each change; ``deciding``: whether this process decides now. ``grouped``: there are
    PodGroups, whose members wait for each other.
    """

    def __init__(
        self,
        state: ClusterState,
        queue: SchedulingQueue,
        profiles: Mapping[str, Profile],
        reports: Reports,
        waiting_pods: WaitingPods,
        *,
        clock: Callable[[], float],
        wake: Callable[[], None],
        deciding: Callable[[], bool],
    ) -> None:
        self.state, self.queue, self.profiles, self.reports = state, queue, profiles, reports
        self.waiting_pods, self.clock = waiting_pods, clock
        self._wake, self._deciding = wake, deciding
        self.grouped = False
        self._held: dict[str, tuple[Pod, float]] | None = None

    def hold(self) -> None:
        """Keep waiting Pods out of the queue until ``let_in``: what they need is not known before the first LISTs are.

        A queue that knew the Pods already would ask thousands of them whether the next device class is what they wait
        for, in one piece, time and again.
        """
        self._held = {}

    @property
    def holding(self) -> bool:
        """Whether Pods are kept out of the queue."""
        return self._held is not None

    def let_in(self, most: int) -> None:
        """Queue the first ``most`` of the Pods that were kept out; with the last one ``holding`` ends."""
        held = self._held or {}
        for uid in list(islice(held, most)):
            pod, since = held.pop(uid)
            try:
                self._add(pod, since)
            except Exception as error:  # a plugin's sort key may raise anything; the others must get in
                self.reports.broken(f"queueing pod {pod.key}", error)
        if not held:
            self._held = None
        self._wake()

    def deliver(self, batch: list[Change], revision: int) -> None:
        """Take in one batch of changes of one kind (a reflector's sink)."""
        now = self.clock()
        for change in batch:
            try:
                events = self.state.apply(change)
                if change.kind.name == POD.name:
                    self._queue_pod(change.old, change.new, now)
                if events:
                    self.queue.move(events, now)
                    self._look_for_pairs(change)
            except Exception as error:  # a plugin's sort key or hint may raise anything; the watch must go on
                self.reports.broken(f"applying a change of {change.kind.name}", error)
        if batch:
            self._wake()

    def _look_for_pairs(self, change: Change) -> None:
        """A claim that is new with an allocation: does it hold what a Pod of ours was given and is bound with?

        What was there before this process began to serve has been told by its predecessor.
        """
        if change.kind.name != RESOURCE_CLAIM.name or change.new is None or change.new.status.allocation is None:
            return
        before = change.old is not None and change.old.status.allocation is not None
        if not before and self._deciding():
            for pod, text in given_again(self.state, change.new, self.profiles):
                self.reports.given_again(pod, text)

    def catch_up(self, kind: Kind, copy: Mapping[str, Any]) -> int:
        """Apply what the state lacks of a reflector's copy (an event whose handling broke); how much that was."""
        changes = unapplied(self.state, kind, copy)
        if kind.name == POD.name:
            told = {change.new.uid for change in changes if change.new is not None}
            changes += [Change(kind, None, pod, 0, True) for pod in copy.values() if self._lost(pod, told)]
        self.deliver(changes, 0)
        return len(changes)

    def _lost(self, pod: Pod, told: Container[str]) -> bool:
        """True for a Pod of ours that waits and is nowhere: not queued, not in flight, not counted on a node."""
        waits = self._waits(pod) and pod.metadata.deletionTimestamp is None and pod.uid not in told
        return waits and self.queue.get(pod.uid) is None and pod.uid not in self.state.placements

    def move(self, events: Iterable[ClusterEvent]) -> None:
        """Cluster events that did not come from the watch: our own writes, forgotten Pods."""
        listed = list(events)
        if listed:
            self.queue.move(listed, self.clock())
            self._wake()

    def _queue_pod(self, old: Pod | None, new: Pod | None, now: float) -> None:
        """Waiting Pods of ours go to the queue, everything else leaves it (spec 4.10)."""
        current = new or old
        waiting = None if current is None else self.waiting_pods.get(current.uid)
        if waiting is not None and (new is None or new.metadata.deletionTimestamp is not None):
            waiting.reject("", "removed")
        was_waiting, is_waiting = self._waits(old), self._waits(new)
        if new is not None and is_waiting:
            if new.uid in self.state.placements:
                return  # assumed by us: its own writes come back here
            if self._held is not None and self.queue.get(new.uid) is None:
                self._held[new.uid] = new, self._held.get(new.uid, (new, now))[1]
            elif old is not None and was_waiting:
                self.queue.update(old, new, now)
            else:
                self._add(new, now)
        elif old is not None and was_waiting:
            if self._held is not None:
                self._held.pop(old.uid, None)
            self.queue.delete(old.uid)
            self.reports.waits_no_more(old)
            if new is None and old.status.nominatedNodeName:
                self.queue.release_nomination(old, now)

    def _add(self, pod: Pod, now: float) -> None:
        self.queue.add(pod, now)
        if self.grouped:  # the others of its group may have waited for it
            self.queue.move([ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD, None, pod)], now)

    def _waits(self, pod: Pod | None) -> bool:
        if pod is None or pod.spec.nodeName or pod.terminal or pod.spec.schedulerName not in self.profiles:
            return False
        return self.state.serves(pod)


class GatedPods:
    """Pods that a PreEnqueue plugin holds back, and who of them has been told why.

    ``why_gated`` asks a Pod's PreEnqueue plugins again; ``let_go`` is told of each Pod that is told.
    """

    def __init__(
        self,
        queue: SchedulingQueue,
        reports: Reports,
        clock: Callable[[], float],
        why_gated: Callable[[Pod], Status | None],
        let_go: Callable[[Pod], None],
    ) -> None:
        self.queue, self.reports, self.clock = queue, reports, clock
        self.why_gated, self._let_go = why_gated, let_go
        self._gated: dict[str, tuple[Status, float]] = {}
        self._look_due = 0.0

    def look(self, now: float) -> None:
        """Tell those that have waited long enough; at most every GATE_LOOK_S."""
        if self._gated and now >= self._look_due:
            self._look_due = now + GATE_LOOK_S
            self._report(now)

    def note(self, queued: QueuedPod, status: Status) -> None:
        """A PreEnqueue plugin holds the Pod back (the queue's observer calls this). Told after GATE_REPORT_S.

        kube-scheduler stays silent here; a Pod that names a claim that is not there would wait without a word.
        SchedulingGates are the user's own wish and have a condition from the API server; a preemptor has been told.
        """
        if status.plugin not in _SILENT_GATES:
            known = self._gated.get(queued.uid)
            if known is None or known[0].reasons != status.reasons:
                self._gated[queued.uid] = (status, self.clock())

    def _report(self, now: float) -> None:
        for uid, (status, since) in list(self._gated.items()):
            queued = self.queue.get(uid)
            if queued is None or not queued.gated:
                del self._gated[uid]
            elif now - since >= GATE_REPORT_S and since > 0:
                # Asked again: what held it back at first may have become something else since.
                current = self.why_gated(queued.pod)
                if current is None:
                    self.queue.activate([uid], now)
                    continue
                self._gated[uid] = (status, 0.0)  # told; kept so that the same words are not told again
                self.reports.gated(queued.pod, current)
                self._let_go(queued.pod)
