"""Does a node still hold what was decided for it? Asked again right before the Binding is sent.

Nothing in the API server stops two schedulers from filling one slot (spec 7.2, "Not checked"): between our decision
and our Binding a foreign Pod may have reached our watch.
"""

from __future__ import annotations

from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import PodInfo


def overcommitted(nodes: NodeTable, row: int, info: PodInfo) -> str:
    """Why the node in ``row`` no longer holds ``info``'s Pod (which is counted there already); "" when it does.

    Looks at what the Pod itself asks for: the number of Pods, each resource it requests, its host ports. The text is
    NodeResourcesFit's or NodePorts' reason. Cost: O(resources of the Pod + Pods with host ports on the node).
    """
    if int(nodes.pod_counts[row]) > int(nodes.allowed_pods[row]):
        return "Too many pods"
    for resource, amount in info.requests.items():
        if amount > 0 and int(nodes.requested(resource)[row]) > int(nodes.allocatable(resource)[row]):
            if resource not in _ALWAYS_COUNTED and int(nodes.allocatable(resource)[row]) <= 0:
                continue  # served by DRA on this node, or ignored by the profile: Fit did not count it either
            return f"Insufficient {resource}"
    if info.host_ports:
        wanted = set(info.host_ports)
        for other in nodes.pods(row):
            if other.uid != info.uid and any(_conflict(a, b) for a in wanted for b in other.host_ports):
                return "node(s) didn't have free ports for the requested pod ports"
    return ""


_ALWAYS_COUNTED = frozenset(("cpu", "memory", "ephemeral-storage"))
_ANY_IP = "0.0.0.0"


def _conflict(a: tuple[str, str, int], b: tuple[str, str, int]) -> bool:
    """Host ports as (ip, protocol, port), defaults filled in: same protocol and port, and IPs that meet."""
    return a[1:] == b[1:] and (a[0] == b[0] or _ANY_IP in (a[0], b[0]))
