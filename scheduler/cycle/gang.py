"""One attempt for a whole PodGroup: members are decided one after another, each on what the ones before it left.

    attempt = GroupAttempt(profile, group, pods, state, now=..., rotation=...)
    while isinstance(outcome := attempt.step(budget), Running | Need): ...

What a member was given is counted and reserved at once. When the group as a whole does not fit, all of it is taken back
and the state is what it was. Nothing is written here, and no other Pod is decided meanwhile.
Source: kube-scheduler 1.37, the PodGroup scheduling cycle (spec 3.19).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace

from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Failed, Need, Placed, Running
from scheduler.errors import PluginError
from scheduler.framework.profile import Profile
from scheduler.framework.runner import call, run_reserve
from scheduler.framework.status import Status
from scheduler.state.cluster import ClusterState

UNSCHEDULABLE_GROUP = "pod group is unschedulable"
PREEMPTION = "DefaultPreemption"


@dataclass(frozen=True, slots=True)
class Member:
    """What became of one Pod. ``decision`` None: it was not its turn any more, or it is gone. ``refusal``: a Reserve
    plugin's no to the node that was chosen.
    """

    pod: Pod
    decision: Decision | None = None
    refusal: Status | None = None

    @property
    def placed(self) -> Placed | None:
        """The node that is kept for the Pod."""
        return self.decision if isinstance(self.decision, Placed) and self.refusal is None else None


@dataclass(frozen=True, slots=True)
class GroupDecision:
    """All members in order. ``text`` says why the group has no place, "" when it has: then its placed members are
    assumed and reserved. ``error``: something broke, which is no verdict.
    """

    members: tuple[Member, ...]
    text: str = ""
    error: bool = False


GroupSteps = Generator[Running | Need, str | None, GroupDecision]


def shortage(min_count: int, scheduled: int, remaining: int) -> tuple[str, bool]:
    """What ``min_count`` lacks when ``scheduled`` members have a node and ``remaining`` are still to be tried, "" when
    nothing; and whether it is lacking for good.
    """
    counts = f"{scheduled} scheduled, {remaining} remaining"
    if scheduled + remaining < min_count:
        return f"minCount ({min_count}) cannot be satisfied: {counts}", True
    return (f"minCount ({min_count}) is not yet satisfied: {counts}" if scheduled < min_count else ""), False


def gang_profile(profile: Profile) -> Profile:
    """``profile`` for members of a gang: without preemption, which one member alone must not cause."""
    return replace(profile, post_filter=tuple(plugin for plugin in profile.post_filter if plugin.name != PREEMPTION))


class GroupAttempt:
    """Decides ``pods``, the waiting members in order, on one state; steps like an Attempt.

    A group without the gang policy keeps whatever fits. ``profile`` is ``gang_profile``'s for a gang. ``pod`` is the
    member that is being decided: whatever is needed of the edge is needed for it.
    """

    def __init__(
        self,
        profile: Profile,
        group: PodGroup,
        pods: Sequence[Pod],
        state: ClusterState,
        *,
        now: float,
        rotation: Rotation,
    ) -> None:
        self.profile, self.group, self.pods, self.state = profile, group, tuple(pods), state
        self.now, self.rotation = now, rotation
        self.pod = self.pods[0]
        self._budget = self._left = 0
        self._answer: str | None = None
        self._suspended = False
        self._members: list[Member] = []
        self._nominations: dict[str, str] = {}
        self._steps = self._run()

    def step(self, budget: int) -> Running | Need | GroupDecision:
        """Go on for about ``budget`` units of work. Whatever it raises, everything has been given back before."""
        self._budget = self._left = budget
        answer, self._answer = self._answer, None
        try:
            return self._steps.send(answer) if self._suspended else next(self._steps)
        except StopIteration as stop:
            decision: GroupDecision = stop.value
            return decision
        except BaseException:
            self.abandon()
            raise
        finally:
            self._suspended = True

    def answer(self, failure: str | None) -> None:
        """The edge's answer to a Need: None when it was done, else why not."""
        self._answer = failure

    def abandon(self) -> None:
        """Take back everything given so far. Harmless after the end of an attempt that failed."""
        self._take_back()
        self.state.pod_groups.end()

    def scheduled(self) -> int:
        """Members with a node, those of earlier cycles included."""
        members = self.state.pod_groups.members(self.group.metadata.key)
        return sum(pod.uid in self.state.placements for pod in members)

    def _run(self) -> GroupSteps:
        self.state.pod_groups.begin(self.group.metadata.key)
        text, final = shortage(self.group.min_count, self.scheduled(), len(self.pods))
        error = False
        for number, pod in enumerate(self.pods, start=1):
            if final:
                break
            member = yield from self._decide(pod)
            self._members.append(member)
            if isinstance(member.decision, Failed):
                text, error = f"failed to schedule other pod from a pod group: {member.decision.text}", True
                break
            text, final = shortage(self.group.min_count, self.scheduled(), len(self.pods) - number)
            self._left -= len(self.state.nodes) + 1
            if self._left <= 0 and not final:
                yield Running()
        if not text:
            text = self._drop_gone()
        if text:
            self._take_back()
        self.state.pod_groups.end()
        untried = (Member(pod) for pod in self.pods[len(self._members) :])
        return GroupDecision((*self._members, *untried), text, error)

    def _decide(self, pod: Pod) -> Generator[Running | Need, str | None, Member]:
        self.pod = pod
        attempt = Attempt(self.profile, pod, self.state, now=self.now, rotation=self.rotation)
        while True:
            outcome = attempt.step(self._budget)
            if not isinstance(outcome, Running | Need):
                break
            attempt.answer((yield outcome))
        if not isinstance(outcome, Placed):
            return Member(pod, outcome)
        newest = self.state.pods.get(pod.uid)
        if newest is None or newest.spec.nodeName:
            return Member(pod)
        return self._hold(outcome)

    def _hold(self, placed: Placed) -> Member:
        """Count the decision; no one else may take what it stands on."""
        self._nominations[placed.pod.uid] = self.state.nominator.node_of(placed.pod.uid)
        self.state.assume(placed.pod, placed.node)
        try:
            refusal = run_reserve(placed.profile, placed.cycle, placed.node)
        except PluginError as error:
            self._release(placed)
            return Member(placed.pod, Failed(placed.pod, placed.profile, str(error), error.plugin))
        if refusal is not None:
            self._release(placed)
        return Member(placed.pod, placed, refusal)

    def _drop_gone(self) -> str:
        """Members deleted or placed by others while the rest was decided do not count; what is lacking then."""
        for index, member in enumerate(self._members):
            placed = member.placed
            if placed is None:
                continue
            placement, newest = self.state.placements.get(placed.pod.uid), self.state.pods.get(placed.pod.uid)
            gone = newest is None or newest.metadata.deletionTimestamp is not None
            if gone or placement is None or not placement.assumed:
                self._release(placed)
                self._members[index] = Member(placed.pod)
        return shortage(self.group.min_count, self.scheduled(), 0)[0]

    def _take_back(self) -> None:
        for member in reversed(self._members):
            if member.placed is not None:
                self._release(member.placed)

    def _release(self, placed: Placed) -> None:
        """Undo in memory, in reverse; nothing was written yet, so there is nothing else to undo."""
        unreserve(placed)
        self.state.forget(placed.pod)
        node = self._nominations.pop(placed.pod.uid, "")
        if node:
            self.state.nominate(placed.pod, node)


def unreserve(placed: Placed) -> None:
    """Let every Reserve plugin give back what it took; one that breaks does not keep the others from it."""
    for plugin in reversed(placed.profile.reserve):
        method = getattr(plugin, "unreserve", None)
        if method is not None:
            try:
                call(plugin, "Unreserve", method, placed.cycle, placed.node)
            except PluginError:
                continue
