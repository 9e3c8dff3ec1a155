"""Recorder: writes down what every decision was made on, in the order in which it happened.

One recorder belongs to one loop. ``state`` makes the state that tells it of changes; its kinds of attempts tell of
decisions. What it hears goes to a ``Journal``, which begins with a snapshot and begins anew, with a new snapshot, when
its part is full or something was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.podgroups import PodGroup
from scheduler.audit.answers import answer_of, devices_answer, group_answer, instruction_answer
from scheduler.audit.operations import Operation, apply_operation, note_shown, pod_reference
from scheduler.audit.recorded import RecordedState
from scheduler.audit.snapshot import shown_by, snapshot
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Placed, Running
from scheduler.cycle.gang import GroupAttempt, GroupDecision
from scheduler.dra.features import Features
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import Instruction
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState
from scheduler.state.devices import Promise

Outcome = TypeVar("Outcome")

STEP_BUDGET = 1_000_000
"""A recorded attempt is not divided: how much work a kept answer saves is not in the journal, so where it would pause
is not either. Beyond this much work (seconds) it pauses all the same; if the cluster changes then, it cannot be
repeated.
"""


class Journal(Protocol):
    """Where operations go. No call blocks or raises."""

    def wants_snapshot(self) -> bool:
        """True when nothing is being recorded, or the current part is full: the next part has to begin."""

    def begin(self, position: int, operations: list[Operation]) -> None:
        """A new part: the snapshot at ``position``."""

    def put(self, position: int, operation: Operation) -> bool:
        """One more operation; False when it could not be kept: the part ends here."""

    def give_up(self, why: str) -> None:
        """The recorder itself has failed: the part ends here."""


class Recorder:
    """``run`` begins every decision's id. ``position``: operations so far; never decreases."""

    def __init__(self, journal: Journal, run: str) -> None:
        self._journal, self._run = journal, run
        self._state: RecordedState | None = None
        self._recording = False
        self._shown: dict[tuple[str, str], Any] = {}
        self._latest: dict[str, tuple[str, int]] = {}
        self.position = 0

    def state(self, features: Features) -> ClusterState:
        """The state that tells this recorder of its changes."""
        self._state = RecordedState(features, self.note, self.note_change)
        return self._state

    def attempts(self) -> Callable[..., Attempt]:
        """What makes the loop's attempts."""
        return partial(RecordedAttempt, self)

    def group_attempts(self) -> Callable[..., GroupAttempt]:
        """What makes the attempts of PodGroups."""
        return partial(RecordedGroupAttempt, self)

    # operations

    def note(self, *operation: Any) -> None:
        """One operation is about to happen."""
        self.position += 1
        if self._recording and not self._journal.put(self.position, operation):
            self._set_recording(False)

    def note_change(self, change: Change) -> None:
        """The state is about to take in a change."""
        if not self._recording:
            self.position += 1
            return
        self.note(*apply_operation(change, self._shown))
        note_shown(self._shown, change.kind.name, change.old, change.new)

    # attempts

    def begin(self, state: ClusterState, profile: str, pod: Pod, now: float, rotation: int) -> str:
        """An attempt begins; its id."""
        name = self._next(state)
        self.note("begin", name, profile, pod_reference(state, pod), now, rotation)
        self._latest[pod.uid] = name, self.position
        return name

    def begin_group(self, attempt: GroupAttempt, gang: bool) -> str:
        """An attempt for a PodGroup begins; its id, which is that of each member's decision, too."""
        name = self._next(attempt.state)
        pods = [pod_reference(attempt.state, pod) for pod in attempt.pods]
        key = attempt.group.metadata.key
        self.note("gang", name, attempt.profile.name, gang, key, pods, attempt.now, attempt.rotation.start)
        for number, pod in enumerate(attempt.pods):
            self._latest[pod.uid] = f"{name}.{number}", self.position
        return name

    def _next(self, state: ClusterState) -> str:
        """Between two attempts nothing is half done: a new part of the journal may begin."""
        if self._journal.wants_snapshot():
            try:
                state.nodes.renew_order()
                operations = snapshot(state)
                self._shown = shown_by(operations)
            except Exception as error:  # a bystander: it must not cost a Pod its attempt
                self._give_up(error)
            else:
                self._journal.begin(self.position, operations)
                self._set_recording(True)
            self._latest = {uid: entry for uid, entry in self._latest.items() if uid in state.pods}
        state.nodes.order()
        return f"{self._run}-j{self.position + 1}"

    def _set_recording(self, on: bool) -> None:
        self._recording = on
        if self._state is not None:
            self._state.recording = on

    def _give_up(self, error: Exception) -> None:
        self._set_recording(False)
        self._journal.give_up(f"{type(error).__name__}: {error}")

    def tell(self, operation: str, name: str, answer: Callable[[], Any]) -> None:
        """An operation of the attempt ``name`` with a plain answer, which is made only while something is recorded."""
        if not self._recording:
            self.position += 1
            return
        try:
            self.note(operation, name, answer())
        except Exception as error:  # as in _next
            self._give_up(error)

    def decision_of(self, pod_uid: str) -> tuple[str, int] | None:
        """Id and position of the newest decision about a Pod; None when it is not in the journal."""
        return self._latest.get(pod_uid) if self._recording else None

    def reserved(self, placed: Placed, promised: Sequence[Promise]) -> None:
        """The Pod's devices are promised."""
        known = self._latest.get(placed.pod.uid)
        if known is not None:
            self.tell("reserved", known[0], lambda: devices_answer(placed.pod, promised))


