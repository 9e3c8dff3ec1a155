"""A device to evaluate expressions on."""

from __future__ import annotations

import pytest

from scheduler.api.quantity import parse_quantity
from scheduler.cel import CelDevice


@pytest.fixture
def device() -> CelDevice:
    """A GPU with one attribute of each kind."""
    return CelDevice(
        "gpu.example.com",
        {
            "model": ("string", "H100"),
            "n": ("int", 4),
            "ok": ("bool", True),
            "ver": ("version", "1.2.3"),
            "ints": ("ints", [1, 2, 3]),
            "vers": ("versions", ["1.0.0", "2.0.0"]),
            "other.com/x": ("string", "y"),
        },
        {"memory": parse_quantity("80Gi")},
        allow_multiple_allocations=True,
    )
