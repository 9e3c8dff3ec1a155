"""What must hold between the queue's structures. Never here: repairing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from scheduler.queue.pod import Place, QueuedPod


def disagreements(
    pods: Mapping[str, QueuedPod], uid_by_key: Mapping[str, str], contents: Mapping[Place, Iterable[QueuedPod]]
) -> Iterator[str]:
    """Every Pod in ``pods`` (by uid) is in exactly one of ``contents``, the one it names, and nothing else is.

    Yields a sentence per violation. O(n).
    """
    homes: dict[str, list[Place]] = {}
    for place, found in contents.items():
        for queued in found:
            homes.setdefault(queued.uid, []).append(place)
            if pods.get(queued.uid) is not queued:
                yield f"{queued.key} is in {place} but not known"
    for uid, queued in pods.items():
        if homes.get(uid) != [queued.place]:
            yield f"{queued.key} claims to be in {queued.place}, is in {homes.get(uid)}"
        if queued.gated and queued.place is not Place.UNSCHEDULABLE:
            yield f"{queued.key} is gated by {queued.gating_plugin} but in {queued.place}"
        if queued.place is not Place.IN_FLIGHT and uid_by_key.get(queued.key) != uid:
            yield f"{queued.key} is not found by its name"
    for key, uid in uid_by_key.items():
        if uid not in pods:
            yield f"the name {key} leads nowhere"
