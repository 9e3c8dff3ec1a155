"""Judges a recorded history, fact by fact in the order of revisions, by what dra-scheduler promises.

- At every revision at most one of *our* allocations holds an exclusive device, and ours alone never exceed a device's
  capacity or a pool's counters.
- Whoever else writes: none of our Pods is bound while a claim of its holds what an earlier allocation holds.
- A Pod is bound after all its claims were allocated and reserved for it, and keeps them until it ends.
- At the end, when all is quiet: no Pod of ours waits without a word or vanished, nothing stays reserved or allocated
  for nobody.
What others do to each other is counted, and no violation. "Ours" is an allocation whose field manager is ours, and a
Pod that names one of our profiles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

import msgspec

from e2e.history import ClaimFact, DeviceName, Fact, PodFact, Published, SliceFact, Taken

MANAGER = "dra-scheduler"
PROFILES = frozenset({"dra-scheduler"})

HELD_TWICE = "a device in two allocations of ours"
CAPACITY = "capacity exceeded by ours"
COUNTERS = "counters exceeded by ours"
LATER = "bound with what an earlier allocation holds"
UNRESERVED = "bound before allocation and reservation"
TAKEN_AWAY = "a bound Pod lost its claim"
SILENT = "a Pod waits without a word"
VANISHED = "a Pod vanished"
RESERVATION = "a reservation for nobody"
ALLOCATION = "an allocation for nobody"


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: which, at which revision (0: at the end), and the objects in words."""

    rule: str
    revision: int
    text: str


class HistoryOrderError(Exception):
    """Facts did not come in the order of revisions: the history cannot be judged."""


