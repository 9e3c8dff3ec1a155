"""Keeps a copy of all objects of one kind: LIST in pages, then WATCH from that revision, for ever.

What arrives is delivered in batches as ``Change``s. A gap (410, a revision the server does not know) is closed by a
new LIST that is *compared* with the copy, so that deletions in the gap are seen, and an object deleted and created
again under one name is reported as two changes. One undecodable object is reported and skipped; a good version known
before is kept. Source of the rules: client-go's reflector, 1.37.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import Callable, Generator
from typing import Any, Protocol

import msgspec

from scheduler.api.changes import Change
from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.api.meta import ObjectMeta
from scheduler.edge.backoff import Backoff
from scheduler.edge.client import ApiClient, Sleep
from scheduler.edge.copies import Copy
from scheduler.edge.difference import missed_changes, revision_of
from scheduler.edge.errors import ApiError, ApiUnavailable, Gone, NotFound, ServerError
from scheduler.edge.lines import LineSplitter, LineTooLongError
from scheduler.edge.lister import PAGE_LIMIT, Lister
from scheduler.edge.timeslices import TimeSlices, in_slices
from scheduler.edge.watch_events import EventReader, StartOverError, meta_of
from scheduler.errors import ClusterError
from scheduler.explain.attempts import ended

WATCH_TIMEOUT_MIN_S, WATCH_TIMEOUT_MAX_S = 300, 600
SILENCE_TIMEOUT_S = 150.0  # the server sends a bookmark about once a minute; two missed ones mean a dead stream
SHORT_WATCH_S = 1.0
SHORT_WATCH_PAUSE_S = 0.1
UNKNOWN_KIND_PAUSE_S = 60.0
UNKNOWN_KIND_TIMES = 3
"""So often in a row a server must not know an optional kind before what was known of it is dropped: during an upgrade,
or behind a proxy, 404 may mean nothing.
"""
REFUSED_PAUSE_MAX_S = 4.0
RECONCILE_WAIT_S = 90.0
EVENTS_AT_ONCE = 16
"""Events, and changes of the first LIST, that are taken between two looks at the clock."""
LISTED_AT_ONCE = 100
"""Objects of a first LIST that are compared with the copy between two looks at the clock."""


class Sink(Protocol):
    """Where changes go."""

    def deliver(self, batch: list[Change], revision: int) -> None:
        """``batch`` in the order it happened; everything of the kind up to ``revision`` is then known.

        The batch may be empty (a bookmark). Called before ``wait_revision`` wakes anybody, so for a sink that
        applies at once, waiting for a revision means waiting until it is applied.
        """


class BadObject(msgspec.Struct, frozen=True):
    """An object that could not be decoded. ``kept``: an earlier good version stays in use."""

    kind: Kind
    key: str
    problem: str
    kept: bool


class Counters(msgspec.Struct):
    """What a reflector went through since it started."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    failures: int = 0


