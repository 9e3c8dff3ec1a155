"""The guard beside a World: its book takes in what the watches show, and it reviews allocations beside a mutant.

Its watches are the World's: both are Reflectors, so it gets the same changes. Reads past them go to the FeedClient.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from e2e.fuzz.faults import names_an_error, where
from e2e.fuzz.feed import FeedClient
from e2e.fuzz.samples import DRIVER, NS
from scheduler.api.changes import Change
from scheduler.api.kinds import DecodeError, Kind, convert, decode
from scheduler.api.resource import (
    AllocationResult,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from scheduler.api.versions import ResourceKinds
from scheduler.dra.admissions import Admissions
from scheduler.guard.process import guard_features
from scheduler.guard.reads import Reads
from scheduler.guard.reviewer import Answer, NotActiveError, Reviewer

ASKING = f"uid-{NS}-wanted"
"""UID of the claim that asks while another object is spoilt."""


def _result(pool: str, device: str, share: str = "") -> DeviceRequestAllocationResult:
    held = DeviceRequestAllocationResult(request="one", driver=DRIVER, pool=pool, device=device)
    shared = {"shareID": share, "consumedCapacity": {"memory": "1Gi"}}
    return msgspec.structs.replace(held, **shared) if share else held


def _allocation(*results: DeviceRequestAllocationResult) -> AllocationResult:
    return AllocationResult(devices=DeviceAllocationResult(results=results))


ASKED = (
    _allocation(_result("n1", "g0", "s-2"), _result("n1", "g1", "s-3")),
    _allocation(_result("n2", "g0")),
)
"""Shares beside those of the held claim, and a whole device that the taint rule is about: nothing forbids them."""


class GuardBeside:
    """``deliver`` enters what was seen, ``meet`` reviews, ``restore`` makes the book forget a mutant.

    ``faults``: what would have ended a watch; ``texts``: what the guard said. Both are the caller's to clear.
    """

    def __init__(self, client: FeedClient, kinds: ResourceKinds, gates: Mapping[str, bool]) -> None:
        self.faults: list[str] = []
        self.texts: list[str] = []
        self._client, self._kinds, self._features = client, kinds, guard_features(gates)
        self._begin()

    def _begin(self) -> None:
        self._broken = False
        self.book = Admissions(self._features)
        self.reads = Reads(
            self._client,  # type: ignore[arg-type]  # stands for an ApiClient
            self.book,
            self._kinds,
            on_trouble=self.texts.append,
        )
        self.reviewer = Reviewer(self.book, self.reads, lambda: None, lambda: 0.0)

    def watches(self, kind: Kind) -> bool:
        """Whether the guard reads this kind: claims, slices and taint rules."""
        return any(kind.name == one.name for one in (self._kinds.claim, self._kinds.slice, self._kinds.taint_rule))

    def deliver(self, batch: Sequence[Change], revision: int) -> None:
        """What a reflector hands to its sink; an error would end that reflector's task."""
        ours = [change for change in batch if self.watches(change.kind)]
        try:
            self.reads.deliver(ours, revision)
        except Exception as error:  # whatever comes out is what is looked for
            self._broken = True
            self.faults.append(f"the guard's watch of {ours[0].kind.name} would end: {error!r}{where(error)}")

    async def meet(self, kind: Kind, raw: bytes) -> list[str]:
        """What is wrong with the reviews that ``raw``, just shown, has a part in. No reservation is left."""
        found = []
        for old, new in self._reviews(kind, raw):
            try:
                answer = await self.reviewer.review("warn", old, new, dry_run=False)
            except NotActiveError as error:  # it is told to ask again
                self.texts.append(str(error))
                continue
            except Exception as error:  # the webhook would answer 500
                found.append(f"the guard's review of {new.key} broke: {error!r}{where(error)}")
                continue
            found += _wordless(answer)
            self.texts.append(answer.text)
        try:
            await self.reads.settle(self.book.reservations())
        except Exception as error:  # the sweep's task would end
            found.append(f"the guard's sweep would end: {error!r}{where(error)}")
        for left in self.book.reservations():  # of claims that cannot be read at present
            self.book.end(left)
        return found + [text for text in self.texts if names_an_error(text)]

    def _reviews(self, kind: Kind, raw: bytes) -> Iterator[tuple[ResourceClaim, ResourceClaim]]:
        """(claim before, claim after): a spoilt claim is given what it says it has, then another claim asks."""
        spoilt = _as_admitted(kind, raw) if kind is self._kinds.claim else None
        if spoilt is not None and spoilt.status.allocation is not None:
            yield _given(spoilt, None), spoilt
        asking = self.book.claims.get(ASKING)
        if asking is not None:
            for allocation in ASKED:
                yield _given(asking, None), _given(asking, allocation)

    def restore(self, stores: Mapping[str, Mapping[str, Any]]) -> None:
        """Bring the book to ``stores`` (kind → key → object), the copies once the sample is back.

        A UID that was gone comes back, and a lower revision follows a higher one, which no API server does: the claims
        concerned are entered anew. Everything is after a fault.
        """
        claims = {claim.uid: claim for claim in stores[self._kinds.claim.name].values()}
        if self._broken:
            self._begin()
            for slice_ in stores[self._kinds.slice.name].values():
                self.book.apply_slice(None, slice_)
            for rule in stores.get(self._kinds.taint_rule.name, {}).values():
                self.book.apply_rule(None, rule)
        for uid in [uid for uid, claim in self.book.claims.items() if claims.get(uid) is not claim]:
            self.book.remove(uid)
        self.book._gone.clear()
        for uid, claim in claims.items():
            if uid not in self.book.claims:
                self.book.take(claim)


def _given(claim: ResourceClaim, allocation: AllocationResult | None) -> ResourceClaim:
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(claim.status, allocation=allocation))


def _as_admitted(kind: Kind, raw: bytes) -> ResourceClaim | None:
    """The claim as a review has it: by way of plain data, where they are not too deep. None when it is refused."""
    found: ResourceClaim
    try:
        try:
            found = convert(kind, msgspec.json.decode(raw))
        except RecursionError:
            found = decode(kind, raw)
    except (msgspec.DecodeError, UnicodeDecodeError, DecodeError):
        return None
    return found


def _wordless(answer: Answer) -> list[str]:
    """A refusal has words that can be sent."""
    if bool(answer.refusals) is not bool(answer.text.strip()):
        return [f"the guard says {answer.text!r} of {answer.refusals}"]
    answer.text.encode()
    return []
