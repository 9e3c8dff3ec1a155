"""DefaultBinder: binds through the API server's binding sub-resource."""

from __future__ import annotations

from plugins.base import PluginBase
from scheduler.framework.cycle import Cycle
from scheduler.framework.instructions import BindPod, Instruction


class DefaultBinder(PluginBase):
    """Source: kube-scheduler 1.37, DefaultBinder (spec 3.20)."""

    name = "DefaultBinder"

    def bind(self, cycle: Cycle, node: str) -> Instruction | None:
        """Takes every Pod."""
        return BindPod(cycle.pod, node)
