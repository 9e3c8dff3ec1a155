"""A ClusterState that tells a recorder of every change before it is made.

The parts that plugins change directly (the ledger's flights, assumed volumes, the running PodGroup cycle) tell it, too.
What follows from a change is not told: it follows again when the change is repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NODE
from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.api.storage import PersistentVolume, PersistentVolumeClaim
from scheduler.audit.operations import pod_reference
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import DeviceState
from scheduler.state.events import ClusterEvent
from scheduler.state.podgroups import PodGroupState
from scheduler.state.volumes import Assumable

Note = Callable[..., None]
T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)


class RecordedState(ClusterState):
    """``note(name, *arguments)`` takes operations, ``note_change`` Changes. ``recording``: somebody keeps them."""

    def __init__(self, features: Features, note: Note, note_change: Callable[[Change], None]) -> None:
        super().__init__(features)
        self._note, self._note_change = note, note_change
        self.recording = False
        self.devices = _Devices(features, note)
        self.pod_groups = _Groups(note)
        self.volumes.volumes = _Assumable(note, "volume")
        self.volumes.claims = _Assumable(note, "volume-claim")

    def apply(self, change: Change) -> list[ClusterEvent]:
        """As inherited."""
        self._note_change(change)
        events = super().apply(change)
        if change.kind.name == NODE.name and self.recording:
            self.nodes.order()  # when the list is built decides where a node stands that changes its zone later
        return events

    def assume(self, pod: Pod, node: str) -> None:
        """As inherited."""
        self._note("assume", pod_reference(self, pod), node)
        super().assume(pod, node)

    def revise(self, pod: Pod) -> None:
        """As inherited."""
        self._note("revise", pod_reference(self, pod))
        super().revise(pod)

    def nominate(self, pod: Pod, node: str) -> None:
        """As inherited."""
        self._note("nominate", pod_reference(self, pod), node)
        super().nominate(pod, node)

    def choose_victims(self, uids: Sequence[str]) -> None:
        """As inherited."""
        self._note("victims", uids)
        super().choose_victims(uids)

    def spare_victims(self, uids: Sequence[str]) -> None:
        """As inherited."""
        self._note("spared", uids)
        super().spare_victims(uids)

    def forget(self, pod: Pod) -> list[ClusterEvent]:
        """As inherited."""
        self._note("forget", pod_reference(self, pod))
        return super().forget(pod)

    def learn_claim(self, claim: ResourceClaim) -> list[ClusterEvent]:
        """As inherited."""
        self._note("learn-claim", claim)
        return super().learn_claim(claim)

    def learn_volume(self, volume: PersistentVolume) -> list[ClusterEvent]:
        """As inherited."""
        self._note("learn-volume", volume)
        return super().learn_volume(volume)

    def learn_volume_claim(self, claim: PersistentVolumeClaim) -> list[ClusterEvent]:
        """As inherited."""
        self._note("learn-volume-claim", claim)
        return super().learn_volume_claim(claim)


class _Devices(DeviceState):
    def __init__(self, features: Features, note: Note) -> None:
        super().__init__(features)
        self._note = note
        self.ledger = _Ledger(features.consumable_capacity, note)

    def promise_special(self, pod_uid: str, claim: ResourceClaim | None) -> None:
        self._note("special", pod_uid, claim)
        super().promise_special(pod_uid, claim)


class _Ledger(Ledger):
    def __init__(self, consumable_capacity: bool, note: Note) -> None:
        super().__init__(consumable_capacity)
        self._note = note

    def set_in_flight(self, uid: str, claim_key: str, allocation: AllocationResult, sharers: int = 1) -> None:
        self._note("flight", uid, claim_key, allocation, sharers)
        super().set_in_flight(uid, claim_key, allocation, sharers)

    def drop_in_flight(self, uid: str, force: bool = False) -> bool:
        self._note("land", uid, force)
        return super().drop_in_flight(uid, force)


class _Groups(PodGroupState):
    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def begin(self, key: str) -> None:
        self._note("group-begin", key)
        super().begin(key)

    def end(self) -> None:
        self._note("group-end")
        super().end()

    def note_promised(self, claim_uid: str) -> None:
        self._note("group-promised", claim_uid)
        super().note_promised(claim_uid)


class _Assumable(Assumable[T]):
    def __init__(self, note: Note, what: str) -> None:
        super().__init__()
        self._note, self._what = note, what

    def assume(self, key: str, item: Any) -> None:
        self._note(f"{self._what}-assumed", key, item)
        super().assume(key, item)

    def restore(self, key: str) -> None:
        self._note(f"{self._what}-restored", key)
        super().restore(key)
