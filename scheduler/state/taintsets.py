"""Taint sets: nodes with equal taints share one number, so a toleration is checked once per set."""

from __future__ import annotations

from collections.abc import Sequence

from scheduler.api.taints import Taint

NO_TAINTS = 0


class TaintSets:
    """Interned taint lists. ``sets[id]`` is the list in the node's order, without timeAdded; id 0 is the empty one.

    Sets are counted; the number of one nobody has any more is used again, so ids hold only until the next change
    of a node.
    """

    __slots__ = ("_counts", "_free", "_ids", "sets")

    def __init__(self) -> None:
        self.sets: list[tuple[Taint, ...]] = [()]
        self._ids: dict[tuple[Taint, ...], int] = {(): NO_TAINTS}
        self._counts: list[int] = [0]
        self._free: list[int] = []

    def take(self, taints: Sequence[Taint]) -> int:
        """The id for ``taints``, counted once more."""
        key = tuple(Taint(taint.key, taint.value, taint.effect) for taint in taints)
        set_id = self._ids.get(key)
        if set_id is None:
            if self._free:
                set_id = self._free.pop()
                self.sets[set_id] = key
            else:
                set_id = len(self.sets)
                self.sets.append(key)
                self._counts.append(0)
            self._ids[key] = set_id
        self._counts[set_id] += 1
        return set_id

    def give_back(self, set_id: int) -> None:
        """One holder less."""
        self._counts[set_id] -= 1
        if self._counts[set_id] == 0 and set_id != NO_TAINTS:
            del self._ids[self.sets[set_id]]
            self.sets[set_id] = ()
            self._free.append(set_id)

    def counts(self) -> dict[tuple[Taint, ...], int]:
        """Holders per non-empty set."""
        return {taints: self._counts[i] for taints, i in self._ids.items() if taints}
