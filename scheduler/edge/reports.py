"""What became of each attempt, told to everybody who wants to know: events, the Pod's condition, metrics, the log.

Nothing here blocks: recorder and status writer queue, metrics count, the log line is one per attempt.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from scheduler.api.bodies import Event, pod_reference
from scheduler.api.core import Pod
from scheduler.cycle.decision import Decision, Placed, Rejected
from scheduler.edge.commit_ports import CommitOutcome
from scheduler.edge.events import EventRecorder
from scheduler.edge.logging import DETAIL_VERBOSITY, SUCCESS_VERBOSITY, verbose
from scheduler.edge.status import StatusWriter
from scheduler.explain.outcome import UNSCHEDULABLE, FailureReport
from scheduler.framework.instructions import PreemptPods, WaitUntil
from scheduler.framework.profile import Profile
from scheduler.framework.status import Status
from scheduler.queue.pod import QueuedPod

DEVICES = "DynamicResources"
"""The plugin whose refusals get a device summary."""


class Meter(Protocol):
    """The numbers an attempt leaves behind. Seconds everywhere."""

    def attempt(self, result: str, profile: str, duration_s: float) -> None: ...
    def scheduled(self, attempts: int, waited_s: float) -> None: ...
    def scheduled_after_flush(self) -> None: ...
    def algorithm(self, duration_s: float) -> None: ...
    def lost_race(self, profile: str) -> None: ...
    def foreign_overlap(self, profile: str, count: int) -> None: ...
    def broken(self, where: str) -> None: ...
    def permit_waited(self, result: str, duration_s: float) -> None: ...
    def preemption_attempt(self) -> None: ...
    def preemption_begun(self, victims: int) -> None: ...
    def preemption_ended(self, result: str, duration_s: float) -> None: ...


class Log(Protocol):
    """structlog's bound logger, as far as it is used here."""

    def debug(self, event: str, **fields: Any) -> Any: ...
    def info(self, event: str, **fields: Any) -> Any: ...
    def warning(self, event: str, **fields: Any) -> Any: ...
    def error(self, event: str, **fields: Any) -> Any: ...


