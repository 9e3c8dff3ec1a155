"""Replays the decisions of one part of a journal on a state of its own, and compares what comes out.

    replayer = Replayer(state, profiles)
    for line in lines: results += replayer.take(line)
    results += replayer.end()

The state is brought to where each decision was made, operation by operation; then a real Attempt is run there. What the
edge answered is taken from the journal. Nothing of the replayed decision stays: the journal's own operations follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.audit.answers import answer_of, devices_answer, group_answer, instruction_answer
from scheduler.audit.operations import Operation, Operations
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Placed, Running
from scheduler.cycle.gang import GroupAttempt, gang_profile, unreserve
from scheduler.errors import SchedulerError
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.profile import Profile
from scheduler.framework.runner import run_reserve
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]
_BUDGET = 1 << 62


class Replayed(msgspec.Struct, omit_defaults=True):
    """One decision. ``refused`` says why it could not be repeated; else ``equal``, and both answers.

    ``recorded_devices`` is None when nothing was reserved (no node, or the Pod had gone meanwhile).
    """

    id: str
    pod: str
    position: int
    now: float
    equal: bool = False
    refused: str = ""
    recorded: Any = None
    replayed: Any = None
    recorded_devices: Any = None
    replayed_devices: Any = None


@dataclass(slots=True)
class _Open:
    """The decision that is being repeated. ``asked``: the instructions so far, recorded and replayed."""

    result: Replayed
    attempt: Attempt | None = None
    need: Need | None = None
    decision: Decision | None = None
    asked: list[tuple[Any, Any]] | None = None
    ended: bool = False
    members: tuple[Pod, ...] = ()


class Replayer:
    """``wanted``: which decisions to repeat, by id and Pods; all without it. The others only move the state.

    ``profiles``: built on ``state`` with the recorded configuration.
    """

    def __init__(
        self,
        state: ClusterState,
        profiles: Mapping[str, Profile],
        wanted: Callable[[str, Sequence[Pod]], bool] = lambda name, pods: True,
    ) -> None:
        self.state, self._profiles, self._wanted = state, profiles, wanted
        self._operations = Operations(state)
        self._open: _Open | None = None
        self._group_answers: dict[str, list[Operation]] = {}
        self.newest = 0.0
        """Time of the newest attempt so far, wanted or not. Unix seconds."""

    def preview(self, lines: Sequence[bytes]) -> None:
        """Note what the edge answered to attempts of PodGroups, which are repeated in one go."""
        for line in lines:
            if b'"answered"' in line[:40]:
                with suppress(SchedulerError):
                    _, operation = self._operations.decode(line)
                    self._group_answers.setdefault(operation[1], []).append(operation)

    def take(self, line: bytes) -> list[Replayed]:
        """One line of the journal; decisions that are complete now. Raises UserError for a line that is none."""
        position, operation = self._operations.decode(line)
        name = operation[0]
        if name in ("begin", "gang"):
            done = self.end()
            self.state.nodes.order()
            self._operations.orders = True
            self.newest = max(self.newest, operation[4] if name == "begin" else operation[6])
            begin = self._begin if name == "begin" else self._begin_group
            begin(position, *operation[1:])
            return done
        if name in ("needed", "answered", "decided", "reserved", "abandoned"):
            if self._open is not None and self._open.result.id == _whole(operation[1]):
                getattr(self, f"_{name}")(self._open, *operation[1:])
            return []
        try:
            self._operations.perform(operation)
        except SchedulerError:
            raise
        except Exception:  # what broke the state then breaks it here the same way: the loop told it and went on
            return []
        return []

    def end(self) -> list[Replayed]:
        """What is still open: nothing more comes for it."""
        current, self._open = self._open, None
        if current is None:
            return []
        result = current.result
        if not current.ended and not result.refused:
            result.refused = "the recording ends before the decision did"
        if not result.refused:
            same_asked = all(one == other for one, other in current.asked or ())
            same_devices = result.recorded_devices is None or result.recorded_devices == result.replayed_devices
            result.equal = result.recorded == result.replayed and same_asked and same_devices
            if not same_asked:
                result.recorded = {"answer": result.recorded, "asked": [one for one, _ in current.asked or ()]}
                result.replayed = {"answer": result.replayed, "asked": [other for _, other in current.asked or ()]}
        return [result]

    # single Pods

    def _begin(self, position: int, name: str, profile: str, reference: Pod | str, now: float, start: int) -> None:
        pod = self._operations.pod(reference)
        if not self._wanted(name, (pod,)):
            return
        self._open = current = _Open(Replayed(name, pod.key, position, now), asked=[])
        if profile not in self._profiles:
            current.result.refused = f"there is no profile {profile} in the recorded configuration"
            return
        current.attempt = Attempt(self._profiles[profile], pod, self.state, now=now, rotation=Rotation(start))
        self._step(current)

    def _step(self, current: _Open) -> None:
        assert current.attempt is not None
        current.need = None
        outcome: Any = Running()
        while isinstance(outcome, Running):
            outcome = current.attempt.step(_BUDGET)
        if isinstance(outcome, Need):
            current.need = outcome
        else:
            current.decision = outcome

    def _needed(self, current: _Open, _: str, asked: Any) -> None:
        if current.attempt is not None and current.asked is not None:
            mine = None if current.need is None else instruction_answer(current.need.instruction)
            current.asked.append((asked, mine))

    def _answered(self, current: _Open, _: str, failure: str | None, calls: Sequence[tuple[Any, bytes]]) -> None:
        if current.attempt is None or current.need is None:
            return
        _fill(current.need, calls)
        current.attempt.answer(failure)
        self._step(current)

    def _decided(self, current: _Open, _: str, answer: Any) -> None:
        current.ended = True
        result = current.result
        result.recorded = answer
        if current.attempt is None:
            return  # a group: its answer is there already
        if current.decision is None:
            result.replayed = {"outcome": "asks once more"}
            return
        result.replayed = _plain(answer_of(current.decision))
        if isinstance(current.decision, Placed):
            result.replayed_devices = self._devices(current.decision)

    def _devices(self, placed: Placed) -> Any:
        """What Reserve would promise; taken back at once."""
        pod = placed.pod
        if pod.uid in self.state.placements:
            return None
        nominated = self.state.nominator.node_of(pod.uid)
        self.state.assume(pod, placed.node)
        try:
            refusal = run_reserve(placed.profile, placed.cycle, placed.node)
            if refusal is not None:
                return {"refused": list(refusal.reasons)}
            return _plain(devices_answer(pod, self.state.devices.promised(pod)))
        except SchedulerError as error:
            return {"refused": [str(error)]}
        finally:
            unreserve(placed)
            self.state.forget(pod)
            if nominated:
                self.state.nominate(pod, nominated)

    def _reserved(self, current: _Open, name: str, devices: Any) -> None:
        if current.attempt is not None:
            current.result.recorded_devices = devices
        else:  # a member of a group, by its number
            if current.result.recorded_devices is None:
                current.result.recorded_devices = {}
            current.result.recorded_devices[current.members[int(name.rpartition(".")[2])].key] = devices

    def _abandoned(self, current: _Open, _: str, why: str) -> None:
        current.result.refused = why

    # PodGroups

    def _begin_group(
        self,
        position: int,
        name: str,
        profile_name: str,
        gang: bool,
        key: str,
        references: Sequence[Pod | str],
        now: float,
        start: int,
    ) -> None:
        pods = tuple(self._operations.pod(reference) for reference in references)
        if not self._wanted(name, pods):
            return
        self._open = current = _Open(Replayed(name, f"group {key}", position, now), members=pods)
        namespace, _, group_name = key.partition("/")
        group = self.state.pod_groups.get(namespace, group_name)
        profile = self._profiles.get(profile_name)
        if profile is None or group is None:
            what = f"PodGroup {key}" if group is None else f"profile {profile_name}"
            current.result.refused = f"{what} is not known"
            return
        used = gang_profile(profile) if gang else profile
        attempt = GroupAttempt(used, group, pods, self.state, now=now, rotation=Rotation(start))
        answers = iter(self._group_answers.get(name, ()))
        outcome: Any = Running()
        while isinstance(outcome, Need | Running):
            outcome = attempt.step(_BUDGET)
            if isinstance(outcome, Need):
                answered = next(answers, None)
                if answered is None:
                    attempt.abandon()
                    current.result.refused = "the recording ends before the decision did"
                    return
                _fill(outcome, answered[3])
                attempt.answer(answered[2])
        current.result.replayed = _plain(group_answer(outcome))
        if not outcome.text:
            placed = [member.placed for member in outcome.members if member.placed is not None]
            current.result.replayed_devices = {
                one.pod.key: _plain(devices_answer(one.pod, self.state.devices.promised(one.pod))) for one in placed
            }
        attempt.abandon()


def _fill(need: Need, calls: Sequence[tuple[Any, bytes]]) -> None:
    """Give the calls of extenders the answers that they had."""
    if isinstance(need.instruction, CallExtenders):
        for call, (failure, body) in zip(need.instruction.calls, calls, strict=False):
            call.failure, call.body = failure, body


def _whole(name: str) -> str:
    """A member's id without its number."""
    return name.partition(".")[0]


def _plain(answer: Any) -> Any:
    """As it would come out of the journal."""
    return msgspec.json.decode(msgspec.json.encode(answer))
