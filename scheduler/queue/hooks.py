"""What the queue needs from outside: each profile's plugins, and somebody to count."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from scheduler.api.core import Pod
from scheduler.framework.events import ClusterEvent, Registration
from scheduler.framework.status import Status
from scheduler.queue.pod import Place, QueuedPod


def _pass(pod: Pod, first: str | None) -> Status | None:
    return None


@dataclass(frozen=True, slots=True)
class ProfileHooks:
    """One profile's plugins as the queue sees them.

    ``pre_enqueue(pod, first)`` asks the plugins in order, the one named ``first`` before the others, and answers None
    when all pass, else the first refusal (an error counts) with ``plugin`` filled in. It must not raise.
    ``registrations`` maps a plugin's name to the events that may change its mind. A plugin that rejects without being
    in the map is woken by every event.
    """

    pre_enqueue: Callable[[Pod, str | None], Status | None] = _pass
    registrations: Mapping[str, Sequence[Registration]] = field(default_factory=dict)


class QueueObserver:
    """Told what the queue does; every method does nothing. Subclass it for metrics and logs.

    Methods are called in the middle of an operation: they must not call the queue and must not raise.
    """

    def incoming(self, place: Place, event_label: str) -> None:
        """A Pod entered ``place`` (ACTIVE, BACKOFF, ERROR_BACKOFF or UNSCHEDULABLE) because of ``event_label``."""

    def hint(self, plugin: str, event: ClusterEvent, queue: bool) -> None:
        """``plugin`` was asked about ``event`` and answered ``queue``."""

    def clock(self) -> float:
        """Seconds from any start, to measure hints with; 0.0 measures nothing."""
        return 0.0

    def hint_took(self, plugin: str, event: ClusterEvent, answer: str, duration_s: float) -> None:
        """Asking ``plugin`` took so long; ``answer``: Queue, QueueSkip or Error."""

    def hint_failed(self, plugin: str, event: ClusterEvent, pod: Pod, error: Exception) -> None:
        """The hint raised; the Pod is queued, because missing a wake-up is worse than one too many."""

    def gated(self, queued: QueuedPod, status: Status) -> None:
        """``status.plugin`` holds the Pod back."""
