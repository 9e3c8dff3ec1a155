"""Seeded faults: change one rule of our code at a time and see one conformity run of the CI size notice it.

``python -m e2e.conformity.mutants [--seed S] [--only WORDS]``. Upstream answers the cases once; each fault is applied
to a copy of the packages, whose answers are compared until the first unexplained difference. Exit code 1 when a fault
goes unnoticed or no longer applies.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.conformity.allocate_cases import allocate_cases
from e2e.conformity.cel_cases import cel_cases
from e2e.conformity.mutations import MUTATIONS, Mutation
from e2e.conformity.run import CI_ALLOCATE, CI_CEL, ORACLE_TIMEOUT_S
from e2e.conformity.upstream import Json, Oracle, find_oracle

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("scheduler", "plugins", "e2e")
AT_ONCE = 2
# Longer than any run without a fault; a fault may make a search endless.
TIMEOUT_S = 180.0
NOTICED, UNNOTICED, UNUSABLE = "noticed", "NOT NOTICED", "DOES NOT APPLY"


def answered(seed: int) -> list[Json]:
    """The cases of a CI run as {kind, case, upstream}."""
    binary = find_oracle()
    result: list[Json] = []
    of_kind: tuple[tuple[str, Iterable[Json], float], ...] = (
        ("allocate", allocate_cases(seed, CI_ALLOCATE), ORACLE_TIMEOUT_S),
        ("cel", cel_cases(seed, CI_CEL), 10.0),
    )
    for kind, cases, timeout_s in of_kind:
        known = list(cases)
        with Oracle(binary, kind, timeout_s) as oracle:
            answers = oracle.answers([json.dumps(case).encode() for case in known])
        result += [
            {"kind": kind, "case": case, "upstream": answer} for case, answer in zip(known, answers, strict=True)
        ]
    return result


def copy_packages(source: Path, into: Path) -> None:
    """A copy of what answers and compares."""
    for package in PACKAGES:
        shutil.copytree(source / package, into / package, ignore=shutil.ignore_patterns("__pycache__", "*.pyc"))


def apply(mutation: Mutation, root: Path) -> bool:
    """Change the copy below ``root``. False when the text is not there exactly once."""
    file = root / mutation.file
    text = file.read_text(encoding="utf-8")
    if text.count(mutation.old) != 1:
        return False
    file.write_text(text.replace(mutation.old, mutation.new), encoding="utf-8")
    return True


def replay(root: Path, answers: Path) -> tuple[bool, str]:
    """Whether the packages below ``root`` answer otherwise than upstream, and where first."""
    command = [sys.executable, "-m", "e2e.conformity.replay", str(answers)]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return True, "never ended"
    if done.returncode == 0:
        return False, done.stdout.strip()
    last = (done.stdout.strip() or done.stderr.strip()).splitlines()
    return True, last[-1][:60] if last else "crashed"


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
    """Try all faults and print the table."""
    parser = argparse.ArgumentParser(prog="e2e.conformity.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the cases (default 1)")
    parser.add_argument("--only", default="", help="only rules that contain these words")
    options = parser.parse_args(arguments)
    chosen = [mutation for mutation in MUTATIONS if options.only in mutation.rule]
    bad = 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        answers = Path(folder) / "answers.jsonl"
        with answers.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(entry) + "\n" for entry in answered(options.seed))
        # One copy for all: the tree may change while faults are tried.
        source = Path(folder) / "source"
        copy_packages(ROOT, source)
        differs, where = replay(source, answers)
        if differs:
            print(f"without any fault the run is not clean: {where}")
            return 1
        print(f"{len(chosen)} faults, {CI_ALLOCATE} allocator and {CI_CEL} CEL cases each, seed {options.seed}")
        with ThreadPoolExecutor(AT_ONCE) as pool:
            tried = pool.map(lambda mutation: try_one(mutation, source, answers), chosen)
            for mutation, (verdict, where, elapsed_s) in zip(chosen, tried, strict=True):
                bad += verdict != NOTICED
                print(f"  {verdict:<15} {elapsed_s:5.1f} s  {mutation.rule:<62} {where}", flush=True)
    print(f"{len(chosen) - bad} of {len(chosen)} noticed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
