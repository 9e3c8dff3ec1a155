"""A short, seeded run of each coverage-guided target; ``make fuzz`` runs them longer."""

from __future__ import annotations

import subprocess
import sys

import pytest

from e2e.fuzz.guided import MISSING, TARGETS, available, run_target

pytestmark = pytest.mark.skipif(not available(), reason=MISSING)
RUNS = {"cel": 150, "config": 300}
REACHED_MIN = {"quantity": 100, "label-selector": 5, "node-selector": 20, "cel": 800, "config": 150, "deep": 5}
"""Branches that the seeds alone reach: fewer mean that the target is not measured."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_grows(target: str) -> None:
    """Within the limits of time and memory of ``guided``, whatever the bytes."""
    runs = RUNS.get(target, 2000)
    run = run_target(target, runs, 7, timeout_s=280)
    assert not run.fault, run.fault
    assert run.inputs >= runs
    assert run.reached >= REACHED_MIN[target]


def test_an_unknown_target_is_named() -> None:
    """Rather than fuzzing nothing."""
    done = subprocess.run([sys.executable, "-m", "e2e.fuzz.targets", "nothing"], capture_output=True, check=False)
    assert done.returncode != 0
    assert b"quantity" in done.stderr
