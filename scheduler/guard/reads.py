"""Keeps the guard's book: watches of claims, slices and taint rules, and reads past the watches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from scheduler.api.changes import Change
from scheduler.api.kinds import Kind, decode
from scheduler.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler.api.versions import ResourceKinds
from scheduler.dra.admissions import Admissions, Reservation
from scheduler.dra.slices import SliceStore
from scheduler.edge.bad_objects import BadObject
from scheduler.edge.client import ApiClient
from scheduler.edge.errors import NotFound
from scheduler.edge.lister import Lister
from scheduler.edge.reflector import Reflector
from scheduler.errors import SchedulerError

FRESH_TIMEOUT_S = 2.0
SIDE_BY_SIDE = 16


class Reads:
    """The sink of three reflectors and a FreshReads. ``on_bad`` and ``on_trouble`` get what went wrong, in words."""

    def __init__(
        self,
        client: ApiClient,
        book: Admissions,
        kinds: ResourceKinds,
        *,
        on_bad: Callable[[BadObject], None] = lambda bad: None,
        on_trouble: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._client, self._book, self._kinds, self._on_trouble = client, book, kinds, on_trouble
        self.reflectors = [
            Reflector(
                client, kind, self, optional=kind is kinds.taint_rule, on_bad_object=on_bad, on_trouble=on_trouble
            )
            for kind in (kinds.claim, kinds.slice, kinds.taint_rule)
        ]

    @property
    def synced(self) -> bool:
        """True once all three kinds have been listed."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    async def wait_synced(self) -> None:
        """Until all three kinds have been listed."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    def deliver(self, batch: list[Change], revision: int) -> None:
        """Enter changes into the book (a reflector's sink)."""
        for change in batch:
            if change.kind is self._kinds.claim:
                if change.new is None:
                    self._book.remove(change.old.uid)
                else:
                    self._book.take(change.new)
            elif change.kind is self._kinds.slice:
                self._book.apply_slice(change.old, change.new)
            else:
                self._book.apply_rule(change.old, change.new)

    # Past the watches.

    async def claims(self, uids: Collection[str]) -> None:
        """Read these claims one by one, some side by side; one that is gone is removed, one unread stays as known."""
        slots = asyncio.Semaphore(SIDE_BY_SIDE)

        async def one(uid: str) -> None:
            known = self._book.claims.get(uid)
            if known is not None:
                async with slots:
                    await self._read(known)

        await asyncio.gather(*(one(uid) for uid in uids))

    async def _read(self, known: ResourceClaim) -> bool:
        """Bring the book up to date about one claim; False when it could not be read."""
        meta = known.metadata
        try:
            path = self._kinds.claim.path(meta.namespace, meta.name)
            answer = await self._client.request("GET", path, timeout_s=FRESH_TIMEOUT_S)
            found: ResourceClaim = decode(self._kinds.claim, answer.body)
        except SchedulerError as error:
            # Only the API server's own word about this very claim: a proxy that leads nowhere says 404, too.
            if isinstance(error, NotFound) and error.reason == "NotFound" and error.details.name == meta.name:
                self._book.remove(known.uid)
                return True
            self._on_trouble(f"claim {known.key} could not be read again: {error}")
            return False
        if found.uid != known.uid:
            self._book.remove(known.uid)
        self._book.take(found)
        return True

    async def unknown(self, claim: ResourceClaim) -> bool:
        """Read a claim that no watch has shown yet, and enter it; False unless it is there with this UID."""
        await self._read(claim)
        return claim.uid in self._book.claims

    async def settle(self, reservations: Collection[Reservation]) -> None:
        """Read the claims of expired reservations, each once; what a fresh version does not settle is never stored."""
        of_claim: dict[str, list[Reservation]] = {}
        for reservation in reservations:
            of_claim.setdefault(reservation.uid, []).append(reservation)
        for uid, expired in of_claim.items():
            if await self._read(self._book.claims.get(uid, expired[0].claim)):
                for reservation in expired:
                    self._book.end(reservation)

    async def slices(self, drivers: Collection[str]) -> SliceStore | None:
        """A store of its own with the slices of ``drivers`` and all taint rules, as the server has them now."""
        store = SliceStore(self._book.features)
        try:
            async with asyncio.timeout(FRESH_TIMEOUT_S):
                for rule in await self._rules():
                    store.apply_rule(None, rule)
                for driver in sorted(drivers):
                    for slice_ in await self._list(self._kinds.slice, {"fieldSelector": f"spec.driver={driver}"}):
                        if isinstance(slice_, ResourceSlice):
                            store.apply(None, slice_)
        except (SchedulerError, TimeoutError) as error:
            self._on_trouble(f"slices could not be read again: {error or 'timeout'}")
            return None
        return store

    async def _rules(self) -> list[DeviceTaintRule]:
        try:
            return await self._list(self._kinds.taint_rule, {})
        except NotFound:
            return []  # this server does not serve the kind

    async def relist_claims(self) -> None:
        """Enter every claim as the server has it now. Raises ClusterError."""
        for claim in await self._list(self._kinds.claim, {}):
            self._book.take(claim)

    async def _list(self, kind: Kind, selector: dict[str, str]) -> list[Any]:
        items, _ = await Lister(self._client, kind, selector).list_raw()
        found = []
        for raw in items:
            try:
                found.append(decode(kind, bytes(raw)))
            except SchedulerError as error:
                self._on_trouble(str(error))
        return found
