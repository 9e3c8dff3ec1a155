"""LIST in pages: all objects of a kind at one revision."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from scheduler.api.deep import decode_deep
from scheduler.api.kinds import DecodeError, Kind, decode
from scheduler.api.meta import revision_of
from scheduler.edge.client import ApiClient
from scheduler.edge.difference import Listed
from scheduler.edge.errors import AnswerLost, Gone
from scheduler.edge.timeslices import TimeSlices

PAGE_LIMIT = 500
RESTARTS_MAX = 2
LIST_TIMEOUT_S = 60.0


class _ListMeta(msgspec.Struct):
    resourceVersion: str = ""
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


_PAGE = msgspec.json.Decoder(_Page)


class Lister:
    """Lists one kind with fixed selectors. ``page_limit`` objects per request."""

    def __init__(
        self, client: ApiClient, kind: Kind, selector: Mapping[str, str], page_limit: int = PAGE_LIMIT
    ) -> None:
        self._client, self._kind, self._path = client, kind, kind.path()
        self._selector, self._page_limit = selector, page_limit

    async def list_decoded(self) -> tuple[list[Listed], int]:
        """``list_raw``, decoded in slices of time."""
        items, revision = await self.list_raw()
        slices = TimeSlices()
        found: list[Listed] = []
        for raw in items:
            try:
                # Copied: fields kept raw are views, and one of them would keep the whole page in memory.
                found.append((raw, decode(self._kind, bytes(raw))))
            except DecodeError as error:
                found.append((raw, error))
            if slices.over:
                await slices.rest()
        return found, revision

    async def list_raw(self) -> tuple[list[msgspec.Raw], int]:
        """All objects and the revision they are a snapshot of. Raises ClusterError.

        A continue token that expires starts the list over; the third try asks for everything at once, because a paged
        list can expire and a single answer cannot.
        """
        for restart in range(RESTARTS_MAX + 1):
            limit = self._page_limit if restart < RESTARTS_MAX else 0
            try:
                return await self._pages(limit)
            except Gone:
                if restart == RESTARTS_MAX:
                    raise
        raise AssertionError("the loop above returns or raises")

    async def _pages(self, limit: int) -> tuple[list[msgspec.Raw], int]:
        items: list[msgspec.Raw] = []
        token = ""
        while True:
            query = dict(self._selector)
            if limit:
                query["limit"] = str(limit)
            if token:
                query["continue"] = token
            answer = await self._client.call("GET", self._path, query=query, timeout_s=LIST_TIMEOUT_S)
            try:
                page = decode_deep(_PAGE, answer.body)
            except msgspec.DecodeError as error:
                raise AnswerLost(f"GET {self._path}: the answer is no list: {error}") from error
            items.extend(page.items or ())
            token = page.metadata.continue_
            if not token:
                return items, revision_of(page.metadata.resourceVersion) or 0
