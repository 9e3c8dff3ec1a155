"""The state of one evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scheduler.cel.values import MapValue

# Upstream looks at its deadline after so many loop steps.
CHECK_EVERY: Final = 100


class _Unset:
    __slots__ = ()


UNSET: Final = _Unset()


class Frame:
    """Cost so far, the device, and one slot per macro variable."""

    __slots__ = ("cost", "device", "interrupted", "slots", "steps")

    def __init__(self, device: MapValue, slot_count: int, interrupted: Callable[[], bool] | None = None) -> None:
        self.cost = 0
        self.device = device
        self.slots: list[Any] = [UNSET] * slot_count
        self.steps = 0
        self.interrupted = interrupted
