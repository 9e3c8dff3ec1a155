"""Writes claims: finalizer, then allocation and reservation in one status write.

Every write is a patch with metadata.uid, and metadata.resourceVersion where it replaces a list; so a claim that anybody
touched since is read again and checked again, 5 tries in all, 10 ms apart. An answer that was lost is read back before
anything is concluded. Writes of one claim pass one lane; reservations that wait in it are merged into one patch.
Source of protocol and texts: kube-scheduler 1.37, DynamicResources PreBind; the timestamp is always set with our own
allocation and never added to somebody else's.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec

from scheduler.api import bodies
from scheduler.api.exact import PROTOBUF, ExactChange, NotProtobufError, changed, identity
from scheduler.api.kinds import RESOURCE_CLAIM, DecodeError, Kind, decode
from scheduler.api.meta import revision_of
from scheduler.api.resource import (
    FINALIZER,
    RESERVED_FOR_MAX,
    AllocationResult,
    ConsumerReference,
    ResourceClaim,
)
from scheduler.edge.backoff import read_back
from scheduler.edge.claim_errors import (
    ClaimConflictError,
    ClaimError,
    ClaimFreedError,
    ClaimFullError,
    ClaimGoneError,
    ClaimInUseError,
    ClaimRefusedError,
    ClaimTakenError,
    ClaimUnguardedError,
    ClaimUnknownError,
    guard_absence,
    guard_refusal,
    same_allocation,
)
from scheduler.edge.client import ApiClient, Response, Sleep
from scheduler.edge.errors import AnswerLost, ApiError, Conflict, Invalid, NotFound, ServerError
from scheduler.edge.times import rfc3339_now
from scheduler.errors import ClusterError
from scheduler.framework.instructions import WriteClaim

TRIES_MAX = 5
WRITES_MAX = 12
RETRY_PAUSE_S, RETRY_JITTER = 0.010, 0.1


class Write(msgspec.Struct, frozen=True):
    """One patch of a claim; ``doing`` starts the message of a refusal; ``exact`` is the same in protobuf."""

    doing: str
    body: bytes
    subresource: str = "status"
    content_type: str = bodies.MERGE_PATCH
    exact: ExactChange | None = None


Plan = Callable[[ResourceClaim], Write | None]
"""The next write a claim needs, None when all is done. Raises ClaimError when it can no longer be done."""


class _Reservation:
    """One consumer that waits to be added; ``allocation`` is what its node was filtered on."""

    def __init__(self, allocation: AllocationResult | None, consumer: ConsumerReference) -> None:
        self.allocation, self.consumer = allocation, consumer
        self.claim: ResourceClaim | None = None
        self.error: ClusterError | None = None

    @property
    def settled(self) -> bool:
        return self.claim is not None or self.error is not None


class _Lane:
    """The queue in front of one claim; it lives while somebody uses it."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.users = 0
        self.waiting: list[_Reservation] = []
        self.newest: ResourceClaim | None = None


def allocation_plan(allocation: AllocationResult, consumer: ConsumerReference) -> Plan:
    """Store ``allocation`` unless an equal one is stored, and reserve for ``consumer``."""

    def plan(now: ResourceClaim) -> Write | None:
        if now.metadata.deletionTimestamp is not None:
            raise ClaimGoneError(now.key, now)
        stored = now.status.allocation
        if stored is not None and not same_allocation(stored, allocation):
            raise ClaimTakenError(now.key, now)
        if stored is not None and now.reserved_for(consumer.uid):
            return None
        if len(now.status.reservedFor) >= RESERVED_FOR_MAX:
            raise ClaimFullError(now.key, now)
        if stored is None and FINALIZER not in now.metadata.finalizers:
            body = bodies.claim_finalizer_patch(now)
            return Write("add finalizer to claim", body, "", exact=ExactChange(finalizer=True))
        body, content_type = bodies.claim_allocation_patch(now, allocation if stored is None else None, [consumer])
        exact = None if stored is None else ExactChange(add=(consumer,))
        return Write("add allocation and reservation to claim", body, content_type=content_type, exact=exact)

    return plan


