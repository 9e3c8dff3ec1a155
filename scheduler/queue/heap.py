"""A heap of Pods from which any Pod can be taken."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from scheduler.queue.pod import QueuedPod


@dataclass(slots=True)
class _Entry:
    """``sequence`` breaks ties by order of arrival; ``queued`` None marks an entry that was taken out."""

    key: Any
    sequence: int
    queued: QueuedPod | None

    def __lt__(self, other: _Entry) -> bool:
        if self.key == other.key:
            return self.sequence < other.sequence
        return bool(self.key < other.key)


class PodHeap:
    """Smallest key first, equal keys in order of arrival. push, pop and remove cost O(log n) amortised.

    Removing only marks an entry; marked ones are dropped when they surface, and all at once when they outnumber the
    others.
    """

    __slots__ = ("_entries", "_heap", "_sequence")

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._entries: dict[str, _Entry] = {}
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: str) -> bool:
        return uid in self._entries

    def __iter__(self) -> Iterator[QueuedPod]:
        """The Pods in no particular order."""
        return (entry.queued for entry in self._entries.values() if entry.queued is not None)

    def push(self, queued: QueuedPod, key: Any) -> None:
        """Add ``queued``, which must not be in the heap."""
        self._sequence += 1
        self._insert(_Entry(key, self._sequence, queued))

    def rekey(self, uid: str, key: Any) -> None:
        """Give a Pod in the heap a new key; it keeps its turn among equals."""
        entry = self._entries[uid]
        if entry.key != key:
            replacement = _Entry(key, entry.sequence, entry.queued)
            self.remove(uid)
            self._insert(replacement)

    def remove(self, uid: str) -> QueuedPod | None:
        """Take a Pod out wherever it stands; None when it is not here."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return None
        queued, entry.queued = entry.queued, None
        if len(self._heap) > 2 * len(self._entries) + 64:
            self._heap = list(self._entries.values())
            heapq.heapify(self._heap)
        return queued

    def peek(self) -> QueuedPod | None:
        """The Pod that pop would return, None when empty."""
        while self._heap and self._heap[0].queued is None:
            heapq.heappop(self._heap)
        return self._heap[0].queued if self._heap else None

    def pop(self) -> QueuedPod | None:
        """Take out the Pod with the smallest key, None when empty."""
        queued = self.peek()
        if queued is not None:
            heapq.heappop(self._heap)
            del self._entries[queued.uid]
        return queued

    def key_of(self, uid: str) -> Any:
        """The key a Pod in the heap stands under."""
        return self._entries[uid].key

    def _insert(self, entry: _Entry) -> None:
        assert entry.queued is not None
        self._entries[entry.queued.uid] = entry
        heapq.heappush(self._heap, entry)
