"""Attempts of an explanation: as the service decides, but in slices, and with whatever they ask for granted."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from scheduler.api.core import Pod
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Running
from scheduler.framework.instructions import PreemptPods
from scheduler.framework.profile import Profile
from scheduler.state.cluster import ClusterState

STEP = 64
"""Units of work (rows, search steps) between two yields: a few milliseconds."""

T = TypeVar("T")


def attempt_steps(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Generator[None, None, Decision]:
    """One attempt in which whatever it asks of the API server succeeds; nothing is asked of one.

    ``state`` must not change between the steps.
    """
    running = Attempt(profile, pod, state, now=now, rotation=Rotation())
    while True:
        outcome = running.step(STEP)
        if isinstance(outcome, Need):
            grant(outcome)
            running.answer(None)
        elif not isinstance(outcome, Running):
            return outcome
        yield


def grant(need: Need) -> None:
    """As if it had been done; a preemption is over at once, or its plugin would hold the Pod back from now on."""
    if isinstance(need.instruction, PreemptPods):
        need.instruction.progress.ended = True


def attempt(profile: Profile, pod: Pod, state: ClusterState, now: float) -> Decision:
    """The same in one go."""
    return ended(attempt_steps(profile, pod, state, now))


def ended(steps: Generator[None, None, T]) -> T:
    """What ``steps`` returns, without the pauses."""
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            result: T = stop.value
            return result
