"""Whole attempts against kube-scheduler's own framework on fresh random cases; the seed is printed.

A longer run: ``make conformity-schedule N=5000``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from e2e.conformity.schedule_cases import schedule_case_stream
from e2e.conformity.schedule_run import CI_SCHEDULE, FULL, RULE_LEAST, compare, show
from e2e.conformity.upstream import OracleMissingError, find_oracle

# The run itself is under five minutes; a cold build of the oracle takes minutes more.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def oracle() -> Path:
    """The oracle's binary; skip without Go, fail with CI=true."""
    try:
        return find_oracle()
    except OracleMissingError as error:
        reason = f"no oracle: {error}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


def test_attempts_agree_with_upstream(oracle: Path) -> None:
    """Every node's verdict, every plugin's scores, the choice, the message and the victims are upstream's."""
    seed = int(os.environ.get("CONFORMITY_SEED") or time.time_ns() % 1_000_000_000)
    report = compare(schedule_case_stream(seed, CI_SCHEDULE), seed, oracle)
    show(report)
    assert report.found == []
    assert report.clean
    # A third of what a full run must have at least: rare rules swing between seeds.
    assert report.coverage.thin(RULE_LEAST * CI_SCHEDULE // FULL // 3) == []
