"""Records the history of a cluster from its watches: nothing is left out, and a gap is an error, never a guess."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import aiohttp

from e2e.api import CLAIMS, PODS, SLICES, Api, ApiError, Object, Resource
from e2e.history import Fact, claim_fact, pod_fact, slice_fact
from e2e.waiting import eventually

RESUME_PAUSE_S = 0.1
SETTLE_S = 5.0
"""How far the slowest of the watches may lag behind the fastest before ``settled`` hands facts out."""

_MAKERS: dict[Resource, Callable[[Object, int, bool, bool], Fact]] = {
    PODS: pod_fact,
    CLAIMS: claim_fact,
    SLICES: slice_fact,
}


class HistoryGapError(AssertionError):
    """The server could not tell what happened in between: the recorded history proves nothing."""


class Recorder:
    """Facts of claims, Pods and slices in the order they arrive, kind by kind. Make it with ``recording``."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[int, int, float, Fact]] = []
        self._count = 0
        self._seen: dict[Resource, dict[str, int]] = {resource: {} for resource in _MAKERS}
        self._started = {resource: asyncio.Event() for resource in _MAKERS}
        self.failure: BaseException | None = None

    @property
    def count(self) -> int:
        """Facts recorded so far."""
        return self._count

    def take_all(self) -> list[Fact]:
        """Everything not handed out yet, sorted by revision; call it after ``caught_up``."""
        self._check()
        facts = [entry[3] for entry in sorted(self._waiting)]
        self._waiting.clear()
        return facts

    def settled(self) -> list[Fact]:
        """What arrived more than SETTLE_S ago, sorted by revision: for histories too long to be kept."""
        self._check()
        due, facts = self._loop.time() - SETTLE_S, []
        while self._waiting and self._waiting[0][2] < due:
            facts.append(heapq.heappop(self._waiting)[3])
        return facts

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def caught_up(self, timeout_s: float = 20.0) -> None:
        """Wait until the watches have shown what a LIST of now shows, deletions included."""

        async def same() -> bool:
            self._check()
            for resource in _MAKERS:
                listed = {
                    item["metadata"]["uid"]: int(item["metadata"]["resourceVersion"])
                    for item in await self._api.list(resource)
                }
                if listed != self._seen[resource]:
                    return False
            return True

        await eventually(same, "the history has caught up", timeout_s=timeout_s)

    async def follow(self, resource: Resource) -> None:
        """One kind from now on, until cancelled; a broken stream goes on where it broke."""
        listed = await self._api.list_raw(resource)
        revision = int(listed["metadata"]["resourceVersion"])
        for item in listed.get("items") or []:
            self._add(resource, item, int(item["metadata"]["resourceVersion"]), False, listed=True)
        self._started[resource].set()
        while True:
            try:
                async for kind, item in self._api.watch(resource, resource_version=str(revision)):
                    revision = int(item["metadata"]["resourceVersion"])
                    if kind != "BOOKMARK":
                        self._add(resource, item, revision, kind == "DELETED")
            except ApiError as error:
                if error.status == 410:
                    raise HistoryGapError(f"{resource.plural} after revision {revision}: {error}") from error
            except (OSError, aiohttp.ClientError):
                pass  # the API server restarts in some suites
            await asyncio.sleep(RESUME_PAUSE_S)

    async def started(self) -> None:
        """Until every kind has been listed."""
        for event in self._started.values():
            await event.wait()

    def _add(self, resource: Resource, item: Object, revision: int, gone: bool, listed: bool = False) -> None:
        seen, uid = self._seen[resource], item["metadata"]["uid"]
        if gone:
            seen.pop(uid, None)
        else:
            seen[uid] = revision
        self._count += 1
        entry = (revision, self._count, self._loop.time(), _MAKERS[resource](item, revision, gone, listed))
        heapq.heappush(self._waiting, entry)


@asynccontextmanager
async def recording(api: Api) -> AsyncIterator[Recorder]:
    """Record while the block runs; raises at its end what ended a watch for good (HistoryGapError)."""
    recorder = Recorder(api)

    async def follow(resource: Resource) -> None:
        try:
            await recorder.follow(resource)
        except Exception as error:
            recorder.failure = error

    tasks = [asyncio.create_task(follow(resource)) for resource in _MAKERS]
    try:
        await asyncio.wait_for(recorder.started(), 20.0)
        yield recorder
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    if recorder.failure is not None:
        raise recorder.failure
