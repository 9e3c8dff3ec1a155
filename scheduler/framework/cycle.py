"""Cycle: everything that belongs to one attempt for one Pod."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from scheduler.api.core import Pod

if TYPE_CHECKING:
    from scheduler.framework.diagnosis import Diagnosis
    from scheduler.framework.profile import Profile
    from scheduler.framework.templates import Template
    from scheduler.framework.timings import PluginTimer
    from scheduler.state.cluster import ClusterState
    from scheduler.state.podinfo import PodInfo


class Budget:
    """Steps left before the attempt must yield. Counts work (search steps, rows), never time."""

    __slots__ = ("left",)

    def __init__(self, steps: int) -> None:
        self.left = steps

    def charge(self, steps: int) -> bool:
        """Use ``steps``; True when the budget is used up and the caller should yield."""
        self.left -= steps
        return self.left <= 0


class Cycle:
    """One attempt: the Pod, the state it is decided on, and each plugin's own data.

    ``data[plugin name]`` belongs to that plugin. ``now`` is the wall-clock time of the attempt's start in seconds, for
    plugins that compare timestamps (binding time-outs); it does not move during the attempt. ``profile`` and
    ``diagnosis`` (why no node fits) are there for PostFilter plugins, which try the filters on what might be.
    ``template`` and ``pod_class`` are the runner's: what the Pod has in common with others, and what it reads like to
    cacheable plugins. ``timer`` is there in the cycles whose plugin calls are measured.
    """

    __slots__ = (
        "budget",
        "data",
        "diagnosis",
        "info",
        "now",
        "pod",
        "pod_class",
        "profile",
        "profile_name",
        "reporter",
        "skip_filter",
        "skip_score",
        "state",
        "template",
        "timer",
    )

    def __init__(
        self,
        pod: Pod,
        info: PodInfo,
        state: ClusterState,
        *,
        now: float = 0.0,
        profile_name: str = "",
        budget: Budget | None = None,
        reporter: Any = None,
    ) -> None:
        self.pod = pod
        self.info = info
        self.state = state
        self.now = now
        self.profile_name = profile_name
        self.budget = budget or Budget(1 << 62)
        self.reporter = reporter
        self.profile: Profile | None = None
        self.diagnosis: Diagnosis | None = None
        self.data: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.pod_class: Hashable | None = None
        self.timer: PluginTimer | None = None
        self.template: Template | None = None
