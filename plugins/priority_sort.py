"""PrioritySort: higher priority first, then first come, first served."""

from __future__ import annotations

from plugins.base import PluginBase
from scheduler.api.core import Pod


class PrioritySort(PluginBase):
    """Source: kube-scheduler 1.37, PrioritySort (spec 3.2)."""

    name = "PrioritySort"

    def sort_key(self, pod: Pod, timestamp_s: float) -> tuple[int, float]:
        """Smaller first: negated priority, then the time of the last queueing."""
        return -pod.priority, timestamp_s
