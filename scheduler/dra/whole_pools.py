"""Pools without a node: the newest generation of a pool, whole or not, wherever its devices are.

A scheduler looks at a pool from one node (``pools.gather``). Who judges the allocations of others does not know the
node and asks only what holds for all of them: is the device in the newest complete generation, and what does it have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.dra.devices import DeviceInfo, PoolKey, SliceInfo
from scheduler.dra.features import Features
from scheduler.dra.pools import PoolView, newest_generation, skip_cause
from scheduler.dra.slices import SliceStore


@dataclass(frozen=True, slots=True, eq=False)
class WholePool:
    """``problem`` says why no device may be taken from the pool, "" when all is well.

    ``devices``: name → device of the newest generation; ``older``: names that only an older generation has.
    ``view``: the pool with its counters, None when it cannot be used.
    """

    key: PoolKey
    problem: str
    generation: int = 0
    devices: Mapping[str, DeviceInfo] = field(default_factory=dict)
    older: frozenset[str] = frozenset()
    view: PoolView | None = None


class WholePools:
    """The whole pools of a SliceStore, each kept until one of its slices changes. Cost of a hit: O(its slices)."""

    def __init__(self, slices: SliceStore) -> None:
        self.slices = slices
        self._kept: dict[PoolKey, tuple[tuple[SliceInfo, ...], WholePool]] = {}

    def get(self, key: PoolKey) -> WholePool:
        """The pool as the newest slices have it."""
        infos = tuple(self.slices.pool(key))
        if not infos:
            self._kept.pop(key, None)
            return WholePool(key, f"no slice of pool {key} is published")
        kept = self._kept.get(key)
        if kept is not None and _same(kept[0], infos):
            return kept[1]
        pool = _whole(key, infos, self.slices.features)
        self._kept[key] = infos, pool
        return pool


def _same(left: tuple[SliceInfo, ...], right: tuple[SliceInfo, ...]) -> bool:
    return len(left) == len(right) and all(one is other for one, other in zip(left, right, strict=True))


def _whole(key: PoolKey, infos: Iterable[SliceInfo], features: Features) -> WholePool:
    everywhere = {info.name: info for info in infos}
    newest = max(info.generation for info in everywhere.values())
    current = [info for info in everywhere.values() if info.generation == newest]
    devices = {device.key.device: device for info in current for device in info.devices}
    older = {device.key.device for info in everywhere.values() if info.generation < newest for device in info.devices}
    whole = WholePool(key, "", newest, devices, frozenset(older - devices.keys()))
    for info in current:
        cause = skip_cause(info, features)
        if cause:
            return _unusable(whole, f"slice {info.name} of pool {key} cannot be used: {cause}")
    view = newest_generation(everywhere, features)
    if view is None or not view.complete:
        seen, expected = len(current), current[0].slice_count
        return _unusable(whole, f"pool {key} is incomplete: {seen} of {expected} slices of generation {newest}")
    if view.invalid:
        return _unusable(whole, f"pool {key} is invalid: {view.invalid}")
    return WholePool(key, "", newest, devices, whole.older, view)


def _unusable(pool: WholePool, problem: str) -> WholePool:
    return WholePool(pool.key, problem, pool.generation, pool.devices, pool.older)
