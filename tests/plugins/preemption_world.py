"""A scheduling case with preemption on a real ClusterState: our whole attempt, written as the oracle writes its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plugins.registry import DEFAULT_PLUGINS
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import NAMESPACE, NODE, POD, Kind, convert
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.config.arguments import decode_arguments
from scheduler.config.problems import Problems
from scheduler.cycle.attempt import Attempt, Rotation
from scheduler.cycle.decision import Decision, Need, Rejected, Running
from scheduler.explain.outcome import report_failure
from scheduler.framework.instructions import Instruction, PreemptPods
from scheduler.framework.plugin import Handle
from scheduler.framework.points import points_of
from scheduler.framework.profile import Profile, build_profile
from scheduler.state.cluster import ClusterState

Json = dict[str, Any]
KINDS: dict[str, Kind] = {kind.name: kind for kind in (NODE, POD, NAMESPACE, POD_DISRUPTION_BUDGET)}
NOW = 1_900_000_000.0
"""When attempts happen: later than every start time."""
_SCORERS = frozenset(("preScore", "score"))


def state_of(objects: Iterable[Json]) -> ClusterState:
    """A state that has seen ``objects`` appear."""
    state = ClusterState()
    for item in objects:
        state.apply(Change(KINDS[item["kind"]], None, convert(KINDS[item["kind"]], item)))
    return state


def profile_of(state: ClusterState, arguments: Json | None = None, plugins: Json | None = None) -> Profile:
    """The default plugins (scores left out) and ``plugins`` (name → class); ``arguments``: plugin → args as written."""
    classes = {**DEFAULT_PLUGINS, **(plugins or {})}
    written = arguments or {}
    built = {
        name: factory(Handle(state, lambda: "id", state.features, _decoded(name, written.get(name))))
        for name, factory in classes.items()
    }
    order: dict[str, list[tuple[str, int]]] = {}
    for name, plugin in built.items():
        for point in points_of(plugin) - _SCORERS:
            order.setdefault(point, []).append((name, 1))
    return build_profile("default-scheduler", built, order)


def _decoded(name: str, args: object) -> Json:
    return decode_arguments(name, args, "args", Problems())


def run(attempt: Attempt, budget: int = 1 << 62) -> tuple[Decision, list[Instruction]]:
    """The decision, and what the edge was asked to do on the way (all of it succeeds)."""
    asked: list[Instruction] = []
    while True:
        outcome = attempt.step(budget)
        if isinstance(outcome, Need):
            asked.append(outcome.instruction)
            attempt.answer(None)
        elif not isinstance(outcome, Running):
            return outcome, asked


def attempt_of(state: ClusterState, pod: Pod, profile: Profile) -> Attempt:
    """An attempt for ``pod`` at NOW."""
    return Attempt(profile, pod, state, now=NOW, rotation=Rotation())


def answer_of(case: Json) -> Json:
    """Our answer to a case: message, nominated node and victims; or ``fits``."""
    state = state_of(case["objects"])
    profiles = case.get("config", {}).get("profiles", [{}])
    arguments = {entry["name"]: entry["args"] for entry in profiles[0].get("pluginConfig", [])}
    profile = profile_of(state, arguments)
    decision, asked = run(attempt_of(state, convert(POD, case["pod"]), profile))
    state.verify()
    if not isinstance(decision, Rejected):
        return {"fits": True}
    report = report_failure(decision)
    victims = [pod for instruction in asked if isinstance(instruction, PreemptPods) for pod in instruction.victims]
    return {
        "message": report.message,
        "nominated": decision.nominated_node,
        "victims": [pod.key for pod in victims],
        "plugins": sorted(report.unschedulable_plugins),
    }


def differences(case: Json) -> list[str]:
    """Where our answer differs from the oracle's; empty when nowhere. Equal candidates may be chosen either way."""
    answer, ours = case["answer"], answer_of(case)
    if "preemption" not in answer:
        return [] if ours.get("fits") == bool(answer.get("selected")) else [f"{ours}, expected {answer}"]
    if "fits" in ours:
        return ["fits, but upstream rejects it"]
    found, theirs = [], answer["preemption"]
    if ours["plugins"] != answer.get("unschedulable_plugins", []):
        found.append(f"unschedulable plugins {ours['plugins']}, expected {answer.get('unschedulable_plugins')}")
    chosen = theirs["nominated_node"]
    if (ours["nominated"] or "") != chosen and ours["nominated"] not in (theirs.get("ties") or ()):
        found.append(f"nominated {ours['nominated']}, expected {chosen} or one of {theirs.get('ties')}")
        return found
    if chosen:
        expected = theirs["candidates"][ours["nominated"]]["victims"]
        if ours["victims"] != expected:
            found.append(f"victims {ours['victims']}, expected {expected}")
        if ours["nominated"] != chosen:
            return found  # the message names the node
    if ours["message"] != answer["message"]:
        found.append(f"message {ours['message']!r}, expected {answer['message']!r}")
    return found
