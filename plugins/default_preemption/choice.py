"""Which candidate is the best, and which Pods are the more important.

Source: kube-scheduler 1.37, DefaultPreemption (spec 3.18.3, 3.18.4).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scheduler.api.core import Pod
from scheduler.dra.claims import parse_time
from scheduler.framework.dryrun import Candidate
from scheduler.state.podinfo import PodInfo

_PRIORITY_SHIFT = 2**31
"""Makes every priority positive, so that more victims never add up to less."""


def started_s(pod: Pod, now: float) -> float:
    """When the Pod started, in seconds; ``now`` for one that has not yet."""
    text = pod.status.startTime
    parsed = parse_time(text) if text else None
    return now if parsed is None else parsed


def importance(now: float) -> Callable[[PodInfo], tuple[float, float, bool]]:
    """Sort key: the higher priority first, then who runs for longer; of equal Pods those last that go anyway."""
    return lambda info: (
        -info.pod.priority,
        started_s(info.pod, now),
        info.pod.metadata.deletionTimestamp is not None,
    )


def best(candidates: Sequence[Candidate], now: float) -> Candidate:
    """The candidate that does the least harm; of equal ones the first.

    Each rule decides among those the rules before it left: fewest violated budgets, lowest priority of the highest
    victim, smallest sum of priorities, fewest victims, latest start of the first-started among the highest victims.
    """
    return min(candidates, key=lambda candidate: harm(candidate, now))


def harm(candidate: Candidate, now: float) -> tuple[float, ...]:
    """What the rules compare, in their order; less is better."""
    victims = candidate.victims
    highest = max(victim.priority for victim in victims)
    earliest = min(started_s(victim, now) for victim in victims if victim.priority == highest)
    return (
        candidate.violations,
        victims[0].priority,
        sum(victim.priority + _PRIORITY_SHIFT for victim in victims),
        len(victims),
        -earliest,
    )
