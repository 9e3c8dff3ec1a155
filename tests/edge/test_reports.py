"""What the scheduler's log says of attempts: each thing once, and at a higher verbosity each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import create_autospec

import pytest

from scheduler.api.core import Pod
from scheduler.api.kinds import POD, convert
from scheduler.edge.client import ApiClient
from scheduler.edge.events import EventRecorder
from scheduler.edge.logging import SUCCESS_VERBOSITY, set_verbosity
from scheduler.edge.reports import AttemptReports, Meter
from scheduler.edge.status import StatusWriter
from scheduler.explain.outcome import FailureReport
from scheduler.queue.pod import QueuedPod


class Lines:
    """Remembers the lines of a log."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []

    def info(self, event: str, **values: Any) -> None:
        self.told.append((event, values["message"]))

    warning = debug = error = exception = info


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Every test begins, and leaves, at the verbosity without a flag."""
    set_verbosity(0)
    yield
    set_verbosity(0)


@pytest.fixture
def lines() -> Lines:
    return Lines()


@pytest.fixture
def reports(lines: Lines) -> AttemptReports:
    client = create_autospec(ApiClient)
    return AttemptReports(EventRecorder(client), StatusWriter(client), create_autospec(Meter), lines, str)


def waiting(message: str = "", reason: str = "Unschedulable") -> Pod:
    """A Pod as the API server has it; with a condition when it has been told ``message``."""
    conditions = [{"type": "PodScheduled", "status": "False", "reason": reason, "message": message}]
    status = {"conditions": conditions} if message else {}
    pod: Pod = convert(POD, {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "status": status})
    return pod


def fail(reports: AttemptReports, pod: Pod, message: str, reason: str = "Unschedulable") -> None:
    reports.failed(QueuedPod(pod, 0.0), pod, FailureReport(reason, message), 0.0, 0.001)


def test_a_pod_that_waits_for_the_same_reason_is_logged_once(reports: AttemptReports, lines: Lines) -> None:
    """Whether the condition still waits to be written or has come back; what is new is logged again."""
    fail(reports, waiting(), "a")
    fail(reports, waiting(), "a")
    fail(reports, waiting("a"), "a")
    fail(reports, waiting("a"), "b")
    assert lines.told == [("unschedulable", "a"), ("unschedulable", "b")]


def test_with_verbosity_each_attempt_is_logged(reports: AttemptReports, lines: Lines) -> None:
    """As kube-scheduler does from -v=2 on."""
    set_verbosity(SUCCESS_VERBOSITY)
    for _ in range(3):
        fail(reports, waiting("a"), "a")
    assert lines.told == [("unschedulable", "a")] * 3


def test_an_error_is_logged_each_time(reports: AttemptReports, lines: Lines) -> None:
    """An error is no reason to wait."""
    for _ in range(2):
        fail(reports, waiting("a", "SchedulerError"), "a", "SchedulerError")
    assert lines.told == [("error", "a")] * 2
