"""``python -m e2e.chaos.report FILES``: the results of chaos runs (runs.jsonl) as the tables of docs/reliability.md."""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Collection, Iterable
from pathlib import Path

import msgspec

from e2e.chaos.faults import Fault
from e2e.chaos.run import Outcome, totals


def report(outcomes: Collection[Outcome]) -> str:
    """Markdown: seeds and sums in words, then one row per kind of fault and per kind of load."""
    faults, load, stats = totals(outcomes)
    bad = [outcome.seed for outcome in outcomes if outcome.problems]
    unjudged = [outcome.seed for outcome in outcomes if outcome.unjudged]
    settled = [outcome.settled_s for outcome in outcomes if not outcome.unjudged] or [math.nan]
    told = f" ({_ranges(bad)})" if bad else ""
    told += f", {len(unjudged)} whose history could not be judged ({_ranges(unjudged)})" if unjudged else ""
    ours, theirs = stats["bound by dra-scheduler"], stats["bound by default-scheduler"]
    second, first = stats["pair: kube-scheduler then dra-scheduler"], stats["pair: dra-scheduler then kube-scheduler"]
    facts = sum(outcome.facts for outcome in outcomes if not outcome.unjudged)
    lines = [
        f"{len(outcomes)} runs, seeds {_ranges(o.seed for o in outcomes)}: {len(bad)} with violations{told}. "
        f"{facts:,} facts judged; {ours:,} Bindings by dra-scheduler, {theirs:,} by "
        f"kube-scheduler; {second} times we were second on a device and gave it back unbound, {first} times "
        f"kube-scheduler was second. After the faults it took {statistics.median(settled):.0f} s (median), "
        f"{max(settled):.0f} s (longest) until nothing that fits waited.",
        "",
        "| fault | times survived |",
        "| --- | --- |",
    ]
    names = [fault.value for fault in Fault]
    names += sorted(name for name in faults if name not in names)
    lines += [f"| {name} | {faults[name]:,} |" for name in names]
    lines += ["", "| load meanwhile | times |", "| --- | --- |"]
    lines += [f"| {name} | {count:,} |" for name, count in sorted(load.items())]
    return "\n".join(lines)


def _ranges(numbers: Iterable[int]) -> str:
    """1000-1003, 1010: what follows on each other is one range."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in parts)


def main() -> None:
    """Read, print."""
    parser = argparse.ArgumentParser(prog="python -m e2e.chaos.report", description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    lines = [line for file in parser.parse_args().files for line in file.read_bytes().splitlines()]
    print(report([msgspec.json.decode(line, type=Outcome) for line in lines]))


if __name__ == "__main__":
    main()
