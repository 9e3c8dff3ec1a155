"""The differential run: ``python -m e2e.conformity.run --allocate N --cel N [--seed S] [--save FILE]``.

Answers generated cases ourselves and by upstream's code, side by side, and prints what agrees, what differs by an
accepted rule, and every unexplained difference, shrunk. Exit code 1 when there is one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from e2e.conformity.allocate_cases import allocate_cases
from e2e.conformity.cel_cases import cel_cases, cel_functions
from e2e.conformity.compare import allocate_facts, cel_facts, difference, no_answer
from e2e.conformity.coverage import CelCoverage, Coverage
from e2e.conformity.rules import RULES, explain
from e2e.conformity.shrink import shrink
from e2e.conformity.shrink_cel import shrink_cel
from e2e.conformity.upstream import Oracle, find_oracle
from e2e.conformity.wavering import WAVERED_MAX, asked_again
from scheduler.cli import conformity

Json = dict[str, Any]
Answering = Callable[[Iterable[bytes]], Iterator[bytes]]
Facts = Callable[[Json], Json]

BATCH = 250
# The share of every CI run.
CI_ALLOCATE = 3000
CI_CEL = 5000
# Upstream's searches explode; a case it cannot answer in this time is none.
ORACLE_TIMEOUT_S = 2.0
ACCEPTED_MAX = 0.02
FOUND_MAX = 30
# Each function and class of error of CEL in at least this many cases of a full run.
CEL_LEAST = 20
# Each allocator feature in about this many of 3,000 cases, some allocatable and some not.
FEATURE_LEAST = 200
FACTS: dict[str, Facts] = {"allocate": allocate_facts, "cel": cel_facts}


@dataclass(slots=True)
class Found:
    """An unexplained difference; ``case`` is the shrunk one."""

    case: Json
    ours: Json
    theirs: Json
    differs: Json


@dataclass(slots=True)
class Report:
    """What one run has seen. ``elapsed_s`` covers both sides, which work at the same time."""

    kind: str
    seed: int
    cases: int = 0
    agree: int = 0
    unanswered: int = 0
    wavered: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    coverage: Coverage = field(default_factory=Coverage)
    elapsed_s: float = 0.0

    @property
    def clean(self) -> bool:
        """No unexplained difference, and few explained ones."""
        few = sum(self.accepted.values()) <= ACCEPTED_MAX * max(self.cases, 1) and self.wavered <= WAVERED_MAX
        return few and not self.found


def answer(kind: str, cases: Sequence[Json]) -> list[Json]:
    """Our answers, in order."""
    lines = [json.dumps(case).encode() for case in cases]
    return [json.loads(line) for line in conformity.COMMANDS[kind](lines)]


def compare(
    kind: str,
    seed: int,
    cases: Iterable[Json],
    oracle: Oracle,
    see: Callable[[Json, Json], None] | None = None,
    stop_at_first: bool = False,
) -> Report:
    """Compare both sides over ``cases``, in batches: the oracle works while we do. ``see``: each case with upstream's
    answer. Cost: about 5 ms a case."""
    report = Report(kind, seed)
    started_s = time.monotonic()
    source = iter(cases)
    while batch := list(islice(source, BATCH)):
        waiting = oracle.ask([json.dumps(case).encode() for case in batch])
        ours = answer(kind, batch)
        for case, our, their in zip(batch, ours, waiting.wait(), strict=True):
            if see is not None:
                see(case, their)
            _count(report, case, our, _steady(oracle, report, case, our, their))
        if report.found and (stop_at_first or len(report.found) >= FOUND_MAX):
            break
    report.elapsed_s = time.monotonic() - started_s
    return report


def _steady(oracle: Oracle, report: Report, case: Json, ours: Json, theirs: Json) -> Json:
    """Upstream's answer; where nothing explains why it differs from ours, one of later ones that does not."""
    if not unexplained(report.kind, case, ours, theirs):
        return theirs
    again = asked_again(oracle, case, lambda answer: unexplained(report.kind, case, ours, answer))
    report.wavered += again is not None
    return again or theirs


def _count(report: Report, case: Json, ours: Json, theirs: Json) -> None:
    report.cases += 1
    report.outcomes[_outcome(theirs)] += 1
    facts = FACTS[report.kind]
    differs = difference(facts(ours), facts(theirs))
    if no_answer(theirs):
        report.unanswered += 1
    elif not differs:
        report.agree += 1
    elif rule := explain(report.kind, case, ours, theirs):
        report.accepted[rule.name] += 1
    else:
        report.found.append(Found(case, ours, theirs, differs))


def _outcome(theirs: Json) -> str:
    if "allocated" in theirs:
        return "allocated" if theirs["allocated"] else str(theirs.get("error_kind") or "refused")
    return str(theirs.get("error_kind") or f"match {theirs.get('match')}")


def unexplained(kind: str, case: Json, ours: Json, theirs: Json) -> bool:
    """Whether two answers differ and no rule says why."""
    facts = FACTS[kind]
    if no_answer(theirs) or "input_error" in theirs:
        return False
    return bool(difference(facts(ours), facts(theirs))) and explain(kind, case, ours, theirs) is None


def minimise(found: Found, oracle: Oracle, validator: Oracle) -> Found:
    """The same difference in a smaller case that the API server would still accept as far as the first one."""
    keys = set(found.differs)
    (first,) = validator.answers([json.dumps(found.case).encode()])
    invalid_max = len(first.get("invalid") or ())

    def fails(batch: Sequence[Json]) -> list[bool]:
        validations = validator.answers([json.dumps(case).encode() for case in batch])
        return [
            failing and len(validation.get("invalid") or ()) <= invalid_max
            for failing, validation in zip(_differ("allocate", batch, oracle, keys), validations, strict=True)
        ]

    return _again("allocate", shrink(found.case, fails), oracle)


