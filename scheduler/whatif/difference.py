"""What became of every Pod with the edits and without them, and where the two differ."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from scheduler.api.core import Pod
from scheduler.explain.summary import Summaries
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status
from scheduler.whatif.changes import DELETED
from scheduler.whatif.simulation import Fate, Simulation
from scheduler.whatif.store import Store

PLACED, WAITS, HELD, UNSERVED, GONE = "placed", "waits", "held back", "not served", "gone"
ADDED, REMOVED, UNCHANGED = "added", "removed", "unchanged"
NEWLY_PLACED, NO_LONGER_PLACED, MOVED, OTHER_DEVICES, OTHER_REASON = (
    "placed now",
    "not placed any more",
    "another node",
    "other devices",
    "another reason",
)
_WAITING = (WAITS, HELD)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One Pod at the end. ``state``: placed, waits, held back, not served (its scheduler is none of ours), gone.

    ``devices``: claim → ``driver/pool/device`` in order of allocation. ``reason``: the condition's message, ``summary``
    what the event says of devices behind it. ``why``: how the node won. ``preempts``: Pods that would have to go for it
    (with ``until_stable`` they have gone). ``scheduler``: of a Pod that is not served, whom it waits for.
    """

    state: str
    node: str = ""
    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reason: str = ""
    summary: str = ""
    why: str = ""
    preempts: tuple[str, ...] = ()
    nominated: str = ""
    scheduler: str = ""


@dataclass(frozen=True, slots=True)
class PodChange:
    """``before`` or ``after`` is None for a Pod that is not there then. ``cause``: the edit or Pod that made it go, or
    whose place it takes. ``replacement``: the Pod that its controller makes instead.
    """

    pod: str
    change: str
    before: Outcome | None
    after: Outcome | None
    cause: str = ""
    replacement: str = ""


@dataclass(frozen=True, slots=True)
class Totals:
    """Pods of the profiles' schedulers at the end."""

    placed: int
    waiting: int


@dataclass(slots=True)
class Difference:
    """The answer. ``assumptions``: what was taken for granted; ``caveats``: what the input cannot tell."""

    edits: list[str]
    before: Totals
    after: Totals
    changes: list[PodChange]
    unchanged: int
    attempts: int
    stable: bool
    until_stable: bool
    assumptions: list[str] = field(default_factory=list)
    caveats: list[str] = field(default_factory=list)

    @property
    def troubled(self) -> bool:
        """True when an added Pod has no node, or a Pod that would have had one has none; not for Pods that an edit
        deletes by name, those that come again, and those that another scheduler has to find a new place for.
        """
        return not self.stable or any(map(_bad, self.changes))


def _bad(change: PodChange) -> bool:
    if change.change == REMOVED:
        return bool(change.cause) and change.cause != DELETED and not change.replacement
    if change.after is None or change.after.state == PLACED or change.change not in (ADDED, NO_LONGER_PLACED):
        return False
    # A Pod that comes with an edit was meant to be placed, whoever it names; one that had to go is its scheduler's.
    return change.after.state != UNSERVED or (change.change == ADDED and not change.cause)


def present(
    pods: Iterable[Pod], devices: Callable[[Pod], dict[str, tuple[str, ...]]], served: Collection[str]
) -> dict[str, Outcome]:
    """What is the case now, by ``namespace/name``: Pods that wait say what they were told last.

    ``served``: the profiles' schedulers.
    """
    found = {}
    for pod in pods:
        if pod.spec.nodeName:
            found[pod.key] = Outcome(PLACED, pod.spec.nodeName, devices(pod))
            continue
        if pod.spec.schedulerName not in served:
            found[pod.key] = _unserved(pod)
            continue
        told = next((entry.message for entry in pod.status.conditions if entry.type == "PodScheduled"), "")
        found[pod.key] = Outcome(WAITS, reason=told or "it was not tried yet")
    return found


def outcomes(
    simulation: Simulation, why_gated: Callable[[Pod], Status | None], profiles: Mapping[str, Profile]
) -> dict[str, Outcome]:
    """What became of every Pod that has not ended, by ``namespace/name``. Cost: O(Pods), and a few bounded searches
    per kind of Pods that wait with claims.
    """
    summaries = Summaries()
    found = {}
    for pod in simulation.world.store.pods():
        found[pod.key] = _outcome(simulation, pod, why_gated, profiles, summaries)
    return found


