"""A small state for plugin tests: node columns and devices, filled by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from plugins.registry import DEFAULT_PLUGINS
from scheduler.api.core import Node, Pod
from scheduler.api.kinds import DEVICE_CLASS, convert
from scheduler.config.arguments import decode_arguments
from scheduler.config.problems import Problems
from scheduler.dra.features import Features
from scheduler.framework.cycle import Cycle
from scheduler.framework.plugin import Handle
from scheduler.framework.status import Status
from scheduler.state.devices import DeviceState
from scheduler.state.nodes import NodeTable
from scheduler.state.podinfo import pod_info


class World:
    """Nodes with Pods on them, and devices; ``classes`` maps extended resource names to DeviceClass names."""

    def __init__(
        self, nodes: Iterable[Node] = (), pods: Iterable[Pod] = (), classes: Mapping[str, str] | None = None
    ) -> None:
        self.nodes = NodeTable()
        self.features = Features()
        self.devices = DeviceState(self.features)
        for resource, name in (classes or {}).items():
            item = {"metadata": {"name": name}, "spec": {"extendedResourceName": resource}}
            self.devices.apply_class(None, convert(DEVICE_CLASS, item))
        for node in nodes:
            self.nodes.add(node)
        for pod in pods:
            self.nodes.add_pod(pod_info(pod), pod.spec.nodeName)

    def plugin(self, name: str, args: object = None) -> Any:
        """A default plugin with ``args`` decoded as the configuration would."""
        problems = Problems()
        arguments = decode_arguments(name, args, "args", problems)
        return DEFAULT_PLUGINS[name](Handle(self, None, None, arguments))

    def cycle(self, pod: Pod) -> Cycle:
        """An attempt for ``pod``; plugins read nothing of the state but what World has."""
        return Cycle(pod, pod_info(pod), self)  # type: ignore[arg-type]  # a small stand-in for ClusterState

    def filter(self, plugin: Any, pod: Pod) -> dict[str, Status]:
        """Rejections by node name; empty when the plugin's PreFilter skips the Pod."""
        cycle, rows = self.cycle(pod), self.nodes.order()
        if plugin.pre_filter(cycle).status.code.label == "Skip":
            return {}
        verdicts = plugin.filter(cycle, self.nodes, rows)
        return {
            self.nodes.name_of(row): plugin.verdicts.status(verdict)
            for row, verdict in zip(rows.tolist(), verdicts.tolist(), strict=True)
            if verdict
        }

    def score(
        self, plugin: Any, pod: Pod, names: Iterable[str] | None = None
    ) -> tuple[dict[str, int], dict[str, int]] | Status:
        """(raw, normalized) scores by node name, or PreScore's status when that is no success."""
        cycle, rows = self.cycle(pod), self.nodes.order()
        if names is not None:
            wanted = [self.nodes.row_of(name) for name in names]
            rows = rows[np.isin(rows, wanted)]
        if hasattr(plugin, "pre_score"):
            status: Status = plugin.pre_score(cycle, self.nodes, rows)
            if status.code != 0:
                return status
        raw = plugin.score(cycle, self.nodes, rows)
        scores = plugin.normalize(cycle, self.nodes, rows, raw) if hasattr(plugin, "normalize") else raw
        found = [self.nodes.name_of(row) for row in rows.tolist()]
        return dict(zip(found, raw.tolist(), strict=True)), dict(zip(found, scores.tolist(), strict=True))
