"""``python -m e2e.chaos --runs 100 --seed 1``: random schedules of faults; exit code 1 when a promise was broken.

Exit code 2: none was, as far as the histories tell, and one of them could not be judged.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import msgspec

from e2e.api import Api
from e2e.chaos.run import Outcome, Session, session, totals
from e2e.controlplane import ControlPlane
from e2e.controlplane.fixtures import make_api

SESSION_RUNS = 10
"""Runs on one control plane; then a fresh one, so that nothing piles up."""


def _session(
    api: Api, plane: ControlPlane, arguments: argparse.Namespace, seed: int
) -> AbstractAsyncContextManager[Session]:
    return session(api, plane, arguments.out, seed, verify_caches=not arguments.no_cache_check)


async def _runs(arguments: argparse.Namespace) -> list[Outcome]:
    outcomes: list[Outcome] = []
    log = arguments.out / "runs.jsonl"
    seeds = [arguments.seed + index for index in range(arguments.runs)]
    for start in range(0, len(seeds), SESSION_RUNS):
        with ControlPlane() as plane:
            async with make_api(plane) as api, _session(api, plane, arguments, seeds[start]) as runs:
                group = seeds[start : start + SESSION_RUNS]
                for seed in group:
                    outcome = await runs.run(seed, arguments.seconds, last=seed == group[-1])
                    outcomes.append(outcome)
                    print(outcome.line(), flush=True)
                    for problem in outcome.problems:
                        print("   VIOLATION", problem, flush=True)
                    if outcome.unjudged:
                        print("   UNJUDGED", outcome.unjudged, flush=True)
                    with log.open("ab") as file:
                        file.write(msgspec.json.encode(outcome) + b"\n")
                    if outcome.problems and arguments.stop:
                        return outcomes
    return outcomes


def conclude(outcomes: Collection[Outcome]) -> int:
    """Print the last line; the exit code: 0 only when every run was judged and kept every promise."""
    bad = [outcome.seed for outcome in outcomes if outcome.problems]
    unjudged = [outcome.seed for outcome in outcomes if outcome.unjudged]
    slowest = max((outcome.settled_s for outcome in outcomes if not outcome.unjudged), default=0.0)
    told = f", {len(unjudged)} unjudged {unjudged}" if unjudged else ""
    print(f"\n{len(outcomes)} runs, {len(bad)} with violations {bad}{told}; the slowest settled after {slowest:.1f} s")
    return 1 if bad else 2 if unjudged else 0


def main() -> None:
    """Read the arguments, run, sum up."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="how many (default 10)")
    parser.add_argument("--seed", type=int, default=1, help="of the first run; the next one has the next seed")
    parser.add_argument("--seconds", type=float, default=8.0, help="of faults per run (default 8)")
    parser.add_argument("--out", type=Path, default=Path("build/chaos"), help="folder for results and bad histories")
    parser.add_argument("--stop", action="store_true", help="end with the first run that broke a promise")
    parser.add_argument(
        "--no-cache-check", action="store_true", help="replicas do not recompute their caches (they do by default)"
    )
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    arguments.out.mkdir(parents=True, exist_ok=True)
    outcomes = asyncio.run(_runs(arguments))
    faults, load, stats = totals(outcomes)
    for title, found in (("faults", faults), ("load", load), ("history", stats)):
        print(f"\n{title}")
        for name, count in sorted(found.items()):
            print(f"{count:8} {name}")
    sys.exit(conclude(outcomes))


if __name__ == "__main__":
    main()