class Reflector:
    """The copy of one kind. ``run`` is the task; everything else may be read at any time from the same loop.

    ``optional``: a server that does not serve the kind counts as one without objects. ``on_trouble`` gets a sentence
    for each failure that is retried. ``beginning``: held while the first LIST is fetched, decoded and delivered, so
    that not every kind does that at once; a later LIST waits for nobody.
    """

    def __init__(
        self,
        client: ApiClient,
        kind: Kind,
        sink: Sink,
        *,
        field_selector: str = "",
        optional: bool = False,
        on_bad_object: Callable[[BadObject], None] = lambda bad: None,
        on_trouble: Callable[[str], None] = lambda text: None,
        rng: random.Random | None = None,
        sleep: Sleep = asyncio.sleep,
        silence_timeout_s: float = SILENCE_TIMEOUT_S,
        page_limit: int = PAGE_LIMIT,
        beginning: asyncio.Semaphore | None = None,
    ) -> None:
        self.kind = kind
        self.store = Copy()
        self.synced = asyncio.Event()
        self.revision = 0
        self.counters = Counters()
        self._client, self._sink, self._path = client, sink, kind.path()
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._lister = Lister(client, kind, self._selector, page_limit)
        self._optional, self._on_bad_object, self._on_trouble = optional, on_bad_object, on_trouble
        self._rng, self._sleep = rng or random.Random(), sleep
        self._silence_timeout_s = silence_timeout_s
        self._backoff = Backoff(self._rng)
        # A refused connection costs the server nothing: ask often, so that its return is noticed soon.
        self._refused_backoff = Backoff(self._rng, max_s=REFUSED_PAUSE_MAX_S)
        self._told: dict[str, tuple[str, str]] = {}  # key of an undecodable object → uid and problem that were told
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._events_at_gap = -1
        self._reader = EventReader(kind, self._path)
        self._beginning = beginning
        self._unserved_times = 0

    async def run(self) -> None:
        """List and watch until cancelled. Never raises for what the server or the network does."""
        while True:
            try:
                if self._beginning is None or self.synced.is_set():
                    await self._list_and_deliver()
                else:
                    async with self._beginning:
                        await self._list_and_deliver()
                await self._watch_until_gap()
            except StartOverError as reason:
                self._on_trouble(f"{self.kind.resource}: listing again: {reason}")
                if self._gap_again():
                    await self._sleep(self._backoff.next_s())
            except NotFound as error:
                await self._unserved(error)
            except ClusterError as error:
                self.counters.failures += 1
                self._on_trouble(f"{self.kind.resource}: {error}")
                await self._sleep(self._pause_s(error))

    def _pause_s(self, error: ClusterError) -> float:
        if isinstance(error, ApiUnavailable):
            return self._refused_backoff.next_s()
        self._refused_backoff.reset()
        return self._backoff.next_s()

    async def wait_revision(self, revision: int, timeout_s: float) -> bool:
        """Wait until the copy has reached ``revision``; False when ``timeout_s`` passed first."""
        if self.revision >= revision:
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiter_count += 1
        heapq.heappush(self._waiters, (revision, self._waiter_count, future))
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return self.revision >= revision
        return True

    async def list_all(self) -> tuple[dict[str, Any], int]:
        """A fresh LIST: objects by key, and its revision. Touches neither the copy nor the sink (for reconcile).

        Undecodable objects are left out and reported. Raises ClusterError.
        """
        objects, _, revision = await self._list_decoded()
        return objects, revision

    async def _list_decoded(self) -> tuple[dict[str, Any], set[str], int]:
        """Objects by key, keys of those that cannot be decoded (reported), revision."""
        objects: dict[str, Any] = {}
        bad: set[str] = set()
        items, revision = await self._lister.list_raw()
        for raw, found in await self._decoded(items):
            if isinstance(found, DecodeError):
                key = self._key_of_bad(raw)
                bad.add(key)
                self._report_bad(key, self._uid_of_bad(raw), found, kept=key in self.store)
            else:
                objects[found.metadata.key] = found
        return objects, bad, revision

    async def _decoded(self, items: list[msgspec.Raw]) -> list[tuple[msgspec.Raw, Any]]:
        """Each item with its object, or with the DecodeError that says why there is none. In slices of time."""
        slices = TimeSlices()
        found: list[tuple[msgspec.Raw, Any]] = []
        for raw in items:
            try:
                # Copied: fields kept raw are views, and one of them would keep the whole page in memory.
                found.append((raw, decode(self.kind, bytes(raw))))
            except DecodeError as error:
                found.append((raw, error))
            if slices.over:
                await slices.rest()
        return found

    async def reconcile(self) -> int:
        """Compare the copy with a fresh LIST and deliver what the watch missed; how many objects that were.

        A difference may be merely under way: then the watch is first let reach the LIST's revision (a bookmark comes
        about once a minute). Raises ClusterError.
        """
        listed, bad, revision = await self._list_decoded()
        if not self._missed(listed, bad, revision):
            return 0
        if not await self.wait_revision(revision, RECONCILE_WAIT_S):
            raise ClusterError(f"the watch did not reach revision {revision}")
        changes = self._missed(listed, bad, revision)
        for change in changes:
            key = (change.new or change.old).metadata.key
            if change.new is None:
                self.store.pop(key, None)
            else:
                self.store[key] = change.new
        if changes:
            self._sink.deliver(changes, self.revision)
        return len(changes)

    def _missed(self, listed: dict[str, Any], bad: set[str], revision: int) -> list[Change]:
        return missed_changes(self.kind, self.store, listed, bad, revision, self.revision)

    # LIST

    async def _list_and_deliver(self) -> None:
        items, revision = await self._lister.list_raw()
        self.counters.lists += 1
        self._unserved_times = 0
        steps = self._difference_steps(await self._decoded(items), revision)
        batch = ended(steps) if self.synced.is_set() else await in_slices(steps)
        if not self.synced.is_set():
            batch = await self._begin(batch)
        self._advance(batch, revision, reset=True)
        self.synced.set()
        self._backoff.reset()

    async def _begin(self, batch: list[Change]) -> list[Change]:
        """Deliver a first LIST in slices of time, all but its last part, which is returned.

        Nobody decides before every kind is complete. A later LIST is delivered in one piece: a half of it could show
        a device with its old and its new holder.
        """
        slices = TimeSlices()
        last = max(len(batch) - EVENTS_AT_ONCE, 0)
        for start in range(0, last, EVENTS_AT_ONCE):
            self._sink.deliver(batch[start : min(start + EVENTS_AT_ONCE, last)], self.revision)
            if slices.over:
                await slices.rest()
        return batch[last:]

    def _difference_steps(
        self, items: list[tuple[msgspec.Raw, Any]], revision: int
    ) -> Generator[None, None, list[Change]]:
        """What changed between the copy and a complete LIST: deletions first. Updates the copy."""
        gone = dict(self.store)
        changes: list[Change] = []
        told, self._told = self._told, {}  # whatever is not in the LIST any more is forgotten
        for number, (raw, new) in enumerate(items):
            if number % LISTED_AT_ONCE == 0:
                yield
            if isinstance(new, DecodeError):
                self._keep_if_same(raw, new, gone, told)
                continue
            meta = new.metadata
            key, old = meta.key, self.store.get(meta.key)
            if old is not None and old.metadata.uid == meta.uid:
                gone.pop(key, None)
                if old.metadata.resourceVersion == meta.resourceVersion:
                    continue
            else:
                old = None
            changes.append(Change(self.kind, old, new, revision_of(meta.resourceVersion), True))
        deletions = [Change(self.kind, old, None, revision, True) for old in gone.values()]
        for deletion in deletions:
            del self.store[deletion.old.metadata.key]
        for number, change in enumerate(changes):
            if number % LISTED_AT_ONCE == 0:
                yield
            self.store[change.new.metadata.key] = change.new
        return deletions + changes

    def _keep_if_same(
        self, raw: msgspec.Raw, error: DecodeError, gone: dict[str, Any], told: dict[str, tuple[str, str]]
    ) -> None:
        meta = self._meta_of_bad(raw)
        key = meta.key if meta else ""
        if key in told:
            self._told[key] = told[key]
        known = self.store.get(key)
        kept = known is not None and meta is not None and known.metadata.uid == meta.uid
        if kept:
            gone.pop(key, None)
        self._report_bad(key, meta.uid if meta else "", error, kept)

    async def _unserved(self, error: NotFound) -> None:
        self._unserved_times += 1
        if self._optional and (not self.store or self._unserved_times >= UNKNOWN_KIND_TIMES):
            self._advance(ended(self._difference_steps([], self.revision)), self.revision, reset=False)
            self.synced.set()
            await self._sleep(UNKNOWN_KIND_PAUSE_S)
            return
        self.counters.failures += 1
        self._on_trouble(f"{self.kind.resource}: the API server does not serve this kind: {error}")
        await self._sleep(self._backoff.next_s())

    # WATCH

    async def _watch_until_gap(self) -> None:
        """Watch again and again from where the last stream ended. Raises StartOverError or Gone."""
        loop = asyncio.get_running_loop()
        while True:
            started_s, events_before = loop.time(), self.counters.events
            try:
                await self._watch_once()
            except Gone as error:
                raise StartOverError(str(error)) from error
            except NotFound:
                raise
            except ClusterError as error:
                self.counters.failures += 1
                self._on_trouble(f"{self.kind.resource}: {error}")
                if _unknown_revision(error):
                    raise StartOverError(str(error)) from error
                if self.counters.events > events_before:
                    self._backoff.reset()
                await self._sleep(self._pause_s(error))
                continue
            # The stream ended in good order. One that ends at once must not become a hot loop.
            if loop.time() - started_s >= SHORT_WATCH_S:
                self._backoff.reset()
            elif self.counters.events > events_before:
                await self._sleep(SHORT_WATCH_PAUSE_S)
            else:
                await self._sleep(self._backoff.next_s())

    async def _watch_once(self) -> None:
        query = {
            **self._selector,
            "watch": "1",
            "resourceVersion": str(self.revision),
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(WATCH_TIMEOUT_MIN_S, WATCH_TIMEOUT_MAX_S)),
        }
        splitter = LineSplitter()
        self.counters.watches += 1
        async with self._client.stream(self._path, query, silence_timeout_s=self._silence_timeout_s) as chunks:
            async for chunk in chunks:
                try:
                    lines = splitter.feed(chunk)
                except LineTooLongError as error:
                    raise StartOverError(str(error)) from error
                slices = TimeSlices()
                for start in range(0, len(lines), EVENTS_AT_ONCE):
                    self._take(lines[start : start + EVENTS_AT_ONCE])
                    if slices.over:
                        await slices.rest()

    def _take(self, lines: list[bytes]) -> None:
        """Apply some events and deliver them as one batch, also when a later line is bad."""
        batch: list[Change] = []
        revision = self.revision
        try:
            for line in lines:
                revision = max(revision, self._event(line, batch))
        finally:
            self._advance(batch, revision, reset=False)

    def _event(self, line: bytes, batch: list[Change]) -> int:
        """Take one event; returns the revision it carries."""
        found = self._reader.read(line)
        self.counters.events += 1
        kind, meta = found.type, found.meta
        revision = revision_of(meta.resourceVersion)
        if kind == "BOOKMARK":
            return revision
        key = meta.key
        old = self.store.get(key)
        if kind == "DELETED":
            self._told.pop(key, None)
            if old is not None and old.metadata.uid == meta.uid:
                del self.store[key]
                batch.append(Change(self.kind, old, None, revision))
            return revision
        if kind not in ("ADDED", "MODIFIED"):
            raise StartOverError(f"unknown watch event type {kind!r}")
        if old is not None and old.metadata.uid != meta.uid:
            del self.store[key]
            batch.append(Change(self.kind, old, None, revision))
            old = None
        new = found.object
        if isinstance(new, msgspec.Raw):
            try:
                new = decode(self.kind, new)
            except DecodeError as error:
                self._report_bad(key, meta.uid, error, kept=old is not None)
                return revision
        self._told.pop(key, None)
        self.store[key] = new
        batch.append(Change(self.kind, old, new, revision))
        return revision

    # shared

    def _advance(self, batch: list[Change], revision: int, reset: bool) -> None:
        """Deliver, then move the revision and wake who waited for it. A LIST may move it back (restored store)."""
        if not batch and revision == self.revision:
            return
        self._sink.deliver(batch, revision)
        self.revision = revision if reset else max(self.revision, revision)
        while self._waiters and self._waiters[0][0] <= self.revision:
            future = heapq.heappop(self._waiters)[2]
            if not future.done():
                future.set_result(None)

    def _gap_again(self) -> bool:
        """True when nothing arrived since the gap before: one new LIST is done at once, from the second on we pause."""
        again = self.counters.events == self._events_at_gap
        self._events_at_gap = self.counters.events
        return again

    def _meta_of_bad(self, raw: msgspec.Raw) -> ObjectMeta | None:
        try:
            return meta_of(raw)
        except msgspec.DecodeError:
            return None

    def _key_of_bad(self, raw: msgspec.Raw) -> str:
        meta = self._meta_of_bad(raw)
        return meta.key if meta else ""

    def _uid_of_bad(self, raw: msgspec.Raw) -> str:
        meta = self._meta_of_bad(raw)
        return meta.uid if meta else ""

    def _report_bad(self, key: str, uid: str, error: DecodeError, kept: bool) -> None:
        """Once for an object and its problem, however often it is shown or listed again."""
        if self._told.get(key) == (uid, str(error)):
            return
        self._told[key] = (uid, str(error))
        self._on_bad_object(BadObject(self.kind, key, str(error), kept))


def _unknown_revision(error: ClusterError) -> bool:
    """The server's history is behind ours: its store was restored or replaced."""
    return isinstance(error, ServerError | ApiError) and (
        "too large resource version" in error.message.lower() or "resourceversiontoolarge" in error.message.lower()
    )
