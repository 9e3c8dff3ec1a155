"""Fixtures of all suites, the build before the first of them, server logs in reports of failed tests, and what suites
print: numbers that nobody sees prove nothing, so the summary repeats them with the duration of each suite.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator

import pytest

from e2e.controlplane import build
from e2e.controlplane.fixtures import any_cluster, clean_cluster, control_plane, log_tails, own_control_plane

__all__ = ["any_cluster", "clean_cluster", "control_plane", "own_control_plane"]

HANG_S = 900
"""Far above what any suite takes on a busy machine: ends a hang, decides nothing else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything below e2e/suites carries the marker, so that nobody forgets it, and a limit that only a hang meets."""
    for item in items:
        if "suites" in item.path.parts:
            item.add_marker("e2e")
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(HANG_S))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test: a cold build takes minutes, and no test's time limit allows for that."""
    if session.config.option.collectonly or not any(item.get_closest_marker("e2e") for item in session.items):
        return
    try:
        build.control_plane_binaries()
    except build.GoMissingError:
        return  # each test says so itself: skipped, or failed with CI=true
    except build.BuildError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the ends of the servers' logs to the report of a failed test."""
    report = yield
    if report.failed and (tails := log_tails()):
        report.sections.append(("logs of the control plane", tails))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the tests that passed have printed, and how long each suite took."""
    reports = [r for found in terminalreporter.stats.values() for r in found if isinstance(r, pytest.TestReport)]
    terminalreporter.section("what the suites measured", "-")
    for report in reports:
        if report.when == "call" and report.passed and report.capstdout:
            terminalreporter.write_line(f"{report.nodeid}\n{report.capstdout.rstrip()}")
    durations: defaultdict[str, float] = defaultdict(float)
    for report in reports:
        durations[report.location[0]] += report.duration
    for suite, seconds in sorted(durations.items()):
        terminalreporter.write_line(f"{seconds:8.1f} s  {suite}")
