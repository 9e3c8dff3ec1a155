"""The load knows exactly which Pods it has deleted: by uid, and not those that were gone before it came to them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from typing import Any

import pytest

from e2e.api import PODS, ApiError, Object, Resource
from e2e.chaos.load import Load

PODS_MAX = 200


class _EnoughError(Exception):
    """So many Pods were made."""


class FakeApi:
    """Pods by name. Now and then one is lost: nobody asked for it. ``deleted``: uids of those deleted on request."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._pods: dict[str, str] = {}
        self.made = 0
        self.lost: set[str] = set()
        self.deleted: set[str] = set()

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str) -> Object:
        assert resource is PODS
        name = body["metadata"]["name"]
        assert name not in self._pods
        if self.made == PODS_MAX:
            raise _EnoughError
        self.made += 1
        self._lose()
        self._pods[name] = f"uid-{self.made}"
        return {"metadata": {"name": name, "uid": self._pods[name]}}

    async def get(self, resource: Resource, name: str, namespace: str) -> Object:
        assert resource is PODS
        self._lose()
        if name not in self._pods:
            raise ApiError(404, "NotFound", f"pods {name!r} not found")
        return {"metadata": {"name": name, "uid": self._pods[name]}}

    async def delete(self, resource: Resource, name: str, namespace: str, *, grace_period_s: int | None = None) -> None:
        assert resource is PODS
        self.deleted.add(self._pods.pop(name))

    def _lose(self) -> None:
        if self._pods and self._rng.random() < 0.1:
            self.lost.add(self._pods.pop(self._rng.choice(sorted(self._pods))))


class PodsOnly(Load):
    """Nothing but Pods."""

    async def _outlived(self, name: str, uid: str) -> None: ...
    async def _shared(self) -> None: ...
    async def _restart_driver(self) -> None: ...
    async def _cordon(self) -> None: ...


def load_on(api: Any, seed: int) -> Load:
    """Pods come and go on this API; the drivers are not asked for anything."""
    drivers: Any = None
    return PodsOnly(api, drivers, random.Random(seed))


async def test_a_lost_pod_is_never_taken_for_a_deleted_one() -> None:
    """Also not when its name was deleted before, nor when the load wanted to delete it afterwards."""
    for seed in range(5):
        api = FakeApi(random.Random(seed))
        load = load_on(api, seed)
        with pytest.raises(_EnoughError):
            await load.run(1e-9)
        assert load.counts["Pods deleted and created again under one name"] > 0
        assert len(api.lost) > 10
        assert load.deleted == api.deleted
        assert not load.deleted & api.lost


async def test_a_delete_that_was_never_answered_counts() -> None:
    """The load is cancelled while it waits: the server may have carried it out."""

    class Deaf(FakeApi):
        async def delete(self, *arguments: Any, **options: Any) -> None:
            await super().delete(*arguments, **options)
            asked.set()
            await asyncio.Event().wait()

    asked = asyncio.Event()
    api = Deaf(random.Random(1))
    load = load_on(api, 1)
    task = asyncio.create_task(load.run(1e-9))
    await asyncio.wait_for(asked.wait(), 20.0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert load.deleted == api.deleted != set()
