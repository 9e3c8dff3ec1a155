"""NodeOverlay: the node columns as they would be if some Pods came or went.

Plugins read it as they read the NodeTable. Only what depends on Pods is its own: sums, counts, Pods and host ports.
Labels, taints, images and the node objects are the table's, live. Pods may change on many rows at once; what one row
shows never depends on another row's changes, so "each candidate node in isolation" needs one overlay for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import HostPort, PodInfo
from scheduler.state.ports import PortIndex

PlacedPod = tuple[PodInfo, int]
"""A Pod and a row."""


class NodeOverlay(NodeTable):
    """A NodeTable of its own numbers over the nodes of ``base``. Cost to make: one copy of each amount column.

    Never keep an answer computed from it under the table's versions: two overlays of one version differ.
    """

    def __init__(self, base: NodeTable) -> None:
        self.__dict__.update(base.__dict__)
        self.ports = _PortOverlay(base.ports)
        self.pod_counts = base.pod_counts.copy()
        self.dynamic_versions = base.dynamic_versions.copy()
        self._requested = base._requested.copy()
        self._nonzero = base._nonzero.copy()
        self._pods = list(base._pods)
        self._saturated = set(base._saturated)
        self._owned: set[int] = set()

    def put(self, pods: Sequence[PlacedPod]) -> None:
        """Pods come to rows where they are not yet. Cost: about a microsecond each."""
        self._move(pods, 1)

    def take(self, pods: Sequence[PlacedPod]) -> None:
        """Pods leave rows where they are."""
        self._move(pods, -1)

    def _move(self, pods: Sequence[PlacedPod], sign: int) -> None:
        amounts: dict[str, tuple[list[int], list[int]]] = {}
        nonzero: tuple[list[int], list[int], list[int]] = ([], [], [])
        for info, row in pods:
            here = self._own(row)
            if sign > 0:
                here[info.uid] = info
            else:
                del here[info.uid]
            if row in self._saturated or (sign > 0 and self._may_saturate(info, row)):
                self._account_pod(info, row, sign)
                continue
            self.pod_counts[row] += sign
            if info.host_ports:
                (self.ports.add if sign > 0 else self.ports.remove)(row, info.host_ports)
            for name, amount in info.node_requests.items():
                rows, values = amounts.setdefault(name, ([], []))
                rows.append(row)
                values.append(amount)
            nonzero[0].append(row)
            nonzero[1].append(info.nonzero_cpu_milli)
            nonzero[2].append(info.nonzero_memory_bytes)
        for name, (rows, values) in amounts.items():
            self._requested.add(name, rows, values, sign)
        self._nonzero.add("cpu", nonzero[0], nonzero[1], sign)
        self._nonzero.add("memory", nonzero[0], nonzero[2], sign)

    def _own(self, row: int) -> dict[str, PodInfo]:
        if row not in self._owned:
            self._owned.add(row)
            self._pods[row] = dict(self._pods[row])
            self.dynamic_versions[row] = -1
        return self._pods[row]

    def _may_saturate(self, info: PodInfo, row: int) -> bool:
        """Amounts beyond half of int64 are summed the slow, exact way."""
        return any(amount > _LARGE for amount in info.node_requests.values())


_LARGE = 2**56


class _PortOverlay(PortIndex):
    """Host ports in use; entries are copied when they change."""

    __slots__ = ("_owned",)

    def __init__(self, base: PortIndex) -> None:
        self._uses = dict(base.uses())
        self._owned: set[tuple[str, int]] = set()

    def add(self, row: int, ports: Iterable[HostPort]) -> None:
        """As PortIndex, on copies."""
        ports = tuple(ports)
        self._own(ports)
        super().add(row, ports)

    def remove(self, row: int, ports: Iterable[HostPort]) -> None:
        """As PortIndex, on copies."""
        ports = tuple(ports)
        self._own(ports)
        super().remove(row, ports)

    def _own(self, ports: Iterable[HostPort]) -> None:
        for _, protocol, port in ports:
            key = (protocol, port)
            if key not in self._owned:
                self._owned.add(key)
                rows = self._uses.get(key)
                if rows is not None:
                    self._uses[key] = {row: dict(addresses) for row, addresses in rows.items()}
