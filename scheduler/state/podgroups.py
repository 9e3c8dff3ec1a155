"""The newest PodGroups and their members. Empty unless the gate GenericWorkload makes the scheduler watch groups."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.dra.podgroups import group_name
from scheduler.state.events import Action, ClusterEvent, Resource


def group_key(pod: Pod) -> str:
    """namespace/name of the group that the Pod names, "" without one."""
    name = group_name(pod)
    return f"{pod.metadata.namespace}/{name}" if name else ""


class PodGroupState:
    """PodGroups by namespace/name, and the Pods that name them, with a node or without.

    While a group's cycle runs, ``begin`` to ``end``, it is noted which claims it has promised devices to: later
    members of the same cycle share those (dra spec 20).
    """

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}
        self._members: dict[str, dict[str, Pod]] = {}
        self._cycle = ""
        self._promised: set[str] = set()

    def get(self, namespace: str, name: str) -> PodGroup | None:
        """The group, None when it is not known."""
        return self._groups.get(f"{namespace}/{name}")

    def objects(self) -> Collection[PodGroup]:
        """Every group."""
        return self._groups.values()

    def of(self, pod: Pod) -> PodGroup | None:
        """The Pod's group, None without one and when it is not known."""
        return self._groups.get(group_key(pod))

    def members(self, key: str) -> Collection[Pod]:
        """The Pods that name the group, in the order they were seen. Do not change the state while iterating."""
        return self._members.get(key, {}).values()

    def apply(self, change: Change) -> list[ClusterEvent]:
        """A group came, changed or went."""
        old: PodGroup | None = change.old
        new: PodGroup | None = change.new
        if new is not None:
            self._groups[new.metadata.key] = new
            action = Action.ADD if old is None else Action.UPDATE_OTHER
            return [ClusterEvent(Resource.POD_GROUP, action, old, new)]
        if old is None or self._groups.pop(old.metadata.key, None) is None:
            return []
        return [ClusterEvent(Resource.POD_GROUP, Action.DELETE, old, None)]

    def pod_seen(self, pod: Pod, before: Pod | None = None) -> None:
        """A Pod appeared or changed; ``before`` is what was known of it. Free for a Pod without a group."""
        key = group_key(pod)
        if before is not None and group_key(before) not in ("", key):
            self.pod_gone(before)
        if key:
            self._members.setdefault(key, {})[pod.uid] = pod

    def pod_gone(self, pod: Pod) -> None:
        """A Pod ended or was deleted."""
        key = group_key(pod)
        if key and self._members.get(key, {}).pop(pod.uid, None) is not None and not self._members[key]:
            del self._members[key]

    def problems(self, pods: Iterable[Pod]) -> list[str]:
        """Members against ``pods``, all that are known; empty when all is well. O(n)."""
        expected: dict[str, dict[str, Pod]] = {}
        for pod in pods:
            if group_key(pod):
                expected.setdefault(group_key(pod), {})[pod.uid] = pod
        return [] if expected == self._members else ["the members of PodGroups differ from the Pods"]

    # one group's cycle

    def begin(self, key: str) -> None:
        """The cycle of group ``key`` begins."""
        self._cycle, self._promised = key, set()

    def end(self) -> None:
        """The cycle is over: nothing is shared any more."""
        self._cycle, self._promised = "", set()

    def note_promised(self, claim_uid: str) -> None:
        """A member of the running cycle was promised devices for this claim; nothing between cycles."""
        if self._cycle:
            self._promised.add(claim_uid)

    def promised_here(self, claim_uid: str) -> bool:
        """True when the running cycle has promised devices to this claim."""
        return claim_uid in self._promised
