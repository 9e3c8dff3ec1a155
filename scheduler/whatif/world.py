"""An imagined cluster that a scheduler watches: every change reaches state and queue as a watch would bring it."""

from __future__ import annotations

from collections.abc import Iterable
from math import floor

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD
from scheduler.dra.claims import parse_time
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.queue.scheduling_queue import SchedulingQueue
from scheduler.state.cluster import ClusterState
from scheduler.whatif.store import Store


class World:
    """Ties a store to state and queue. ``served``: the schedulerNames whose Pods are ours.

    Source: what the scheduling loop does with its watches (edge/loop.py), without waiting for anything.
    """

    def __init__(
        self, store: Store, state: ClusterState, queue: SchedulingQueue, served: Iterable[str], *, groups: bool
    ) -> None:
        self.store, self.state, self.queue = store, state, queue
        self._served, self._groups = frozenset(served), groups
        store.follow(self.deliver)

    def start(self) -> None:
        """Queue every Pod that waits, oldest first: that is the order in which a running scheduler met them."""
        waiting = [pod for pod in self.store.pods() if self.waits(pod)]
        for pod in sorted(waiting, key=lambda pod: _age(pod, self.store.now)):
            self.queue.add(pod, self.store.now)

    def waits(self, pod: Pod | None) -> bool:
        """True for a Pod of ours without a node."""
        return pod is not None and not pod.spec.nodeName and not pod.terminal and pod.spec.schedulerName in self._served

    def deliver(self, change: Change) -> None:
        """Take in one change."""
        events = self.state.apply(change)
        if change.kind.name == POD.name:
            self._queue_pod(change.old, change.new)
        if events:
            self.queue.move(events, self.store.now)

    def move(self, events: Iterable[ClusterEvent]) -> None:
        """Cluster events that no change brings."""
        listed = list(events)
        if listed:
            self.queue.move(listed, self.store.now)

    def _queue_pod(self, old: Pod | None, new: Pod | None) -> None:
        now, was_waiting = self.store.now, self.waits(old)
        if new is not None and self.waits(new):
            if new.uid in self.state.placements:
                return
            if old is not None and was_waiting:
                self.queue.update(old, new, now)
                return
            self.queue.add(new, now)
            if self._groups:
                self.queue.move([ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD, None, new)], now)
        elif old is not None and was_waiting:
            self.queue.delete(old.uid)
            if new is None and old.status.nominatedNodeName:
                self.queue.release_nomination(old, now)


def _age(pod: Pod, now: float) -> float:
    """When it was created. Within one second the order of the input counts, as after a LIST: versions do not tell, the
    claim controller's writes have moved them.
    """
    created = parse_time(pod.metadata.creationTimestamp or "")
    return float(floor(now)) if created is None else created
