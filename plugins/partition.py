"""Partition: keeps a profile to some of the nodes, drivers or pools, so that another scheduler has the rest."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from plugins.base import PluginBase
from scheduler.api.core import Node, Pod
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.nodes import NodeTable

REASON = "node(s) didn't belong to the scheduler's partition"


class Partition(PluginBase):
    """Not of kube-scheduler. Off unless a profile enables it.

    Arguments: ``nodeSelector`` (labels that a node must have, all of them), ``nodes`` (names; none: all), and
    ``drivers`` and ``pools`` (none: all), which the composition root hands to DynamicResources of the same profile as
    ``Features.device_limit``: what lies outside is never given to a claim. Claims that have their devices already may
    be used wherever they are.
    """

    name = "Partition"
    depends = Depends.NODE
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self._labels: dict[str, str] = dict(handle.arguments.get("nodeSelector") or {})
        self._names = frozenset(handle.arguments.get("nodes") or ())
        self.verdicts = VerdictTable(self.name)
        self._outside = self.verdicts.intern(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON,))

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The same for every Pod."""
        return ()

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes outside. Cost: one comparison of a label column per label."""
        inside = np.ones(len(rows), np.bool_)
        for key, value in self._labels.items():
            column = nodes.labels(key)
            codes = [code for code, known in enumerate(column.values) if known == value]
            inside &= np.isin(column.codes[rows], codes)
        if self._names:
            inside &= np.asarray([nodes.name_of(row) in self._names for row in rows.tolist()], np.bool_)
        return np.where(inside, 0, self._outside)

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """The labels that the node lacks, or that it is not among the nodes named."""
        node = nodes.node(row)
        for key, value in self._labels.items():
            found = node.metadata.labels.get(key)
            if found != value:
                here = "has no such label" if found is None else f"has {key}={found}"
                facts = {"key": key, "wanted": value, "found": found or ""}
                yield Because(f"label {key}", f"the partition wants {key}={value}; the node {here}", facts)
        if self._names and node.name not in self._names:
            yield Because("name", "the partition names other nodes", {"nodes": ", ".join(sorted(self._names)[:10])})

    def events(self) -> Sequence[Registration]:
        """A node came or got other labels."""
        return (Registration(Resource.NODE, Action.ADD | Action.UPDATE_NODE_LABEL, self._may_be_inside),)

    def _may_be_inside(self, pod: Pod, old: Node | None, new: Node) -> bool:
        return self._has(new) and (old is None or not self._has(old))

    def _has(self, node: Node) -> bool:
        labels = node.metadata.labels
        matches = all(labels.get(key) == value for key, value in self._labels.items())
        return matches and (not self._names or node.name in self._names)
