"""Plan: per node, which volumes a Pod's claims would get there, or why they would get none.

Source: kube-scheduler 1.37, volume binding (spec 3.15.2). All nodes at once: a claim, a volume or a capacity is looked
at once and answers for every place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from plugins.volumes.claims import amount, amount_bytes
from plugins.volumes.matching import UNMATCHED, Matcher
from plugins.volumes.places import Places
from scheduler.api.storage import NO_PROVISIONER, CSIStorageCapacity, PersistentVolume, PersistentVolumeClaim
from scheduler.framework.plugin import Rows
from scheduler.state.columns import Bool, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.volumes import VolumeState

NODE_CONFLICT, BIND_CONFLICT, NO_SPACE, VOLUME_MISSING = 1, 2, 4, 8
REASONS = {
    NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NO_SPACE: "node(s) did not have enough free storage",
    VOLUME_MISSING: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}
"""Bit → text, in upstream's order."""


@dataclass(frozen=True, slots=True)
class PodClaims:
    """A Pod's claims: ``bound`` ones, and ``delayed`` ones that wait for a node; in order of the Pod's volumes."""

    bound: tuple[PersistentVolumeClaim, ...]
    delayed: tuple[PersistentVolumeClaim, ...]


@dataclass(slots=True)
class StaticMatch:
    """``choice[place]`` indexes ``volumes``; UNMATCHED where the claim gets none of them."""

    claim: PersistentVolumeClaim
    volumes: list[PersistentVolume]
    choice: Int64


@dataclass(slots=True)
class Provision:
    """``needed[place]``: the claim's volume would have to be made; ``capacity_bytes[place]`` is there, -1 unknown."""

    claim: PersistentVolumeClaim
    needed: Bool
    capacity_bytes: Int64


@dataclass(slots=True)
class Plan:
    """``flags[place]``: bits of REASONS, 0 where all claims are served. ``errors``: place → what ends the attempt."""

    flags: Int64
    errors: dict[int, str] = field(default_factory=dict)
    matches: list[StaticMatch] = field(default_factory=list)
    provisions: list[Provision] = field(default_factory=list)

    def at(self, places: Int64) -> Plan:
        """The plan for some places without errors, in their order."""
        return Plan(
            self.flags[places],
            matches=[StaticMatch(match.claim, match.volumes, match.choice[places]) for match in self.matches],
            provisions=[
                Provision(found.claim, found.needed[places], found.capacity_bytes[places]) for found in self.provisions
            ],
        )


def make_plan(state: VolumeState, nodes: NodeTable, rows: Rows, claims: PodClaims) -> Plan:
    """Cost: a few numpy calls per claim and per volume of its class; small ones for volumes of one node."""
    planner = _Planner(state, Places(nodes, rows, state.csi_nodes))
    planner.check_bound(claims.bound)
    planner.serve(claims.delayed)
    return planner.plan


class _Planner:
    def __init__(self, state: VolumeState, places: Places) -> None:
        self.state, self.places = state, places
        self.plan = Plan(np.zeros(len(places.rows), np.int64))

    def check_bound(self, claims: tuple[PersistentVolumeClaim, ...]) -> None:
        """The first problem of each place counts: volume missing, or not reached from there."""
        going = np.ones(len(self.places.rows), np.bool_)
        for claim in claims:
            volume = self.state.volumes.get(claim.spec.volumeName)
            if volume is None:
                self.plan.flags[going] |= VOLUME_MISSING
                return
            reached = np.zeros(len(going), np.bool_)
            reached[self.places.reached_from(volume)] = True
            self.plan.flags[going & ~reached] |= NODE_CONFLICT
            going &= reached

    def serve(self, claims: tuple[PersistentVolumeClaim, ...]) -> None:
        """Claims whose node was chosen before are only provisioned, and only there; others may get what exists."""
        going = np.ones(len(self.places.rows), np.bool_)
        chosen = [claim for claim in claims if claim.selected_node is not None]
        for claim in chosen:
            here = self.places.named(claim.selected_node or "")
            self.plan.flags[going & ~here] |= BIND_CONFLICT
            going &= here
        matcher = Matcher(self.places)
        needs = [(claim, going.copy()) for claim in chosen]
        others = (claim for claim in claims if claim.selected_node is None)
        for claim in sorted(others, key=lambda claim: amount(claim.requested)):
            volumes = self.state.volumes_of_class(claim.class_name)
            candidates, choice = matcher.match(claim, volumes, going)
            self.plan.matches.append(StaticMatch(claim, candidates, choice))
            needs.append((claim, going & (choice == UNMATCHED)))
        self._provision(needs)

    def _provision(self, needs: list[tuple[PersistentVolumeClaim, Bool]]) -> None:
        going = np.ones(len(self.places.rows), np.bool_)
        for claim, wanting in needs:
            needed = wanting & going
            if not needed.any():
                continue
            problem = self._class_problem(claim)
            if problem:
                self.plan.errors.update((place, problem) for place in np.flatnonzero(needed).tolist())
                going &= ~needed
                continue
            storage_class = self.state.classes[claim.class_name]
            allowed = self.places.allowed(storage_class)
            if storage_class.provisioner in ("", NO_PROVISIONER):
                allowed[:] = False
            self.plan.flags[needed & ~allowed] |= BIND_CONFLICT
            capacity_bytes = self._capacity(claim, storage_class.provisioner)
            short = np.zeros(len(going), np.bool_) if capacity_bytes is None else capacity_bytes < 0
            self.plan.flags[needed & allowed & short] |= NO_SPACE
            going &= ~needed | (allowed & ~short)
            known = np.full(len(going), -1, np.int64) if capacity_bytes is None else capacity_bytes
            self.plan.provisions.append(Provision(claim, needed & allowed & ~short, known))

    def _class_problem(self, claim: PersistentVolumeClaim) -> str:
        if not claim.class_name:
            return f'no class for claim "{claim.key}"'
        if claim.class_name not in self.state.classes:
            return f'failed to find storage class "{claim.class_name}"'
        return ""

    def _capacity(self, claim: PersistentVolumeClaim, provisioner: str) -> Int64 | None:
        """Bytes of a stock that has room for the claim, -1 where none has; None when the driver does not tell.

        Of several stocks within reach the first by name counts (upstream: a random one).
        """
        driver = self.state.csi_drivers.get(provisioner)
        if claim.requested is None or driver is None or not driver.spec.storageCapacity:
            return None
        result = np.full(len(self.places.rows), -1, np.int64)
        stocks = self.state.capacities.get(claim.class_name, {})
        requested_bytes = amount_bytes(claim.requested)
        for _, stock in sorted(stocks.items()):
            if _limit_bytes(stock) >= requested_bytes:
                result[self.places.labelled(stock.nodeTopology) & (result < 0)] = amount_bytes(stock.capacity)
        return result


def _limit_bytes(stock: CSIStorageCapacity) -> int:
    """The largest volume the stock takes, -1 when nothing is said."""
    limit = stock.maximumVolumeSize if stock.maximumVolumeSize is not None else stock.capacity
    return -1 if limit is None else amount_bytes(limit)
