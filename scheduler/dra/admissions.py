"""The book of the guard: stored allocations, and those that were admitted but not seen stored yet.

The API server stores a write only if the object still has the revision that the admission showed (its base). So an
admitted allocation is settled by the first version of the claim above its base, whatever that version says: either it
is the write itself, or somebody was faster and the write was refused, or asked about again with a new base. Versions at
or below the base say nothing. What is never settled (the write failed after its admission) expires once no request can
live that long, and only after the claim was read again.

Whoever reaches the guard can have it admit something, so what is kept of an admitted allocation is what it holds and
nothing else, and there is an end to how much is kept. Nothing is dropped to make room: the oldest write may still be
the one that is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from scheduler.api import meta
from scheduler.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from scheduler.dra.devices import PoolKey
from scheduler.dra.features import Features
from scheduler.dra.judge import Judge, Refusal, oversized, owner_of
from scheduler.dra.ledger import Ledger
from scheduler.dra.slices import SliceStore
from scheduler.dra.whole_pools import WholePool, WholePools
from scheduler.errors import ClusterError, InternalError

RESERVATIONS_OF_CLAIM_MAX = 16
"""Different writes of one claim under way. Two schedulers that try again and again make fewer within one lifetime."""
HELD_MAX = 65_536
"""Sum of all sizes (see Reservation), some 110 MB with the longest names. 800 allocations of one device a second make
as much within one lifetime of 40 s when the watch shows none of them."""
_PODS_NAMED_MAX = 3
_GONE_MAX = 10_000


class NoRoomError(ClusterError):
    """Nothing more can be held, for this claim or at all. The text says which."""


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """An allocation admitted for ``claim`` at ``admitted_at_s`` on the caller's clock.

    ``claim`` has name, namespace and UID, ``allocation`` the devices it holds with what it consumes of them, nothing
    else. ``base``: the revision the write was made on; ``entry``: its name in the ledger.
    """

    entry: str
    claim: ResourceClaim
    base: int
    allocation: AllocationResult
    admitted_at_s: float

    @property
    def uid(self) -> str:
        """The claim's UID."""
        return self.claim.uid

    @property
    def size(self) -> int:
        """1, and 1 for each device and each consumed capacity. Less than two kilobytes of memory each."""
        return 1 + sum(1 + len(result.consumedCapacity or ()) for result in self.allocation.devices.results)


def revision_of(claim: ResourceClaim) -> int:
    """The claim's resourceVersion, 0 when it has none that can be compared."""
    return meta.revision_of(claim.metadata.resourceVersion) or 0


