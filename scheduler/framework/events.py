"""Which waiting Pods ask to hear of which cluster events.

Source: kube-scheduler 1.37, framework/events and the queueing hints (spec 4.7 to 4.9). The events themselves are the
state's: it knows what changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from scheduler.api.core import Pod
from scheduler.state.events import Action, ClusterEvent, Resource

__all__ = ["Action", "ClusterEvent", "HintFunction", "Registration", "Resource", "any_registration_matches"]

HintFunction = Callable[[Pod, Any, Any], bool]
"""(waiting Pod, old object, new object) → True when the event may make the Pod fit.

Raising counts as True (kube-scheduler queues on a hint error) and is logged by the caller.
"""


@dataclass(frozen=True, slots=True)
class Registration:
    """A plugin's interest: events on ``resource`` with any action in ``actions``; no hint means always queue.

    ``pod_keys`` and ``event_keys``, given together, let the queue look up the few Pods worth a hint instead of asking
    for all: ``pod_keys(waiting Pod)`` are texts the Pod waits for (claim keys, say), ``event_keys(old, new)`` those an
    event speaks of, None for "ask everybody". Only Pods sharing a key are asked; the hint remains the judge, so it
    must answer False for every Pod that shares none. Both are pure and depend on the Pod object alone.
    """

    resource: Resource
    actions: Action
    hint: HintFunction | None = None
    pod_keys: Callable[[Pod], Iterable[str]] | None = None
    event_keys: Callable[[Any, Any], Iterable[str] | None] | None = None

    def matches(self, event: ClusterEvent) -> bool:
        """True when ``event`` is one this registration asked for (spec 4.7, event match)."""
        if event.wildcard:
            return True
        same = self.resource is event.resource or self.resource is Resource.ANY
        if self.resource is Resource.POD:
            same = event.resource in (Resource.ASSIGNED_POD, Resource.TARGET_POD, Resource.UNSCHEDULED_POD)
        return same and (event.action & self.actions) == event.action


def any_registration_matches(registrations: Sequence[Registration], event: ClusterEvent) -> bool:
    """True when at least one of ``registrations`` asked for ``event``."""
    return any(registration.matches(event) for registration in registrations)