class _Told:
    """What both kinds of attempts tell the recorder while they are stepped."""

    def __init__(self, recorder: Recorder, name: str, state: ClusterState) -> None:
        self._recorder, self._name, self._state = recorder, name, state
        self._asked: Instruction | None = None
        self._paused_at: int | None = None

    def step(self, go_on: Callable[[int], Outcome], answer: Callable[[Any], Any]) -> Outcome:
        """One step of the attempt, with what it asked for; ``answer`` makes of its decision what is kept."""
        self._resumed()
        try:
            outcome = go_on(STEP_BUDGET)
        except BaseException as error:
            self._recorder.note("abandoned", self._name, f"the attempt broke: {type(error).__name__}: {error}")
            raise
        if isinstance(outcome, Need | Running):
            self._paused(outcome)
        else:
            self._recorder.tell("decided", self._name, lambda: answer(outcome))
        return outcome

    def _resumed(self) -> None:
        if self._paused_at is not None and self._paused_at != self._state.version:
            self._recorder.note("abandoned", self._name, "the cluster changed while the attempt was under way")
        self._paused_at = None

    def _paused(self, outcome: Need | Running) -> None:
        if isinstance(outcome, Need):
            self._asked = outcome.instruction
            asked = outcome.instruction
            self._recorder.tell("needed", self._name, lambda: instruction_answer(asked))
        else:
            self._paused_at = self._state.version

    def answered(self, failure: str | None) -> None:
        """The edge's answer, with what it wrote into the calls of extenders."""
        calls = self._asked.calls if isinstance(self._asked, CallExtenders) else ()
        self._recorder.note("answered", self._name, failure, [(call.failure, call.body) for call in calls])


class RecordedAttempt(Attempt):
    """An Attempt in one piece that is written down."""

    def __init__(
        self, recorder: Recorder, profile: Profile, pod: Pod, state: ClusterState, *, now: float, rotation: Rotation
    ) -> None:
        super().__init__(profile, pod, state, now=now, rotation=rotation)
        self._told = _Told(recorder, recorder.begin(state, profile.name, pod, now, rotation.start), state)

    def step(self, budget: int) -> Running | Need | Decision:
        """As inherited; ``budget`` is ignored."""
        return self._told.step(super().step, answer_of)

    def answer(self, failure: str | None) -> None:
        """As inherited."""
        self._told.answered(failure)
        super().answer(failure)


class RecordedGroupAttempt(GroupAttempt):
    """A GroupAttempt in one piece that is written down."""

    def __init__(
        self,
        recorder: Recorder,
        profile: Profile,
        group: PodGroup,
        pods: Sequence[Pod],
        state: ClusterState,
        *,
        now: float,
        rotation: Rotation,
    ) -> None:
        super().__init__(profile, group, pods, state, now=now, rotation=rotation)
        self._told = _Told(recorder, recorder.begin_group(self, group.is_gang), state)

    def step(self, budget: int) -> Running | Need | GroupDecision:
        """As inherited; ``budget`` is ignored."""
        return self._told.step(super().step, group_answer)

    def answer(self, failure: str | None) -> None:
        """As inherited."""
        self._told.answered(failure)
        super().answer(failure)
