"""What all generators draw from: a seeded source, few names, and the themes of a case."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, TypeVar

Json = dict[str, Any]
T = TypeVar("T")

NODE = "node-1"
OTHER_NODE = "node-2"
DRIVERS = ("a.example.com", "b.example.com")
# One pool name is used by both drivers on purpose.
POOLS = ("node-1", "pool-2")
KINDS = ("big", "small")
ROOT = "c.example.com/root"

# Theme -> percent of cases in which it appears. Few themes at a time keep cases readable and often solvable.
THEMES = {
    "capacity": 33,
    "counters": 31,
    "taints": 23,
    "binding": 14,
    "many": 7,
    "late": 5,
    "broken_pools": 27,
    "placement": 30,
    "cel_errors": 15,
    "list_attributes": 17,
    "derived": 14,
    "groups": 13,
    "skips": 13,
    "fraction": 14,
    "gates": 14,
    "network": 8,
    "one_driver": 35,
}
DEFAULT_GATES = (
    "AdminAccess",
    "PrioritizedList",
    "PartitionableDevices",
    "DeviceTaints",
    "DeviceBindingAndStatus",
    "ConsumableCapacity",
    "DeviceTaintRules",
)
THEME_GATES = {
    "capacity": "ConsumableCapacity",
    "counters": "PartitionableDevices",
    "taints": "DeviceTaints",
    "binding": "DeviceBindingAndStatus",
}


class Draw(random.Random):
    """A seeded source of small choices; ``themes`` and ``gate_off`` are drawn anew for each case."""

    themes: frozenset[str] = frozenset()
    # The default gate that is off in this case, "" for none.
    gate_off: str = ""

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of 100 draws."""
        return self.randrange(100) < percent

    def of(self, *choices: T) -> T:
        """One of ``choices``."""
        return self.choice(choices)

    def some(self, items: Sequence[T], least: int = 1) -> list[T]:
        """A random subset in random order, at least ``least`` long."""
        return self.sample(items, self.randint(least, len(items)))

    def has(self, theme: str) -> bool:
        """Whether the present case has ``theme``."""
        return theme in self.themes

    def new_themes(self) -> None:
        """Draw the themes of the next case."""
        themes = {theme for theme, percent in THEMES.items() if self.chance(percent)}
        if "late" in themes:
            kept = ("capacity", "counters", "taints", "placement", "list_attributes")
            themes = {"late", "one_driver", *(theme for theme in kept if self.chance(7))}
        if "groups" in themes:
            themes.add("counters")
        if "fraction" in themes:
            themes.add("capacity")
        self.themes = frozenset(themes)
        self.gate_off = self._gate_off() if "gates" in themes else ""

    def _gate_off(self) -> str:
        """A gate whose feature the case has, more often than not."""
        telling = [gate for theme, gate in THEME_GATES.items() if self.has(theme)]
        return self.choice(telling) if telling and self.chance(60) else self.choice(DEFAULT_GATES)

    def driver(self) -> str:
        """One of the drivers, mostly the first."""
        return DRIVERS[0] if self.has("one_driver") or self.chance(70) else DRIVERS[1]
