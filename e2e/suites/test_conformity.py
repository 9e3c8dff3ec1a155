"""Our allocator and CEL against upstream's own code on fresh random cases; the seed is printed.

A longer run: ``make conformity N=20000``. A difference is shrunk and printed as a case of tests/vectors.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from e2e.conformity.coverage import CEL_ERRORS
from e2e.conformity.run import (
    CEL_LEAST,
    CI_ALLOCATE,
    CI_CEL,
    FEATURE_LEAST,
    run_allocate,
    run_cel,
    show,
    show_cel_coverage,
    show_coverage,
    show_found,
)
from e2e.conformity.upstream import OracleMissingError, find_oracle

# A cold build of the oracle is minutes; the runs themselves are under two.
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


@pytest.fixture(scope="module")
def seed() -> int:
    """A fresh seed, or CONFORMITY_SEED to repeat a run."""
    return int(os.environ.get("CONFORMITY_SEED") or time.time_ns() % 1_000_000_000)


def test_allocator_agrees_with_upstream(oracle: Path, seed: int) -> None:
    """Fresh random cases get upstream's verdict, error text, devices and configuration, and touch every feature."""
    report = run_allocate(CI_ALLOCATE, seed, oracle)
    show_coverage(report.coverage)
    show(report)
    for found in report.found:
        show_found(found)
    assert not report.found
    assert report.clean
    assert 0.3 <= report.coverage.allocatable <= 0.7
    # Rare features swing by a third between seeds.
    assert report.coverage.thin(FEATURE_LEAST * 2 // 3) == []


def test_cel_agrees_with_upstream(oracle: Path, seed: int) -> None:
    """Fresh random expressions get upstream's value, kind of error, run-time text and cost, over all functions."""
    report, coverage = run_cel(CI_CEL, seed, oracle)
    show_cel_coverage(coverage)
    show(report)
    for found in report.found:
        show_found(found)
    assert not report.found
    assert report.clean
    assert [name for name, count in coverage.calls.items() if count < CEL_LEAST // 2] == []
    assert [name for name in CEL_ERRORS if coverage.errors[name] < CEL_LEAST // 2] == []
