"""The scheduling queue. Source: kube-scheduler 1.37, backend/queue (spec 4.1 to 4.7)."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.errors import InternalError
from scheduler.framework.events import Action, ClusterEvent, Resource
from scheduler.queue.backoff import Backoff, backing_off
from scheduler.queue.heap import PodHeap
from scheduler.queue.hints import HintBook, Strategy
from scheduler.queue.hooks import ProfileHooks, QueueObserver
from scheduler.queue.inflight import InFlight
from scheduler.queue.invariants import disagreements
from scheduler.queue.pod import Place, QueuedPod
from scheduler.queue.waiting import WaitingPods
from scheduler.state.object_events import pod_update_events

SCHEDULE_ATTEMPT_FAILURE = "ScheduleAttemptFailure"
BACKOFF_COMPLETE = "BackoffComplete"
POP_FROM_BACKOFF = "PopFromBackoffQ"
FORCE_ACTIVATE = "ForceActivate"
UNSCHEDULABLE_TIMEOUT = "UnschedulableTimeout"

UNSCHEDULABLE_FLUSH_INTERVAL_S = 30
"""How often Pods that waited too long are looked for; upstream's constant."""

_TIMEOUT_EVENT = ClusterEvent(Resource.ANY, Action.ALL, special=UNSCHEDULABLE_TIMEOUT)
_HEAPS = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_POD_ADDED = ClusterEvent(Resource.UNSCHEDULED_POD, Action.ADD).label