def reservation_plan(batch: list[_Reservation]) -> Plan:
    """Reserve for all of ``batch`` in one write; settles each that is done or can no longer be done."""

    def plan(now: ResourceClaim) -> Write | None:
        fitting: dict[str, ConsumerReference] = {}
        for reservation in batch:
            if reservation.settled:
                continue
            uid = reservation.consumer.uid
            reservation.error = _refusal(now, reservation, len(now.status.reservedFor) + len(fitting))
            if reservation.error is None and now.reserved_for(uid):
                reservation.claim = now
            elif reservation.error is None:
                fitting[uid] = reservation.consumer
        if not fitting:
            return None
        body, content_type = bodies.claim_allocation_patch(now, None, list(fitting.values()))
        exact = ExactChange(add=tuple(fitting.values()))
        return Write("add reservation to claim", body, content_type=content_type, exact=exact)

    return plan


def _refusal(now: ResourceClaim, reservation: _Reservation, consumers: int) -> ClaimError | None:
    """Why ``reservation`` cannot be added to ``now``, None when it can or when it is there already."""
    if now.metadata.deletionTimestamp is not None:
        return ClaimGoneError(now.key, now)
    if now.status.allocation is None:
        return ClaimFreedError(now.key, now)
    if not same_allocation(now.status.allocation, reservation.allocation):
        return ClaimTakenError(now.key, now)
    if consumers >= RESERVED_FOR_MAX and not now.reserved_for(reservation.consumer.uid):
        return ClaimFullError(now.key, now)
    return None


def unreservation_plan(pod_uid: str) -> Plan:
    """Remove one consumer; nothing to do when it is not there."""

    def plan(now: ResourceClaim) -> Write | None:
        if not now.reserved_for(pod_uid):
            return None
        body = bodies.claim_unreserve_patch(now, pod_uid)
        return Write("remove reservation from claim", body, exact=ExactChange(remove=pod_uid))

    return plan


def deallocation_plan(pod_uid: str, expected: AllocationResult | None) -> Plan:
    """Clear the allocation when it is ``expected`` (None: any) and nobody but ``pod_uid`` has reserved the claim."""

    def plan(now: ResourceClaim) -> Write | None:
        if now.status.allocation is None:
            return None
        if expected is not None and not same_allocation(now.status.allocation, expected):
            raise ClaimTakenError(now.key, now)
        others = [consumer for consumer in now.consumers if consumer.uid != pod_uid]
        if others:
            raise ClaimInUseError(now.key, others, now)
        return Write("deallocate claim", bodies.claim_deallocation_patch(now))

    return plan


def release_plan(now: ResourceClaim) -> Write | None:
    """Take our finalizer off, so that the claim can be deleted."""
    if FINALIZER not in now.metadata.finalizers:
        return None
    return Write("remove finalizer from claim", bodies.claim_release_patch(now), "", exact=ExactChange(finalizer=False))


