"""WATCH: a stream of one table's changes, seen through selectors, from any revision that history still holds.

Readers pull from the table's history at their own pace, so a slow one costs no memory; once its place is gone the
stream ends, as the real server ends the watch of a client that is too slow.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from scheduler.embedded.faults import Action, Fault
from scheduler.embedded.rendering import Renderer, error_event
from scheduler.embedded.selectors import Match
from scheduler.embedded.status import expired
from scheduler.embedded.store import Change, Record, Store, Table


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """What a client asked for. `start` None means: the present state first, as ADDED events."""

    table: Table
    namespace: str
    match: Match | None
    start: int | None
    bookmarks: bool
    initial_events: bool
    timeout_s: float
    bookmark_interval_s: float


class CutStream(Exception):  # noqa: N818 - not an error: tells the HTTP layer to break the connection
    """The connection is to be closed in the middle of a line; `part` is what is still sent of it."""

    def __init__(self, part: bytes) -> None:
        super().__init__("cut")
        self.part = part


@dataclass(slots=True, eq=False)
class OpenWatch:
    """One open stream; faults planned for it and breaks asked for from outside meet here."""

    kind: str
    user_agent: str
    faults: list[Fault] = field(default_factory=list)
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    broken: Action | None = None
    sent: int = 0

    def break_now(self, action: Action) -> None:
        self.broken = action
        self.wake.set()

    def due(self) -> Action | None:
        """The fault that is due before the next event, if any."""
        if self.broken is not None:
            return self.broken
        return next((fault.action for fault in self.faults if self.sent >= fault.after_events), None)


def visible(change: Change, namespace: str, match: Match | None) -> str:
    """The event type a watcher sees for a change, or "" for none: objects enter and leave a selector."""
    if namespace and change.key[0] != namespace:
        return ""
    if match is None:
        was, is_now = change.before is not None, not change.deleted
    else:
        was = change.before is not None and match(change.before.obj)
        is_now = not change.deleted and match(change.after.obj)
    if is_now:
        return "MODIFIED" if was else "ADDED"
    return "DELETED" if was else ""


async def lines(request: WatchRequest, store: Store, renderer: Renderer, stream: OpenWatch) -> AsyncIterator[bytes]:
    """Chunks of whole lines, until the time-out, a fault or a lost place ends the stream. Raises CutStream."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + request.timeout_s
    next_bookmark = loop.time() + request.bookmark_interval_s
    start = store.revision if request.start is None else request.start
    position = request.table.position_after(start)
    if position is None:
        text = f"too old resource version: {start} ({request.table.compacted})"
        yield error_event(expired(text).status())
        return
    request.table.watchers.add(stream.wake)
    try:
        if request.start is None:
            for part in _paced(_initial(request, renderer), stream):
                yield part
        if request.initial_events and stream.due() is None:
            # Of what happens while they are sent, the events come later: the bookmark must not be ahead of them.
            yield renderer.bookmark(start, initial_end=True)
        while True:
            stream.wake.clear()
            changes = request.table.since(position)
            if changes is None or stream.due() is not None:
                for part in _broken(stream.due(), renderer, store.revision):
                    yield part
                return
            if changes:
                position += len(changes)
                for part in _paced(_events(request, renderer, changes), stream):
                    yield part
                continue
            now = loop.time()
            if now >= deadline:
                if request.bookmarks:
                    yield renderer.bookmark(store.revision)
                return
            if request.bookmarks and now >= next_bookmark:
                next_bookmark = now + request.bookmark_interval_s
                yield renderer.bookmark(store.revision)
            await _wait(stream.wake, min(deadline, next_bookmark if request.bookmarks else deadline) - now)
    finally:
        request.table.watchers.discard(stream.wake)


async def _wait(wake: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0.001)):
            await wake.wait()
    except TimeoutError:
        return


def _initial(request: WatchRequest, renderer: Renderer) -> Iterator[bytes]:
    for record in request.table.ordered():
        if _in_scope(record, request):
            yield renderer.event("ADDED", record)


def _in_scope(record: Record, request: WatchRequest) -> bool:
    if request.namespace and record.key[0] != request.namespace:
        return False
    return request.match is None or request.match(record.obj)


def _events(request: WatchRequest, renderer: Renderer, changes: list[Change]) -> Iterator[bytes]:
    for change in changes:
        if change.revision <= (request.start or 0):
            continue  # the watch was opened for a revision that had not happened yet
        event_type = visible(change, request.namespace, request.match)
        if event_type:
            yield renderer.event(event_type, _shown(change, event_type))


def _shown(change: Change, event_type: str) -> Record:
    """An object that leaves a selector is shown as it was, under the revision at which it left."""
    if event_type != "DELETED" or change.deleted or change.before is None:
        return change.after
    obj = dict(change.before.obj)
    obj["metadata"] = {**obj["metadata"], "resourceVersion": str(change.revision)}
    return Record(change.key, obj, change.revision)


_CHUNK_BYTES = 256 * 1024


def _paced(events: Iterator[bytes], stream: OpenWatch) -> Iterator[bytes]:
    """Joins events into larger chunks; stops before the first event for which a fault is due and cuts in mid-line."""
    pending: list[bytes] = []
    size = 0
    for event in events:
        if stream.due() is Action.CUT:
            if pending:
                yield b"".join(pending)
            raise CutStream(event[: max(1, len(event) // 2)])
        if stream.due() is not None:
            break
        stream.sent += 1
        pending.append(event)
        size += len(event)
        if size >= _CHUNK_BYTES:
            yield b"".join(pending)
            pending, size = [], 0
    if pending:
        yield b"".join(pending)


def _broken(action: Action | None, renderer: Renderer, revision: int) -> Iterator[bytes]:
    if action is Action.CUT:
        bookmark = renderer.bookmark(revision)
        raise CutStream(bookmark[: len(bookmark) // 2])
    if action is Action.GONE:
        yield error_event(expired("The resourceVersion for the provided watch is too old.").status())
