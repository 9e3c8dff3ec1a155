"""Seeded faults in plugins and runner: one run of whole attempts of the CI size must notice each.

``python -m e2e.conformity.schedule_mutants [--seed S] [--only WORDS]``; like ``mutants``, on copies of the packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.conformity.mutants import AT_ONCE, NOTICED, ROOT, TIMEOUT_S, UNNOTICED, UNUSABLE, apply, copy_packages
from e2e.conformity.mutations import Mutation
from e2e.conformity.schedule_cases import schedule_case_stream
from e2e.conformity.schedule_mutations import SCHEDULE_MUTATIONS
from e2e.conformity.schedule_run import CI_SCHEDULE, ORACLE_TIMEOUT_S
from e2e.conformity.upstream import Oracle, find_oracle


def answered(seed: int, count: int) -> list[str]:
    """The cases of a run with upstream's answers, a line each."""
    cases = list(schedule_case_stream(seed, count))
    with Oracle(find_oracle(), "schedule", ORACLE_TIMEOUT_S) as oracle:
        answers = oracle.answers([json.dumps(case).encode() for case in cases])
    pairs = zip(cases, answers, strict=True)
    return [json.dumps({"case": case, "upstream": answer}) + "\n" for case, answer in pairs]


def replay(root: Path, answers: Path) -> tuple[bool, str]:
    """Whether the packages below ``root`` answer otherwise than upstream, and where first."""
    command = [sys.executable, "-m", "e2e.conformity.schedule_replay", str(answers)]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return True, "never ended"
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return done.returncode != 0, last[-1][:70] if last else "crashed"


def try_one(mutation: Mutation, source: Path, answers: Path) -> tuple[str, str, float]:
    """(verdict, where it was noticed, seconds)."""
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        root = Path(folder)
        copy_packages(source, root)
        if not apply(mutation, root):
            return UNUSABLE, "", 0.0
        noticed, where = replay(root, answers)
    return NOTICED if noticed else UNNOTICED, where, time.monotonic() - started_s


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all faults and print the table. Exit code 1 when one goes unnoticed or no longer applies."""
    parser = argparse.ArgumentParser(prog="e2e.conformity.schedule_mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the cases (default 1)")
    parser.add_argument("--cases", type=int, default=CI_SCHEDULE, metavar="N", help="random cases (default: CI's)")
    parser.add_argument("--only", default="", help="only rules that contain these words")
    options = parser.parse_args(arguments)
    chosen = [mutation for mutation in SCHEDULE_MUTATIONS if options.only in mutation.rule]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        answers, source = Path(folder) / "answers.jsonl", Path(folder) / "source"
        # One copy for all: the tree may change while faults are tried.
        copy_packages(ROOT, source)
        answers.write_text("".join(answered(options.seed, options.cases)), encoding="utf-8")
        differs, where = replay(source, answers)
        if differs:
            print(f"without any fault the run is not clean: {where}")
            return 1
        print(f"{len(chosen)} faults, {options.cases} cases each, seed {options.seed}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tried = pool.map(lambda mutation: try_one(mutation, source, answers), chosen)
            for mutation, (verdict, where, elapsed_s) in zip(chosen, tried, strict=True):
                bad += verdict != NOTICED
                print(f"  {verdict:<15} {elapsed_s:5.1f} s  {mutation.rule:<62} {where}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
