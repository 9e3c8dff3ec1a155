"""Node order: the zones in turn, so that neighbours in the list are in different zones.

Source: kube-scheduler 1.37, backend/cache (spec 5.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

import numpy as np

from scheduler.state.columns import Int64

_ZONE_KEYS = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION_KEYS = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


def zone_key(labels: Mapping[str, str]) -> str:
    """Region and zone in one text; "" for a node in neither. A beta label that is present wins, also when empty."""
    zone = labels.get(_ZONE_KEYS[0], labels.get(_ZONE_KEYS[1], ""))
    region = labels.get(_REGION_KEYS[0], labels.get(_REGION_KEYS[1], ""))
    return f"{region}:\0:{zone}" if region or zone else ""


class NodeOrder:
    """Rows by zone in order of arrival.

    ``rows()`` is built when rows came or went; a node that only changes its zone moves to the end of the new zone
    at the next rebuild, as upstream's list does.
    """

    __slots__ = ("_cached", "_zone_of", "_zones")

    def __init__(self) -> None:
        self._zones: dict[str, dict[int, None]] = {}
        self._zone_of: dict[int, str] = {}
        self._cached: Int64 | None = None

    def add(self, row: int, labels: Mapping[str, str]) -> None:
        """A node came."""
        self._enter(row, zone_key(labels))
        self._cached = None

    def update(self, row: int, labels: Mapping[str, str]) -> None:
        """A node's labels changed."""
        key = zone_key(labels)
        if key != self._zone_of[row]:
            self._leave(row)
            self._enter(row, key)

    def remove(self, row: int) -> None:
        """A node went."""
        self._leave(row)
        self._cached = None

    def __len__(self) -> int:
        return len(self._zone_of)

    def rows(self) -> Int64:
        """All rows in node-list order; read only, the same array until a node comes or goes."""
        if self._cached is None:
            rounds = zip_longest(*self._zones.values())
            order = [row for turn in rounds for row in turn if row is not None]
            self._cached = np.array(order, np.int64)
            self._cached.flags.writeable = False
        return self._cached

    def renew(self) -> None:
        """Build the list anew when it is next asked for, as if a node had come."""
        self._cached = None

    def zones(self) -> dict[str, list[int]]:
        """Rows by zone, both in order."""
        return {key: list(rows) for key, rows in self._zones.items()}

    def _enter(self, row: int, key: str) -> None:
        self._zones.setdefault(key, {})[row] = None
        self._zone_of[row] = key

    def _leave(self, row: int) -> None:
        key = self._zone_of.pop(row)
        rows = self._zones[key]
        del rows[row]
        if not rows:
            del self._zones[key]
