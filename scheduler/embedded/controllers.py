"""Reactions that kube-controller-manager would add: claims from templates, reservations, owned objects, namespaces.

Each controller names the objects that a change makes worth a look; one worker looks at them one after another, after
the write that caused it was answered. They use the registry like any client, so the same rules bind them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from scheduler.embedded.claim_controller import ClaimController
from scheduler.embedded.collection import GarbageCollector, NamespaceController
from scheduler.embedded.registry import Registry
from scheduler.embedded.status import ApiError
from scheduler.embedded.store import Change, Key

Work = tuple[str, Key]
"""(controller's name of the look, object)."""


class Controllers:
    """The worker and its queue. An object waits at most once, however often it changed meanwhile."""

    def __init__(self, registry: Registry) -> None:
        claims = ClaimController(registry)
        garbage = GarbageCollector(registry)
        namespaces = NamespaceController(registry)
        self._sources: tuple[Callable[[str, Change], Iterable[Work]], ...] = (
            claims.affected,
            garbage.affected,
            namespaces.affected,
        )
        self._looks: dict[str, Callable[[Key], None]] = {
            "pod": claims.look_at_pod,
            "claim": claims.look_at_claim,
            "owner": garbage.look_at_owner,
            "namespace": namespaces.look_at,
        }
        self._queue: deque[Work] = deque()
        self._waiting: set[Work] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None
        self.failures: list[str] = []
        registry.store.listen(self._notice)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="embedded controllers")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def idle(self) -> None:
        await self._idle.wait()

    def _notice(self, table: str, change: Change) -> None:
        for source in self._sources:
            for work in source(table, change):
                if work not in self._waiting:
                    self._waiting.add(work)
                    self._queue.append(work)
        if self._queue:
            self._idle.clear()
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                work = self._queue.popleft()
                self._waiting.discard(work)
                name, key = work
                try:
                    self._looks[name](key)
                except ApiError as error:
                    self.failures.append(f"{name} {key}: {error}")
                await asyncio.sleep(0)
            self._idle.set()
