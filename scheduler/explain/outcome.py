"""What a failed attempt means for the Pod: reason and message of the condition, note of the event, who must change.

Source: kube-scheduler 1.37, handleSchedulingFailure (spec 6.2, 6.3).
"""

from __future__ import annotations

from dataclasses import dataclass

from scheduler.cycle.decision import Failed, Placed, Rejected
from scheduler.explain.fit import NO_NODES_MESSAGE, fit_message
from scheduler.framework.status import Status

UNSCHEDULABLE = "Unschedulable"
SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class FailureReport:
    """``reason`` and ``message`` of the condition; ``nominated_node``: None keeps it, "" clears it."""

    reason: str
    message: str
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nominated_node: str | None = ""


def report_failure(decision: Rejected | Failed | Placed) -> FailureReport:
    """The report of an attempt that placed nothing."""
    if isinstance(decision, Failed):
        return FailureReport(SCHEDULER_ERROR, decision.text)
    if isinstance(decision, Placed):
        raise TypeError("a placed Pod has no failure")
    if decision.no_nodes:
        # No plugin to wait for: error back-off, though the condition says Unschedulable (spec 4.6).
        return FailureReport(UNSCHEDULABLE, NO_NODES_MESSAGE)
    diagnosis = decision.diagnosis
    message = fit_message(
        diagnosis.node_count, diagnosis.reasons(), diagnosis.prefilter_message, diagnosis.postfilter_message
    )
    return FailureReport(
        UNSCHEDULABLE,
        message,
        frozenset(diagnosis.unschedulable_plugins),
        frozenset(diagnosis.pending_plugins),
        decision.nominated_node,
    )


def reserve_rejection(status: Status) -> FailureReport:
    """A Reserve plugin refused: a fit error over that one node (spec 1.8)."""
    message = fit_message(1, dict.fromkeys(status.reasons, 1), "", "")
    return FailureReport(UNSCHEDULABLE, message, frozenset((status.plugin,)))


def bind_failure(text: str) -> FailureReport:
    """Something broke after the decision: error back-off, nomination cleared."""
    return FailureReport(SCHEDULER_ERROR, text)
