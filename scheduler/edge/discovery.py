"""Asks the API server, once at the start, which versions of resource.k8s.io it serves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from scheduler.api.versions import (
    GROUP_PATH,
    ResourceKinds,
    choose_kinds,
    served_plurals,
    served_versions,
)
from scheduler.edge.client import ApiClient, Sleep
from scheduler.errors import ClusterError

TRIES_MAX = 4
PAUSE_S = 1.0


async def discover_kinds(
    client: ApiClient, on_trouble: Callable[[str], None], *, sleep: Sleep = asyncio.sleep
) -> ResourceKinds:
    """The kinds in the newest versions that the server serves and we know.

    A server that does not answer within a few seconds, or serves none of them, is taken for one with v1: the watches
    then say what is wrong, again and again. Cost: one request, and one for each version that is of use. Never raises.
    """
    for attempt in range(TRIES_MAX):
        if attempt:
            await sleep(PAUSE_S)
        try:
            served = await _served(client)
        except (ClusterError, msgspec.DecodeError) as error:
            on_trouble(f"{GROUP_PATH}: {error}")
            continue
        kinds = choose_kinds(served)
        if kinds is None:
            on_trouble(f"{GROUP_PATH}: no version that this scheduler knows is served: {sorted(served)}")
            break
        return kinds
    return ResourceKinds()


async def _served(client: ApiClient) -> dict[str, frozenset[str]]:
    """version → plurals, for the versions that are of use."""
    versions = served_versions((await client.call("GET", GROUP_PATH)).body)
    return {version: served_plurals((await client.call("GET", f"{GROUP_PATH}/{version}")).body) for version in versions}
