"""``python -m e2e.bench``: alternating runs, one table, JSON and a plot."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from e2e.bench.measure import OURS, THEIRS, Result, measure
from e2e.bench.plot import draw
from e2e.bench.workloads import LARGE, WORKLOADS


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m e2e.bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)}; default: all but the large ones")
    parser.add_argument("--rounds", type=int, default=3, help="alternating rounds per workload (default 3)")
    parser.add_argument("--nodes", type=int, help="number of nodes instead of the workload's own")
    parser.add_argument("--pods", type=int, help="number of Pods instead of the workload's own")
    parser.add_argument("--only", choices=(OURS, THEIRS), help="run one of the two schedulers alone")
    parser.add_argument("--out", type=Path, default=Path("bench-results"), help="folder for JSON and plots")
    parser.add_argument("--timeout-s", type=float, default=600.0, help="bound on one run")
    arguments = parser.parse_args()
    unknown = set(arguments.workloads) - set(WORKLOADS)
    if unknown:
        parser.error(f"unknown workloads: {', '.join(sorted(unknown))}")
    return arguments


def main() -> None:
    """Run, print, write."""
    arguments = _arguments()
    names = arguments.workloads or [name for name in WORKLOADS if name not in LARGE]
    results: list[Result] = []
    for name in names:
        workload = WORKLOADS[name]
        workload = replace(workload, nodes=arguments.nodes or workload.nodes, pods=arguments.pods or workload.pods)
        for _ in range(arguments.rounds):
            for scheduler in (THEIRS, OURS):
                if arguments.only in (None, scheduler):
                    with tempfile.TemporaryDirectory(prefix="dra-bench-") as folder:
                        result = asyncio.run(measure(workload, scheduler, Path(folder), arguments.timeout_s))
                    results.append(result)
                    print(_line(result), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps([r.record() for r in results], indent=1))
    draw(results, arguments.out)
    print("\n" + table(results))


def _line(result: Result) -> str:
    requests = ", ".join(f"{name} {count:g}" for name, count in sorted(result.requests.items()))
    cpu = ", ".join(f"{name} {value:.2f}" for name, value in sorted(result.cpu_ms.items()))
    return (
        f"{result.workload:20} {result.scheduler:15} {result.pods_per_s:8.1f} pods/s  wall {result.wall_s:6.1f} s  "
        f"p50 {result.p50_ms:7.1f} p99 {result.p99_ms:7.1f} ms  {result.memory_mb:5.0f} MB  "
        f"ready {result.ready_s:.1f} s\n    CPU ms/Pod: {cpu}\n    requests/Pod: {requests}"
    )


def table(results: Sequence[Result]) -> str:
    """Medians of both schedulers per workload, and the ratios ours / theirs."""
    lines = [
        "| workload | pods/s kube | pods/s ours | ratio | CPU ms/Pod kube | ours | ratio "
        "| p99 ms kube | ours | MB kube | ours |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name in dict.fromkeys(result.workload for result in results):
        rows = {who: [r for r in results if r.workload == name and r.scheduler == who] for who in (THEIRS, OURS)}
        if not all(rows.values()):
            continue

        def median(who: str, what: str, of: dict[str, list[Result]] = rows) -> float:
            values = [r.cpu_ms["scheduler"] if what == "cpu" else getattr(r, what) for r in of[who]]
            return statistics.median(values)

        speed = [median(who, "pods_per_s") for who in (THEIRS, OURS)]
        cpu = [median(who, "cpu") for who in (THEIRS, OURS)]
        p99 = [median(who, "p99_ms") for who in (THEIRS, OURS)]
        memory = [median(who, "memory_mb") for who in (THEIRS, OURS)]
        lines.append(
            f"| {name} | {speed[0]:.0f} | {speed[1]:.0f} | {speed[1] / speed[0]:.2f} | {cpu[0]:.2f} | {cpu[1]:.2f} "
            f"| {cpu[1] / cpu[0]:.2f} | {p99[0]:.0f} | {p99[1]:.0f} | {memory[0]:.0f} | {memory[1]:.0f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
