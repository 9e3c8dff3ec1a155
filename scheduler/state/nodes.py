"""NodeTable: one row per node, one int64 column per number the plugins compare.

Rows are small integers, stable while the node (or a Pod on it) is known, and used again afterwards. Arrays handed
out are live: read them, do not write them, do not keep them across changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import numpy as np

from scheduler.api.core import Node
from scheduler.api.podrequests import CPU, MEMORY, PODS
from scheduler.api.taints import Taint
from scheduler.errors import InternalError, UserError
from scheduler.state.allocatable import node_allocatable
from scheduler.state.changelog import ChangeLog
from scheduler.state.columns import INT64_MAX, Bool, Int32, Int64, ResourceColumns, grown
from scheduler.state.images import ImageIndex
from scheduler.state.labels import LabelColumn, LabelColumns
from scheduler.state.order import NodeOrder
from scheduler.state.podinfo import PodInfo
from scheduler.state.ports import PortIndex
from scheduler.state.taintsets import NO_TAINTS, TaintSets
from scheduler.state.verify import check_nodes

_FIRST_CAPACITY = 16


class NodeTable:
    """Nodes, the Pods on them and the sums of both.

    A row whose node is not known but that has Pods is a *ghost*: it keeps their sums and is in no list; the node
    takes the row over when it appears. Pods are told apart by UID, nodes by name and UID: one that comes back under
    its old name with another UID inherits the Pods and nothing else.

    ``version`` counts changes; ``static_versions[row]`` and ``dynamic_versions[row]`` hold its value at the row's
    last change of the node object and of its Pods. ``structure_version`` and ``image_version`` do so for the set of
    nodes and for any node's images, which plugins read across rows. ``problems`` lists, by node, quantities that
    are nonsense and count as 0; each is also passed to ``report`` once when it appears. ``log`` has the rows that
    changed last.
    """

    def __init__(self, report: Callable[[UserError], None] | None = None) -> None:
        self.version = self.structure_version = self.image_version = 0
        self.log = ChangeLog()
        self.images = ImageIndex()
        self.ports = PortIndex()
        self.problems: dict[str, tuple[UserError, ...]] = {}
        self._report = report
        self._capacity = _FIRST_CAPACITY
        self._rows: dict[str, int] = {}
        self._names: list[str] = []
        self._nodes: list[Node | None] = []
        self._pods: list[dict[str, PodInfo]] = []
        self._free: list[int] = []
        self._saturated: set[int] = set()
        self._order = NodeOrder()
        self._taints = TaintSets()
        self._labels = LabelColumns(self._live_labels)
        self._allocatable = ResourceColumns(self._capacity)
        self._requested = ResourceColumns(self._capacity)
        self._nonzero = ResourceColumns(self._capacity)
        self.pod_counts: Int64 = np.zeros(self._capacity, np.int64)
        self.allowed_pods: Int64 = np.zeros(self._capacity, np.int64)
        self.static_versions: Int64 = np.zeros(self._capacity, np.int64)
        self.dynamic_versions: Int64 = np.zeros(self._capacity, np.int64)
        self.unschedulable: Bool = np.zeros(self._capacity, np.bool_)
        self.taint_set_ids: Int32 = np.zeros(self._capacity, np.int32)

    # Nodes

    def add(self, node: Node) -> int:
        """A node appeared (or is reported again); its row."""
        self.version += 1
        row = self._row_for(node.name)
        present = self._nodes[row]
        if present is not None and present.metadata.uid != node.metadata.uid:
            self._clear_node(row)
            present = None
        self.static_versions[row] = self.version
        self.log.note_node(row)
        if present is None:
            self._order.add(row, node.metadata.labels)
            self.structure_version = self.version
        else:
            self._order.update(row, node.metadata.labels)
        self._set_images(row, present, node)
        self._nodes[row] = node
        self._labels.set(row, node.metadata.labels)
        self.unschedulable[row] = node.spec.unschedulable
        taint_set = self._taints.take(node.spec.taints)
        if present is not None:
            self._taints.give_back(int(self.taint_set_ids[row]))
        self.taint_set_ids[row] = taint_set
        self._set_allocatable(row, node)
        return row

    def update(self, node: Node) -> int:
        """A node changed; its row. The same as ``add``: a changed UID makes it a new node."""
        return self.add(node)

    def remove(self, name: str) -> None:
        """A node went. Its Pods stay on a ghost row until they go too."""
        row = self.row_of(name)
        if row is None:
            return
        self.version += 1
        self._clear_node(row)
        self._labels.trim(len(self))
        self._release_if_empty(row)

    # Pods

    def add_pod(self, info: PodInfo, node_name: str) -> int:
        """A Pod is on a node, known or not; the row. A Pod with the same UID already there is replaced."""
        row = self._row_for(node_name)
        if info.uid in self._pods[row]:
            self._account_pod(self._pods[row].pop(info.uid), row, -1)
        self._pods[row][info.uid] = info
        self._account_pod(info, row, 1)
        self.version += 1
        self.dynamic_versions[row] = self.version
        self.log.note_pods(row)
        return row

    def replace_pod(self, info: PodInfo, node_name: str) -> None:
        """A newer object of a Pod that is on the node and takes the same of it: no column changes, no version moves."""
        pods = self._pods[self._rows[node_name]]
        if info.uid not in pods:
            raise InternalError(f"pod {info.pod.key} is not counted on node {node_name}")
        pods[info.uid] = info

    def remove_pod(self, info: PodInfo, node_name: str) -> bool:
        """A Pod left a node; False when no Pod with its UID was there."""
        row = self._rows.get(node_name)
        present = self._pods[row].pop(info.uid, None) if row is not None else None
        if row is None or present is None:
            return False
        self._account_pod(present, row, -1)
        self.version += 1
        self.dynamic_versions[row] = self.version
        self.log.note_pods(row)
        self._release_if_empty(row)
        return True

    # Questions about one node

    def __len__(self) -> int:
        """Number of nodes, ghosts left out."""
        return len(self._order)

    def row_of(self, name: str) -> int | None:
        """The row of a known node, None for unknown nodes and ghosts."""
        row = self._rows.get(name)
        return row if row is not None and self._nodes[row] is not None else None

    def row_with_pods(self, name: str) -> int:
        """The row that holds a node's Pods, that of a ghost included; KeyError without Pods and node."""
        return self._rows[name]

    def node(self, row: int) -> Node:
        """The Node object of a row in ``order()``."""
        node = self._nodes[row]
        if node is None:
            raise InternalError(f"row {row} has no node")
        return node

    def name_of(self, row: int) -> str:
        """The node name of a row."""
        return self._names[row]

    def pods(self, row: int) -> Collection[PodInfo]:
        """Pods on the row, in order of arrival."""
        return self._pods[row].values()

    def pods_on(self, node_name: str) -> Collection[PodInfo]:
        """Pods on a node by its name, ghosts included."""
        row = self._rows.get(node_name)
        return () if row is None else self._pods[row].values()

    # Columns

    def order(self) -> Int64:
        """Rows of all nodes in node-list order (spec 5.3); the same array until a node comes or goes."""
        return self._order.rows()

    def renew_order(self) -> None:
        """Let nodes that changed their zone take their new places now, not only when a node comes or goes."""
        self._order.renew()

    def allocatable(self, resource: str) -> Int64:
        """Allocatable amounts over all rows; zeros for a resource no node has."""
        return self.allowed_pods if resource == PODS else self._allocatable.column(resource)

    def requested(self, resource: str) -> Int64:
        """Sums of the Pods' requests over all rows."""
        return self.pod_counts if resource == PODS else self._requested.column(resource)

    def nonzero_requested(self, resource: str) -> Int64:
        """Sums with defaults for silent containers, for cpu and memory; the plain sums for other resources."""
        return (self._nonzero if resource in (CPU, MEMORY) else self._requested).column(resource)

    def labels(self, key: str) -> LabelColumn:
        """Codes and values of one label key over all rows; codes hold until the next change of a node."""
        return self._labels.column(key, self._capacity)

    def label_codes(self, key: str) -> tuple[Int32, list[str]]:
        """``labels`` as a pair: code per row (-1: the node lacks the key), value per code."""
        column = self.labels(key)
        return column.codes, column.values

    @property
    def taint_sets(self) -> list[tuple[Taint, ...]]:
        """Taints by set id; ``taint_set_ids`` has the id of each row."""
        return self._taints.sets

    @property
    def capacity(self) -> int:
        """Length of every column."""
        return self._capacity

    # Checks

    def verify(self, pods_by_node: Mapping[str, Iterable[PodInfo]]) -> None:
        """Recompute everything from the nodes held and ``pods_by_node``; InternalError names the first difference."""
        fresh = NodeTable()
        for row in self.order():
            fresh.add(self.node(int(row)))
        for name, pods in pods_by_node.items():
            for info in pods:
                fresh.add_pod(info, name)
        check_nodes(self, fresh)

    def describe(self) -> dict[str, dict[str, object]]:
        """Everything known per node name (ghosts included), in a form that does not depend on row numbers."""
        images: dict[int, set[str]] = {}
        for image, holders in self.images.holders().items():
            for row in holders:
                images.setdefault(row, set()).add(image)
        ports: dict[int, dict[tuple[str, int], dict[str, int]]] = {}
        for port, by_row in self.ports.uses().items():
            for row, addresses in by_row.items():
                ports.setdefault(row, {})[port] = addresses
        zones = {row: zone for zone, rows in self._order.zones().items() for row in rows}
        return {
            name: {
                "node": self._nodes[row],
                "pods": set(self._pods[row]),
                "pod count": int(self.pod_counts[row]),
                "allowed pods": int(self.allowed_pods[row]),
                "allocatable": self._allocatable.row(row),
                "requested": self._requested.row(row),
                "non-zero requested": self._nonzero.row(row),
                "unschedulable": bool(self.unschedulable[row]),
                "taints": self.taint_sets[self.taint_set_ids[row]],
                "images": images.get(row, set()),
                "ports": ports.get(row, {}),
                "zone": zones.get(row),
            }
            for name, row in self._rows.items()
        }

    def label_problems(self) -> list[str]:
        """Entries of label columns that differ from the nodes' labels; empty when all is well."""
        return [
            f"{name or 'free row'}: label {key}"
            for key, column in self._labels.items()
            for row, name in enumerate(self._names)
            for node in [self._nodes[row]]
            for code in [int(column.codes[row])]
            if (column.values[code] if code >= 0 else None) != (node.metadata.labels.get(key) if node else None)
        ]

    def taint_counts(self) -> dict[tuple[Taint, ...], int]:
        """Nodes per taint set in use."""
        return self._taints.counts()

    def free_rows(self) -> Sequence[int]:
        """Rows without node and Pods."""
        return self._free

    def row_is_empty(self, row: int) -> bool:
        """True when no number column has anything for ``row``, as it must be for a free row."""
        columns = (self._allocatable, self._requested, self._nonzero)
        return not any(c.row(row) for c in columns) and not self.pod_counts[row] and not self.allowed_pods[row]

    # Inside

    def _live_labels(self) -> Sequence[tuple[int, Mapping[str, str]]]:
        return [(row, node.metadata.labels) for row, node in enumerate(self._nodes) if node is not None]

    def _row_for(self, name: str) -> int:
        row = self._rows.get(name)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
            self._names[row] = name
        else:
            row = len(self._nodes)
            self._names.append(name)
            self._nodes.append(None)
            self._pods.append({})
            if row >= self._capacity:
                self._grow(2 * self._capacity)
        self._rows[name] = row
        return row

    def _grow(self, capacity: int) -> None:
        self._capacity = capacity
        for columns in (self._allocatable, self._requested, self._nonzero):
            columns.grow(capacity)
        self._labels.grow(capacity)
        self.pod_counts = grown(self.pod_counts, capacity)
        self.allowed_pods = grown(self.allowed_pods, capacity)
        self.static_versions = grown(self.static_versions, capacity)
        self.dynamic_versions = grown(self.dynamic_versions, capacity)
        self.unschedulable = grown(self.unschedulable, capacity)
        self.taint_set_ids = grown(self.taint_set_ids, capacity)

    def _clear_node(self, row: int) -> None:
        """Forget all that came from the node object."""
        node = self.node(row)
        self.structure_version = self.static_versions[row] = self.version
        self.log.note_node(row)
        self._order.remove(row)
        self._set_images(row, node, None)
        self._labels.set(row, {})
        self._taints.give_back(int(self.taint_set_ids[row]))
        self.taint_set_ids[row] = NO_TAINTS
        self.unschedulable[row] = False
        self.allowed_pods[row] = 0
        self._allocatable.clear(row)
        self.problems.pop(node.name, None)
        self._nodes[row] = None

    def _release_if_empty(self, row: int) -> None:
        if self._nodes[row] is None and not self._pods[row]:
            del self._rows[self._names[row]]
            self._names[row] = ""
            self._free.append(row)

    def _set_images(self, row: int, old: Node | None, new: Node | None) -> None:
        before = old.status.images if old is not None else ()
        after = new.status.images if new is not None else ()
        # Also when nothing changed: the only holder of an image teaches its size anew.
        self.images.remove(row, before)
        self.images.add(row, after)
        if before != after:
            self.image_version = self.version

    def _set_allocatable(self, row: int, node: Node) -> None:
        amounts, problems = node_allocatable(node)
        self._allocatable.clear(row)
        self.allowed_pods[row] = amounts.pop(PODS, 0)
        for name, offered in amounts.items():
            self._allocatable.set(name, row, offered)
        self._set_problems(node.name, problems)

    def _set_problems(self, name: str, problems: tuple[UserError, ...]) -> None:
        known = {str(problem) for problem in self.problems.pop(name, ())}
        if problems:
            self.problems[name] = problems
        if self._report is not None:
            for problem in problems:
                if str(problem) not in known:
                    self._report(problem)

    def _account_pod(self, info: PodInfo, row: int, sign: int) -> None:
        """Add or take away one Pod's amounts. Sums beyond int64 stay at its largest value and are redone exactly."""
        self.pod_counts[row] += sign
        if info.host_ports:
            (self.ports.add if sign > 0 else self.ports.remove)(row, info.host_ports)
        if row in self._saturated:
            self._resum(row)
            return
        for name, requested in info.node_requests.items():
            self._accumulate(self._requested, name, row, sign * requested)
        self._accumulate(self._nonzero, CPU, row, sign * info.nonzero_cpu_milli)
        self._accumulate(self._nonzero, MEMORY, row, sign * info.nonzero_memory_bytes)

    def _accumulate(self, columns: ResourceColumns, name: str, row: int, delta: int) -> None:
        total = columns.get(name, row) + delta
        if abs(total) >= INT64_MAX:
            self._saturated.add(row)
        columns.set(name, row, total)

    def _resum(self, row: int) -> None:
        self._saturated.discard(row)
        self._requested.clear(row)
        self._nonzero.clear(row)
        requested: dict[str, int] = {}
        cpu_milli = memory_bytes = 0
        for info in self._pods[row].values():
            for name, requests in info.node_requests.items():
                requested[name] = requested.get(name, 0) + requests
            cpu_milli += info.nonzero_cpu_milli
            memory_bytes += info.nonzero_memory_bytes
        for name, total in requested.items():
            self._accumulate(self._requested, name, row, total)
        self._accumulate(self._nonzero, CPU, row, cpu_milli)
        self._accumulate(self._nonzero, MEMORY, row, memory_bytes)
