"""What lint looks at: an object, and the devices that it is held against."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.dra.devices import DeviceInfo
from scheduler.dra.selectors import SelectorCache
from scheduler.explain.lint_together import Trial
from scheduler.state.cluster import ClusterState


@dataclass(frozen=True, slots=True)
class World:
    """What requests are held against: every published device, a cache of compiled selectors, and the allocator."""

    state: ClusterState
    devices: tuple[DeviceInfo, ...]
    cache: SelectorCache
    trial: Trial


@dataclass(frozen=True, slots=True)
class Subject:
    """An object under lint. ``prefix`` leads from its root to ``devices``."""

    name: str
    prefix: str