def _outcome(
    simulation: Simulation,
    pod: Pod,
    why_gated: Callable[[Pod], Status | None],
    profiles: Mapping[str, Profile],
    summaries: Summaries,
) -> Outcome:
    fate = simulation.fates.get(pod.uid, Fate())
    if pod.spec.nodeName:
        return Outcome(PLACED, pod.spec.nodeName, devices_of(simulation.world.store, pod), why=fate.why)
    profile = profiles.get(pod.spec.schedulerName)
    if profile is None:
        return _unserved(pod)
    gate = simulation.held_back(pod, why_gated)
    if gate and not fate.message:
        return Outcome(HELD, reason=gate)
    world = simulation.world
    summary = summaries.summary(profile, pod, world.state, world.store.now) if fate.reason == "Unschedulable" else ""
    return Outcome(
        WAITS,
        reason=fate.message or "it was not tried",
        summary=summary,
        preempts=fate.preempts,
        nominated=fate.nominated,
    )


def _unserved(pod: Pod) -> Outcome:
    name = pod.spec.schedulerName
    return Outcome(UNSERVED, reason=f"it waits for scheduler {name}, which has no profile here", scheduler=name)


def devices_of(store: Store, pod: Pod) -> dict[str, tuple[str, ...]]:
    """Claim → its devices, for claims that have any."""
    given = {}
    for claim in store.claims_of(pod):
        if claim.status.allocation is not None:
            given[claim.metadata.name] = tuple(
                f"{result.driver}/{result.pool}/{result.device}" for result in claim.status.allocation.devices.results
            )
    return given


def totals(found: Mapping[str, Outcome]) -> Totals:
    """How many have a node, and how many wait for one."""
    states = [outcome.state for outcome in found.values()]
    return Totals(states.count(PLACED), sum(states.count(state) for state in _WAITING))


def compare(
    before: Mapping[str, Outcome],
    after: Mapping[str, Outcome],
    causes: Mapping[str, str],
    replaced: Mapping[str, str],
) -> tuple[list[PodChange], int]:
    """The changes in order of name, those that matter most first; and how many Pods are as they would have been.

    ``causes``: key of a Pod that had to go → why. ``replaced``: key of a Pod → the Pod whose place it takes.
    """
    changes = list(_changes(before, after, causes, replaced))
    order = (NO_LONGER_PLACED, REMOVED, ADDED, NEWLY_PLACED, MOVED, OTHER_DEVICES, OTHER_REASON)
    changes.sort(key=lambda change: (order.index(change.change), _numbered(change.pod)))
    return changes, len(after) - sum(change.after is not None for change in changes)


def _numbered(key: str) -> tuple[object, ...]:
    """``pod-10`` after ``pod-9``."""
    stem = key.rstrip("0123456789")
    return stem, int(key[len(stem) :] or 0)


def _changes(
    before: Mapping[str, Outcome],
    after: Mapping[str, Outcome],
    causes: Mapping[str, str],
    replaced: Mapping[str, str],
) -> Iterator[PodChange]:
    heirs = {old: new for new, old in replaced.items()}
    for key, then in before.items():
        now = after.get(key)
        if now is None:
            yield PodChange(key, REMOVED, then, None, causes.get(key, ""), heirs.get(key, ""))
            continue
        change = _change(then, now)
        if change != UNCHANGED:
            yield PodChange(key, change, then, now, causes.get(key, ""))
    for key, now in after.items():
        if key not in before:
            yield PodChange(key, ADDED, None, now, f"in place of pod {replaced[key]}" if key in replaced else "")


def _change(then: Outcome, now: Outcome) -> str:
    if then.state != PLACED:
        if now.state == PLACED:
            return NEWLY_PLACED
        return UNCHANGED if _told(then) == _told(now) else OTHER_REASON
    if now.state != PLACED:
        return NO_LONGER_PLACED
    if then.node != now.node:
        return MOVED
    return UNCHANGED if dict(then.devices) == dict(now.devices) else OTHER_DEVICES


def _told(outcome: Outcome) -> tuple[object, ...]:
    return outcome.state, outcome.reason, outcome.summary, outcome.preempts
