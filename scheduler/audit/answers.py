"""What an attempt came to, as plain data that can be written down and compared with another attempt's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from scheduler.api.core import Pod
from scheduler.audit.best import BEST_MAX, best_scores
from scheduler.audit.records import device_uses
from scheduler.cycle.decision import Decision, Failed, Placed
from scheduler.cycle.gang import GroupDecision
from scheduler.framework.extender_calls import CallExtenders
from scheduler.framework.instructions import DeallocateClaim, Instruction, PreemptPods
from scheduler.framework.runner import ScoreTable
from scheduler.state.devices import Promise

Json = dict[str, Any]


def answer_of(decision: Decision) -> Json:
    """Node and scores; or why not, node by node in numbers."""
    if isinstance(decision, Placed):
        answer: Json = {
            "outcome": "placed",
            "node": decision.node,
            "evaluated": decision.evaluated_nodes,
            "feasible": decision.feasible_nodes,
        }
        return answer if decision.scores is None else {**answer, "scores": _scores(decision.scores, decision.node)}
    if isinstance(decision, Failed):
        return {"outcome": "failed", "text": decision.text}
    diagnosis = decision.diagnosis
    return {
        "outcome": "rejected",
        "nodes": diagnosis.node_count,
        "reasons": dict(sorted(diagnosis.reasons().items())),
        "plugins": sorted(diagnosis.unschedulable_plugins | diagnosis.pending_plugins),
        "message": diagnosis.prefilter_message,
        "preemption": diagnosis.postfilter_message,
        "nominated": decision.nominated_node,
    }


def _scores(table: ScoreTable, chosen: str) -> Json:
    """The best nodes, and a digest of every feasible node's total in node order."""
    totals = np.ascontiguousarray(table.totals, dtype="<i8")
    best = best_scores(table, chosen, BEST_MAX)
    return {
        "best": [{"node": score.node, "total": score.total, "plugins": score.plugins} for score in best],
        "all": hashlib.sha256(totals.tobytes()).hexdigest()[:16],
    }


def group_answer(decision: GroupDecision) -> Json:
    """Every member's answer, and the group's."""
    members = [
        {
            "pod": member.pod.key,
            "answer": None if member.decision is None else _without_plugins(answer_of(member.decision)),
            "refusal": None if member.refusal is None else list(member.refusal.reasons),
        }
        for member in decision.members
    ]
    return {"outcome": "group", "text": decision.text, "error": decision.error, "members": members}


def _without_plugins(answer: Json) -> Json:
    """Single plugins' scores are gone once the next member is counted: totals only."""
    for score in answer.get("scores", {}).get("best", ()):
        score.pop("plugins")
    return answer


def devices_answer(pod: Pod, promised: Sequence[Promise]) -> list[Json]:
    """The devices that Reserve promised, claim by claim. Share ids and names that are drawn anew are left out."""
    return [
        {
            "claim": promise.claim.key if promise.claim.metadata.resourceVersion else f"{pod.key} (extended resources)",
            "devices": [
                {"device": use.device, "request": use.request, "admin": use.admin, "consumed": use.consumed}
                for use in device_uses(promise.allocation)
            ],
        }
        for promise in promised
    ]


def instruction_answer(instruction: Instruction) -> Json:
    """What an attempt asks of the edge."""
    if isinstance(instruction, PreemptPods):
        return {
            "preempt": [victim.key for victim in instruction.victims],
            "node": instruction.node,
            "displaced": [pod.key for pod in instruction.displaced],
        }
    if isinstance(instruction, CallExtenders):
        return {"extenders": [call.url for call in instruction.calls]}
    if isinstance(instruction, DeallocateClaim):
        return {"deallocate": instruction.claim.key}
    return {"instruction": type(instruction).__name__}
