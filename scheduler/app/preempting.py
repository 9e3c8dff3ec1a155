"""What a failed attempt's PostFilter plugins achieved, and every candidate of a preemption, as data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from plugins.default_preemption.choice import harm, importance
from scheduler.app.whole_case import WholeCase
from scheduler.cycle.decision import Rejected
from scheduler.errors import PluginError
from scheduler.framework.cycle import Cycle
from scheduler.framework.dryrun import Candidate, dry_run
from scheduler.framework.instructions import DeallocateClaim, Instruction
from scheduler.framework.plugin import PostFilterResult
from scheduler.framework.runner import run_pre_filter
from scheduler.framework.status import Code, Status, error, unschedulable

Json = dict[str, Any]
_PREEMPTION = "DefaultPreemption"


def preemption_answer(
    case: WholeCase,
    cycle: Cycle,
    decision: Rejected,
    results: Sequence[tuple[str, PostFilterResult]],
    asked: Sequence[Instruction],
) -> Json:
    """The ``preemption`` of an answer. ``cycle`` is a fresh one: the dry run over all nodes begins anew."""
    status = combined(results)
    answer: Json = {
        "nominated_node": decision.nominated_node or "",
        "status": {"code": status.code.label},
    }
    if status.plugin:
        answer["status"]["plugin"] = status.plugin
    if status.reasons:
        answer["status"]["reasons"] = sorted(status.reasons)
    by_plugin = dict(results)
    candidates = _candidates(case, cycle, decision, by_plugin.get(_PREEMPTION))
    answer["candidates"] = {
        one.node: {"victims": [victim.key for victim in one.victims], "pdb_violations": one.violations}
        for one in candidates
    }
    answer["ties"] = _ties(candidates, case.now)
    chosen = by_plugin.get(_PREEMPTION)
    answer["victims"] = [victim.key for victim in chosen.victims] if chosen is not None else []
    answer["deallocated_claims"] = [
        instruction.claim.key for instruction in asked if isinstance(instruction, DeallocateClaim)
    ]
    return answer


def combined(results: Sequence[tuple[str, PostFilterResult]]) -> Status:
    """One status for all: the first Success, Unresolvable or error speaks alone, else the first who refused is named.

    Source: kube-scheduler 1.37 (spec 1.7).
    """
    reasons: list[str] = []
    for name, result in results:
        code = result.status.code
        if code is Code.SUCCESS:
            return result.status
        if code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return result.status.by(name)
        if not code.rejected:
            return error(result.status.message).by(name)
        reasons.extend(result.status.reasons)
    return unschedulable(*reasons).by(results[0][0]) if results else unschedulable()


def _candidates(case: WholeCase, cycle: Cycle, decision: Rejected, result: PostFilterResult | None) -> list[Candidate]:
    """Every node where preemption would help; none for a Pod that may not preempt."""
    if result is None or any("not eligible" in reason for reason in result.status.reasons):
        return []
    try:
        pre = run_pre_filter(case.profile, cycle)
        if pre.rejection is not None and pre.rejection.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return []
        cycle.diagnosis = decision.diagnosis
        statuses, absent = dict(decision.diagnosis.statuses()), decision.diagnosis.absent
        nodes = case.state.nodes
        rows = [
            row for row in nodes.order().tolist() if statuses.get(nodes.name_of(row), absent).code is Code.UNSCHEDULABLE
        ]
        if not rows:
            return []
        steps = dry_run(case.profile, cycle, np.asarray(rows, np.int64), len(rows) + 1, importance(case.now))
        while True:
            next(steps)
    except StopIteration as stop:
        candidates: list[Candidate] = stop.value.candidates
        return candidates
    except PluginError:
        return []


def _ties(candidates: Sequence[Candidate], now: float) -> list[str]:
    """The candidates that do equally little harm, among which either scheduler may choose."""
    measure: Callable[[Candidate], tuple[float, ...]] = lambda one: harm(one, now)  # noqa: E731 - named for its type
    least = min(map(measure, candidates), default=())
    return sorted(one.node for one in candidates if measure(one) == least)
