"""The batched dry run against the plain one: node by node, on a state where the Pods have really gone."""

from __future__ import annotations

import numpy as np
import pytest

from plugins.default_preemption.choice import importance
from scheduler.api.changes import Change
from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.framework.cycle import Cycle
from scheduler.framework.dryrun import dry_run
from scheduler.framework.nominated import filter_rows
from scheduler.framework.profile import Profile
from scheduler.framework.runner import run_pre_filter
from scheduler.state.cluster import ClusterState
from scheduler.state.podinfo import pod_info
from tests.plugins.preemption_cases import Cases
from tests.plugins.preemption_world import NOW, Json, profile_of, state_of

Answer = tuple[list[str], int] | str | None
"""Victims and violated budgets; or the first reason of the rejection; None when everybody could stay."""


def cycle_of(state: ClusterState, pod: Pod, profile: Profile) -> Cycle:
    cycle = Cycle(pod, pod_info(pod), state, now=NOW)
    cycle.profile = profile
    assert run_pre_filter(profile, cycle).rejection is None
    return cycle


def drained(steps: object) -> object:
    """The answer of a generator, never mind the pauses."""
    while True:
        try:
            next(steps)  # type: ignore[call-overload]  # a generator
        except StopIteration as stop:
            return stop.value


def rejection(state: ClusterState, pod: Pod, node: str) -> str:
    """Why ``node`` does not fit ``pod`` as the state is, "" when it does. Everything is computed afresh."""
    profile = profile_of(state)
    row = state.nodes.row_of(node)
    assert row is not None
    filtered = drained(filter_rows(profile, cycle_of(state, pod, profile), state.nodes, np.asarray([row])))
    return "" if len(filtered.feasible) else filtered.rejected[0][0].message  # type: ignore[attr-defined]


def plainly(case: Json, pod: Pod, node: str) -> Answer:
    """One node tried on a state of its own, by deleting and creating Pods."""
    state = state_of(case["objects"])
    lower = sorted(
        (info for info in state.nodes.pods_on(node) if info.pod.priority < pod.priority), key=importance(NOW)
    )
    if not lower:
        return "No preemption victims found for incoming pod"
    for info in lower:
        state.apply(Change(POD, info.pod, None))
    reason = rejection(state, pod, node)
    if reason:
        return reason
    flags = state.budgets.violating(lower)
    victims: list[str] = []
    violations = 0
    for violating in (True, False):
        for info, flag in zip(lower, flags, strict=True):
            if flag is not violating:
                continue
            state.apply(Change(POD, None, info.pod))
            if rejection(state, pod, node):
                state.apply(Change(POD, info.pod, None))
                victims.append(info.uid)
                violations += violating
    return (sorted(victims), violations) if victims else None


def batched(case: Json, pod: Pod) -> dict[str, Answer]:
    """All nodes at once."""
    state = state_of(case["objects"])
    profile = profile_of(state)
    rows = state.nodes.order()
    before = state.nodes.describe()
    run = drained(dry_run(profile, cycle_of(state, pod, profile), rows, len(rows) + 1, importance(NOW)))
    assert state.nodes.describe() == before
    state.verify()
    answers: dict[str, Answer] = {state.nodes.name_of(row): None for row in rows.tolist()}
    answers |= {name: status.message for name, status in run.statuses.items()}  # type: ignore[attr-defined]
    for found in run.candidates:  # type: ignore[attr-defined]
        answers[found.node] = (sorted(victim.uid for victim in found.victims), found.violations)
    return answers


@pytest.mark.parametrize("seed", range(60))
def test_all_nodes_at_once_is_each_node_by_itself(seed: int) -> None:
    """Victims, violated budgets and rejections are those of the plain way; the state is left as it was."""
    case = Cases(seed + 5000).case("isolation")
    for item in case["objects"]:
        # Upstream takes a Pod that is being deleted out of spread counts in which it was not (a quirk kept): the plain
        # way would not.
        item["metadata"].pop("deletionTimestamp", None)
    pod = convert(POD, case["pod"])
    answers = batched(case, pod)
    assert answers == {node: plainly(case, pod, node) for node in answers}
