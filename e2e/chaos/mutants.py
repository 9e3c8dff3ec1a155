"""``python -m e2e.chaos.mutants``: faults put into the scheduler on purpose; chaos must find each.

Each mutant is a copy of the tree with one line changed. Exit code 1 when one survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from e2e.chaos.run import FITS
from e2e.history_check import HELD_TWICE, LATER, RESERVATION, SILENT, UNRESERVED

_REPO = Path(__file__).resolve().parent.parent.parent
RUNS = 12


@dataclass(frozen=True)
class Mutant:
    """``old`` becomes ``new`` in ``file``; one of ``rules`` has to be broken then."""

    name: str
    file: str
    old: str
    new: str
    rules: tuple[str, ...]


MUTANTS = (
    Mutant(
        "claims are not verified before the Binding",
        "scheduler/edge/commit.py",
        "await self.verification.verify(placed, written, outcome)",
        "pass",
        (LATER,),
    ),
    Mutant(
        "Pods are bound before their claims are written",
        "scheduler/edge/commit.py",
        "await self._pre_bind(placed, written)",
        "pass",
        (UNRESERVED,),
    ),
    Mutant(
        "the ledger forgets who holds what",
        "scheduler/dra/ledger.py",
        "                self._add(uid, hold)",
        "                pass",
        (HELD_TWICE, LATER),
    ),
    Mutant(
        "what was deleted in a gap of a watch stays",
        "scheduler/edge/difference.py",
        "for old in gone.values()]",
        "for old in ()]",
        (FITS, SILENT),
    ),
    Mutant(
        "a Pod that is held back keeps its devices",
        "scheduler/edge/intake.py",
        "self._let_go(queued.pod)",
        "pass",
        (RESERVATION,),
    ),
)


def found_by(mutant: Mutant, seed: int, runs: int) -> str:
    """The first violation that names one of its rules; "" when it survives. Raises ValueError for a stale mutant."""
    with tempfile.TemporaryDirectory(prefix="dra-scheduler-mutant-") as name:
        tree = Path(name)
        for package in ("scheduler", "plugins", "e2e"):
            shutil.copytree(_REPO / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
        file = tree / mutant.file
        text = file.read_text()
        if text.count(mutant.old) != 1:
            raise ValueError(f"{mutant.file} has {mutant.old!r} {text.count(mutant.old)} times")
        file.write_text(text.replace(mutant.old, mutant.new))
        command = [sys.executable, "-m", "e2e.chaos", f"--runs={runs}", f"--seed={seed}", "--stop", "--no-cache-check"]
        environment = {**os.environ, "PYTHONPATH": name}
        ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
        lines = [line.strip() for line in ended.stdout.splitlines() if "VIOLATION" in line]
        return next((line for line in lines if any(rule in line for rule in mutant.rules)), "")


def main() -> None:
    """Try each, print what found it."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=RUNS, help=f"at most, per mutant (default {RUNS})")
    arguments = parser.parse_args()
    survivors = 0
    for mutant in MUTANTS:
        found = found_by(mutant, arguments.seed, arguments.runs)
        survivors += not found
        print(f"{'found' if found else 'SURVIVES'}: {mutant.name}: {found}", flush=True)
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