class SchedulingQueue:
    """Every Pod of ours without a node, in exactly one place: active, one of two back-off heaps, waiting, in flight.

    ``hooks`` has one entry per profile, by schedulerName. ``sort_key(pod, timestamp)`` orders the active Pods,
    smallest first. ``now`` is the wall clock in seconds; no method reads a clock, blocks or does I/O. Pods are known
    by uid; a second uid under the same namespace and name replaces the first.
    """

    def __init__(
        self,
        hooks: Mapping[str, ProfileHooks],
        sort_key: Callable[[Pod, float], Any],
        initial_backoff_s: float = 1.0,
        max_backoff_s: float = 10.0,
        max_unschedulable_s: float = 300.0,
        observer: QueueObserver | None = None,
    ) -> None:
        self._hooks = dict(hooks)
        self._sort_key = sort_key
        self._backoff_rule = Backoff(initial_backoff_s, max_backoff_s)
        self._max_unschedulable_s = max_unschedulable_s
        self._observer = observer or QueueObserver()
        self._book = HintBook(self._hooks, self._observer)
        self._pods: dict[str, QueuedPod] = {}
        self._uid_by_key: dict[str, str] = {}
        self._active = PodHeap()
        self._backoff = PodHeap()
        self._error_backoff = PodHeap()
        self._waiting = WaitingPods(self._book)
        self._in_flight = InFlight()
        self._flush_period: int | None = None
        self._open_plugins_seen = False  # a plugin that registered for nothing has rejected: record every event

    # Pods come and go

    def add(self, pod: Pod, now: float) -> None:
        """A Pod of ours without a node appeared. One that is known already is updated, one in flight is left alone."""
        known = self._pods.get(pod.uid)
        if known is not None:
            self.update(known.pod, pod, now)
            return
        if pod.spec.schedulerName not in self._hooks:
            raise InternalError(f"Pod {pod.key}: no profile is named {pod.spec.schedulerName!r}")
        namesake = self._uid_by_key.get(pod.key)
        if namesake is not None:  # its deletion was missed
            self.delete(namesake)
        queued = QueuedPod(pod, now)
        self._pods[queued.uid] = queued
        self._uid_by_key[queued.key] = queued.uid
        self._enter(queued, Place.ACTIVE, _POD_ADDED, now)

    def update(self, old: Pod | None, new: Pod, now: float) -> None:
        """A Pod of ours without a node changed (spec 4.10). An unknown one is added.

        An update of the same resourceVersion is ignored. Ready Pods take their new place in order, waiting ones are
        woken by what changed; for a Pod in flight the events are kept until its attempt fails.
        """
        queued = self._pods.get(new.uid)
        if queued is None:
            self.add(new, now)
            return
        if queued.key != new.key:  # no server renames a Pod; bytes that were spoilt on their way do
            self.delete(new.uid)
            if new.uid not in self._pods:
                self.add(new, now)
            return
        old = old or queued.pod
        version = new.metadata.resourceVersion
        if version and version == old.metadata.resourceVersion and version == queued.pod.metadata.resourceVersion:
            return
        events = pod_update_events(old, new, Resource.TARGET_POD)
        if queued.place is Place.IN_FLIGHT:
            for event in events:
                self._record(event)
        elif queued.place is Place.UNSCHEDULABLE:
            self._update_waiting(queued, new, events, now)
        else:
            queued.pod = new
            heap = self._heap(queued.place)
            heap.rekey(new.uid, self._heap_key(queued))
        if old.status.nominatedNodeName and old.status.nominatedNodeName != new.status.nominatedNodeName:
            self.release_nomination(old, now)

    def delete(self, uid: str) -> None:
        """The Pod is gone, or has a node. One in flight stays so until ``done``; unknown uids are ignored."""
        queued = self._pods.get(uid)
        if queued is None:
            return
        if self._uid_by_key.get(queued.key) == uid:
            del self._uid_by_key[queued.key]
        if queued.place is not Place.IN_FLIGHT:
            self._take_out(queued)
            del self._pods[uid]

    # Attempts

    def pop(self, now: float) -> QueuedPod | None:
        """The next Pod, now in flight; None when nothing is ready.

        With no active Pod the first one in back-off is taken before its time (upstream's SchedulerPopFromBackoffQ),
        but never one that backs off after an internal error.
        """
        queued = self._active.pop()
        if queued is None:
            queued = self._backoff.pop()
            if queued is None:
                return None
            self._observer.incoming(Place.ACTIVE, POP_FROM_BACKOFF)
        queued.group_size = 1
        self._begin_attempt(queued)
        return queued

    def take(self, uids: Iterable[str]) -> list[QueuedPod]:
        """Put those of ``uids`` in flight that wait for their turn, for a back-off or an event: the Pod just popped is
        to be decided together with them. Gated Pods, and those in flight already, are left alone.
        """
        taken: list[QueuedPod] = []
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is not None and queued.place not in (Place.IN_FLIGHT, Place.NOWHERE) and not queued.gated:
                self._take_out(queued)
                self._begin_attempt(queued)
                taken.append(queued)
        return taken

    def _begin_attempt(self, queued: QueuedPod) -> None:
        queued.place = Place.IN_FLIGHT
        queued.attempts += 1
        queued.unschedulable_plugins = queued.pending_plugins = frozenset()
        queued.gating_plugin = ""
        self._in_flight.add(queued)

    def done(self, uid: str) -> None:
        """The Pod's attempt ended without coming back: bound, gone, or another scheduler's. Repeating is harmless."""
        queued = self._in_flight.done(uid)
        if queued is not None:
            queued.place = Place.NOWHERE
            self._forget(queued)

    def requeue(
        self,
        queued: QueuedPod,
        pod: Pod,
        unschedulable_plugins: Iterable[str],
        pending_plugins: Iterable[str],
        now: float,
    ) -> Place:
        """The attempt failed; ``pod`` is the newest version. Returns where the Pod went (spec 4.6).

        The two sets name the plugins that rejected it; both empty means an internal error (or no nodes at all). The
        caller has made sure that the Pod still exists and has no node; a Pod whose name belongs to a newer Pod by now
        is dropped (NOWHERE). One that is queued already stays where it is.
        """
        if queued.place not in (Place.IN_FLIGHT, Place.NOWHERE):
            return queued.place
        uid = queued.uid
        queued.record_failure(frozenset(unschedulable_plugins), frozenset(pending_plugins), now)
        queued.backoff_expiration = self._backoff_rule.expiration(queued)
        queued.pod = pod
        strategy = self._strategy_after_failure(queued)
        self._in_flight.done(uid)
        if self._uid_by_key.setdefault(queued.key, uid) != uid or self._pods.setdefault(uid, queued) is not queued:
            queued.place = Place.NOWHERE
            self._forget(queued)
            return Place.NOWHERE
        queued.place = Place.NOWHERE
        if strategy is Strategy.SKIP:
            self._wait(queued, SCHEDULE_ATTEMPT_FAILURE)
        else:
            self._enter(queued, self._target(queued, strategy, now), SCHEDULE_ATTEMPT_FAILURE, now)
        return queued.place

    # Wake-ups

    def move(self, events: Sequence[ClusterEvent], now: float, *, concerns: Callable[[Pod], bool] | None = None) -> int:
        """Wake the waiting Pods whose plugins want to hear of ``events``; returns how many left (spec 4.7).

        ``concerns`` narrows the waiting Pods (not those in flight). Cost: an event that no plugin registered for is
        free; otherwise one hint per Pod and rejecting plugin that registered for it, and with keys only for the Pods
        that share one.
        """
        left = 0
        for event in events:
            for queued in self._waiting.candidates(event):
                if concerns is None or concerns(queued.pod):
                    left += self._wake(queued, event, now)
            self._record(event)
        return left

    def release_nomination(self, pod: Pod, now: float) -> int:
        """``pod`` gave its nominated node back (lost, changed or deleted): tell Pods of at most its priority."""
        event = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, pod, None)
        return self.move([event], now, concerns=lambda waiting: waiting.priority <= pod.priority)

    def activate(self, uids: Iterable[str], now: float) -> None:
        """Make waiting Pods ready at once, back-off or not; one in flight will be retried if its attempt fails."""
        for uid in uids:
            queued = self._pods.get(uid)
            if queued is None or queued.place is Place.ACTIVE:
                continue
            if queued.place is Place.IN_FLIGHT:
                self._in_flight.record(ClusterEvent(Resource.ANY, Action.ALL, None, queued.pod, FORCE_ACTIVATE))
                continue
            was_waiting = self._take_out(queued) is Place.UNSCHEDULABLE
            self._enter(queued, Place.ACTIVE, FORCE_ACTIVATE, now, was_waiting=was_waiting)

    def flush(self, now: float) -> int:
        """Let go of what has waited long enough; returns how many Pods moved. Cheap when nothing is due.

        Back-off ends on whole seconds. Every 30 seconds, aligned to the wall clock, Pods that no event woke for
        ``max_unschedulable_s`` get another chance, gated ones another look at their gate.
        """
        moved = 0
        for heap in (self._backoff, self._error_backoff):
            while (queued := heap.peek()) is not None and not backing_off(queued, now):
                heap.pop()
                queued.place = Place.NOWHERE
                self._put(queued, Place.ACTIVE, BACKOFF_COMPLETE, now)
                moved += 1
        period = math.floor(now / UNSCHEDULABLE_FLUSH_INTERVAL_S)
        if period != self._flush_period:
            self._flush_period = period
            moved += self._flush_waiting(now)
        return moved

    def next_wakeup(self, now: float) -> float:
        """Seconds until ``flush`` may have something to do, infinity when no Pod waits for the clock.

        Pods in back-off that ``pop`` would take at once are not counted as ready here.
        """
        due = math.inf
        for heap in (self._backoff, self._error_backoff):
            queued = heap.peek()
            if queued is not None:
                due = min(due, queued.backoff_expiration + 1)
        if self._waiting:
            period = math.floor(now / UNSCHEDULABLE_FLUSH_INTERVAL_S) + 1
            due = min(due, period * UNSCHEDULABLE_FLUSH_INTERVAL_S)
        return max(0.0, due - now)

    # Looking in

    def get(self, uid: str) -> QueuedPod | None:
        """The Pod under ``uid`` wherever it is, in flight included."""
        return self._pods.get(uid)

    def __len__(self) -> int:
        """Pods known, in flight included."""
        return len(self._pods)

    def counts(self) -> dict[str, int]:
        """Pods by upstream's queue names: active, backoff (both kinds), unschedulable, gated."""
        gated = self._waiting.gated_count
        return {
            "active": len(self._active),
            "backoff": len(self._backoff) + len(self._error_backoff),
            "unschedulable": len(self._waiting) - gated,
            "gated": gated,
        }

    def rejections(self) -> Counter[tuple[str, str]]:
        """(plugin, schedulerName) → Pods that wait for that plugin to change its mind, wherever they are queued."""
        found: Counter[tuple[str, str]] = Counter()
        for queued in self._pods.values():
            if queued.place is not Place.IN_FLIGHT:
                for plugin in queued.unschedulable_plugins | queued.pending_plugins:
                    found[plugin, queued.scheduler_name] += 1
        return found

    def in_flight_events(self) -> Counter[str]:
        """Event label → events kept for Pods in flight; ``PodPopped`` → those Pods."""
        return self._in_flight.labels()

    def dump(self) -> list[Mapping[str, object]]:
        """Bookkeeping of every Pod, by namespace and name."""
        return [queued.as_record() for queued in sorted(self._pods.values(), key=lambda item: item.key)]

    def check(self) -> None:
        """Raise InternalError when the structures disagree. O(n log n); for tests and ``--verify-caches``."""
        heaps = {place: self._heap(place) for place in _HEAPS}
        contents: dict[Place, Iterable[QueuedPod]] = {**heaps}
        contents |= {Place.UNSCHEDULABLE: self._waiting, Place.IN_FLIGHT: self._in_flight.pods()}
        problems = [*self._waiting.check(), *disagreements(self._pods, self._uid_by_key, contents)]
        problems += [
            f"{queued.key} stands under an old key"
            for heap in heaps.values()
            for queued in heap
            if heap.key_of(queued.uid) != self._heap_key(queued)
        ]
        if not self._in_flight and self._in_flight.event_count:
            problems.append("events are kept for nobody")
        if problems:
            raise InternalError("the scheduling queue disagrees with itself", problems)

    # Inside

    def _heap(self, place: Place) -> PodHeap:
        if place is Place.ACTIVE:
            return self._active
        return self._backoff if place is Place.BACKOFF else self._error_backoff

    def _heap_key(self, queued: QueuedPod) -> Any:
        key = self._sort_key(queued.pod, queued.timestamp)
        return key if queued.place is Place.ACTIVE else (queued.backoff_expiration, key)

    def _take_out(self, queued: QueuedPod) -> Place:
        """Remove from wherever it stands (not in flight); returns where that was."""
        place, queued.place = queued.place, Place.NOWHERE
        if place is Place.UNSCHEDULABLE:
            self._waiting.remove(queued.uid)
        else:
            self._heap(place).remove(queued.uid)
        return place

    def _forget(self, queued: QueuedPod) -> None:
        if self._pods.get(queued.uid) is queued:
            del self._pods[queued.uid]
        if self._uid_by_key.get(queued.key) == queued.uid:
            del self._uid_by_key[queued.key]

    def _put(self, queued: QueuedPod, place: Place, label: str, now: float) -> None:
        """Into a heap, asking nobody."""
        queued.place = place
        if place is Place.ACTIVE and queued.initial_attempt_timestamp is None:
            queued.initial_attempt_timestamp = now
        self._heap(place).push(queued, self._heap_key(queued))
        self._observer.incoming(place, label)

    def _wait(self, queued: QueuedPod, label: str, *, was_waiting: bool = False) -> None:
        queued.place = Place.UNSCHEDULABLE
        self._waiting.add(queued)
        if not was_waiting:
            self._observer.incoming(Place.UNSCHEDULABLE, label)

    def _enter(self, queued: QueuedPod, place: Place, label: str, now: float, *, was_waiting: bool = False) -> None:
        """Into ``place`` if every pre_enqueue plugin agrees, else to the waiting Pods, gated."""
        status = self._hooks[queued.scheduler_name].pre_enqueue(queued.pod, queued.gating_plugin or None)
        if status is None:
            queued.gating_plugin = ""
            self._put(queued, place, label, now)
            return
        queued.gating_plugin = status.plugin
        queued.unschedulable_plugins |= {status.plugin}
        self._note_open_plugins(queued)
        self._observer.gated(queued, status)
        self._wait(queued, label, was_waiting=was_waiting)

    def _target(self, queued: QueuedPod, strategy: Strategy, now: float) -> Place:
        if strategy is Strategy.IMMEDIATELY or not backing_off(queued, now):
            return Place.ACTIVE
        return Place.BACKOFF if queued.rejecting_plugins else Place.ERROR_BACKOFF

    def _wake(self, queued: QueuedPod, event: ClusterEvent, now: float) -> bool:
        """Apply ``event`` to a waiting Pod; True when it left."""
        strategy = self._book.strategy(queued, event)
        if strategy is Strategy.SKIP:
            return False
        self._take_out(queued)
        self._enter(queued, self._target(queued, strategy, now), event.label, now, was_waiting=True)
        return queued.place is not Place.UNSCHEDULABLE

    def _update_waiting(self, queued: QueuedPod, new: Pod, events: Sequence[ClusterEvent], now: float) -> None:
        self._waiting.remove(queued.uid)  # what it waits for may be another object now
        queued.pod = new
        self._waiting.add(queued)
        for event in events:
            if self._wake(queued, event, now):
                return

    def _record(self, event: ClusterEvent) -> None:
        """Keep ``event`` for Pods in flight if any plugin could care."""
        if self._in_flight and (event.wildcard or self._open_plugins_seen or self._book.interests(event)):
            self._in_flight.record(event)

    def _note_open_plugins(self, queued: QueuedPod) -> bool:
        """True when a plugin without registrations rejects for the first time: until now its events went unrecorded."""
        if self._open_plugins_seen or not any(
            not self._book.registered(queued.scheduler_name, plugin) for plugin in queued.rejecting_plugins
        ):
            return False
        self._open_plugins_seen = True
        return True

    def _strategy_after_failure(self, queued: QueuedPod) -> Strategy:
        """The best that the events missed meanwhile allow; a Pod that was not in flight may have missed any."""
        unrecorded = self._note_open_plugins(queued) or queued.uid not in self._in_flight
        best = Strategy.AFTER_BACKOFF if unrecorded or not queued.rejecting_plugins else Strategy.SKIP
        if not queued.rejecting_plugins or queued.uid not in self._in_flight:
            return best
        for event in self._in_flight.events_since(queued.uid):
            if best is Strategy.AFTER_BACKOFF and not queued.pending_plugins:
                return best
            strategy = self._book.strategy(queued, event)
            best = strategy if strategy.value > best.value else best
            if best is Strategy.IMMEDIATELY:
                return best
        return best

    def _flush_waiting(self, now: float) -> int:
        overdue = [
            queued
            for queued in self._waiting
            if now - max(queued.timestamp, queued.flush_timestamp) > self._max_unschedulable_s
        ]
        moved = 0
        for queued in overdue:
            queued.flush_timestamp, queued.was_flushed = now, True
            moved += self._wake(queued, _TIMEOUT_EVENT, now)
        return moved
