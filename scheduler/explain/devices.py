"""Why devices were refused to a waiting Pod: asked afresh on the present state, folded into few lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.api.core import Pod
from scheduler.dra.rejections import Reason, Rejection
from scheduler.framework.cycle import Cycle
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info

PLUGIN = "DynamicResources"


@dataclass(frozen=True, slots=True)
class NodeReasons:
    """Why the devices of one node do not serve the Pod."""

    node: str
    rejections: tuple[Rejection, ...]


def device_reasons(profile: Profile, pod: Pod, state: ClusterState, now: float) -> list[NodeReasons]:
    """Node by node in node-list order; empty when the Pod has no open claims. Cost: one search per node."""
    plugin = profile.plugins.get(PLUGIN)
    if plugin is None:
        return []
    cycle = Cycle(pod, pod_info(pod), state, now=now, profile_name=profile.name)
    plugin.pre_filter(cycle)
    nodes = (state.nodes.node(row) for row in state.nodes.order().tolist())
    return [NodeReasons(node.name, tuple(plugin.device_reasons(cycle, node))) for node in nodes]


def folded(reasons: Sequence[NodeReasons]) -> list[str]:
    """One line per set of nodes with the same counts: ``a100-1, a100-2: 5 in use by claim, 3 selector false``."""
    lines: dict[str, list[str]] = {}
    for entry in reasons:
        counts: dict[Reason, int] = {}
        for rejection in entry.rejections:
            counts[rejection.reason] = counts.get(rejection.reason, 0) + 1
        text = ", ".join(f"{count} {reason.value}" for reason, count in counts.items()) or "no devices"
        lines.setdefault(text, []).append(entry.node)
    return [f"{', '.join(nodes)}: {text}" for text, nodes in lines.items()]