class Checker:
    """Takes facts one by one; ``violations`` grows. Memory: the present state only.

    ``stats`` counts what a history must contain to prove anything: Bindings and allocations by whom, pairs.
    """

    def __init__(self, manager: str = MANAGER, profiles: Collection[str] = PROFILES) -> None:
        self._manager, self._profiles = manager, profiles
        self.violations: list[Violation] = []
        self.stats: Counter[str] = Counter()
        self.claims: dict[str, ClaimFact] = {}
        self.pods: dict[str, PodFact] = {}
        self.vanished: list[PodFact] = []
        self._slices: dict[str, SliceFact] = {}
        self._uids: dict[str, str] = {}
        self._allocated_at: dict[str, int] = {}
        self._holders: dict[DeviceName, set[str]] = {}
        self._in_pool: dict[tuple[str, str], set[DeviceName]] = {}
        self._revision = 0

    def see(self, fact: Fact) -> None:
        """Take the next fact; equal revisions may come from one LIST. Raises HistoryOrderError."""
        if fact.revision < self._revision:
            raise HistoryOrderError(f"revision {fact.revision} after {self._revision}")
        self._revision = fact.revision
        if isinstance(fact, ClaimFact):
            self._see_claim(fact)
        elif isinstance(fact, PodFact):
            self._see_pod(fact)
        elif fact.gone:
            self._slices.pop(fact.name, None)
        else:
            self._slices[fact.name] = fact

    def _report(self, rule: str, text: str, revision: int | None = None) -> None:
        self.violations.append(Violation(rule, self._revision if revision is None else revision, text))

    # claims

    def _see_claim(self, fact: ClaimFact) -> None:
        old = self.claims.get(fact.uid)
        before = old.results if old is not None else ()
        if before != fact.results or (old is not None and old.allocated) != fact.allocated:
            self._hold(fact.uid, before, fact.results)
            self._allocated_at.pop(fact.uid, None)
            if fact.allocated:
                self._allocated_at[fact.uid] = 0 if fact.listed else fact.revision
                self.stats[f"allocated by {fact.writer or 'unknown'}"] += 1
        self._taken_away(old, fact)
        if fact.gone:
            self.claims.pop(fact.uid, None)
            if self._uids.get(fact.key) == fact.uid:
                del self._uids[fact.key]
            return
        self.claims[fact.uid] = fact
        self._uids[fact.key] = fact.uid
        if self._allocated_at.get(fact.uid) in (0, fact.revision) and (old is None or old.results != fact.results):
            if fact.writer == self._manager:
                for rule, text in self._conflicts(fact, self._ours):
                    self._report(rule, text)
            self._count_pairs(fact)

    def _hold(self, uid: str, before: Iterable[Taken], after: Iterable[Taken]) -> None:
        for taken in before:
            holders = self._holders.get(taken.name)
            if holders is not None:
                holders.discard(uid)
                if not holders:
                    del self._holders[taken.name]
                    self._in_pool[taken.driver, taken.pool].discard(taken.name)
        for taken in after:
            if not taken.admin:
                self._holders.setdefault(taken.name, set()).add(uid)
                self._in_pool.setdefault((taken.driver, taken.pool), set()).add(taken.name)

    def _ours(self, uid: str) -> bool:
        return self.claims[uid].writer == self._manager

    def _count_pairs(self, fact: ClaimFact) -> None:
        """Devices that another writer's allocation holds too: the races that give a run its worth."""
        for taken in fact.results:
            others = [self.claims[uid] for uid in self._holders.get(taken.name, ()) if uid != fact.uid]
            for other in others:
                if not (taken.share_id and all(t.share_id for t in other.results if t.name == taken.name)):
                    self.stats[f"pair: {other.writer or 'unknown'} then {fact.writer or 'unknown'}"] += 1

    def _taken_away(self, old: ClaimFact | None, fact: ClaimFact) -> None:
        if old is None or not old.allocated:
            return
        for uid in old.reserved:
            pod = self.pods.get(uid)
            if pod is None or not pod.node or pod.finished or pod.scheduler not in self._profiles:
                continue
            if uid not in fact.reserved or fact.results != old.results:
                self._report(TAKEN_AWAY, f"pod {pod.key} on {pod.node}: claim {fact.key}")

    # what is too much

    def _conflicts(self, mine: ClaimFact, counts: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
        """What ``mine`` holds too much of, together with the claims for which ``counts`` answers True."""
        twice = Counter(taken.name for taken in mine.results if not taken.admin and not taken.share_id)
        for name, times in twice.items():
            if times > 1:
                yield HELD_TWICE, f"{'/'.join(name)}: {times} times in claim {mine.key}"
        for taken in mine.results:
            if taken.admin:
                continue
            others = [self.claims[u] for u in self._holders.get(taken.name, ()) if u != mine.uid and counts(u)]
            for other in sorted(others, key=lambda claim: claim.uid):
                shared = all(t.share_id for t in other.results if t.name == taken.name)
                if not (taken.share_id and shared):
                    yield HELD_TWICE, f"{'/'.join(taken.name)}: claims {other.key} and {mine.key}"
            if taken.share_id:
                yield from self._over_capacity(taken, [mine, *others])
        for driver, pool in sorted({(taken.driver, taken.pool) for taken in mine.results if not taken.admin}):
            yield from self._over_counters(driver, pool, mine, counts)

    def _over_capacity(self, taken: Taken, claims: Iterable[ClaimFact]) -> Iterator[tuple[str, str]]:
        published = self._published(taken.name)
        if published is None:
            return
        sums: Counter[str] = Counter()
        for claim in claims:
            for share in claim.results:
                if share.name == taken.name and not share.admin:
                    sums.update(share.consumed)
        for name, total in published.capacity.items():
            if taken.consumed.get(name) and sums[name] > total:
                yield CAPACITY, f"{'/'.join(taken.name)}: {name} {sums[name] / 1000:g} of {total / 1000:g}"

    def _over_counters(
        self, driver: str, pool: str, mine: ClaimFact, counts: Callable[[str], bool]
    ) -> Iterator[tuple[str, str]]:
        totals: dict[str, int] = {}
        for slice_ in self._newest(driver, pool):
            totals.update(slice_.counters)
        if not totals:
            return
        used: Counter[str] = Counter()
        of_mine: set[str] = set()
        for name in self._in_pool.get((driver, pool), ()):
            holders = {uid for uid in self._holders[name] if uid == mine.uid or counts(uid)}
            published = self._published(name)
            if not holders or published is None:
                continue
            used.update(published.consumes)
            if holders == {mine.uid}:  # a shared device is charged once, to whoever was there first
                of_mine |= published.consumes.keys()
        for counter in sorted(of_mine & totals.keys()):
            if used[counter] > totals[counter]:
                text = f"{driver}/{pool}: {counter} {used[counter] / 1000:g} of {totals[counter] / 1000:g}"
                yield COUNTERS, f"{text} with claim {mine.key}"

    def _newest(self, driver: str, pool: str) -> list[SliceFact]:
        slices = [s for s in self._slices.values() if (s.driver, s.pool) == (driver, pool)]
        newest = max((s.generation for s in slices), default=0)
        return [s for s in slices if s.generation == newest]

    def _published(self, name: DeviceName) -> Published | None:
        for slice_ in self._newest(name[0], name[1]):
            if name[2] in slice_.devices:
                return slice_.devices[name[2]]
        return None

    # Pods

    def _see_pod(self, fact: PodFact) -> None:
        old = self.pods.get(fact.uid)
        if fact.gone:
            if old is not None and self.pods.pop(fact.uid).scheduler in self._profiles:
                self.vanished.append(fact)
            return
        self.pods[fact.uid] = fact
        if fact.node and (old is None or not old.node):
            self.stats[f"bound by {fact.scheduler}"] += 1
            if fact.scheduler in self._profiles and not fact.listed:
                self._bound(fact)

    def _bound(self, pod: PodFact) -> None:
        if pod.unmade:
            self._report(UNRESERVED, f"pod {pod.key}: {pod.unmade} of its claims were not made yet")
        for name in pod.claims:
            key = f"{pod.namespace}/{name}"
            claim = self.claims.get(self._uids.get(key, ""))
            if claim is None or not claim.allocated or pod.uid not in claim.reserved:
                state = "gone" if claim is None else "not reserved" if claim.allocated else "not allocated"
                self._report(UNRESERVED, f"pod {pod.key}: claim {key} is {state}")
                continue
            for _, text in self._conflicts(claim, partial(self._earlier, self._allocated_at[claim.uid])):
                self._report(LATER, f"pod {pod.key}: {text}")

    def _earlier(self, position: int, uid: str) -> bool:
        return self._allocated_at[uid] < position

    # the end

    def finish(self, deleted: Collection[str] | None = None) -> list[Violation]:
        """All violations, those of the end included: to be called when the cluster is quiet.

        ``deleted``: uids of the Pods that the suite has deleted (a name may have had several); None: not judged.
        """
        for pod in self.pods.values():
            waits = pod.scheduler in self._profiles and not pod.node and not pod.finished and not pod.leaving
            if waits and not pod.told:
                self._report(SILENT, f"pod {pod.key}", 0)
        for pod in self.vanished:
            if deleted is not None and pod.uid not in deleted:
                self._report(VANISHED, f"pod {pod.key}, deleted by nobody", pod.revision)
        gone = {pod.uid for pod in self.vanished}
        for claim in self.claims.values():
            self._leaks(claim, gone)
        return self.violations

    def _leaks(self, claim: ClaimFact, gone: Collection[str]) -> None:
        """What a claim holds for nobody. ``gone``: uids of those Pods of ours that exist no more.

        In what somebody else allocated our Pods' reservations are judged, as we wrote them; the allocation is not ours.
        """
        if not claim.allocated:
            return
        ours = claim.writer in (self._manager, "")
        if ours and not claim.reserved:
            self._report(ALLOCATION, f"claim {claim.key} is allocated and reserved for nobody", 0)
        for uid in claim.reserved:
            pod = self.pods.get(uid)
            if not ours and uid not in gone and (pod is None or pod.scheduler not in self._profiles):
                continue
            if pod is None:
                self._report(RESERVATION, f"claim {claim.key}: the Pod {uid} does not exist", 0)
            elif pod.finished:
                self._report(RESERVATION, f"claim {claim.key}: pod {pod.key} has ended", 0)
            elif not pod.node and pod.scheduler in self._profiles:
                self._report(RESERVATION, f"claim {claim.key}: pod {pod.key} is not bound", 0)


def judge(facts: Iterable[Fact], deleted: Collection[str] | None = None) -> Checker:
    """A checker that has seen the whole history, sorted by revision, and its end."""
    checker = Checker()
    for fact in sorted(facts, key=lambda fact: fact.revision):
        checker.see(fact)
    checker.finish(deleted)
    return checker
