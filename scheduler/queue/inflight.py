"""Pods being attempted, and the events they may miss meanwhile.

An event that arrives while a Pod is being decided may be the very one it needs; so events are kept while Pods are in
flight and replayed when an attempt fails (kube-scheduler 1.37, active queue; spec 4.1, 4.6).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from scheduler.framework.events import ClusterEvent
from scheduler.queue.pod import QueuedPod


class InFlight:
    """Popped Pods in order of their pop, and the events since the oldest of them.

    record, add and done cost O(1) amortised; events_since costs the number of events returned.
    """

    __slots__ = ("_base", "_events", "_pods", "_starts")

    def __init__(self) -> None:
        self._pods: dict[str, QueuedPod] = {}
        self._starts: dict[str, int] = {}  # insertion order is pop order, so starts never decrease
        self._events: list[ClusterEvent] = []
        self._base = 0  # position of self._events[0] in the stream of all events

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    @property
    def event_count(self) -> int:
        """Events kept."""
        return len(self._events)

    def labels(self) -> Counter[str]:
        """Event label → events kept; ``PodPopped`` → Pods in flight."""
        found = Counter(event.label for event in self._events)
        found["PodPopped"] = len(self._pods)
        return found

    def pods(self) -> Sequence[QueuedPod]:
        """The Pods in flight, oldest pop first."""
        return tuple(self._pods.values())

    def add(self, queued: QueuedPod) -> None:
        """``queued`` was popped."""
        self._pods[queued.uid] = queued
        self._starts[queued.uid] = self._base + len(self._events)

    def get(self, uid: str) -> QueuedPod | None:
        """The Pod in flight under ``uid``."""
        return self._pods.get(uid)

    def record(self, event: ClusterEvent) -> None:
        """Keep ``event`` for the Pods in flight; nothing is kept when there are none."""
        if self._pods:
            self._events.append(event)

    def events_since(self, uid: str) -> Sequence[ClusterEvent]:
        """The events since ``uid`` was popped, in order."""
        return self._events[self._starts[uid] - self._base :]

    def done(self, uid: str) -> QueuedPod | None:
        """The attempt of ``uid`` is over; events nobody else may need are dropped. None when not in flight."""
        queued = self._pods.pop(uid, None)
        if queued is None:
            return None
        del self._starts[uid]
        if not self._pods:
            self._base += len(self._events)
            self._events.clear()
            return queued
        oldest = next(iter(self._starts.values()))
        # Cutting a list costs what remains; cutting only when half is stale keeps that constant per event.
        stale = oldest - self._base
        if 2 * stale > len(self._events):
            del self._events[:stale]
            self._base = oldest
        return queued
