"""Pods per domain, kept from one Pod of a template to the next and brought up to date with the rows that changed.

What belongs to the template is which rows count and in which domain; what moves is how many Pods each row has. Any
change of a node makes everything anew, so nothing here has to follow labels or taints.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from plugins.pod_topology_spread.constraints import Constraint
from scheduler.errors import InternalError
from scheduler.state.columns import Bool, Int64
from scheduler.state.nodes import NodeTable
from scheduler.state.topology import TopologyIndex

KEPT_MAX = 64


@dataclass(slots=True, eq=False)
class Domains:
    """One constraint's domains over all rows.

    ``values``: label values by code; ``codes``: each row's domain; ``counted``: rows whose Pods count; ``present``:
    domains with such a row; ``counts``: Pods per domain.
    """

    constraint: Constraint
    values: Sequence[str]
    codes: Int64
    counted: Bool
    present: Bool
    counts: Int64

    def minimum(self) -> int:
        """Pods in the emptiest domain; 0 when there are fewer domains than minDomains, none included."""
        here = self.counts[self.present]
        return int(here.min()) if len(here) >= max(self.constraint.min_domains, 1) else 0


class KeptDomains:
    """The domains of one template's constraints. ``current`` says whether they can still be brought up to date."""

    def __init__(
        self, namespace: str, domains: Sequence[Domains], nodes: NodeTable, topology: TopologyIndex, extra: Any = None
    ) -> None:
        self.domains, self.nodes, self.extra = domains, nodes, extra
        self._namespace, self._topology = namespace, topology
        self._position = nodes.log.end
        self._seen = [self._column(domain).copy() for domain in domains]

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """In their order."""
        return tuple(domain.constraint for domain in self.domains)

    def _column(self, domain: Domains) -> Int64:
        return domain.constraint.counts(self._topology, self._namespace, self.nodes.capacity)

    def current(self, nodes: NodeTable, topology: TopologyIndex) -> bool:
        """Count what has changed since the last time; False when a node changed, or too much. Cost: those rows."""
        if nodes is not self.nodes or topology is not self._topology:
            return False
        entries = nodes.log.since(self._position)
        if entries is None or (entries and min(entries) < 0):
            return False
        self._position = nodes.log.end
        if not entries:
            return True
        rows = dict.fromkeys(entries)
        for domain, seen in zip(self.domains, self._seen, strict=True):
            column, size = self._column(domain), len(seen)
            for row in rows:
                if row < size and (delta := int(column[row]) - int(seen[row])):
                    seen[row] += delta
                    if domain.counted[row]:
                        domain.counts[domain.codes[row]] += delta
        return True


class KeptByTemplate:
    """The kept domains of one plugin, those not used for longest forgotten first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, tuple[KeptDomains, Callable[[], Sequence[Domains]]]] = OrderedDict()

    def get(self, key: Any, nodes: NodeTable, topology: TopologyIndex) -> KeptDomains | None:
        """What is kept under ``key``, brought up to date; None when nothing is, or not any more."""
        entry = self._kept.get(key)
        if entry is None:
            return None
        if not entry[0].current(nodes, topology):
            del self._kept[key]
            return None
        self._kept.move_to_end(key)
        return entry[0]

    def put(self, key: Any, kept: KeptDomains, anew: Callable[[], Sequence[Domains]]) -> None:
        """Keep; ``anew`` computes the same domains from scratch."""
        self._kept[key] = (kept, anew)
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def verify(self) -> None:
        """Compare with a recount. Raises InternalError with the first difference."""
        for kept, anew in self._kept.values():
            if not kept.current(kept.nodes, kept._topology):
                continue
            for mine, fresh in zip(kept.domains, anew(), strict=True):
                if not np.array_equal(mine.counts, fresh.counts):
                    raise InternalError(
                        f"Pods per domain of {mine.constraint.topology_key} are stale",
                        (f"kept: {mine.counts.tolist()}", f"fresh: {fresh.counts.tolist()}"),
                    )