class AttemptReports:
    """The loop's reports in production. ``instance``: this replica's name in events.

    ``summarize``: why devices were refused to a Pod, in one line; told in events, never in conditions.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        status: StatusWriter,
        meter: Meter,
        log: Log,
        instance: Callable[[str], str],
        summarize: Callable[[Pod], str] = lambda pod: "",
    ) -> None:
        self._recorder, self._status, self._meter, self._log = recorder, status, meter, log
        self._instance, self._summarize = instance, summarize

    def _event(
        self,
        pod: Pod,
        kind: str,
        reason: str,
        action: str,
        note: str,
        related: Pod | None = None,
        controller: str = "",
        more: Callable[[], str] | None = None,
        *,
        repeats: bool = True,
    ) -> None:
        controller = controller or pod.spec.schedulerName
        self._recorder.record(
            Event(
                type=kind,
                reason=reason,
                action=action,
                note=note,
                reportingController=controller,
                reportingInstance=self._instance(controller),
                regarding=pod_reference(pod),
                related=None if related is None else pod_reference(related),
            ),
            more,
            repeats=repeats,
        )

    def popped(self, queued: QueuedPod) -> None:
        """An attempt begins."""
        if verbose(DETAIL_VERBOSITY):
            self._log.debug("attempt", pod=queued.key, attempt=queued.attempts)

    def decided(self, queued: QueuedPod, decision: Decision, started: float, finished: float) -> None:
        """The deciding part of an attempt is over."""
        self._meter.algorithm(finished - started)
        if isinstance(decision, Rejected) and not decision.no_nodes and _may_preempt(decision.profile):
            self._meter.preemption_attempt()

    def bound(self, queued: QueuedPod, placed: Placed, outcome: CommitOutcome, started: float, finished: float) -> None:
        """The Pod has its node: event, metrics, the attempt's line."""
        pod = placed.pod
        self._status.forget(pod.uid)
        note = f"Successfully assigned {pod.key} to {placed.node}"
        self._event(pod, "Normal", "Scheduled", "Binding", note, repeats=False)
        self._meter.attempt("scheduled", placed.profile.name, finished - started)
        if queued.was_flushed:
            self._meter.scheduled_after_flush()
        first = queued.initial_attempt_timestamp
        self._meter.scheduled(queued.attempts, finished - (first if first is not None else started))
        if verbose(SUCCESS_VERBOSITY):
            self._log.info(
                "bound",
                pod=pod.key,
                node=placed.node,
                evaluated_nodes=placed.evaluated_nodes,
                feasible_nodes=placed.feasible_nodes,
                attempt=queued.attempts,
                duration_s=round(finished - started, 6),
            )

    def failed(self, queued: QueuedPod, pod: Pod, report: FailureReport, started: float, finished: float) -> None:
        """The Pod waits: condition, event, metrics, the attempt's line (kube-scheduler 1.37, spec 6.2)."""
        news = self._status.set_condition(pod, report.reason, report.message, report.nominated_node)
        devices = report.reason == UNSCHEDULABLE and DEVICES in report.unschedulable_plugins
        more = partial(self._summary, pod) if devices else None
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", report.message, more=more)
        result = "unschedulable" if report.reason == UNSCHEDULABLE else "error"
        self._meter.attempt(result, pod.spec.schedulerName, finished - started)
        if result == "unschedulable" and not news and not verbose(SUCCESS_VERBOSITY):
            return  # said before: a Pod that waits for a device may be tried several times a second
        line = self._log.info if result == "unschedulable" else self._log.warning
        line(
            result,
            pod=pod.key,
            message=report.message,
            plugins=sorted(report.unschedulable_plugins | report.pending_plugins),
            attempt=queued.attempts,
            duration_s=round(finished - started, 6),
        )

    def _summary(self, pod: Pod) -> str:
        """A summary that breaks costs the event its summary, nothing else."""
        try:
            return self._summarize(pod)
        except Exception as error:  # plugins take part in it, and they are foreign code
            self.broken(f"the device summary of pod {pod.key}", error)
            return ""

    def gated(self, pod: Pod, status: Status) -> None:
        """A PreEnqueue plugin has held the Pod back for a while."""
        self._status.set_condition(pod, UNSCHEDULABLE, status.message)
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", status.message)
        self._log.info("held back", pod=pod.key, plugin=status.plugin, message=status.message)

    def lost_race(self, placed: Placed, outcome: CommitOutcome) -> None:
        """Another scheduler was first (ours is given back), or took what is ours afterwards (both are told loudly)."""
        pod, profile = placed.pod, placed.profile.name
        if outcome.lost:
            self._meter.lost_race(profile)
            self._event(pod, "Warning", "LostRace", "Scheduling", outcome.text)
            self._log.warning("lost race", pod=pod.key, node=placed.node, message=outcome.text)
        for text in outcome.overlaps:
            self.given_again(pod, text)

    def given_again(self, pod: Pod, text: str) -> None:
        """Another scheduler gave away what this Pod of ours has: nothing to undo here, but told loudly."""
        self._meter.foreign_overlap(pod.spec.schedulerName, 1)
        self._event(pod, "Warning", "DeviceGivenTwice", "Binding", text)
        self._log.error("device given twice", pod=pod.key, message=text)

    def permit_waits(self, placed: Placed) -> None:
        """Plugins make the Pod wait: meanwhile its status names the node that is kept for it."""
        self._status.nominate(placed.pod, placed.node)

    def permit_waited(self, result: str, duration_s: float) -> None:
        """The waiting at Permit is over."""
        self._meter.permit_waited(result, duration_s)

    def preemption_begun(self, preemption: PreemptPods) -> None:
        """Victims have been chosen; they are told and deleted from now on."""
        self._meter.preemption_begun(len(preemption.victims))
        self._log.info(
            "preempting",
            pod=preemption.preemptor.key,
            node=preemption.node,
            victims=[victim.key for victim in preemption.victims],
        )

    def preempted(self, victim: Pod, preemptor: Pod, node: str, in_memory: bool) -> None:
        """A victim has been deleted, or was never bound."""
        note = f"Preempted by pod {preemptor.uid} on node {node}"
        if in_memory:
            note += " (in kube-scheduler memory)."
        self._event(victim, "Normal", "Preempted", "Preempting", note, preemptor, preemptor.spec.schedulerName)

    def preemption_ended(self, result: str, duration_s: float) -> None:
        """All victims have been told, or it failed."""
        self._meter.preemption_ended(result, duration_s)

    def preemption_trouble(self, text: str) -> None:
        """A victim could not be made to go."""
        self._log.warning("preemption failed", message=text)

    def displaced(self, pod: Pod) -> None:
        """The Pod lost its nomination to a more important one."""
        self._status.nominate(pod, "")

    def waiting(self, pod: Pod, wait: WaitUntil) -> None:
        """The Binding waits for something outside."""
        if wait.reason:
            self._event(pod, "Normal", wait.reason, "Scheduling", wait.note)

    def deleting(self, pod: Pod) -> None:
        """A Pod that is being deleted is not scheduled any more."""
        self._event(pod, "Warning", "FailedScheduling", "Scheduling", f"skip schedule deleting pod: {pod.key}")

    def waits_no_more(self, pod: Pod) -> None:
        """The Pod is gone, or has a node: nothing is to be said about its waiting any more."""
        self._status.forget(pod.uid)

    def broken(self, where: str, error: BaseException) -> None:
        """Our own fault, or a plugin's: never silent, never the end of the loop."""
        self._meter.broken(where)
        self._log.error("internal error", where=where, error=f"{type(error).__name__}: {error}", exc_info=error)


def _may_preempt(profile: Profile) -> bool:
    return any(plugin.name == "DefaultPreemption" for plugin in profile.post_filter)
