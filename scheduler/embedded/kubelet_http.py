"""The pretended kubelet's way to an API server: follow a collection, patch, delete; over a lent aiohttp session.

It is apart from the scheduler's own client so that a mistake there cannot blind its judge.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp

Object = dict[str, Any]
Sleep = Callable[[float], Awaitable[None]]

_REQUEST_TIMEOUT = aiohttp.ClientTimeout(total=30)
# A quiet watch is renewed after this long, so that a server that hangs is noticed.
_WATCH_TIMEOUT_S = 240
# Read errors that mean "try again": refused or cut connections, a body cut in the middle, silence.
_LOST = (aiohttp.ClientError, TimeoutError, ConnectionError)


class GoneError(Exception):
    """404 or 409: the object is not the one the caller had in mind any more."""


class UnavailableError(Exception):
    """No answer, or one that says to try again (429, 5xx)."""


class KubeletHttp:
    """GET, strategic merge PATCH and DELETE with a bound on how many requests run at once."""

    def __init__(self, session: aiohttp.ClientSession, *, max_in_flight: int = 16) -> None:
        self._session = session
        self._slots = asyncio.Semaphore(max_in_flight)

    async def get(self, path: str) -> Object:
        """One object or list; raises GoneError for 404, UnavailableError when there is no usable answer."""
        return await self._call("GET", path, None, "application/json")

    async def patch(self, path: str, body: Object) -> Object:
        """A strategic merge patch; raises like get, GoneError also for a conflict (the uid in the body differs)."""
        return await self._call("PATCH", path, body, "application/strategic-merge-patch+json")

    async def delete(self, path: str, body: Object) -> Object:
        """DELETE with DeleteOptions; raises like patch."""
        return await self._call("DELETE", path, body, "application/json")

    async def _call(self, method: str, path: str, body: Object | None, content_type: str) -> Object:
        data = None if body is None else json.dumps(body).encode()
        try:
            async with (
                self._slots,
                self._session.request(
                    method,
                    path,
                    data=data,
                    headers={"Content-Type": content_type} if data is not None else None,
                    timeout=_REQUEST_TIMEOUT,
                ) as answer,
            ):
                text = await answer.text()
        except _LOST as error:
            raise UnavailableError(f"{method} {path}: {error!r}") from error
        # The API server answers 422 where the uid in the body is not that of the Pod which has the name now.
        if answer.status in (404, 409) or (answer.status == 422 and "metadata.uid" in text):
            raise GoneError(f"{method} {path}: {answer.status} {text[:300]}")
        if answer.status == 429 or answer.status >= 500:
            raise UnavailableError(f"{method} {path}: {answer.status} {text[:300]}")
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]}")
        content: Object = json.loads(text)
        return content

    async def follow(
        self,
        path: str,
        changed: Callable[[Object], None],
        removed: Callable[[Object], None],
        listed: Callable[[], None],
        sleep: Sleep,
    ) -> None:
        """Report a collection for ever: every object once at first, then its changes, in the server's order.

        After a lost watch position (410, an error event) the collection is listed again: what vanished meanwhile
        is reported as removed *before* the rest as changed. ``listed`` is called after each list.
        """
        known: dict[str, Object] = {}
        version: str | None = None
        while True:
            try:
                if version is None:
                    snapshot = await self.get(path)
                    version = snapshot["metadata"]["resourceVersion"]
                    _report_snapshot(snapshot.get("items") or [], known, changed, removed)
                    listed()
                version = await self._watch(path, version, known, changed, removed)
                await sleep(0.05)  # a server that closes every watch at once must not cost a whole core
            except (UnavailableError, GoneError, *_LOST):
                # The position is kept: a cut connection alone does not cost a list.
                await sleep(0.2)

    async def _watch(
        self,
        path: str,
        version: str,
        known: dict[str, Object],
        changed: Callable[[Object], None],
        removed: Callable[[Object], None],
    ) -> str | None:
        """One watch; returns the position to go on from, None when a new list is needed."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        query["timeoutSeconds"] = str(_WATCH_TIMEOUT_S)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=_WATCH_TIMEOUT_S + 30)
        try:
            async with self._session.get(path, params=query, timeout=timeout) as answer:
                if answer.status == 410:
                    return None
                if answer.status >= 400:
                    raise UnavailableError(f"watch {path}: {answer.status}")
                rest = b""
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in filter(None, lines):
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            return None
                        version = event["object"]["metadata"]["resourceVersion"]
                        _report_event(event["type"], event["object"], known, changed, removed)
        except _LOST:
            await asyncio.sleep(0)  # fall through: go on from the last event that arrived whole
        return version


def _report_snapshot(
    items: list[Object],
    known: dict[str, Object],
    changed: Callable[[Object], None],
    removed: Callable[[Object], None],
) -> None:
    fresh = {item["metadata"]["uid"]: item for item in items}
    for uid in [uid for uid in known if uid not in fresh]:
        removed(known.pop(uid))
    for uid, item in fresh.items():
        if known.get(uid, {}).get("metadata", {}).get("resourceVersion") != item["metadata"]["resourceVersion"]:
            changed(item)
    known.update(fresh)


def _report_event(
    kind: str,
    item: Object,
    known: dict[str, Object],
    changed: Callable[[Object], None],
    removed: Callable[[Object], None],
) -> None:
    if kind == "BOOKMARK":
        return
    uid = item["metadata"]["uid"]
    if kind == "DELETED":
        known.pop(uid, None)
        removed(item)
    else:
        known[uid] = item
        changed(item)
