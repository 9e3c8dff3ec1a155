"""Diagnosis: why no node was chosen, as data. Words are made of it in scheduler.explain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from scheduler.framework.status import Code, Status

NOT_EXAMINED = Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE)
"""Status of nodes the search never reached: no reasons, preemption does not look at them."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that one plugin rejected with one status; ``status.plugin`` names it."""

    status: Status
    nodes: tuple[str, ...]


@dataclass(slots=True)
class Diagnosis:
    """Everything the message, the queue and preemption need to know of a failed attempt.

    ``node_count``: all nodes of the cluster. ``absent``: the status of nodes never examined (outside a PreFilter node
    set, or all of them after a PreFilter rejection). ``prefilter_message`` replaces the histogram when not empty.
    Source: kube-scheduler 1.37, framework.Diagnosis (spec 6.1).
    """

    node_count: int
    groups: list[NodeGroup] = field(default_factory=list)
    absent: Status = NOT_EXAMINED
    prefilter_message: str = ""
    postfilter_message: str = ""
    unschedulable_plugins: set[str] = field(default_factory=set)
    pending_plugins: set[str] = field(default_factory=set)

    def add(self, status: Status, nodes: tuple[str, ...]) -> None:
        """Record that ``status`` rejected ``nodes``, and its plugin among those that must change their mind."""
        self.groups.append(NodeGroup(status, nodes))
        self.note_plugin(status)

    def note_plugin(self, status: Status) -> None:
        """Remember the plugin behind ``status``: pending or unschedulable."""
        if status.plugin:
            (self.pending_plugins if status.code is Code.PENDING else self.unschedulable_plugins).add(status.plugin)

    def reasons(self) -> dict[str, int]:
        """Reason → number of nodes, nodes never examined included (the histogram of the fit error)."""
        counts: dict[str, int] = {}
        seen = 0
        for group in self.groups:
            seen += len(group.nodes)
            for reason in group.status.reasons:
                counts[reason] = counts.get(reason, 0) + len(group.nodes)
        for reason in self.absent.reasons:
            if self.node_count > seen:
                counts[reason] = counts.get(reason, 0) + self.node_count - seen
        return counts

    def statuses(self) -> Iterator[tuple[str, Status]]:
        """(node name, status) of every node examined."""
        for group in self.groups:
            for node in group.nodes:
                yield node, group.status


def nodes_available_text(node_count: int, reasons: Mapping[str, int]) -> str:
    """``0/<node_count> nodes are available: …``: the histogram of ``reasons`` (reason → nodes) as upstream prints it.

    Entries are sorted as texts, count included, so ``10 …`` comes before ``2 …``.
    """
    text = f"0/{node_count} nodes are available:"
    if reasons:
        text += " " + ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items())) + "."
    return text
