"""NodePorts: a host port can be given once per address, protocol and node."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from plugins.base import CONTINUE, SKIP_FILTER, PluginBase
from scheduler.api.core import Pod
from scheduler.framework.because import Because
from scheduler.framework.cycle import Cycle
from scheduler.framework.events import Action, Registration, Resource
from scheduler.framework.plugin import Depends, Handle, PreFilterResult, Rows, Verdicts
from scheduler.framework.status import Code, VerdictTable
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import pod_info
from scheduler.state.ports import ports_conflict


class NodePorts(PluginBase):
    """Source: kube-scheduler 1.37, NodePorts (spec 3.7)."""

    name = "NodePorts"
    depends = Depends.PODS
    by_template = True

    def __init__(self, handle: Handle) -> None:
        super().__init__(handle)
        self.verdicts = VerdictTable(self.name)
        reason = "node(s) didn't have free ports for the requested pod ports"
        self._taken = self.verdicts.intern(Code.UNSCHEDULABLE, (reason,))

    def pre_filter(self, cycle: Cycle) -> PreFilterResult:
        """Nothing to do for a Pod without host ports."""
        return CONTINUE if cycle.info.host_ports else SKIP_FILTER

    def signature(self, cycle: Cycle) -> Hashable | None:
        """The host ports."""
        return cycle.info.host_ports

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """Rejects nodes where one of the Pod's host ports is taken. Cost: the nodes that use these ports."""
        taken = nodes.ports.conflicting_rows(cycle.info.host_ports)
        if not taken:
            return np.zeros(len(rows), np.int64)
        mask = np.zeros(nodes.capacity, np.int64)
        mask[list(taken)] = self._taken
        return mask[rows]

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterator[Because]:
        """Every port that is taken, and by whom."""
        for wanted in cycle.info.host_ports:
            ip, protocol, port = wanted
            for info in nodes.pods(row):
                if ports_conflict((wanted,), info.host_ports):
                    about = f"port {port}/{protocol}"
                    facts = {"port": str(port), "protocol": protocol, "address": ip, "pod": info.pod.key}
                    yield Because(about, f"host {about} is taken by pod {info.pod.key}", facts)
                    break

    def events(self) -> Sequence[Registration]:
        """A Pod with such a port went, or a node came."""
        return (
            Registration(Resource.ASSIGNED_POD, Action.DELETE, _port_freed),
            Registration(Resource.NODE, Action.ADD),
        )


def _port_freed(pod: Pod, old: Pod, new: None) -> bool:
    if not old.spec.nodeName and not old.status.nominatedNodeName:
        return False
    return ports_conflict(pod_info(pod).host_ports, pod_info(old).host_ports)
