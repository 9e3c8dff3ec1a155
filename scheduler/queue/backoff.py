"""How long a rejected Pod waits. Source: kube-scheduler 1.37, backoff queue (spec 4.5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import floor, sqrt

from scheduler.queue.pod import QueuedPod


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubling back-off. ``initial_s`` and ``max_s`` are seconds; ``max_s`` 0 switches back-off off."""

    initial_s: float = 1.0
    max_s: float = 10.0

    def duration_s(self, failures: int, group_size: int = 1) -> float:
        """Seconds to wait after ``failures`` failures in a row: 0, then 1, 2, 4, 8, 10, 10, … by default.

        The maximum grows with the square root of ``group_size``: how many Pods were tried together (spec 4.5).
        """
        if failures <= 0 or self.max_s <= 0:
            return 0.0
        # Shifting the maximum down instead of the initial value up is how upstream keeps clear of overflow.
        doublings = min(failures - 1, 1000)
        max_s = self.max_s * sqrt(group_size)
        if self.initial_s > max_s / 2.0**doublings:
            return max_s
        return self.initial_s * 2.0**doublings

    def expiration(self, queued: QueuedPod) -> int:
        """The whole second in which the back-off of ``queued`` ends, 0 when it has none.

        The Pod leaves at the first whole second after it, so that Pods rejected together are tried together.
        """
        duration_s = self.duration_s(queued.consecutive_errors or queued.unschedulable_count, queued.group_size)
        return floor(queued.timestamp + duration_s) if duration_s else 0


def backing_off(queued: QueuedPod, now: float) -> bool:
    """True while ``queued`` has to wait."""
    return queued.backoff_expiration >= floor(now) if queued.backoff_expiration else False
