"""Which plugins asked for an event, and whether it is worth waking a Pod for it (spec 4.7)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from scheduler.api.core import Pod
from scheduler.framework.events import Action, ClusterEvent, Registration, Resource
from scheduler.queue.hooks import ProfileHooks, QueueObserver
from scheduler.queue.pod import QueuedPod


class Strategy(Enum):
    """What to do with a Pod that hears of an event."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


class Interest(NamedTuple):
    """One registration of one plugin of one profile. ``number`` is its place among the plugin's registrations."""

    scheduler_name: str
    plugin: str
    number: int
    registration: Registration


class HintBook:
    """All registrations of all profiles, looked up by event kind.

    The answer for each (resource, action) is computed once: there are a few dozen. Registrations do not change during
    the life of a book.
    """

    def __init__(self, hooks: Mapping[str, ProfileHooks], observer: QueueObserver) -> None:
        self._hooks = hooks
        self._observer = observer
        self._interests: dict[tuple[Resource, Action], tuple[Interest, ...]] = {}
        self._by_plugin: dict[tuple[str, str, Resource, Action], tuple[Registration, ...]] = {}

    def registered(self, scheduler_name: str, plugin: str) -> bool:
        """True when the plugin said which events it wants; otherwise it wants all."""
        return plugin in self._hooks[scheduler_name].registrations

    def registrations(self, scheduler_name: str, plugin: str) -> Sequence[Registration]:
        """The plugin's registrations, empty when it has none."""
        return self._hooks[scheduler_name].registrations.get(plugin, ())

    def interests(self, event: ClusterEvent) -> Sequence[Interest]:
        """Every registration that matches ``event``, profile by profile; empty when nobody asked for it."""
        kind = (event.resource, event.action)
        found = self._interests.get(kind)
        if found is None:
            found = self._interests[kind] = tuple(self._matching(event))
        return found

    def _matching(self, event: ClusterEvent) -> Iterator[Interest]:
        for scheduler_name, hooks in self._hooks.items():
            for plugin, registrations in hooks.registrations.items():
                for number, registration in enumerate(registrations):
                    if registration.matches(event):
                        yield Interest(scheduler_name, plugin, number, registration)

    def asked_for(self, scheduler_name: str, plugin: str, event: ClusterEvent) -> bool:
        """True when ``plugin`` wants to hear of ``event``, whatever its hint would say."""
        return not self.registered(scheduler_name, plugin) or bool(self._of(scheduler_name, plugin, event))

    def strategy(self, queued: QueuedPod, event: ClusterEvent) -> Strategy:
        """What ``event`` means for ``queued``.

        Pending plugins are asked first: one of them decides for IMMEDIATELY, and nothing can outdo that. A gated Pod
        listens only to what its gating plugin asked for.
        """
        if queued.gated and not event.wildcard and not self._gate_listens(queued, event):
            return Strategy.SKIP
        if event.wildcard or event.resource is Resource.TARGET_POD:
            if isinstance(event.new, Pod) and event.new.uid != queued.uid:
                return Strategy.SKIP
            if event.wildcard:
                return Strategy.AFTER_BACKOFF
        if not queued.unschedulable_plugins and not queued.pending_plugins:
            return Strategy.AFTER_BACKOFF
        if any(self._queues(queued, plugin, event) for plugin in sorted(queued.pending_plugins)):
            return Strategy.IMMEDIATELY
        others = sorted(queued.unschedulable_plugins - queued.pending_plugins)
        if any(self._queues(queued, plugin, event) for plugin in others):
            return Strategy.AFTER_BACKOFF
        return Strategy.SKIP

    def _gate_listens(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        return self.asked_for(queued.scheduler_name, queued.gating_plugin, event)

    def _of(self, scheduler_name: str, plugin: str, event: ClusterEvent) -> Sequence[Registration]:
        """The plugin's registrations that match ``event``."""
        kind = (scheduler_name, plugin, event.resource, event.action)
        found = self._by_plugin.get(kind)
        if found is None:
            mine = self.registrations(scheduler_name, plugin)
            found = self._by_plugin[kind] = tuple(item for item in mine if item.matches(event))
        return found

    def _queues(self, queued: QueuedPod, plugin: str, event: ClusterEvent) -> bool:
        """True when ``plugin`` thinks that ``event`` may make the Pod fit."""
        if not self.registered(queued.scheduler_name, plugin):
            return True
        return any(self._ask(queued, plugin, item, event) for item in self._of(queued.scheduler_name, plugin, event))

    def _ask(self, queued: QueuedPod, plugin: str, registration: Registration, event: ClusterEvent) -> bool:
        if registration.hint is None:
            return True
        began = self._observer.clock()
        try:
            answer = bool(registration.hint(queued.pod, event.old, event.new))
        except Exception as problem:  # a user plugin may raise anything; a missed wake-up would strand the Pod
            self._observer.hint_took(plugin, event, "Error", self._observer.clock() - began)
            self._observer.hint_failed(plugin, event, queued.pod, problem)
            return True
        self._observer.hint_took(plugin, event, "Queue" if answer else "QueueSkip", self._observer.clock() - began)
        self._observer.hint(plugin, event, answer)
        return answer
