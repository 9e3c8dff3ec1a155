"""GangScheduling: holds the members of a PodGroup back until enough of them are there, and at Permit until enough of
them have a node. That they are decided together is the PodGroup cycle's work.

Source: kube-scheduler 1.37, GangScheduling (spec 3.19, 4.8). Does nothing unless the gate GenericWorkload is on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.dra.podgroups import group_name
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.permit import PermitResult
from scheduler.framework.plugin import Handle
from scheduler.framework.status import SUCCESS, Code, Status, unresolvable
from scheduler.state.cluster import ClusterState
from scheduler.state.podgroups import group_key

NAME = "GangScheduling"
PERMIT_TIMEOUT_S = 300.0
_WAIT = Status(Code.WAIT, ("waiting for minCount pods from a gang to be scheduled",))
_TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"


class GangScheduling:
    """Waits for the group and for its members."""

    name: str = NAME

    def __init__(self, handle: Handle) -> None:
        self._state: ClusterState = handle.state
        self._waiting_pods: Any = handle.waiting_pods
        self._on: bool = getattr(handle.features, "generic_workload", False)

    def events(self) -> Sequence[Registration]:
        """Members that appear or get a node; the group that appears or asks for fewer."""
        if not self._on:
            return ()
        return (
            Registration(Resource.UNSCHEDULED_POD, Action.ADD, _same_group, _pod_keys, _event_keys),
            Registration(Resource.ASSIGNED_POD, Action.ADD, _same_group, _pod_keys, _event_keys),
            Registration(Resource.POD_GROUP, Action.ADD | Action.UPDATE, _group_helps, _pod_keys, _event_keys),
        )

    def pre_enqueue(self, pod: Pod) -> Status:
        """The group must exist, and as many members as it wants together."""
        key = group_key(pod)
        if not self._on or not key:
            return SUCCESS
        group = self._state.pod_groups.of(pod)
        if group is None:
            text = f'waiting for pods\'s pod group "{group_name(pod)}" to appear in scheduling queue'
            return unresolvable(text)
        if len(self._state.pod_groups.members(key)) < group.min_count:
            return unresolvable(_TOO_FEW)
        return SUCCESS

    def because_held_back(self, pod: Pod) -> Iterable[Because]:
        """How many members are there, and how many the group wants together."""
        group = self._state.pod_groups.of(pod) if self._on else None
        if group is not None:
            there, wanted = len(self._state.pod_groups.members(group_key(pod))), group.min_count
            facts = {"podGroup": group.metadata.key, "members": str(there), "minCount": str(wanted)}
            text = f"PodGroup {group.metadata.key} has {there} Pods and wants {wanted} together"
            yield Because("members", text, facts, wanted - there)

    def reserve(self, cycle: Cycle, node: str) -> Status:
        """Nothing to take: ``unreserve`` is what counts."""
        return SUCCESS

    def unreserve(self, cycle: Cycle, node: str) -> Sequence[Any]:
        """When too few members are left, those that wait at Permit give their places back, too."""
        group = self._gang(cycle.pod)
        if group is not None and self._placed(cycle.pod, without=cycle.pod.uid) < group.min_count:
            for waiting in self._waiting_mates(cycle.pod):
                waiting.reject(NAME, "another pod of the pod group gave its place back")
        return ()

    def permit(self, cycle: Cycle, node: str) -> PermitResult:
        """Wait until enough members have a node; whoever completes the number lets the others go."""
        group = self._gang(cycle.pod)
        if group is None:
            return PermitResult(SUCCESS)
        if self._placed(cycle.pod) < group.min_count:
            return PermitResult(_WAIT, PERMIT_TIMEOUT_S)
        for waiting in self._waiting_mates(cycle.pod):
            waiting.allow(NAME)
        return PermitResult(SUCCESS)

    def _gang(self, pod: Pod) -> PodGroup | None:
        group = self._state.pod_groups.of(pod) if self._on else None
        return group if group is not None and group.is_gang else None

    def _placed(self, pod: Pod, without: str = "") -> int:
        """Members with a node, assumed ones included."""
        members = self._state.pod_groups.members(group_key(pod))
        return sum(member.uid in self._state.placements and member.uid != without for member in members)

    def _waiting_mates(self, pod: Pod) -> list[Any]:
        key = group_key(pod)
        return [
            waiting
            for waiting in self._waiting_pods or ()
            if waiting.pod.uid != pod.uid and group_key(waiting.pod) == key
        ]


def _pod_keys(pod: Pod) -> Iterable[str]:
    return (group_key(pod),)


def _event_keys(old: Pod | PodGroup | None, new: Pod | PodGroup | None) -> Iterable[str]:
    changed = new or old
    if isinstance(changed, PodGroup):
        return (changed.metadata.key,)
    key = "" if changed is None else group_key(changed)
    return (key,) if key else ()


def _same_group(pod: Pod, old: Pod | None, new: Pod | None) -> bool:
    return new is not None and bool(group_key(new)) and group_key(new) == group_key(pod)


def _group_helps(pod: Pod, old: PodGroup | None, new: PodGroup | None) -> bool:
    """The Pod's group appeared, or wants fewer members than before."""
    if new is None or new.metadata.key != group_key(pod):
        return False
    return old is None or new.min_count < old.min_count
