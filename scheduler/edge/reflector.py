"""Keeps a copy of all objects of one kind: a LIST, then a WATCH from that revision, for ever.

Where the server can, both are one request: a watch that begins with everything there is. Else, and after such a one
that was cut short, the LIST comes in pages. What arrives is delivered in batches as ``Change``s. A gap (410, a revision
the server does not know) is closed by a new LIST that is *compared* with the copy, so that deletions in the gap are
seen, and an object deleted and created again under one name is reported as two changes. One undecodable object is
reported and skipped; a good version known before is kept. Source of the rules: client-go's reflector, 1.37.
"""

from __future__ import annotations

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, Protocol

import msgspec

from scheduler.api.changes import Change
from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.edge.backoff import Backoff
from scheduler.edge.bad_objects import BadObject, BadObjects, readable_meta
from scheduler.edge.client import ApiClient, Sleep
from scheduler.edge.copies import Copy
from scheduler.edge.difference import Listed, missed_changes, revision_of, take_listed
from scheduler.edge.errors import ApiError, ApiUnavailable, Gone, NotFound, ServerError, TooManyRequests
from scheduler.edge.initial_events import QUERY, REFUSED, InitialEvents, cut_short
from scheduler.edge.lines import LineSplitter, LineTooLongError
from scheduler.edge.lister import LIST_TIMEOUT_S, PAGE_LIMIT, Lister
from scheduler.edge.timeslices import TimeSlices, in_slices
from scheduler.edge.watch_events import EventReader, StartOverError
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