class Admissions:
    """Newest known claims, slices and taint rules, the ledger of what they hold, and the open reservations.

    One claim may have several reservations (two schedulers, one claim): only one of the writes can be stored, but until
    it is seen nobody knows which. ``held``: the sum of their sizes. ``verify`` recomputes everything.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.slices = SliceStore(features)
        self.ledger = Ledger(features.consumable_capacity)
        self.claims: dict[str, ResourceClaim] = {}
        self._pools = WholePools(self.slices)
        self._open: dict[str, dict[str, Reservation]] = {}
        self._count = 0
        self.held = 0
        # UIDs that are gone for good: an answer that was under way must not bring one back.
        self._gone: dict[str, None] = {}

    # What the API server shows.

    def take(self, claim: ResourceClaim) -> bool:
        """A version of a claim, from whatever source; False when it is gone, or not newer than what is known."""
        known = self.claims.get(claim.uid)
        if claim.uid in self._gone or (known is not None and revision_of(claim) <= revision_of(known)):
            return False
        self.claims[claim.uid] = claim
        self.ledger.set_claim(claim)
        self._settle(claim.uid, revision_of(claim))
        return True

    def remove(self, uid: str) -> None:
        """The claim is gone: nothing can be stored in it any more."""
        self.claims.pop(uid, None)
        self._gone[uid] = None
        while len(self._gone) > _GONE_MAX:
            del self._gone[next(iter(self._gone))]
        self.ledger.remove_claim(uid)
        self._settle(uid, None)

    def apply_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        """A slice came, changed or went."""
        self.slices.apply(old, new)

    def apply_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        """A taint rule came, changed or went."""
        self.slices.apply_rule(old, new)

    # Admission.

    def judge(
        self, claim: ResourceClaim, allocation: AllocationResult, slices: SliceStore | None = None
    ) -> tuple[Refusal, ...]:
        """What forbids ``allocation`` for ``claim``, () for nothing. ``slices``: fresher ones than the kept ones."""
        pools = self.pool if slices is None else WholePools(slices).get
        return Judge(self.ledger, pools, self.describe, self.features).refusals(claim, allocation)

    def reserve(self, claim: ResourceClaim, allocation: AllocationResult, now_s: float) -> Reservation | None:
        """Hold what ``allocation`` takes for ``claim``, the version that is written on; None when it is not stored.

        A write on a version older than the known one cannot be: the API server asks again with the newer one. Nor can
        one that the API server has no place for; one that holds nothing (admin access) needs no place here. A write
        that is asked about twice is held once, from now on. Raises NoRoomError; then nothing has changed.
        """
        base, known = revision_of(claim), self.claims.get(claim.uid)
        if claim.uid in self._gone or (known is not None and revision_of(known) > base) or oversized(allocation):
            return None
        part = _held_part(allocation)
        if not part.devices.results:
            return None
        entries = self._open.get(claim.uid, {})
        same = next((found for found in entries.values() if found.base == base and found.allocation == part), None)
        if same is not None:
            del entries[same.entry]
            entries[same.entry] = reservation = replace(same, admitted_at_s=now_s)
            return reservation
        named = _named(claim if known is None else known)
        reservation = Reservation(f"{claim.uid}/{self._count + 1}", named, base, part, now_s)
        self._check_room(reservation)
        self._count += 1
        self.held += reservation.size
        self._open.setdefault(claim.uid, {})[reservation.entry] = reservation
        self.ledger.set_in_flight(reservation.entry, named.key, part)
        return reservation

    def crowded(self, uid: str) -> bool:
        """Whether the claim has all the reservations it may have. A fresh version of it may settle some."""
        return len(self._open.get(uid, ())) >= RESERVATIONS_OF_CLAIM_MAX

    def _check_room(self, reservation: Reservation) -> None:
        if self.crowded(reservation.uid):
            raise NoRoomError(
                f"{RESERVATIONS_OF_CLAIM_MAX} other allocations of claim {reservation.claim.key} are being written "
                "now: try again once one is stored or all have failed"
            )
        if self.held + reservation.size > HELD_MAX:
            raise NoRoomError("the guard holds all it can of allocations that are being written now: try again later")

    def reservations(self) -> tuple[Reservation, ...]:
        """All that are open, oldest first of each claim."""
        return tuple(found for entries in self._open.values() for found in entries.values())

    def expired(self, now_s: float, lifetime_s: float) -> list[Reservation]:
        """Those older than any request may become. Read their claims again, ``take`` them, then ``end`` the rest."""
        return [found for found in self.reservations() if now_s - found.admitted_at_s >= lifetime_s]

    def end(self, reservation: Reservation) -> None:
        """Let go of one reservation. Idempotent; of one that was renewed since nothing is let go."""
        entries = self._open.get(reservation.uid, {})
        if entries.get(reservation.entry) is reservation:
            del entries[reservation.entry]
            self.held -= reservation.size
            self.ledger.drop_in_flight(reservation.entry, force=True)
            if not entries:
                del self._open[reservation.uid]

    # Questions.

    def pool(self, key: PoolKey) -> WholePool:
        """A pool as its newest slices have it."""
        return self._pools.get(key)

    def is_stored(self, uid: str) -> bool:
        """Whether the newest known version of the claim has an allocation."""
        known = self.claims.get(uid)
        return known is not None and known.status.allocation is not None

    def describe(self, uid: str) -> str:
        """A holder in words: the claim, the Pods it is reserved for; or that its allocation is only being written."""
        claim = self.claims.get(uid)
        if claim is None or claim.status.allocation is None:
            reservation = next(iter(self._open.get(uid, {}).values()), None)
            claim = claim or (None if reservation is None else reservation.claim)
            return f"claim {claim.key if claim else uid} (being written now)"
        pods = [f"{consumer.resource.rstrip('s')} {consumer.name}" for consumer in claim.consumers]
        more = f" and {len(pods) - _PODS_NAMED_MAX} more" if len(pods) > _PODS_NAMED_MAX else ""
        return f"claim {claim.key}" + (f" (for {', '.join(pods[:_PODS_NAMED_MAX])}{more})" if pods else "")

    def verify(self) -> None:
        """Recompute the ledger. Raises InternalError on a difference."""
        self.ledger.verify()
        for uid, claim in self.claims.items():
            entry = self.ledger.entry(uid)
            if (None if entry is None else entry.stored) is not claim.status.allocation:
                raise InternalError(f"the ledger does not know the allocation of claim {claim.key}")
        flying = {entry for entries in self._open.values() for entry in entries}
        known = set(_flying(self.ledger, self.reservations()))
        if flying != known:
            raise InternalError(f"reservations {flying} differ from the ledger's {known}")
        held = sum(reservation.size for reservation in self.reservations())
        if held != self.held:
            raise InternalError(f"reservations hold {held}, noted is {self.held}")

    def _settle(self, uid: str, revision: int | None) -> None:
        for reservation in tuple(self._open.get(uid, {}).values()):
            if revision is None or revision > reservation.base:
                self.end(reservation)


def _named(claim: ResourceClaim) -> ResourceClaim:
    """A claim of that name and UID, without anything else."""
    known = claim.metadata
    return ResourceClaim(metadata=meta.ObjectMeta(name=known.name, namespace=known.namespace, uid=known.uid))


def _held_part(allocation: AllocationResult) -> AllocationResult:
    """The results that hold something, with what the ledger reads of them (``holds_of``)."""
    kept = [
        DeviceRequestAllocationResult(
            driver=result.driver,
            pool=result.pool,
            device=result.device,
            shareID=result.shareID,
            consumedCapacity=None if result.shareID is None else result.consumedCapacity,
        )
        for result in allocation.devices.results
        if not result.adminAccess
    ]
    return AllocationResult(devices=DeviceAllocationResult(results=tuple(kept)))


def _flying(ledger: Ledger, reservations: Iterable[Reservation]) -> Iterator[str]:
    for reservation in reservations:
        if ledger.in_flight(reservation.entry) is reservation.allocation:
            yield reservation.entry


__all__ = [
    "HELD_MAX",
    "RESERVATIONS_OF_CLAIM_MAX",
    "Admissions",
    "NoRoomError",
    "Refusal",
    "Reservation",
    "owner_of",
    "revision_of",
]
