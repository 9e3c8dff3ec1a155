"""Hints: single changes after which a waiting Pod would fit. Each is tried in a simulation before it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator

from scheduler.api.core import Pod
from scheduler.api.kinds import NODE, POD, RESOURCE_CLAIM, RESOURCE_SLICE
from scheduler.errors import SchedulerError
from scheduler.explain.candidate import Candidate
from scheduler.explain.candidates import candidates
from scheduler.explain.facts import Explanation, Hint
from scheduler.explain.groups import node_steps
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call
from scheduler.framework.status import Code
from scheduler.state.cluster import ClusterState
from scheduler.state.trial import Trial

TRIES_MAX = 60
HINTS_MAX = 12
OF_A_KIND_MAX = 4
"""Hints of one kind: of sixteen claims whose end would do, some are told, and then what else would do."""


def find_hints(
    profile: Profile,
    pod: Pod,
    state: ClusterState,
    now: float,
    found: Explanation,
    may_go_on: Callable[[], bool] = lambda: True,
) -> bool:
    """``hint_steps`` in one go, or until ``may_go_on``, asked before each step, says no; then False."""
    steps = hint_steps(profile, pod, state, now, found)
    while may_go_on():
        try:
            next(steps)
        except StopIteration as stop:
            return bool(stop.value)
    steps.close()
    return False


def hint_steps(
    profile: Profile, pod: Pod, state: ClusterState, now: float, found: Explanation
) -> Generator[None, None, bool]:
    """Fill ``found.hints`` one by one, in slices of some milliseconds; False when more could be tried.

    ``state`` must be one's own: each change is made in it, one attempt decides, and the change is taken back, also when
    the generator is closed. Cost: one attempt per try, ``TRIES_MAX`` at most.
    """
    done: set[tuple[str, str]] = set()
    kinds: Counter[str] = Counter()
    tries = 0
    for candidate in candidates(pod, state, found):
        if candidate.family in done or kinds[candidate.change] >= OF_A_KIND_MAX:
            continue
        if tries >= TRIES_MAX or len(found.hints) >= HINTS_MAX:
            return False
        tries += 1
        yield
        node = yield from _placed_with(profile, pod, state, now, candidate)
        if node and (not candidate.only_node or node == candidate.only_node):
            done.add(candidate.family)
            kinds[candidate.change] += 1
            found.hints.append(Hint(candidate.change, candidate.subject, node, candidate.text))
    return True


def _placed_with(
    profile: Profile, pod: Pod, state: ClusterState, now: float, candidate: Candidate
) -> Generator[None, None, str]:
    """The node that the Pod would get after the change, "" for none. The state is as before afterwards."""
    gates = profile.pre_enqueue
    with Trial(state) as trial:
        changed = _apply(trial, pod, state, candidate)
        try:
            if any(call(gate, "PreEnqueue", gate.pre_enqueue, changed).code is not Code.SUCCESS for gate in gates):
                return ""
            return (yield from node_steps(profile, changed, state, now))
        except SchedulerError:
            return ""


def _apply(trial: Trial, pod: Pod, state: ClusterState, candidate: Candidate) -> Pod:
    for claim, replacement in candidate.claims:
        trial.put(RESOURCE_CLAIM, claim, replacement)
    for gone in _gone_pods(state, candidate):
        trial.remove(POD, gone)
    for node, changed in candidate.replaced:
        trial.put(NODE, node, changed)
    for node in candidate.nodes:
        trial.put(NODE, None, node)
    for given in candidate.slices:
        trial.put(RESOURCE_SLICE, None, given)
    if candidate.pod is None:
        return pod
    trial.put(POD, pod, candidate.pod)
    return candidate.pod


def _gone_pods(state: ClusterState, candidate: Candidate) -> Iterator[Pod]:
    for uid in candidate.gone:
        gone = state.pods.get(uid)
        if gone is not None:
            yield gone