def minimise_cel(found: Found, oracle: Oracle) -> Found:
    """The same difference in a shorter expression."""
    keys = set(found.differs)
    return _again("cel", shrink_cel(found.case, lambda batch: _differ("cel", batch, oracle, keys)), oracle)


def _differ(kind: str, batch: Sequence[Json], oracle: Oracle, keys: set[str]) -> list[bool]:
    """Whether each case differs in exactly these facts, unexplained."""
    facts = FACTS[kind]
    theirs = oracle.answers([json.dumps(case).encode() for case in batch])
    return [
        unexplained(kind, case, our, their) and keys == set(difference(facts(our), facts(their)))
        for case, our, their in zip(batch, answer(kind, batch), theirs, strict=True)
    ]


def _again(kind: str, case: Json, oracle: Oracle) -> Found:
    facts = FACTS[kind]
    (theirs,) = oracle.answers([json.dumps(case).encode()])
    (ours,) = answer(kind, [case])
    return Found(case, ours, theirs, difference(facts(ours), facts(theirs)))


def show(report: Report) -> None:
    """Print the table of one run."""
    print(f"{report.kind}: {report.cases} cases, seed {report.seed}, {report.elapsed_s:.1f} s")
    outcomes = ", ".join(f"{name} {count}" for name, count in sorted(report.outcomes.items()))
    print(f"  upstream's answers     {outcomes}")
    print(f"  agree                  {report.agree}")
    print(f"  upstream wavered       {report.wavered}")
    print(f"  upstream timed out     {report.unanswered}")
    for rule in RULES:
        if rule.kind == report.kind:
            print(f"  accepted: {rule.name:<40} {report.accepted[rule.name]}")
    print(f"  unexplained            {len(report.found)}")


def show_coverage(coverage: Coverage) -> None:
    """Print which features were touched, and how often by allocatable cases."""
    print(f"  {coverage.allocatable:.0%} of the cases are allocatable")
    for name, cases, solved in coverage.rows():
        print(f"  {name:<40} {cases:>6} {solved:>6} allocatable")
    for name, count in coverage.errors.most_common():
        print(f"  {name:<40} {count:>6}")


def show_found(found: Found) -> None:
    """Print one difference with its case."""
    print(f"--- {found.case.get('name')}")
    for key, (ours, theirs) in found.differs.items():
        print(f"  {key}:\n    ours     {json.dumps(ours)}\n    upstream {json.dumps(theirs)}")
    print(json.dumps(found.case))


def run_allocate(count: int, seed: int, binary: Path, shrunk: bool = True) -> Report:
    """Compare ``count`` random allocator cases."""
    with Oracle(binary, "allocate", ORACLE_TIMEOUT_S) as oracle:
        coverage = Coverage()
        report = compare("allocate", seed, allocate_cases(seed, count), oracle, coverage.add)
        report.coverage = coverage
        if shrunk and report.found:
            with Oracle(binary, "validate") as validator:
                report.found = [minimise(found, oracle, validator) for found in report.found]
    return report


def run_cel(count: int, seed: int, binary: Path, shrunk: bool = True) -> tuple[Report, CelCoverage]:
    """Compare ``count`` random (expression, device) pairs."""
    coverage = CelCoverage(cel_functions())
    with Oracle(binary, "cel") as oracle:
        report = compare("cel", seed, cel_cases(seed, count), oracle, coverage.add)
        if shrunk:
            report.found = [minimise_cel(found, oracle) for found in report.found]
    return report, coverage


def show_cel_coverage(coverage: CelCoverage) -> None:
    """Print how often each function was called and each class of error met."""
    rare = [f"{name} {count}" for name, count in sorted(coverage.calls.items()) if count < CEL_LEAST]
    print(f"  {len(coverage.calls)} functions, {len(rare)} of them in fewer than {CEL_LEAST} cases: {', '.join(rare)}")
    for name, count in coverage.errors.most_common():
        print(f"  {name:<60} {count:>6}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and keep shrunk cases with upstream's answer when asked to."""
    parser = argparse.ArgumentParser(prog="e2e.conformity.run", description=__doc__)
    parser.add_argument("--allocate", type=int, default=0, metavar="N", help="random allocator cases")
    parser.add_argument("--cel", type=int, default=0, metavar="N", help="random (expression, device) pairs")
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    parser.add_argument("--no-shrink", action="store_true", help="print found cases as generated")
    parser.add_argument("--save", type=Path, help="append found cases to this file, with upstream's answer")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else time.time_ns() % 1_000_000_000
    binary = find_oracle()
    clean = True
    if options.allocate:
        report = run_allocate(options.allocate, seed, binary, not options.no_shrink)
        show_coverage(report.coverage)
        clean &= finish(report, options.save)
    if options.cel:
        report, cel_coverage = run_cel(options.cel, seed, binary, not options.no_shrink)
        show_cel_coverage(cel_coverage)
        clean &= finish(report, options.save)
    return 0 if clean else 1


def finish(report: Report, save: Path | None) -> bool:
    """Print a report and keep what it found. True when it is clean."""
    show(report)
    for found in report.found:
        show_found(found)
        if save is not None:
            with save.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found.case | {"answer": found.theirs}, sort_keys=True) + "\n")
    return report.clean


if __name__ == "__main__":
    sys.exit(main())
