"""Skips that nobody sees are failures where CI=true: what cannot run there has to be made to run.

And no generated example fails for having been slow: nothing that depends on a measured time decides.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("whole machine busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("whole machine busy")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under CI=true a skipped test has failed, with its reason; an expected failure stays what it is."""
    report = yield
    if report.skipped and os.environ.get("CI") == "true" and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        report.outcome, report.longrepr = "failed", f"CI=true, and this test was skipped: {reason}"
    return report
