"""Brings records to the audit file beside the loop: collected in memory, written in batches by a thread of its own.

Nothing here slows the loop down or ends it: a file that cannot be written is told and tried again; what does not fit
into memory meanwhile is dropped and counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Protocol

from scheduler.audit.records import Record
from scheduler.edge.audit_store import AuditStore, AuditStoreError

WAITING_MAX = 50_000
"""Records held in memory at most."""
BATCH_MAX = 1000
FLUSH_S = 1.0
"""A killed process loses the records of this long at most."""
TRIM_S = 60.0
RETRY_FIRST_S, RETRY_MAX_S = 1.0, 30.0
CLOSE_TIMEOUT_S = 5.0


class AuditMeter(Protocol):
    """The numbers of the trail."""

    def audit_written(self, count: int, size_bytes: int) -> None: ...
    def audit_dropped(self, count: int) -> None: ...
    def audit_failed(self) -> None: ...


class AuditWriter:
    """``put`` from the loop, ``run`` as a task beside it, ``close`` at the end.

    ``open_store`` opens the file, in the executor. ``on_trouble`` gets a sentence when writing begins to fail, and one
    when it works again.
    """

    def __init__(
        self,
        open_store: Callable[[], AuditStore],
        meter: AuditMeter,
        on_trouble: Callable[[str], None],
        *,
        clock: Callable[[], float],
        waiting_max: int = WAITING_MAX,
        flush_s: float = FLUSH_S,
        retry_first_s: float = RETRY_FIRST_S,
    ) -> None:
        self._open, self._meter, self._on_trouble, self._clock = open_store, meter, on_trouble, clock
        self._waiting_max, self._flush_s, self._retry_first_s = waiting_max, flush_s, retry_first_s
        self._waiting: dict[str, Record] = {}
        self._store: AuditStore | None = None
        self._executor = ThreadPoolExecutor(1, "audit")
        self._pause_s = 0.0
        self._trim_due = 0.0
        self._dropped_told = False
        self._busy = asyncio.Lock()
        self._batch_max = BATCH_MAX

    def put(self, record: Record) -> None:
        """Keep a record until it is written; a newer one of the same id takes its place. Never blocks, never raises."""
        if record.id not in self._waiting and len(self._waiting) >= self._waiting_max:
            self._meter.audit_dropped(1)
            if not self._dropped_told:
                self._dropped_told = True
                self._on_trouble(f"audit: {self._waiting_max} records wait for the file; more are dropped")
            return
        self._waiting[record.id] = record

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await asyncio.sleep(self._pause_s or self._flush_s)
            await self.flush()

    async def flush(self) -> bool:
        """Write everything that waits; False when the file refuses."""
        async with self._busy:
            loop = asyncio.get_running_loop()
            while True:
                batch = list(islice(self._waiting.values(), self._batch_max))
                now = self._clock()
                if not batch and now < self._trim_due:
                    return True
                trims = now >= self._trim_due
                try:
                    size_bytes = await loop.run_in_executor(self._executor, self._write, batch, now, trims)
                except Exception as error:  # whatever the file does, the scheduler goes on
                    self._failed(error)
                    return False
                if trims:
                    self._trim_due = now + TRIM_S
                for record in batch:
                    if self._waiting.get(record.id) is record:
                        del self._waiting[record.id]
                self._meter.audit_written(len(batch), size_bytes)
                if not self._waiting:
                    self._recovered()
                    return True

    def _write(self, batch: list[Record], now: float, trims: bool) -> int:
        """In the executor: one batch; the size of the file afterwards. A file that is too large is trimmed at once."""
        if self._store is None:
            self._store = self._open()
        store = self._store
        try:
            if trims:
                store.trim(now)
            if batch:
                store.write(batch)
            if store.size_bytes() > store.max_size_bytes:
                store.trim(now)
            return store.size_bytes()
        except AuditStoreError:
            # The connection may be of no use any more (file replaced, volume gone): the next try opens again.
            self._store = None
            store.close()
            raise

    def _failed(self, error: Exception) -> None:
        self._meter.audit_failed()
        if not self._pause_s:
            self._on_trouble(f"audit: records cannot be written, tried again: {error}")
        self._pause_s = min(max(self._retry_first_s, 2 * self._pause_s), RETRY_MAX_S)
        # It may be full: the next try begins with making room, and asks for less.
        self._trim_due, self._batch_max = 0.0, max(1, self._batch_max // 4)

    def _recovered(self) -> None:
        """Nothing waits any more."""
        if self._pause_s:
            self._on_trouble("audit: records are written again")
        self._pause_s, self._dropped_told, self._batch_max = 0.0, False, BATCH_MAX

    async def close(self) -> None:
        """Write what waits, for a few seconds at most, and close the file."""
        try:
            await asyncio.wait_for(self.flush(), CLOSE_TIMEOUT_S)
        except TimeoutError:
            self._on_trouble("audit: the file did not take the last records in time")
        if self._waiting:
            self._meter.audit_dropped(len(self._waiting))
        if self._store is not None:
            store, self._store = self._store, None
            await asyncio.get_running_loop().run_in_executor(self._executor, store.close)
        self._executor.shutdown(wait=False)