class ClaimWriter:
    """All writes of claims go through one of these, so that the lanes hold. Returns the claim as the server has it.

    Every method raises ClaimError, ApiError (refused: Forbidden, Invalid), ApiUnavailable or NotLeading.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        kind: Kind = RESOURCE_CLAIM,
        now: Callable[[], str] = rfc3339_now,
        sleep: Sleep = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self._client, self._kind = client, kind
        self._now, self._sleep, self._rng = now, sleep, rng or random.Random()
        self._lanes: dict[str, _Lane] = {}

    @property
    def lanes(self) -> int:
        """Claims that are being written now."""
        return len(self._lanes)

    async def write(self, instruction: WriteClaim, pod_key: str = "") -> ResourceClaim:
        """Carry out one instruction: ``allocate`` when it brings an allocation, else ``reserve``."""
        claim = instruction.claim
        if instruction.allocation is not None:
            return await self.allocate(claim, instruction.allocation, instruction.consumer)
        return await self.reserve(claim, instruction.consumer, instruction.expected)

    async def allocate(
        self, claim: ResourceClaim, allocation: AllocationResult, consumer: ConsumerReference
    ) -> ResourceClaim:
        """Store ``allocation`` and reserve for ``consumer`` in one status write.

        ``claim`` is the version the decision was made on. An equal allocation already stored is accepted. A missing
        allocationTimestamp becomes now: without it kube-scheduler could never share the claim.
        Cost: one write, two when the finalizer is missing.
        """
        if allocation.allocationTimestamp is None:
            allocation = msgspec.structs.replace(allocation, allocationTimestamp=self._now())
        async with self._lane(claim) as lane:
            return await self._until_done(lane, claim, allocation_plan(allocation, consumer))

    async def reserve(
        self, claim: ResourceClaim, consumer: ConsumerReference, expected: AllocationResult | None = None
    ) -> ResourceClaim:
        """Reserve an allocated claim for ``consumer``.

        ``expected`` (default: the allocation of ``claim``) is what the node was filtered on; when another one is
        stored, ClaimTakenError. Reservations of one claim that wait for each other become one write.
        """
        mine = _Reservation(expected or claim.status.allocation, consumer)
        async with self._lane(claim, mine) as lane:
            if not mine.settled:
                await self._reserve_waiting(lane, claim)
        if mine.error is not None:
            raise mine.error
        if mine.claim is None:
            raise ClaimConflictError(claim.key, f"add reservation to claim {claim.key}: not settled")
        return mine.claim

    async def _reserve_waiting(self, lane: _Lane, claim: ResourceClaim) -> None:
        batch, lane.waiting = lane.waiting, []
        try:
            await self._until_done(lane, claim, reservation_plan(batch))
        except ClusterError as error:
            for reservation in batch:
                if not reservation.settled:
                    reservation.error = error
        finally:
            # Cancelled in the middle: whoever holds the lane next takes the others along.
            lane.waiting.extend(reservation for reservation in batch if not reservation.settled)

    async def unreserve(self, claim: ResourceClaim, pod_uid: str) -> ResourceClaim | None:
        """Remove the Pod from reservedFor; the allocation stays. None when the claim is gone. Idempotent.

        A ``claim`` that does not show the reservation is read first: a write of ours may have taken effect unseen.
        """
        async with self._lane(claim) as lane:
            try:
                known = _newest(lane.newest, claim)
                if not known.reserved_for(pod_uid):
                    lane.newest = known = await self._read(claim)
                return await self._until_done(lane, known, unreservation_plan(pod_uid))
            except ClaimGoneError:
                return None

    async def deallocate(
        self, claim: ResourceClaim, only_consumer: str | None = None, expected: AllocationResult | None = None
    ) -> ResourceClaim | None:
        """Clear allocation and reservations; ClaimInUseError when any but ``only_consumer`` (a uid) has reserved.

        ``expected`` (default: the allocation of ``claim``) is what may be cleared; another one raises
        ClaimTakenError. A ``claim`` that shows no allocation is read first: a write of ours may have taken effect
        unseen. None when the claim is gone; an unallocated claim is returned as it is. Idempotent.
        """
        async with self._lane(claim) as lane:
            try:
                known = claim
                if claim.status.allocation is None:
                    lane.newest = known = await self._read(claim)
                else:
                    expected = expected if expected is not None else claim.status.allocation
                return await self._until_done(lane, known, deallocation_plan(only_consumer or "", expected))
            except ClaimGoneError:
                return None

    async def release(self, claim: ResourceClaim) -> ResourceClaim:
        """Take our finalizer off, whatever the claim holds; ClaimGoneError when it is gone. Idempotent."""
        async with self._lane(claim) as lane:
            # Read first: the claim we know may be older than our own writes.
            lane.newest = await self._read(claim)
            return await self._until_done(lane, lane.newest, release_plan)

    @asynccontextmanager
    async def _lane(self, claim: ResourceClaim, reservation: _Reservation | None = None) -> AsyncIterator[_Lane]:
        """Hold the lane of ``claim``; ``reservation`` is visible to the present holder at once."""
        lane = self._lanes.setdefault(claim.uid, _Lane())
        lane.users += 1
        if reservation is not None:
            lane.waiting.append(reservation)
        try:
            async with lane.lock:
                yield lane
        finally:
            if reservation in lane.waiting:
                lane.waiting.remove(reservation)
            lane.users -= 1
            if not lane.users:
                del self._lanes[claim.uid]

    async def _until_done(self, lane: _Lane, claim: ResourceClaim, plan: Plan) -> ResourceClaim:
        """Write what ``plan`` asks for until it asks for nothing; conflicts and lost answers are read again."""
        now = _newest(lane.newest, claim)
        failures, last = 0, None
        for _ in range(WRITES_MAX):
            write = plan(now)
            if write is None:
                return now
            if failures >= TRIES_MAX:
                raise _given_up(now, last)
            try:
                now = await self._send(now, write)
            except NotFound as error:
                raise ClaimGoneError(claim.key) from error
            except (Conflict, AnswerLost, ServerError, Invalid) as error:
                if isinstance(error, Invalid) and "metadata.uid" not in error.message:
                    raise
                failures, last = failures + 1, error
                await self._sleep(RETRY_PAUSE_S * (1.0 + RETRY_JITTER * (2.0 * self._rng.random() - 1.0)))
                now = await self._read_after(claim, error)
            lane.newest = now
        raise ClaimConflictError(claim.key, f"claim {claim.key} does not keep what is written to it", now)

    async def _send(self, claim: ResourceClaim, write: Write) -> ResourceClaim:
        path = self._kind.path(claim.metadata.namespace, claim.metadata.name, write.subresource)
        try:
            try:
                answer = await self._client.call("PATCH", path, write.body, write.content_type)
            except Invalid as error:
                if write.exact is None or not _only_exactly(error):
                    raise
                answer = await self._send_exactly(claim, path, write.exact, error)
        except ApiError as error:
            refusal = guard_refusal(error.message)
            if refusal:
                raise ClaimRefusedError(claim.key, refusal, claim) from error
            absence = guard_absence(error.message)
            if absence:
                raise ClaimUnguardedError(claim.key, absence, claim) from error
            error.args = (f"{write.doing} {claim.key}: {error}",)
            raise
        return self._decoded(claim, answer.body)

    async def _send_exactly(self, claim: ResourceClaim, path: str, change: ExactChange, refusal: Invalid) -> Response:
        """The same change with every other byte left alone; raises ``refusal`` where that cannot be had."""
        whole = self._kind.path(claim.metadata.namespace, claim.metadata.name)
        stored = (await self._client.call("GET", whole, accept=PROTOBUF)).body
        try:
            if identity(stored) != (claim.uid, claim.metadata.resourceVersion):
                raise Conflict(409, "Conflict", f"claim {claim.key} has changed")
            body = changed(stored, change)
        except NotProtobufError:
            raise refusal from None
        return await self._client.call("PUT", path, body, PROTOBUF)

    async def _read_after(self, claim: ResourceClaim, cause: ClusterError) -> ResourceClaim:
        """The truth after a write that failed, also after a conflict: something on the way may have sent our write
        twice, and the answer to the second one is a conflict although the first one took effect.
        """
        try:
            return await read_back(lambda: self._read(claim), self._sleep, self._rng)
        except ClaimError:
            raise
        except ClusterError as error:
            text = f"get updated claim {claim.key} after conflict: {error}"
            if isinstance(cause, AnswerLost | ServerError):
                text = f"{cause}; reading claim {claim.key} back: {error}"
            raise ClaimUnknownError(claim.key, text) from error

    async def _read(self, claim: ResourceClaim) -> ResourceClaim:
        """The claim as it is now. Raises ClaimGoneError, also for another claim under the same name."""
        try:
            answer = await self._client.call("GET", self._kind.path(claim.metadata.namespace, claim.metadata.name))
        except NotFound as error:
            raise ClaimGoneError(claim.key) from error
        return self._decoded(claim, answer.body)

    def _decoded(self, claim: ResourceClaim, body: bytes) -> ResourceClaim:
        try:
            decoded: ResourceClaim = decode(self._kind, body)
        except DecodeError as error:
            raise AnswerLost(f"the answer is no claim: {error}") from error
        if decoded.uid and decoded.uid != claim.uid:
            raise ClaimGoneError(claim.key, decoded)
        if not decoded.uid:
            raise AnswerLost(f"the answer is not claim {claim.key}")
        return decoded


def _only_exactly(error: Invalid) -> bool:
    """The server sees a change where we made none: it keeps the claim's parameters in a form that JSON cannot carry."""
    return "field is immutable" in error.message or "cannot be modified once set" in error.message


def _newest(left: ResourceClaim | None, right: ResourceClaim) -> ResourceClaim:
    if left is None:
        return right
    before, after = revision_of(left.metadata.resourceVersion), revision_of(right.metadata.resourceVersion)
    return right if before is not None and after is not None and before < after else left


def _given_up(now: ResourceClaim, last: ClusterError | None) -> ClaimError:
    kind = ClaimUnknownError if isinstance(last, AnswerLost | ServerError) else ClaimConflictError
    error = kind(now.key, str(last), now)
    error.__cause__ = last
    return error
