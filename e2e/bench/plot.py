"""Draws bound Pods over time as SVG, by hand: no plotting library is worth a dependency here."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from e2e.bench.measure import OURS, Result

WIDTH, HEIGHT, MARGIN = 640, 320, 45
COLORS = {True: "#c0392b", False: "#2c3e50"}


def draw(results: Sequence[Result], folder: Path) -> None:
    """One SVG per workload: a line per run, ours red."""
    for name in dict.fromkeys(result.workload for result in results):
        runs = [result for result in results if result.workload == name and result.series]
        if runs:
            (folder / f"{name}.svg").write_text(_svg(name, runs))


def _svg(name: str, runs: Sequence[Result]) -> str:
    longest = max(run.series[-1] for run in runs) or 1.0
    most = max(run.bound for run in runs) or 1
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="20" font-size="14">{name}: bound Pods (max {most}) over seconds '
        f"(max {longest:.1f}); red dra-scheduler, blue kube-scheduler</text>",
    ]
    for run in runs:
        step = run.bound / len(run.series)
        points = " ".join(
            f"{MARGIN + moment / longest * (WIDTH - 2 * MARGIN):.1f},"
            f"{HEIGHT - MARGIN - (index + 1) * step / most * (HEIGHT - 2 * MARGIN):.1f}"
            for index, moment in enumerate(run.series)
        )
        color = COLORS[run.scheduler == OURS]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    parts.append("</svg>")
    return "\n".join(parts)
