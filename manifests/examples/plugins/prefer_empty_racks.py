"""A score plugin of your own: prefer nodes in racks with few Pods, so that a failing rack takes little with it.

Put this file on PYTHONPATH and name it in the configuration (config.yaml beside it):

    PYTHONPATH=manifests/examples/plugins dra-scheduler run --config=manifests/examples/plugins/config.yaml

Arguments: ``label``, the node label that names the rack (default topology.example.com/rack).
"""

from __future__ import annotations

from collections import Counter

from scheduler.errors import ConfigError
from scheduler.framework.cycle import Cycle
from scheduler.framework.nodeview import NodeView
from scheduler.framework.plugin import Handle, Rows
from scheduler.framework.status import SUCCESS, Status
from scheduler.state.nodes import NodeTable

DEFAULT_LABEL = "topology.example.com/rack"


class PreferEmptyRacks:
    """100 for a node in the emptiest rack, 0 in the fullest; nodes without the label get 0."""

    name = "prefer_empty_racks:PreferEmptyRacks"

    def __init__(self, handle: Handle) -> None:
        unknown = set(handle.arguments) - {"label"}
        if unknown:
            raise ConfigError("args", f"unknown field {min(unknown)}")
        self._label = str(handle.arguments.get("label", DEFAULT_LABEL))

    def pre_score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Status:
        """Once per Pod: count the Pods in each rack, over the nodes where the Pod fits."""
        pods: Counter[str] = Counter()
        for row in rows.tolist():
            rack = nodes.node(row).metadata.labels.get(self._label)
            if rack is not None:
                pods[rack] += len(nodes.pods(row))
        cycle.data[self.name] = pods
        return SUCCESS

    def score_node(self, cycle: Cycle, node: NodeView) -> int:
        """Once per node: 0..100, whole numbers."""
        pods: Counter[str] = cycle.data[self.name]
        rack = node.labels.get(self._label)
        if rack is None:
            return 0
        fullest, emptiest = max(pods.values()), min(pods.values())
        if fullest == emptiest:
            return 100
        return 100 * (fullest - pods[rack]) // (fullest - emptiest)
