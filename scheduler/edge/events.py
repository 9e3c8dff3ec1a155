"""Writes events.k8s.io/v1 Events in a lane of their own; recording never blocks and never fails.

Equal events (type, action, reason, reporter, regarding, related) within 6 minutes are one Event whose series counts:
the first repeat is written at once, later ones are held and written after 30 s, then 60 s, and so on up to 6 minutes,
so that a thousand waiting Pods cost a bounded number of writes. The first note of a series stays. At most 10,000
writes wait; more are dropped and counted. Source: client-go's events recorder, 1.37; the growing pause is ours.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

import msgspec

from scheduler.api.bodies import MERGE_PATCH, Event, ObjectReference, event_body, event_series_patch, events_path
from scheduler.edge.client import ApiClient, Sleep
from scheduler.edge.errors import AnswerLost, ApiError, ApiUnavailable, NotLeading, ServerError
from scheduler.edge.times import micro_time
from scheduler.errors import ClusterError
from scheduler.explain.fit import event_note

QUEUE_MAX = 10_000
SERIES_MAX = 20_000
SERIES_GAP_S = 360.0
REFRESH_FIRST_S, REFRESH_MAX_S = 30.0, 360.0
REFRESH_TICK_S = 5.0
TRIES_MAX, RETRY_PAUSE_S = 12, 10.0
WRITERS = 4
"""Writes under way at once: few, so that Bindings come first."""


class _Series(msgspec.Struct, eq=False):
    """One Event and its repetitions. Times are monotonic seconds, but ``created_at`` and ``observed_at`` (epoch)."""

    event: Event
    name: str
    namespace: str
    created_at: float
    observed_at: float
    seen_at_s: float
    count: int = 1
    written_count: int = 0
    written_at_s: float = 0.0
    refresh_s: float = REFRESH_FIRST_S
    queued: bool = False
    writing: bool = False
    again: bool = False


_Key = tuple[str, str, str, str, str, tuple[str, ...], tuple[str, ...]]


def _identity(reference: ObjectReference | None) -> tuple[str, ...]:
    """Without the version: repetitions regard different versions of one object."""
    if reference is None:
        return ()
    return (reference.apiVersion, reference.kind, reference.namespace, reference.name, reference.uid)


def _key(event: Event) -> _Key:
    return (
        event.type,
        event.action,
        event.reason,
        event.reportingController,
        event.reportingInstance,
        _identity(event.regarding),
        _identity(event.related),
    )


class EventRecorder:
    """``record`` from anywhere in the loop; ``run`` is the task that writes.

    ``clock`` is monotonic seconds, ``wall`` seconds since the epoch. ``dropped`` counts what was never written.
    """

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        sleep: Sleep = asyncio.sleep,
        on_trouble: Callable[[str], None] = lambda text: None,
        queue_max: int = QUEUE_MAX,
    ) -> None:
        self.dropped = 0
        self._client, self._clock, self._wall, self._sleep = client, clock, wall, sleep
        self._on_trouble, self._queue_max = on_trouble, queue_max
        self._series: dict[_Key, _Series] = {}
        self._queue: deque[_Series] = deque()
        self._stamp = self._busy = 0
        self._wake, self._idle = asyncio.Event(), asyncio.Event()
        self._idle.set()

    def record(self, event: Event, more: Callable[[], str] | None = None, *, repeats: bool = True) -> None:
        """Note ``event``; its note is cut to 1024 bytes on a character border. Cost: microseconds, no I/O.

        ``more``: what follows the note, asked only when the event is the first of its series. ``repeats``: False for
        what happens to an object once; it is forgotten as soon as it is written.
        """
        key, now_s = _key(event), self._clock()
        series = self._series.get(key)
        if series is not None and now_s - series.seen_at_s < SERIES_GAP_S:
            series.count += 1
            series.seen_at_s, series.observed_at = now_s, self._wall()
            if series.written_count == 1 and series.count == 2:
                self._enqueue(series)
            return
        added = "" if more is None else more()
        note = event_note(f"{event.note} {added}" if added else event.note)
        if note is not event.note:
            event = msgspec.structs.replace(event, note=note)
        wall = self._wall()
        # Two events of one instant need two names.
        self._stamp = max(int(wall * 1e9), self._stamp + 1)
        name = f"{event.regarding.name}.{self._stamp:x}"
        series = _Series(event, name, event.regarding.namespace or "default", wall, wall, now_s)
        if self._enqueue(series) and repeats:
            self._series[key] = series

    async def run(self) -> None:
        """Write until cancelled. Nothing the server does ends it."""
        tasks = [asyncio.create_task(self._write_forever()) for _ in range(WRITERS)]
        tasks.append(asyncio.create_task(self._refresh_forever()))
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _write_forever(self) -> None:
        while True:
            while self._queue:
                series = self._queue.popleft()
                series.queued = False
                if series.writing:
                    series.again = True  # its counts are written in order
                    continue
                series.writing, series.again = True, False
                self._busy += 1
                try:
                    await self._write(series)
                finally:
                    series.writing = False
                    self._busy -= 1
                if series.again:
                    self._enqueue(series)
            if not self._busy:
                self._idle.set()
            self._wake.clear()
            await self._wake.wait()

    async def drain(self, timeout_s: float) -> bool:
        """Wait until everything recorded is written; False when ``timeout_s`` passed first. For a graceful stop."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def refresh(self) -> None:
        """Queue the held repetitions whose pause has passed, close series that ended. Called every few seconds."""
        now_s = self._clock()
        for key, series in list(self._series.items()):
            ended = now_s - series.seen_at_s >= SERIES_GAP_S
            if series.count > max(series.written_count, 1) and (
                ended or now_s - series.written_at_s >= series.refresh_s
            ):
                series.refresh_s = min(series.refresh_s * 2, REFRESH_MAX_S)
                self._enqueue(series)
            if ended:
                del self._series[key]
        while len(self._series) > SERIES_MAX:
            del self._series[next(iter(self._series))]

    async def _refresh_forever(self) -> None:
        while True:
            await asyncio.sleep(REFRESH_TICK_S)
            self.refresh()

    def _enqueue(self, series: _Series) -> bool:
        if series.queued:
            return True
        if len(self._queue) >= self._queue_max:
            self.dropped += 1
            return False
        series.queued = True
        self._queue.append(series)
        self._idle.clear()
        self._wake.set()
        return True

    async def _write(self, series: _Series) -> None:
        """Write the newest count; unreachable servers are asked again every 10 s, 12 times in all."""
        for attempt in range(TRIES_MAX):
            count = series.count
            try:
                await self._send(series, count)
                series.written_count, series.written_at_s = count, self._clock()
                if count == 1 and series.count > 1:
                    self._enqueue(series)
                return
            except NotLeading:
                break
            except (ApiUnavailable, AnswerLost, ServerError) as error:
                if attempt + 1 < TRIES_MAX:
                    await self._sleep(RETRY_PAUSE_S)
                    continue
                self._on_trouble(f"an event was not written: {error}")
            except ClusterError as error:
                self._on_trouble(f"an event was not written: {error}")
                break
        self.dropped += 1
        self._forget(series)

    async def _send(self, series: _Series, count: int) -> None:
        if series.written_count == 0:
            body = event_body(series.event, series.name, series.namespace, micro_time(series.created_at))
            try:
                await self._client.call("POST", events_path(series.namespace), body)
            except ApiError as error:
                if error.reason != "AlreadyExists":  # an answer was lost: it is there
                    raise
            series.written_count = 1
        if count > 1:
            body = event_series_patch(count, micro_time(series.observed_at))
            await self._client.call("PATCH", events_path(series.namespace, series.name), body, MERGE_PATCH)

    def _forget(self, series: _Series) -> None:
        """The next repetition begins a new Event (this one is gone, or could not be written)."""
        key = _key(series.event)
        if self._series.get(key) is series:
            del self._series[key]
