"""The newest PodGroups. Empty unless the gate GenericWorkload makes the scheduler watch them."""

from __future__ import annotations

from scheduler.api.changes import Change
from scheduler.api.podgroups import PodGroup
from scheduler.state.events import Action, ClusterEvent, Resource


class PodGroupState:
    """PodGroups by namespace/name."""

    def __init__(self) -> None:
        self._groups: dict[str, PodGroup] = {}

    def get(self, namespace: str, name: str) -> PodGroup | None:
        """The group, None when it is not known."""
        return self._groups.get(f"{namespace}/{name}")

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
