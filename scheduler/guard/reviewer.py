"""One review: judge, look again before a refusal, reserve.

Between the last judgement and the reservation nothing waits, so that reviews are serial, however many are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Literal, Protocol

from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.dra.admissions import Admissions, NoRoomError
from scheduler.dra.devices import DeviceKey
from scheduler.dra.judge import Refusal
from scheduler.dra.slices import SliceStore
from scheduler.errors import ClusterError

Mode = Literal["enforce", "warn"]
MODES: tuple[Mode, ...] = ("enforce", "warn")
_TOLD_MAX = 3


class NotActiveError(ClusterError):
    """This replica does not answer now: it stands by, has not settled, or stops. The text says which."""


class FreshReads(Protocol):
    """Asks the API server once more, past the watches. They raise nothing: what cannot be read stays as known."""

    async def claims(self, uids: Collection[str]) -> None:
        """Read these claims and enter them into the book."""

    async def unknown(self, claim: ResourceClaim) -> bool:
        """Read a claim that no watch has shown yet, and enter it; False unless it is there with this UID."""

    async def slices(self, drivers: Collection[str]) -> SliceStore | None:
        """All slices of these drivers, and the taint rules; None when they cannot be read."""


@dataclass(frozen=True, slots=True)
class Answer:
    """``allowed``, and what forbids it (mode warn allows it all the same). ``reserved``: it is held from now on."""

    allowed: bool
    refusals: tuple[Refusal, ...] = ()
    reserved: bool = False

    @property
    def text(self) -> str:
        """The refusals in words, the first three of them."""
        told = [refusal.text for refusal in self.refusals[:_TOLD_MAX]]
        more = len(self.refusals) - _TOLD_MAX
        return "; ".join(told) + (f"; and {more} more" if more > 0 else "")


ALLOWED = Answer(True)


class Reviewer:
    """Answers for one book. ``active`` raises NotActiveError while this replica must not answer. ``clock``: seconds."""

    def __init__(
        self, book: Admissions, fresh: FreshReads, active: Callable[[], None], clock: Callable[[], float]
    ) -> None:
        self._book, self._fresh, self._active, self._clock = book, fresh, active, clock

    async def review(self, mode: Mode, old: ResourceClaim, new: ResourceClaim, dry_run: bool) -> Answer:
        """Whether ``new`` may be stored over ``old``. Anything but a new allocation is allowed and leaves no trace.

        A refusal is never given on what the watches may have missed: holders and slices are read again first. Nothing
        is held for a claim that cannot be found. What is judged is the claim as the book has it (its spec is
        immutable); of ``old`` only the revision counts. What cannot be held is refused: let through unheld, its devices
        could be given again. Raises NotActiveError.
        """
        allocation = new.status.allocation
        if allocation is None or old.status.allocation is not None:
            return ALLOWED
        self._active()
        claim = await self._known(old)
        if not dry_run and self._book.crowded(old.uid):
            await self._fresh.claims({old.uid})
            self._active()
        slices: SliceStore | None = None
        refusals = self._book.judge(claim, allocation)
        if refusals:
            slices = await self._look_again(refusals, allocation)
            self._active()
            refusals = self._book.judge(claim, allocation, slices)
        if refusals and mode == "enforce":
            return Answer(False, refusals)
        if dry_run:
            return Answer(True, refusals)
        try:
            reserved = self._book.reserve(old, allocation, self._clock()) is not None
        except NoRoomError as error:
            # No NotActiveError: with failurePolicy Ignore that would let it through.
            return Answer(mode != "enforce", (*refusals, Refusal("full", DeviceKey("", "", ""), str(error))))
        return Answer(True, refusals, reserved)

    async def _known(self, old: ResourceClaim) -> ResourceClaim:
        """The book's version of the claim, read first when no watch has shown it. Raises NotActiveError."""
        if old.uid not in self._book.claims:
            found = await self._fresh.unknown(old)
            self._active()
            if not found:
                raise NotActiveError(f"claim {old.key} with UID {old.uid} could not be found")
        known = self._book.claims.get(old.uid)
        if known is None or known.key != old.key:
            raise NotActiveError(f"claim {old.key} with UID {old.uid} could not be found")
        return known

    async def _look_again(self, refusals: Collection[Refusal], allocation: AllocationResult) -> SliceStore | None:
        holders = {uid for refusal in refusals for uid in refusal.holders if self._book.is_stored(uid)}
        if holders:
            await self._fresh.claims(holders)
        if all(refusal.reason in ("held", "malformed") for refusal in refusals):
            return None
        return await self._fresh.slices({result.driver for result in allocation.devices.results})
