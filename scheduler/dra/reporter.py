"""How the allocator talks: an observer whose methods do nothing. Explain, metrics, audit and tests subclass it."""

from __future__ import annotations

from scheduler.dra.devices import DeviceKey
from scheduler.dra.rejections import Rejection


class Reporter:
    """Does nothing. ``wants_devices`` False lets the allocator skip the work of finding reasons per device.

    With it True the search takes no shortcut, so that each refusal is met where upstream would meet it.
    """

    wants_devices = False

    def rejected(self, rejection: Rejection) -> None:
        """A device (or a request as a whole) was refused."""

    def device_chosen(self, claim: str, request: str, device: DeviceKey) -> None:
        """A device is part of the solution."""

    def searched(self, steps: int) -> None:
        """A search ended after ``steps`` steps."""


SILENT = Reporter()


class Collector(Reporter):
    """Keeps the first reason per (claim, request, device), at most ``limit`` of them."""

    wants_devices = True

    def __init__(self, limit: int = 1000) -> None:
        self.limit = limit
        self.steps = 0
        self.rejections: dict[tuple[str, str, DeviceKey | None], Rejection] = {}

    def rejected(self, rejection: Rejection) -> None:
        """Keep it unless this device has a reason already."""
        key = (rejection.claim, rejection.request, rejection.device)
        if key not in self.rejections and len(self.rejections) < self.limit:
            self.rejections[key] = rejection

    def searched(self, steps: int) -> None:
        """Add up the steps."""
        self.steps += steps
