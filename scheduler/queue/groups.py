"""Which waiting Pods are decided together, in which order, and which may not be.

Source: kube-scheduler 1.37, QueuedPodGroupInfo and the check before a PodGroup cycle (spec 3.19). Members stand in the
queue one by one; the first that is popped takes the others along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.config.durations import go_quote
from scheduler.queue.pod import QueuedPod
from scheduler.queue.scheduling_queue import SchedulingQueue

DEFAULT_POLICY = "PreemptLowerPriority"


def gather(queue: SchedulingQueue, popped: QueuedPod, members: Iterable[Pod]) -> list[QueuedPod]:
    """``popped`` and the other members that wait and are not held back, now in flight, in the order of deciding.

    Each learns the size of the group, for its back-off.
    """
    others = queue.take([pod.uid for pod in members if pod.uid != popped.uid])
    gathered = sorted([popped, *others], key=_order)
    for queued in gathered:
        queued.group_size = len(gathered)
    return gathered


def _order(queued: QueuedPod) -> Any:
    return -queued.pod.priority, -queued.attempts, queued.timestamp, queued.pod.metadata.name


def disagreement(group: PodGroup, pods: Sequence[Pod]) -> str:
    """Why ``pods``, the members to decide and then those with a node, cannot be decided together; "" when they can."""
    first = pods[0]
    priority = first.priority if group.spec.priority is None else group.spec.priority
    policy = first.spec.preemptionPolicy or DEFAULT_POLICY
    for pod in pods:
        name = pod.spec.schedulerName
        if name != first.spec.schedulerName:
            return (
                "all pods in a single pod group should have the same .spec.schedulerName set, "
                f"got: {go_quote(name)} and {go_quote(first.spec.schedulerName)}"
            )
        if pod.priority != priority:
            return (
                "all pods in a single pod group should have the same priority as the pod group's priority, "
                f"got {pod.priority} and {priority}"
            )
        own = pod.spec.preemptionPolicy or DEFAULT_POLICY
        if own != policy:
            return f"all pods in a single pod group should have the same preemption policy, got {policy} and {own}"
    return ""