class Sink(Protocol):
    """Where changes go."""

    def deliver(self, batch: list[Change], revision: int) -> None:
        """``batch`` in the order it happened; everything of the kind up to ``revision`` is then known.

        The batch may be empty (a bookmark). Called before ``wait_revision`` wakes anybody, so for a sink that
        applies at once, waiting for a revision means waiting until it is applied.
        """


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
    that not every kind does that at once; a later LIST waits for nobody. ``by_watch``: whether the server is asked to
    list by a watch.
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
        by_watch: bool = True,
    ) -> None:
        self.kind = kind
        self.store = Copy()
        self.synced = asyncio.Event()
        self.revision = 0
        self.counters = Counters()
        self._client, self._sink, self._path = client, sink, kind.path()
        self._selector = {"fieldSelector": field_selector} if field_selector else {}
        self._lister = Lister(client, kind, self._selector, page_limit)
        self._optional, self._on_trouble = optional, on_trouble
        self._bad = BadObjects(kind, on_bad_object)
        self._rng, self._sleep = rng or random.Random(), sleep
        self._silence_timeout_s = silence_timeout_s
        self._backoff = Backoff(self._rng)
        # A refused connection costs the server nothing: ask often, so that its return is noticed soon.
        self._refused_backoff = Backoff(self._rng, max_s=REFUSED_PAUSE_MAX_S)
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._events_at_gap = -1
        self._reader = EventReader(kind, self._path)
        self._beginning = beginning
        self._unserved_times = 0
        self._by_watch = by_watch
        self._behind = True  # only a LIST helps: the next watch has to begin with one
        self._cut_short = False  # the last LIST by a watch: in pages, then

    async def run(self) -> None:
        """List and watch until cancelled. Never raises for what the server or the network does."""
        while True:
            self._behind = True
            try:
                if not self._by_watch or self._cut_short:
                    await self._list_in_pages()
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

    async def _take_turn(self, held: AsyncExitStack) -> None:
        """While a first LIST is under way, see ``beginning``."""
        if self._beginning is not None and not self.synced.is_set():
            await held.enter_async_context(self._beginning)

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
        items, revision = await self._lister.list_decoded()
        for raw, found in items:
            if isinstance(found, DecodeError):
                known_as = readable_meta(raw)
                bad.add(known_as.key)
                self._bad.report(known_as.key, known_as.uid, found, kept=known_as.key in self.store)
            else:
                objects[found.metadata.key] = found
        return objects, bad, revision

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

    async def _list_in_pages(self) -> None:
        self._cut_short = False
        async with AsyncExitStack() as turn:
            await self._take_turn(turn)
            await self._listed(*await self._lister.list_decoded())

    async def _listed(self, items: list[Listed], revision: int) -> None:
        """Bring the copy to a complete LIST, and deliver what that changed."""
        self.counters.lists += 1
        self._unserved_times = 0
        steps = take_listed(self.kind, self.store, items, revision, self._bad)
        if self.synced.is_set():
            batch = ended(steps)
        else:
            batch = await self._begin(await in_slices(steps))
        self._advance(batch, revision, reset=True)
        self._behind = False
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

    async def _unserved(self, error: NotFound) -> None:
        self._unserved_times += 1
        if self._optional and (not self.store or self._unserved_times >= UNKNOWN_KIND_TIMES):
            nothing = ended(take_listed(self.kind, self.store, [], self.revision, self._bad))
            self._advance(nothing, self.revision, reset=False)
            self.synced.set()
            await self._sleep(UNKNOWN_KIND_PAUSE_S)
            return
        self.counters.failures += 1
        self._on_trouble(f"{self.kind.resource}: the API server does not serve this kind: {error}")
        await self._sleep(self._backoff.next_s())

    # WATCH

    async def _watch_until_gap(self) -> None:
        """Watch again and again from where the last stream ended. Raises StartOverError.

        While a LIST is still missing (the first stream begins with one), raises what a LIST raises.
        """
        loop = asyncio.get_running_loop()
        while True:
            started_s, events_before = loop.time(), self.counters.events
            try:
                await self._watch_once()
            except (Gone, StartOverError) as error:
                self._cut_short = self._behind
                raise StartOverError(str(error)) from error
            except NotFound:
                raise
            except ClusterError as error:
                if self._behind:
                    # Whatever is wrong with such a watch, the next LIST is one in pages, unless nobody answers.
                    self._cut_short = not isinstance(error, ApiUnavailable | TooManyRequests)
                    self._by_watch = not (isinstance(error, ApiError) and error.status in REFUSED)
                    if self._by_watch:
                        raise
                    return
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
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._rng.randint(WATCH_TIMEOUT_MIN_S, WATCH_TIMEOUT_MAX_S)),
            **(QUERY if self._behind else {"resourceVersion": str(self.revision)}),
        }
        async with AsyncExitStack() as turn:
            if self._behind:
                await self._take_turn(turn)
            self.counters.watches += 1
            try:
                async with (
                    asyncio.timeout(LIST_TIMEOUT_S if self._behind else None) as limit,
                    self._client.stream(self._path, query, silence_timeout_s=self._silence_timeout_s) as chunks,
                ):
                    splitter = LineSplitter()
                    if self._behind:
                        await self._begin_by_watch(chunks, splitter, limit)
                        await turn.aclose()
                    async for chunk in chunks:
                        await self._take_all(splitter.feed(chunk))
            except LineTooLongError as error:
                raise StartOverError(str(error)) from error
            except TimeoutError:
                raise cut_short(self._path) from None

    async def _begin_by_watch(
        self, chunks: AsyncIterator[bytes], splitter: LineSplitter, limit: asyncio.Timeout
    ) -> None:
        """Take the LIST that a stream begins with, and the events that came with its end."""
        first, slices, clock = InitialEvents(self.kind, self._reader), TimeSlices(), asyncio.get_running_loop().time
        async for chunk in chunks:
            lines, before = splitter.feed(chunk), first.added
            while lines and not first.complete:
                del lines[: first.take(lines[:EVENTS_AT_ONCE])]
                if slices.over:
                    await slices.rest()
            if first.complete:
                limit.reschedule(None)
            elif first.added > before:  # bookmarks come from a server, too, that does not know of any beginning
                limit.reschedule(clock() + LIST_TIMEOUT_S)
            if first.complete:
                await self._listed(first.items, first.revision)
                await self._take_all(lines)
                return
        raise cut_short(self._path)

    async def _take_all(self, lines: list[bytes]) -> None:
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
            self._bad.forget(key)
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
                self._bad.report(key, meta.uid, error, kept=old is not None)
                return revision
        self._bad.forget(key)
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


def _unknown_revision(error: ClusterError) -> bool:
    """The server's history is behind ours: its store was restored or replaced."""
    return isinstance(error, ServerError | ApiError) and (
        "too large resource version" in error.message.lower() or "resourceversiontoolarge" in error.message.lower()
    )
