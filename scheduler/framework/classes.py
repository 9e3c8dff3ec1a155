"""Answers kept per class of Pods: Pods that read the same to every cacheable plugin share whole result vectors.

A plugin takes part by two declarations (``plugin.py``, CacheablePlugin): ``signature(cycle)``, what it reads of the
Pod, and ``depends``, what of a node its answers depend on. A class keeps one vector per plugin over the table's rows
and asks again only about rows that changed. Whatever is not declared is never kept. ``ClassCache.verify`` asks again
about every row and compares.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

import numpy as np

from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Depends
from scheduler.framework.runner import call
from scheduler.framework.templates import by_template
from scheduler.framework.vectors import PodClass
from scheduler.state.nodes import NodeTable

if TYPE_CHECKING:
    from scheduler.framework.profile import Profile

ROWS_KEPT_MAX = 500_000
"""Rows over all classes of one profile: about 80 bytes each."""
CLASSES_MIN, CLASSES_MAX = 8, 512


class _Key:
    """A class's signatures, hashed once."""

    __slots__ = ("_hash", "_value")

    def __init__(self, value: Hashable) -> None:
        self._value, self._hash = value, hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._hash == other._hash and self._value == other._value


class ClassCache:
    """The classes of one profile on one node table, the least recently used one dropped first.

    ``evaluations`` counts rows asked about, summed over plugins.
    """

    def __init__(self) -> None:
        self.evaluations = 0
        self._table: NodeTable | None = None
        self._classes: OrderedDict[Hashable, PodClass] = OrderedDict()
        self._used: dict[Hashable, PodClass] = {}
        self._live = np.zeros(0, np.bool_)
        self._live_version = -1
        self._plugins: tuple[Any, ...] | None = None
        self._live_plugins: tuple[Any, ...] = ()

    def __len__(self) -> int:
        return len(self._classes)

    def find(self, profile: Profile, cycle: Cycle, nodes: NodeTable) -> PodClass | None:
        """The class of the cycle's Pod, brought up to date; None on columns that are not the state's own.

        After PreFilter. Cost: the signatures, and the rows that changed since the class was used last.
        """
        if nodes is not cycle.state.nodes:
            return None
        if nodes is not self._table:
            self._table, self._live_version = nodes, -1
            self._classes.clear()
            self._used.clear()
        key = cycle.pod_class
        if key is None:
            key = cycle.pod_class = self._key(profile, cycle)
        found = self._classes.get(key)
        if found is None or not found.fits(nodes):
            found = PodClass(self, *self._parts(profile, cycle), nodes)
            self._classes[key] = found
            while len(self._classes) > min(CLASSES_MAX, max(CLASSES_MIN, ROWS_KEPT_MAX // nodes.capacity)):
                evicted, _ = self._classes.popitem(last=False)
                self._used.pop(evicted, None)  # else nothing would ever let go of its vectors
        self._classes.move_to_end(key)
        self._used[key] = found
        try:
            found.refresh(cycle, nodes)
        except BaseException:
            del self._classes[key], self._used[key]  # half refreshed: of no more use
            raise
        return found

    def _cacheable(self, profile: Profile) -> tuple[Any, ...]:
        if self._plugins is None:
            taking_part = dict.fromkeys((*profile.filter, *(entry.scorer for entry in profile.score)))
            self._plugins = tuple(plugin for plugin in taking_part if _declares(plugin))
            self._live_plugins = tuple(plugin for plugin in self._plugins if not by_template(plugin))
        return self._plugins

    def _key(self, profile: Profile, cycle: Cycle) -> _Key:
        template = cycle.template
        if template is None or not template.filters_known:
            return self._new_key(profile, cycle)
        self._cacheable(profile)
        live = tuple([call(plugin, "Signature", plugin.signature, cycle) for plugin in self._live_plugins])
        short = (frozenset(cycle.skip_filter), live)
        try:
            found = template.keys.get(short)
        except TypeError:
            return self._new_key(profile, cycle)  # it says whose signature cannot be hashed
        if found is None:
            found = template.keys[short] = self._new_key(profile, cycle)
        assert isinstance(found, _Key)
        return found

    def _new_key(self, profile: Profile, cycle: Cycle) -> _Key:
        signatures = self._signatures(profile, cycle)
        try:
            return _Key((signatures, frozenset(cycle.skip_filter)))
        except Exception:  # a foreign signature that cannot be hashed; one by one, to learn whose
            for plugin, signature in zip(self._cacheable(profile), signatures, strict=True):
                call(plugin, "Signature", hash, signature)
            raise

    def _signatures(self, profile: Profile, cycle: Cycle) -> tuple[Hashable | None, ...]:
        plugins = self._cacheable(profile)
        try:
            return tuple([plugin.signature(cycle) for plugin in plugins])
        except Exception:  # foreign code; once more, to learn whose
            return tuple(call(plugin, "Signature", plugin.signature, cycle) for plugin in plugins)

    def _parts(self, profile: Profile, cycle: Cycle) -> tuple[list[Any], list[Any], list[Any]]:
        """(filters kept: those before the first that cannot be, filters to be asked each time, score entries kept)."""
        signatures = zip(self._cacheable(profile), self._signatures(profile, cycle), strict=True)
        kept = {id(plugin) for plugin, signature in signatures if signature is not None}
        asked = [plugin for plugin in profile.filter if plugin.name not in cycle.skip_filter]
        first = next(
            (place for place, plugin in enumerate(asked) if id(plugin) not in kept or not hasattr(plugin, "filter")),
            len(asked),
        )
        return asked[:first], asked[first:], [entry for entry in profile.score if id(entry.scorer) in kept]

    def live(self, nodes: NodeTable) -> Any:
        """True for rows that have a node; plugins are never asked about others."""
        if self._live_version != nodes.structure_version or len(self._live) != nodes.capacity:
            self._live = np.zeros(nodes.capacity, np.bool_)
            self._live[nodes.order()] = True
            self._live_version = nodes.structure_version
        return self._live

    def verify(self, state: Any) -> None:
        """Ask again about every row for each class used since the last time. Raises InternalError on a difference."""
        used, self._used = self._used, {}
        for found in used.values():
            if self._table is not None and state.nodes is self._table and found.fits(state.nodes):
                found.verify(state)


def _declares(plugin: Any) -> bool:
    return hasattr(plugin, "signature") and isinstance(getattr(plugin, "depends", None), Depends)
