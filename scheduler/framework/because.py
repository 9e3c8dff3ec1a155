"""Because: the numbers and names behind a plugin's refusal of one node, asked only to explain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from scheduler.api.podrequests import CPU, EPHEMERAL_STORAGE, MEMORY
from scheduler.dra.amounts import amount_text

if TYPE_CHECKING:
    from scheduler.api.core import Pod
    from scheduler.framework.cycle import Cycle
    from scheduler.state.nodes import NodeTable

_NANO = 10**9


@dataclass(frozen=True, slots=True)
class Because:
    """One thing that keeps a Pod off a node.

    ``about``: what it is about, the same on every node that it keeps the Pod off (``cpu``, ``constraint 0 on zone``).
    ``text``: a sentence with this node's numbers. ``facts``: the same for machines. ``short``: how far the node is from
    taking the Pod, in any unit; of several nodes the one with the smallest is told first.
    """

    about: str
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    short: int = 0


class ExplainingPlugin(Protocol):
    """A filter plugin that can say more about a refusal than its reasons. Optional."""

    def because(self, cycle: Cycle, nodes: NodeTable, row: int) -> Iterable[Because]:
        """What keeps the cycle's Pod off the node of ``row``; called after PreFilter, for rows that were refused."""


def resource_text(name: str, amount: int) -> str:
    """An amount of a node's resource as people write it: ``1500m`` of cpu, ``4Gi`` of memory, ``3`` of anything else.

    ``amount``: thousandths of a core for cpu, bytes for memory and storage, pieces for the rest, as in NodeTable.
    """
    if name == CPU:
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if name in (MEMORY, EPHEMERAL_STORAGE):
        return amount_text(amount * _NANO)
    return str(amount)


class ExplainingGate(Protocol):
    """A PreEnqueue plugin that can say more about why a Pod is held back. Optional."""

    def because_held_back(self, pod: Pod) -> Iterable[Because]:
        """What the Pod waits for; called only while the plugin refuses it."""
