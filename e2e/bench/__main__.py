"""``python -m e2e.bench``: alternating runs, one table, JSON and a plot."""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from dataclasses import replace
from pathlib import Path

from e2e.bench.measure import FLOOR, OURS, THEIRS, Result, measure
from e2e.bench.plot import draw
from e2e.bench.table import details, summary
from e2e.bench.workloads import LARGE, WORKLOADS, Workload

FLOORED = ("plain", "device")
"""The floor knows no constraints: it would give two devices that do not match, and the run would never end."""


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default: all but the large ones")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds per workload (default 3)")
    parser.add_argument("--large", action="store_true", help=f"the large ones: {', '.join(LARGE)}")
    parser.add_argument("--devices", type=int, help="devices per node instead of the workload's own")
    parser.add_argument("--unschedulable", type=int, help="Pods that fit nowhere instead of the workload's own")
    parser.add_argument("--present", type=int, help="Pods that are bound already instead of the workload's own")
    parser.add_argument("--nodes", type=int, help="number of nodes instead of the workload's own")
    parser.add_argument("--pods", type=int, help="number of Pods instead of the workload's own")
    parser.add_argument("--only", choices=(OURS, THEIRS), help="run one of the two schedulers alone")
    parser.add_argument(
        "--floor", action="store_true", help="also a client that decides nothing: plain and device only"
    )
    parser.add_argument("--out", type=Path, default=Path("build/bench"), help="folder for JSON and plots")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="bound on one run")
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    return arguments


def _sized(workload: Workload, arguments: argparse.Namespace) -> Workload:
    """With the sizes of the command line. A workload without devices gets none."""
    sizes = {name: getattr(arguments, name) for name in ("nodes", "pods", "devices", "unschedulable", "present")}
    given = {name: size for name, size in sizes.items() if size is not None and getattr(workload, name)}
    return replace(workload, **given)


def main() -> None:
    """Run, print, write."""
    arguments = _arguments()
    names = arguments.workloads or [name for name in WORKLOADS if (name in LARGE) is arguments.large]
    results: list[Result] = []
    for name in names:
        workload = _sized(WORKLOADS[name], arguments)
        for _ in range(arguments.rounds):
            with_floor = arguments.floor and name in FLOORED
            for scheduler in (THEIRS, OURS, FLOOR) if with_floor else (THEIRS, OURS):
                if arguments.only in (None, scheduler):
                    with tempfile.TemporaryDirectory(prefix="dra-bench-") as folder:
                        result = asyncio.run(measure(workload, scheduler, Path(folder), arguments.timeout_s))
                    results.append(result)
                    print(_line(result), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps([r.record() for r in results], indent=1))
    draw(results, arguments.out)
    text = f"{summary(results)}\n\n{details(results)}\n"
    (arguments.out / "table.md").write_text(text)
    print("\n" + text)


def _line(result: Result) -> str:
    own = ", ".join(f"{verb} {count:g}" for verb, count in result.own_requests.items())
    requests = ", ".join(f"{name} {count:g}" for name, count in sorted(result.requests.items()))
    cpu = ", ".join(f"{name} {value:.2f}" for name, value in sorted(result.cpu_ms.items()))
    return (
        f"{result.workload:20} {result.scheduler:15} {result.pods_per_s:8.1f} pods/s  wall {result.wall_s:6.1f} s  "
        f"p50 {result.p50_ms:7.1f} p99 {result.p99_ms:7.1f} ms  {result.memory_mb:5.0f} MB  "
        f"ready {result.ready_s:.1f} s  pause p99 {result.pause_p99_ms:.1f} ms, own {result.own_pause_p99_ms:.1f} ms\n"
        f"    CPU ms/Pod: {cpu}\n    requests/Pod: {requests}\n    its own: {own}"
    )


if __name__ == "__main__":
    main()
