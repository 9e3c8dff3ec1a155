"""Claims, classes, slices and the device ledger: the newest known version of each.

Claims are known from the watch and from the answers to our own writes, whichever is newer by resourceVersion; what the
server confirmed is never un-known (kube-scheduler restores an older object there, dra spec 25 no. 16).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NamedTuple

import msgspec

from scheduler.api.changes import Change
from scheduler.api.core import Node, Pod
from scheduler.api.meta import revision_of
from scheduler.api.resource import AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.dra.claims import ClaimError, claim_names
from scheduler.dra.classes import ClassStore
from scheduler.dra.devices import DeviceKey, PoolKey
from scheduler.dra.extended import special_owner
from scheduler.dra.features import Features
from scheduler.dra.ledger import Ledger, Source
from scheduler.dra.pools import NodeView
from scheduler.dra.slices import SliceStore
from scheduler.dra.verify import Verdict, verify_allocation
from scheduler.errors import InternalError
from scheduler.state.events import Action, ClusterEvent, Resource


class Promise(NamedTuple):
    """A claim and the allocation that is in flight for it."""

    claim: ResourceClaim
    allocation: AllocationResult


def _version(claim: ResourceClaim) -> int:
    return revision_of(claim.metadata.resourceVersion) or 0


class DeviceState:
    """Everything about devices that decisions read.

    ``claims``: namespace/name → newest known claim. ``slices``, ``classes`` and ``ledger`` are the dra package's own
    stores, maintained here. Every method that changes something answers with the cluster events it amounts to.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.slices = SliceStore(features)
        self.classes = ClassStore()
        self.ledger = Ledger(features.consumable_capacity)
        self.claims: dict[str, ResourceClaim] = {}
        self._special: dict[str, dict[str, ResourceClaim]] = {}
        self._special_promised: dict[str, ResourceClaim] = {}

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        """The newest known version of a claim, None when there is none."""
        return self.claims.get(f"{namespace}/{name}")

    def special_claim_of(self, namespace: str, pod_uid: str) -> ResourceClaim | None:
        """The claim that was made for a Pod because of its extended resources, None without one."""
        made = self._special.get(pod_uid, {}).values()
        return next((claim for claim in made if claim.metadata.namespace == namespace), None)

    def promise_special(self, pod_uid: str, claim: ResourceClaim | None) -> None:
        """Note the claim that is being made for a Pod's extended resources, stored or not; None: no longer."""
        if claim is None:
            self._special_promised.pop(pod_uid, None)
        else:
            self._special_promised[pod_uid] = claim

    def promised_specials(self) -> dict[str, ResourceClaim]:
        """Pod uid → the claim that is being made for its extended resources."""
        return dict(self._special_promised)

    def _note_special(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        for claim in (old, new):
            owner = "" if claim is None else special_owner(claim)
            if not owner or claim is None:
                continue
            if claim is new:
                self._special.setdefault(owner, {})[claim.key] = claim
            elif self._special.get(owner, {}).pop(claim.key, None) is not None and not self._special[owner]:
                del self._special[owner]

    def apply_claim(self, change: Change) -> list[ClusterEvent]:
        """A change from the watch; one that is not newer than what is known changes nothing."""
        new: ResourceClaim | None = change.new
        if new is None:
            old: ResourceClaim = change.old
            known = self.claims.get(old.key)
            if known is None or known.uid != old.uid:
                return []
            del self.claims[old.key]
            self.ledger.remove_claim(old.uid)
            self._note_special(known, None)
            return [ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE, known, None)]
        return self._take(new, "list" if change.by_list else "watch")

    def learn_claim(self, claim: ResourceClaim) -> list[ClusterEvent]:
        """The answer to our own write: known from now on, before the watch shows it."""
        known = self.claims.get(claim.key)
        if known is None or known.uid != claim.uid:
            return []  # deleted (or replaced) meanwhile: the watch is further than this answer
        return self._take(claim, "answer")

    def _take(self, claim: ResourceClaim, source: Source) -> list[ClusterEvent]:
        known = self.claims.get(claim.key)
        if known is not None and known.uid == claim.uid and _version(claim) <= _version(known):
            if source != "answer":
                self.ledger.note_order(claim, source)
            return []
        events: list[ClusterEvent] = []
        entry = self.ledger.entry(claim.uid)
        # No object is there twice: one that comes under another name with the same uid is no more under its first.
        namesake = None if entry is None or entry.key == claim.key else self.claims.get(entry.key)
        for gone in (known, namesake):
            if gone is not None and (gone.uid != claim.uid if gone is known else gone.uid == claim.uid):
                del self.claims[gone.key]
                self.ledger.remove_claim(gone.uid)
                self._note_special(gone, None)
                events.append(ClusterEvent(Resource.RESOURCE_CLAIM, Action.DELETE, gone, None))
        known = self.claims.get(claim.key)
        self.claims[claim.key] = claim
        self._note_special(known, claim)
        self.ledger.set_claim(claim, source)
        action = Action.ADD if known is None else Action.UPDATE_OTHER
        return [*events, ClusterEvent(Resource.RESOURCE_CLAIM, action, known, claim)]

    def apply_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> list[ClusterEvent]:
        """A slice came, changed or went."""
        self.slices.apply(old, new)
        return [ClusterEvent(Resource.RESOURCE_SLICE, _action(old, new), old, new)]

    def apply_class(self, old: DeviceClass | None, new: DeviceClass | None) -> list[ClusterEvent]:
        """A class came, changed or went."""
        self.classes.apply(old, new)
        return [ClusterEvent(Resource.DEVICE_CLASS, _action(old, new), old, new)]

    def apply_taint_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> list[ClusterEvent]:
        """A taint rule appears as an update of each slice whose device taints really changed (dra spec 7)."""
        events = []
        for name in self.slices.apply_rule(old, new):
            info = self.slices.get(name)
            if info is not None:
                events.append(ClusterEvent(Resource.RESOURCE_SLICE, Action.UPDATE_OTHER, info.slice, info.slice))
        return events

    def class_for_extended_resource(self, name: str) -> str | None:
        """Name of the DeviceClass that serves an extended resource, None when no class does."""
        found = self.classes.for_extended_resource(name)
        return None if found is None else found.name

    def forget_node(self, name: str) -> None:
        """The node is gone: drop what is cached for it."""
        self.slices.forget_node(name)
        self.ledger.forget_node(name)

    def claims_of(self, pod: Pod) -> list[ResourceClaim]:
        """The newest known claims that the Pod names; those that are missing are left out."""
        names: list[str] = []
        with suppress(ClaimError):  # what comes after the bad entry has no name yet
            names.extend(name for name, _ in claim_names(pod))
        found = (self.claim(pod.metadata.namespace, name) for name in names)
        return [claim for claim in found if claim is not None]

    def promised(self, pod: Pod) -> list[Promise]:
        """The Pod's claims whose allocation is in flight, the one being made for its extended resources included."""
        special = self._special_promised.get(pod.uid)
        claims = self.claims_of(pod) if special is None else [*self.claims_of(pod), special]
        flying = ((claim, self.ledger.in_flight(claim.uid)) for claim in claims)
        return [Promise(claim, allocation) for claim, allocation in flying if allocation is not None]

    def released(self, promised: Iterable[Promise]) -> list[ClusterEvent]:
        """Events for the devices of ``promised`` that came free: no longer in flight and never stored.

        No watch event tells of them, and Pods that found them taken would wait on.
        """
        events = []
        for claim, allocation in promised:
            newest = self.claims.get(claim.key)
            if newest is not None and newest.uid != claim.uid:
                newest = None
            if self.ledger.in_flight(claim.uid) is not None or (newest and newest.status.allocation is not None):
                continue
            held = msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))
            action = Action.DELETE if newest is None else Action.UPDATE_OTHER
            events.append(ClusterEvent(Resource.RESOURCE_CLAIM, action, held, newest))
        return events

    def missing_device(self, allocation: AllocationResult, node: Node) -> DeviceKey | None:
        """The first device of ``allocation`` that ``node`` does not see in the newest slices, None when all are there.

        Cost: O(devices of the allocation).
        """
        positions = self.slices.view(node).positions
        keys = (DeviceKey(r.driver, r.pool, r.device) for r in allocation.devices.results)
        return next((key for key in keys if key not in positions), None)

    def verify_write(self, claim: ResourceClaim, node: Node, revision: int | None = None) -> Verdict:
        """Who else holds what ``claim`` (as our write left it) was given on ``node``; see dra.verify.

        ``revision``: where the allocation was written, when that is not the claim's own version.
        """
        view = self.slices.view(node)
        return verify_allocation(
            self.ledger,
            claim.uid,
            _version(claim) if revision is None else revision,
            lambda device: _capacity(view, device),
            lambda pool: next((found for found in view.pools if found.key == pool), None),
        )

    def allocated(self) -> Iterator[ResourceClaim]:
        """Claims with an allocation."""
        return (claim for claim in self.claims.values() if claim.status.allocation is not None)

    def verify(self) -> None:
        """Recompute views and ledger; raise InternalError with the first difference."""
        self.slices.verify()
        self.ledger.verify()
        special = {claim.key: claim for claim in self.claims.values() if special_owner(claim)}
        if special != {claim.key: claim for claims in self._special.values() for claim in claims.values()}:
            raise InternalError("the index of claims made for extended resources differs from the claims")
        for claim in self.allocated():
            entry = self.ledger.entry(claim.uid)
            if entry is None or entry.stored is not claim.status.allocation:
                raise InternalError(f"the ledger does not know the allocation of claim {claim.key}")


def _action(old: object | None, new: object | None) -> Action:
    if old is None:
        return Action.ADD
    return Action.DELETE if new is None else Action.UPDATE_OTHER


def _capacity(view: NodeView, key: DeviceKey) -> dict[str, int] | None:
    for pool in view.pools:
        if pool.key == PoolKey(key.driver, key.pool):
            for device in pool.devices:
                if device.key == key:
                    return {name: capacity.nano for name, capacity in device.capacities.items()}
    return None
