"""Extension points: which methods make a plugin take part where, and adapters from the per-node forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.nodeview import NodeView
from scheduler.framework.plugin import Rows, Scores, Verdicts
from scheduler.framework.status import Code, Status, VerdictTable
from scheduler.state.nodes import NodeTable

POINT_METHODS: dict[str, tuple[str, ...]] = {
    "preEnqueue": ("pre_enqueue",),
    "queueSort": ("sort_key",),
    "preFilter": ("pre_filter",),
    "filter": ("filter", "filter_steps", "check"),
    "postFilter": ("post_filter",),
    "preScore": ("pre_score",),
    "score": ("score", "score_node"),
    "reserve": ("reserve",),
    "permit": ("permit",),
    "preBind": ("pre_bind",),
    "bind": ("bind",),
    "postBind": ("post_bind",),
}
"""Extension point as configuration spells it → methods, any of which makes a plugin take part."""


def points_of(plugin: Any) -> frozenset[str]:
    """Extension points that a plugin (class or object) implements."""
    return frozenset(
        point
        for point, methods in POINT_METHODS.items()
        if any(callable(getattr(plugin, method, None)) for method in methods)
    )


class CheckAdapter:
    """Runs a per-node ``check`` over rows. Cost: one Python call per row, for users' first plugins."""

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.name: str = plugin.name
        self.verdicts = VerdictTable(self.name)

    def filter(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Verdicts:
        """One verdict per row; an exception or a foreign answer becomes PluginError with the node's name."""
        result = np.zeros(len(rows), dtype=np.int64)
        for position, row in enumerate(rows.tolist()):
            view = NodeView(nodes, row)
            try:
                status = self.plugin.check(cycle, view)
            except Exception as error:  # a user's code: whatever it raises must cost this attempt only
                raise PluginError(self.name, "Filter", f"{type(error).__name__}: {error}", view.name) from error
            if not isinstance(status, Status):
                raise PluginError(self.name, "Filter", f"check returned {status!r}, not a Status", view.name)
            if status.code is not Code.SUCCESS:
                result[position] = self.verdicts.add(status)
        return result


class ScoreNodeAdapter:
    """Runs a per-node ``score_node`` over rows."""

    def __init__(self, plugin: Any) -> None:
        self.plugin = plugin
        self.name: str = plugin.name

    def score(self, cycle: Cycle, nodes: NodeTable, rows: Rows) -> Scores:
        """One integer per row; an exception or a foreign answer becomes PluginError with the node's name."""
        result = np.zeros(len(rows), dtype=np.int64)
        for position, row in enumerate(rows.tolist()):
            view = NodeView(nodes, row)
            try:
                score = self.plugin.score_node(cycle, view)
            except Exception as error:  # a user's code: whatever it raises must cost this attempt only
                raise PluginError(self.name, "Score", f"{type(error).__name__}: {error}", view.name) from error
            if isinstance(score, bool) or not isinstance(score, int | np.integer):
                raise PluginError(self.name, "Score", f"score_node returned {score!r}, not an int", view.name)
            if not -(1 << 62) < score < 1 << 62:
                raise PluginError(self.name, "Score", f"score_node returned {score}, beyond 64 bits", view.name)
            result[position] = score
        return result
