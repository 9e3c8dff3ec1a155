"""``make fuzz RUNS=n``: mutants of every kind, then every coverage-guided target. See docs/reliability.md.

Equal seeds repeat a run. The exit code is 1 when a fault was found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence

from e2e.fuzz import objects
from e2e.fuzz.guided import MISSING, TARGETS, available, run_target

INPUTS_PER_RUN = {"quantity": 20, "label-selector": 20, "node-selector": 20, "cel": 1, "config": 2, "deep": 5}
"""Inputs of a target per mutant of a kind: a quantity takes microseconds, an expression milliseconds."""
TARGET_TIMEOUT_S = 6 * 3600.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of it."""
    parser = argparse.ArgumentParser(prog="python -m e2e.fuzz", description=__doc__)
    parser.add_argument("--runs", type=int, default=objects.RUNS, help="mutants per kind (default 10,000)")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal inputs")
    chosen = parser.parse_args(arguments)
    failed = objects.main(["--runs", str(chosen.runs), "--seed", str(chosen.seed)])
    if not available():
        print(f"FAILED: the coverage-guided targets cannot run: {MISSING}")
        return 1
    for name in TARGETS:
        inputs = max(1, chosen.runs * INPUTS_PER_RUN[name])
        try:
            run = run_target(name, inputs, chosen.seed, TARGET_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            print(f"{name:16} did not end in {TARGET_TIMEOUT_S:g} s")
            failed = 1
            continue
        print(
            f"{name:16} {run.inputs:8} inputs  {run.reached:6} branches  {'FAULT' if run.fault else 'no fault'}",
            flush=True,
        )
        if run.fault:
            print(run.fault)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
