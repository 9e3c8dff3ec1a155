"""Filters as if other Pods were there or gone, each row by itself.

Source: kube-scheduler 1.37, RunFilterPluginsWithNominatedPods (spec 1.4): where Pods of at least the same priority
are nominated, a node must fit the Pod with them and without them.

A filter plugin whose PreFilter data depends on Pods of other nodes has ``add_pod(cycle, info, row)`` and
``remove_pod``, and its ``cycle.data[name]`` has ``clone()``: it is asked row by row, on a copy. All others read the
columns they are given and are asked about all rows at once.
"""

from __future__ import annotations

import copy
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np

from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Rows, Verdicts
from scheduler.framework.points import CheckAdapter
from scheduler.framework.profile import Profile
from scheduler.framework.runner import Ask, Filtered, ask_filter, call, run_filters
from scheduler.state.nodes import NodeTable
from scheduler.state.overlay import NodeOverlay
from scheduler.state.podinfo import PodInfo

Changes = Mapping[int, Sequence[tuple[PodInfo, int]]]
"""Row → Pods that came (+1) or left (-1) since PreFilter; the columns given beside show them."""

NO_CHANGES: Changes = {}


def filter_rows(
    profile: Profile, cycle: Cycle, nodes: NodeTable, rows: Rows, changes: Changes = NO_CHANGES
) -> Generator[None, None, Filtered]:
    """The filters over ``rows`` of ``nodes``, nominated Pods regarded. With none and no changes: run_filters."""
    nominated = _nominated(cycle, nodes, rows)
    if not nominated:
        return (yield from run_filters(profile, cycle, nodes, rows, _asking(changes)))
    crowded = NodeOverlay(nodes)
    crowded.put([(info, row) for row, infos in nominated.items() for info in infos])
    more = {row: [*changes.get(row, ()), *((info, 1) for info in infos)] for row, infos in nominated.items()}
    touched = np.isin(rows, np.fromiter(nominated, np.int64))
    first = yield from run_filters(profile, cycle, crowded, rows[touched], _asking(more))
    kept = rows[~touched | np.isin(rows, first.feasible)]
    second = yield from run_filters(profile, cycle, nodes, kept, _asking(changes))
    return Filtered(second.feasible, [*first.rejected, *second.rejected])


def _nominated(cycle: Cycle, nodes: NodeTable, rows: Rows) -> dict[int, list[PodInfo]]:
    """Row → other Pods of at least the Pod's priority that are nominated there. Cost: the nodes with nominations."""
    nominator = cycle.state.nominator
    if not nominator:
        return {}
    found: dict[int, list[PodInfo]] = {}
    for name in nominator.nodes():
        here = [
            info
            for info in nominator.on(name)
            if info.uid != cycle.info.uid and info.pod.priority >= cycle.pod.priority
        ]
        row = nodes.row_of(name) if here else None
        if row is not None:
            found[row] = here
    # One look for all: with hundreds of nominations, one look each would cost more than the filters.
    looked_at = np.isin(np.fromiter(found, np.int64, len(found)), rows)
    return {row: here for (row, here), wanted in zip(found.items(), looked_at.tolist(), strict=True) if wanted}


def _asking(changes: Changes) -> Ask:
    if not changes:
        return ask_filter

    def ask(plugin: Any, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Generator[None, None, Verdicts]:
        follower = plugin.plugin if isinstance(plugin, CheckAdapter) else plugin
        places = [place for place, row in enumerate(rows.tolist()) if changes.get(row)]
        if not places or not hasattr(follower, "add_pod"):
            return (yield from ask_filter(plugin, cycle, nodes, rows))
        verdicts = np.zeros(len(rows), np.int64)
        others = np.delete(np.arange(len(rows)), places)
        if len(others):
            verdicts[others] = yield from ask_filter(plugin, cycle, nodes, rows[others])
        kept = cycle.data.get(plugin.name)
        try:
            for place in places:
                cycle.data[plugin.name] = _clone(kept)
                _apply(follower, cycle, int(rows[place]), changes)
                verdicts[place] = (yield from ask_filter(plugin, cycle, nodes, rows[place : place + 1]))[0]
        finally:
            cycle.data[plugin.name] = kept
        return verdicts

    return ask


def _apply(plugin: Any, cycle: Cycle, row: int, changes: Changes) -> None:
    for info, sign in changes[row]:
        if sign > 0:
            call(plugin, "PreFilterExtensionAddPod", plugin.add_pod, cycle, info, row)
        else:
            call(plugin, "PreFilterExtensionRemovePod", plugin.remove_pod, cycle, info, row)


def _clone(data: Any) -> Any:
    clone = getattr(data, "clone", None)
    return copy.copy(data) if clone is None else clone()
