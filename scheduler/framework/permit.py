"""Permit: the last word of plugins before a Pod is bound, which may be "wait".

Source: kube-scheduler 1.37, RunPermitPlugins, WaitOnPermit and the waiting Pods (spec 1.8, 7.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from scheduler.api.core import Pod
from scheduler.config.durations import format_seconds
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.profile import Profile
from scheduler.framework.runner import answer_of, call
from scheduler.framework.status import SUCCESS, Code, Status, error, unschedulable
from scheduler.framework.timings import status_label

PERMIT_TIMEOUT_MAX_S = 15 * 60.0


@dataclass(frozen=True, slots=True)
class PermitResult:
    """SUCCESS, a rejection, or WAIT for at most ``timeout_s`` (15 minutes are the limit)."""

    status: Status
    timeout_s: float = 0.0


@dataclass(slots=True, eq=False)
class WaitingPod:
    """A Pod with a node that plugins told to wait. ``pending``: plugin → (deadline, time-out), both in seconds.

    Whoever holds it may ``allow`` for its own plugin or ``reject`` for all; the first rejection counts.
    """

    pod: Pod
    node: str
    pending: dict[str, tuple[float, float]]
    on_change: Callable[[], None] = lambda: None
    _verdict: Status | None = None

    def allow(self, plugin: str) -> None:
        """``plugin`` has nothing against the Pod any more."""
        self.pending.pop(plugin, None)
        if not self.pending and self._verdict is None:
            self._verdict = SUCCESS
        self.on_change()

    def reject(self, plugin: str, reason: str) -> None:
        """The Pod gives its place back and counts as rejected by ``plugin``."""
        self._end(unschedulable(reason).by(plugin))

    def preempt(self, reason: str) -> bool:
        """The Pod gives its place back to a more important one; False when its waiting has ended already."""
        if self._verdict is not None:
            return False
        self._end(error(reason))
        return True

    @property
    def allowed(self) -> bool:
        """True when every plugin has agreed."""
        return self._verdict is SUCCESS

    def verdict(self, now: float) -> Status | None:
        """None while the Pod has to wait; a plugin whose time is up rejects it."""
        if self._verdict is None:
            for plugin, (deadline, timeout_s) in self.pending.items():
                if now >= deadline:
                    text = f"rejected due to timeout after waiting {format_seconds(timeout_s)} at plugin {plugin}"
                    self._end(unschedulable(text).by(plugin))
                    break
        return self._verdict

    def due(self) -> float:
        """When the first plugin's time is up."""
        return min((deadline for deadline, _ in self.pending.values()), default=0.0)

    def _end(self, verdict: Status) -> None:
        if self._verdict is None:
            self._verdict = verdict
            self.on_change()


@dataclass(slots=True)
class WaitingPods:
    """The Pods that wait, of all profiles; plugins find it as ``handle.waiting_pods``."""

    _pods: dict[str, WaitingPod] = field(default_factory=dict)

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting Pod with that uid."""
        return self._pods.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(list(self._pods.values()))

    def add(self, waiting: WaitingPod) -> None:
        """A Pod begins to wait."""
        self._pods[waiting.pod.uid] = waiting

    def remove(self, uid: str) -> None:
        """A Pod's waiting is over."""
        self._pods.pop(uid, None)


def run_permit(profile: Profile, cycle: Cycle, node: str, now: float) -> Status | WaitingPod | None:
    """Permit in order: None for success, the first rejection, or the Pod that has to wait. Errors are PluginErrors."""
    began = profile.timings.clock()
    answer = _permit(profile, cycle, node, now)
    label = Code.WAIT.label if isinstance(answer, WaitingPod) else status_label(answer)
    profile.timings.point("Permit", label, began)
    return answer


def _permit(profile: Profile, cycle: Cycle, node: str, now: float) -> Status | WaitingPod | None:
    pending: dict[str, tuple[float, float]] = {}
    for plugin in profile.permit:
        result = answer_of(plugin, "Permit", PermitResult, call(plugin, "Permit", plugin.permit, cycle, node))
        status = answer_of(plugin, "Permit", Status, result.status)
        if status.code.rejected:
            return status.by(plugin.name)
        if status.code is Code.WAIT:
            timeout_s = min(result.timeout_s, PERMIT_TIMEOUT_MAX_S)
            pending[plugin.name] = (now + timeout_s, timeout_s)
        elif status.code is not Code.SUCCESS:
            raise PluginError(plugin.name, "Permit", status.message)
    return WaitingPod(cycle.pod, node, pending) if pending else None
