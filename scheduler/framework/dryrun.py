"""Dry run of preemption: which Pods would have to go so that the Pod fits, node by node.

Source: kube-scheduler 1.37, DefaultPreemption, DryRunPreemption and SelectVictimsOnNode (spec 3.18.2, 3.18.3). Every
node is tried in isolation; since no row's columns depend on another's, all nodes of a batch are tried at once: first
without all lower Pods, then with the first of each given back, then the second, and so on.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np

from scheduler.api.core import Pod
from scheduler.errors import SchedulerError
from scheduler.framework.cycle import Cycle
from scheduler.framework.nominated import filter_rows
from scheduler.framework.plugin import Rows
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status, unresolvable
from scheduler.state.overlay import NodeOverlay
from scheduler.state.podinfo import PodInfo

NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")

_BATCH_MIN = 64


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node where the Pod fits once ``victims`` (most important first) are gone; ``violations`` overdraw a budget."""

    node: str
    victims: tuple[Pod, ...]
    violations: int


@dataclass(slots=True)
class DryRun:
    """``candidates``: those without violations first, then the others, each in scan order. ``statuses``: nodes that
    were tried in vain; ``errors``: nodes on which everybody could stay, which should not have been asked.
    """

    candidates: list[Candidate] = field(default_factory=list)
    statuses: dict[str, Status] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Node:
    """One node on trial: its lower Pods in the order they are given back, ``violating`` of which come first."""

    row: int
    lower: list[PodInfo]
    violating: int = 0
    gone: dict[str, PodInfo] = field(default_factory=dict)
    victims: list[PodInfo] = field(default_factory=list)
    violations: int = 0


Importance = Callable[[PodInfo], tuple[float, float, bool]]
"""Sort key of Pods on a node, the most important first."""


def dry_run(
    profile: Profile, cycle: Cycle, rows: Rows, wanted: int, importance: Importance
) -> Generator[None, None, DryRun]:
    """Try ``rows`` in order until ``wanted`` candidates are found, one of them without violation.

    Yields when the cycle's budget is used up. Cost: as many filter runs over a batch of rows as its fullest node has
    lower Pods; plugins that follow Pods across nodes are asked once per row and run.
    """
    result = DryRun()
    structure = cycle.state.nodes.structure_version
    clean: list[Candidate] = []
    violating: list[Candidate] = []
    position = 0
    while position < len(rows):
        size = max(_BATCH_MIN, wanted - len(clean) - len(violating))
        batch = rows[position : position + size]
        position += size
        found = yield from _try(profile, cycle, batch, importance)
        if cycle.state.nodes.structure_version != structure:
            raise SchedulerError("nodes came or went while victims were sought")  # the attempt begins anew
        for row in batch.tolist():
            answer = found[row]
            if isinstance(answer, Candidate):
                (violating if answer.violations else clean).append(answer)
                if clean and len(clean) + len(violating) >= wanted:
                    result.candidates = clean + violating
                    return result
                continue
            name = cycle.state.nodes.name_of(row)
            if isinstance(answer, Status):
                result.statuses[name] = answer
            else:
                result.errors.append(f'expected at least one victim pod on node "{name}"')
    result.candidates = clean + violating
    return result


def _try(
    profile: Profile, cycle: Cycle, rows: Rows, importance: Importance
) -> Generator[None, None, dict[int, Candidate | Status | None]]:
    """Row → candidate, or why not; None where nobody would have to go."""
    nodes = cycle.state.nodes
    answers: dict[int, Candidate | Status | None] = {}
    trials: dict[int, _Node] = {}
    for row in rows.tolist():
        lower = [
            info for info in nodes.pods(row) if info.pod.priority < cycle.pod.priority and cycle.state.serves(info.pod)
        ]
        if lower:
            trials[row] = _Node(row, lower)
        else:
            answers[row] = NO_VICTIMS
    overlay = NodeOverlay(nodes)
    overlay.take([(info, trial.row) for trial in trials.values() for info in trial.lower])
    for trial in trials.values():
        trial.gone = {info.uid: info for info in trial.lower}
    rejected = yield from _filter(profile, cycle, overlay, list(trials.values()))
    for row, status in rejected.items():
        answers[row] = status
        del trials[row]
    for trial in trials.values():
        _order(cycle, trial, importance)
    yield from _give_back(profile, cycle, overlay, list(trials.values()))
    for row, trial in trials.items():
        if trial.violating and trial.violating < len(trial.lower):
            trial.victims.sort(key=importance)
        victims = tuple(info.pod for info in trial.victims)
        answers[row] = Candidate(nodes.name_of(row), victims, trial.violations) if victims else None
    return answers


def _order(cycle: Cycle, trial: _Node, importance: Importance) -> None:
    """Those whose going would overdraw a budget are given back first."""
    ordered = sorted(trial.lower, key=importance)
    flags = cycle.state.budgets.violating(ordered)
    trial.violating = sum(flags)
    trial.lower = [info for info, flag in zip(ordered, flags, strict=True) if flag]
    trial.lower += [info for info, flag in zip(ordered, flags, strict=True) if not flag]


def _give_back(
    profile: Profile, cycle: Cycle, overlay: NodeOverlay, trials: Sequence[_Node]
) -> Generator[None, None, None]:
    turn = 0
    while trials := [trial for trial in trials if turn < len(trial.lower)]:
        back = [(trial.lower[turn], trial) for trial in trials]
        overlay.put([(info, trial.row) for info, trial in back])
        for info, trial in back:
            del trial.gone[info.uid]
        rejected = yield from _filter(profile, cycle, overlay, trials)
        victims = [(info, trial) for info, trial in back if trial.row in rejected]
        overlay.take([(info, trial.row) for info, trial in victims])
        for info, trial in victims:
            trial.gone[info.uid] = info
            trial.victims.append(info)
            trial.violations += turn < trial.violating
        turn += 1


def _filter(
    profile: Profile, cycle: Cycle, overlay: NodeOverlay, trials: Sequence[_Node]
) -> Generator[None, None, dict[int, Status]]:
    """Row → rejection, for the rows where the Pod does not fit now."""
    rows = np.asarray([trial.row for trial in trials], np.int64)
    changes = {trial.row: [(info, -1) for info in trial.gone.values()] for trial in trials}
    filtered = yield from filter_rows(profile, cycle, overlay, rows, changes)
    return {row: status for status, refused in filtered.rejected for row in refused.tolist()}
