"""Small Pods, hooks and an observer for the queue's tests."""

from __future__ import annotations

from typing import Any

from scheduler.api.core import Pod, PodSpec, PodStatus, SchedulingGate
from scheduler.api.meta import ObjectMeta
from scheduler.framework.events import Action, ClusterEvent, Registration, Resource
from scheduler.framework.status import Status, unresolvable
from scheduler.queue.hooks import ProfileHooks, QueueObserver
from scheduler.queue.scheduling_queue import SchedulingQueue

PROFILE = "dra-scheduler"
NODE_ADD = ClusterEvent(Resource.NODE, Action.ADD, None, "n1")
NODE_LABEL = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL, "n1", "n1")
SLICE_ADD = ClusterEvent(Resource.RESOURCE_SLICE, Action.ADD, None, "s1")
POD_GONE = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE, "p", None)


def make_pod(
    name: str,
    *,
    priority: int = 0,
    gates: tuple[str, ...] = (),
    uid: str = "",
    version: str = "1",
    labels: dict[str, str] | None = None,
    nominated: str = "",
    profile: str = PROFILE,
) -> Pod:
    """A Pod in namespace ns; the uid is ``u-<name>`` unless given."""
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace="ns", uid=uid or f"u-{name}", resourceVersion=version, labels=labels or {}
        ),
        spec=PodSpec(
            schedulerName=profile, priority=priority, schedulingGates=tuple(SchedulingGate(gate) for gate in gates)
        ),
        status=PodStatus(nominatedNodeName=nominated),
    )


def by_priority(pod: Pod, timestamp_s: float) -> Any:
    """PrioritySort's order."""
    return (-pod.priority, timestamp_s)


def hold_gated(pod: Pod, first: str | None) -> Status | None:
    """SchedulingGates' answer."""
    if pod.spec.schedulingGates:
        return unresolvable("waiting for scheduling gates").by("SchedulingGates")
    return None


def registrations(**hints: Any) -> dict[str, list[Registration]]:
    """Fit: node added or label changed, Pod gone. Devices: slices. Hints by plugin name, always Queue by default."""
    return {
        "SchedulingGates": [Registration(Resource.POD, Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED)],
        "Fit": [
            Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, hints.get("fit")),
            Registration(Resource.ASSIGNED_POD, Action.DELETE, hints.get("fit")),
        ],
        "Devices": [Registration(Resource.RESOURCE_SLICE, Action.ADD | Action.UPDATE, hints.get("devices"))],
        "Labels": [Registration(Resource.POD, Action.UPDATE_POD_LABEL)],
    }


class Recorder(QueueObserver):
    """Keeps what the queue reports."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self.hints: list[tuple[str, bool]] = []
        self.failures: list[str] = []

    def incoming(self, place: Any, event_label: str) -> None:
        """Keep (place, label)."""
        self.entries.append((place.value, event_label))

    def hint(self, plugin: str, event: ClusterEvent, queue: bool) -> None:
        """Keep (plugin, answer)."""
        self.hints.append((plugin, queue))

    def hint_failed(self, plugin: str, event: ClusterEvent, pod: Pod, error: Exception) -> None:
        """Keep the error."""
        self.failures.append(f"{plugin} {pod.key} {error}")


def make_queue(recorder: Recorder | None = None, pre_enqueue: Any = hold_gated, **options: Any) -> SchedulingQueue:
    """A queue with one profile; ``fit`` and ``devices`` are hint functions, the rest goes to the queue."""
    hints = {name: options.pop(name) for name in ("fit", "devices") if name in options}
    hooks = options.pop("hooks", None) or {PROFILE: ProfileHooks(pre_enqueue, registrations(**hints))}
    return SchedulingQueue(hooks, by_priority, observer=recorder, **options)


def reject(queue: SchedulingQueue, pod: Pod, now: float, *plugins: str, pending: tuple[str, ...] = ()) -> Any:
    """Add ``pod``, pop it (it must be the next) and requeue it as rejected by ``plugins``."""
    queue.add(pod, now)
    queued = queue.pop(now)
    assert queued is not None
    assert queued.pod is pod
    queue.requeue(queued, pod, plugins, pending, now)
    queue.check()
    return queued
