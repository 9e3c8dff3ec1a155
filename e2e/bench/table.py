"""Medians of both schedulers per workload, and the ratios ours / theirs, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence

from e2e.bench.measure import OURS, THEIRS, Result

Read = Callable[[Result], float]
_PROCESSES = {"kube-apiserver": "API server", "etcd": "etcd", "kube-controller-manager": "controller manager"}
_COLUMNS: tuple[tuple[str, Read, int, bool], ...] = (
    ("pods/s", lambda r: r.pods_per_s, 0, True),
    ("CPU ms/Pod", lambda r: r.cpu_ms.get("scheduler", 0.0), 2, True),
    ("p99 ms", lambda r: r.p99_ms, 0, False),
    ("MB", lambda r: r.memory_mb, 0, False),
    ("requests/Pod", lambda r: sum(r.own_requests.values()), 2, False),
)
"""Heading, how it is read, digits, whether the ratio has a column."""


def _pairs(results: Sequence[Result]) -> Iterator[tuple[str, list[Result], list[Result]]]:
    """Workload, kube-scheduler's runs, ours; workloads that only one of them ran are left out."""
    for name in dict.fromkeys(result.workload for result in results):
        theirs, ours = (
            [result for result in results if (result.workload, result.scheduler) == (name, who)]
            for who in (THEIRS, OURS)
        )
        if theirs and ours:
            yield name, theirs, ours


def _median(runs: Sequence[Result], read: Read) -> float:
    return statistics.median(map(read, runs))


def _ratio(ours: float, theirs: float) -> str:
    return f"{ours / theirs:.2f}" if theirs else ""


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def summary(results: Sequence[Result]) -> str:
    """One row per workload."""
    heads = ["workload"]
    for heading, _, _, with_ratio in _COLUMNS:
        heads += [f"{heading} kube", "ours", *(["ratio"] if with_ratio else [])]
    lines = [_row([*heads, "pause p99 ms ours"]), _row(["---"] * (len(heads) + 1))]
    for name, theirs, ours in _pairs(results):
        cells = [name]
        for _, read, digits, with_ratio in _COLUMNS:
            both = _median(theirs, read), _median(ours, read)
            cells += [f"{value:.{digits}f}" for value in both]
            cells += [_ratio(both[1], both[0])] if with_ratio else []
        lines.append(_row([*cells, f"{_median(ours, lambda r: r.pause_p99_ms):.1f}"]))
    return "\n".join(lines)


def _numbers(runs: Sequence[Result]) -> dict[str, Read]:
    """Everything that was measured, by what it is called."""
    found: dict[str, Read] = {
        "pods/s, 10-90 %": lambda r: r.pods_per_s,
        "wall time to the last bind, s": lambda r: r.wall_s,
        "time to ready, s": lambda r: r.ready_s,
        "p50 queue to bound, ms": lambda r: r.p50_ms,
        "p99 queue to bound, ms": lambda r: r.p99_ms,
        "peak memory, MB": lambda r: r.memory_mb,
        "CPU ms/Pod, scheduler": lambda r: r.cpu_ms.get("scheduler", 0.0),
        "CPU ms/Pod, scheduler after its start": lambda r: r.cpu_ms.get("scheduler after start", 0.0),
    }
    for process, words in _PROCESSES.items():
        found[f"CPU ms/Pod, {words}"] = lambda r, process=process: r.cpu_ms.get(process, 0.0)  # type: ignore[misc]
    for verb in sorted({verb for run in runs for verb in run.own_requests}):
        found[f"{verb} requests/Pod of the scheduler"] = lambda r, verb=verb: r.own_requests.get(verb, 0.0)  # type: ignore[misc]
    for verb in sorted({name.split()[0] for run in runs for name in run.requests}):
        found[f"{verb} requests/Pod of everybody"] = lambda r, verb=verb: sum(  # type: ignore[misc]
            number for name, number in r.requests.items() if name.split()[0] == verb
        )
    found["loop pause p99, ms"] = lambda r: r.pause_p99_ms
    found["loop pause p99, its own part, ms"] = lambda r: r.own_pause_p99_ms
    return found


def details(results: Sequence[Result]) -> str:
    """One row per workload and number; medians."""
    lines = [_row(["workload", "number", "kube-scheduler", "ours", "ratio"]), _row(["---"] * 5)]
    for name, theirs, ours in _pairs(results):
        for words, read in _numbers([*theirs, *ours]).items():
            both = _median(theirs, read), _median(ours, read)
            if any(both):
                lines.append(_row([name, words, *(f"{value:.2f}" for value in both), _ratio(both[1], both[0])]))
    return "\n".join(lines)
