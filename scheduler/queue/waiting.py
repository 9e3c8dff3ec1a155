"""Pods that wait for an event, found by the plugin that rejected them and by what they wait for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from scheduler.api.core import Pod
from scheduler.framework.events import ClusterEvent, Registration, Resource
from scheduler.queue.hints import HintBook
from scheduler.queue.pod import QueuedPod

_Bucket = dict[str, QueuedPod]
_Files = list[tuple[dict[Any, _Bucket], Any]]  # (index, name in it) of every bucket a Pod is in
_NOBODY = ""  # stands for "rejected by no plugin", which wakes on every event


class WaitingPods:
    """Rejected and gated Pods. An event costs the Pods whose plugin asked for it, or who share a key with it.

    A gated Pod is filed under its gating plugin alone (only that plugin's events may release it), another under every
    plugin that rejected it. A Pod's files do not change while it is in; take it out and put it in to refile.
    """

    def __init__(self, book: HintBook) -> None:
        self._book = book
        self._pods: _Bucket = {}
        self._gated = 0
        self._by_plugin: dict[tuple[str, str], _Bucket] = {}
        self._by_key: dict[tuple[str, str, int, str], _Bucket] = {}
        self._unkeyed: dict[tuple[str, str, int], _Bucket] = {}  # their key function raised: always asked
        self._files: dict[str, _Files] = {}

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def __iter__(self) -> Iterator[QueuedPod]:
        return iter(self._pods.values())

    @property
    def gated_count(self) -> int:
        """How many of the Pods are gated."""
        return self._gated

    def get(self, uid: str) -> QueuedPod | None:
        """The waiting Pod under ``uid``."""
        return self._pods.get(uid)

    def add(self, queued: QueuedPod) -> None:
        """File ``queued`` under its plugins; O(plugins + keys)."""
        uid = queued.uid
        self._pods[uid] = queued
        self._gated += queued.gated
        files: _Files = []
        for plugin in _filed_under(queued):
            self._file(files, self._by_plugin, (queued.scheduler_name, plugin), queued)
            for number, registration in enumerate(self._book.registrations(queued.scheduler_name, plugin)):
                if keyed(registration):
                    self._file_by_key(files, (queued.scheduler_name, plugin, number), registration, queued)
        self._files[uid] = files

    def remove(self, uid: str) -> QueuedPod | None:
        """Take a Pod out of all its files. Call it before changing the Pod's plugins. None when not here."""
        queued = self._pods.pop(uid, None)
        if queued is None:
            return None
        self._gated -= queued.gated
        for index, name in self._files.pop(uid):
            bucket = index[name]
            bucket.pop(uid, None)
            if not bucket:
                del index[name]
        return queued

    def candidates(self, event: ClusterEvent) -> list[QueuedPod]:
        """The Pods that may want to hear of ``event``; each once. Whether they do is HintBook.strategy's answer."""
        if event.wildcard or event.resource is Resource.TARGET_POD:
            if not isinstance(event.new, Pod):
                return list(self._pods.values())
            target = self._pods.get(event.new.uid)
            return [] if target is None else [target]
        found: _Bucket = {}
        for interest in self._book.interests(event):
            file = (interest.scheduler_name, interest.plugin)
            for bucket in self._buckets(file, interest.number, interest.registration, event):
                found.update(bucket)
        for (scheduler_name, plugin), bucket in self._by_plugin.items():
            if plugin == _NOBODY or not self._book.registered(scheduler_name, plugin):
                found.update(bucket)
        return list(found.values())

    def check(self) -> Iterator[str]:
        """Problems of the indexes against the Pods; empty when all is well. O(n), for tests."""
        if self._gated != sum(queued.gated for queued in self._pods.values()):
            yield f"gated count {self._gated} is wrong"
        if self._files.keys() != self._pods.keys():
            yield "files and Pods differ"
        entries = sum(map(len, [*self._by_plugin.values(), *self._by_key.values(), *self._unkeyed.values()]))
        if entries != sum(map(len, self._files.values())):
            yield f"{entries} index entries do not match the files"
        for uid, queued in self._pods.items():
            for plugin in _filed_under(queued):
                if uid not in self._by_plugin.get((queued.scheduler_name, plugin), {}):
                    yield f"{queued.key} is not filed under {plugin!r}"

    def _buckets(
        self, file: tuple[str, str], number: int, registration: Registration, event: ClusterEvent
    ) -> Iterable[_Bucket]:
        keys: Iterable[str] | None = None
        if keyed(registration) and registration.event_keys is not None:
            try:
                keys = registration.event_keys(event.old, event.new)
            except Exception:  # a user plugin may raise anything; asking everybody is slow but never misses a Pod
                keys = None
        if keys is None:
            return [self._by_plugin.get(file, {})]
        buckets = [self._by_key.get((*file, number, key), {}) for key in keys]
        return [*buckets, self._unkeyed.get((*file, number), {})]

    def _file_by_key(
        self, files: _Files, place: tuple[str, str, int], registration: Registration, queued: QueuedPod
    ) -> None:
        assert registration.pod_keys is not None
        try:
            keys = dict.fromkeys(registration.pod_keys(queued.pod))
        except Exception:  # as above: such a Pod is asked about every event of this registration
            self._file(files, self._unkeyed, place, queued)
            return
        for key in keys:
            self._file(files, self._by_key, (*place, key), queued)

    @staticmethod
    def _file(files: _Files, index: dict[Any, _Bucket], name: Any, queued: QueuedPod) -> None:
        index.setdefault(name, {})[queued.uid] = queued
        files.append((index, name))


def keyed(registration: Registration) -> bool:
    """True when the registration's Pods are to be found by key."""
    return registration.pod_keys is not None and registration.event_keys is not None


def _filed_under(queued: QueuedPod) -> Sequence[str]:
    """The plugins whose events a Pod listens to."""
    if queued.gated:
        return (queued.gating_plugin,)
    return sorted(queued.rejecting_plugins) or (_NOBODY,)
