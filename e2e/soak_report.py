"""What a soak measured, as a verdict, as JSON and as a picture. Flat is the pass."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

MEMORY_GROWTH_MAX = 0.05
WINDOW = 0.05
"""Share of the time after warming up that is looked at on either end."""

WIDTH, PANEL, MARGIN = 720, 130, 60


class Sample(msgspec.Struct, frozen=True):
    """The scheduler at one moment. Latency: since the sample before (0 when no Pod was bound)."""

    second: float
    memory_mb: float
    files: int
    threads: int
    tasks: int
    queued: int
    bound: int
    p50_ms: float
    p99_ms: float
    cpu_s: float


Reading = Callable[[Sample], float]
PANELS: dict[str, Reading] = {
    "memory, MB": lambda s: s.memory_mb,
    "file handles": lambda s: s.files,
    "tasks": lambda s: s.tasks,
    "threads": lambda s: s.threads,
    "Pods in the queue": lambda s: s.queued,
    "latency p50, ms": lambda s: s.p50_ms,
    "latency p99, ms": lambda s: s.p99_ms,
}


def ends(samples: Sequence[Sample], warm_s: float, reading: Reading) -> tuple[float, float]:
    """Medians right after warming up and at the end. Raises ValueError when nothing was sampled after ``warm_s``."""
    warm = [sample for sample in samples if sample.second >= warm_s]
    if not warm:
        raise ValueError(f"no sample after {warm_s:g} s")
    count = max(1, int(len(warm) * WINDOW))
    return (
        statistics.median(reading(sample) for sample in warm[:count]),
        statistics.median(reading(sample) for sample in warm[-count:]),
    )


def growth(samples: Sequence[Sample], warm_s: float) -> float:
    """Memory at the end against memory after warming up, as a share."""
    first, last = ends(samples, warm_s, lambda sample: sample.memory_mb)
    return last / first - 1.0


def problems(samples: Sequence[Sample], warm_s: float) -> list[str]:
    """What was not flat, in words; empty for a pass."""
    found = []
    share = growth(samples, warm_s)
    if share >= MEMORY_GROWTH_MAX:
        found.append(f"memory grew by {share:.1%} after the first {warm_s:g} s")
    # A connection that a burst has opened stays open, used in turn with the others, up to the client's limit: what
    # grows must have stopped growing by half-time.
    half_s = max(warm_s, samples[-1].second / 2)
    for name, slack, since_s in (
        ("file handles", 5.0, half_s),
        ("threads", 2.0, warm_s),
        ("tasks", 20.0, warm_s),
        ("Pods in the queue", 40.0, warm_s),
    ):
        first, last = ends(samples, since_s, PANELS[name])
        if last > first * 1.1 + slack:
            found.append(f"{name} grew from {first:g} to {last:g}")
    return found


def write(samples: Sequence[Sample], warm_s: float, folder: Path, title: str) -> None:
    """samples.json and soak.svg."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "samples.json").write_text(json.dumps([msgspec.structs.asdict(sample) for sample in samples], indent=0))
    (folder / "soak.svg").write_text(picture(samples, warm_s, title))


def picture(samples: Sequence[Sample], warm_s: float, title: str) -> str:
    """One panel per reading over the same seconds; the line marks the end of warming up."""
    height = PANEL * len(PANELS) + MARGIN
    longest = max((sample.second for sample in samples), default=1.0) or 1.0
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="sans-serif">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="20" font-size="14">{title}; {longest:.0f} s</text>',
    ]
    for index, (name, reading) in enumerate(PANELS.items()):
        parts += _panel(samples, reading, name, 30.0 + index * PANEL, longest, warm_s)
    return "\n".join([*parts, "</svg>"])


def _panel(
    samples: Sequence[Sample], reading: Reading, name: str, top: float, longest: float, warm_s: float
) -> list[str]:
    values = [reading(sample) for sample in samples]
    most = max(values, default=1.0) or 1.0
    width, height = WIDTH - MARGIN - 20, PANEL - 30

    def x(second: float) -> float:
        return MARGIN + second / longest * width

    points = " ".join(
        f"{x(sample.second):.1f},{top + 15 + height * (1 - value / most):.1f}"
        for sample, value in zip(samples, values, strict=True)
    )
    low = top + 15 + height
    return [
        f'<text x="{MARGIN}" y="{top + 10:.0f}" font-size="11">{name} (0 to {most:g})</text>',
        f'<line x1="{MARGIN}" y1="{low:.1f}" x2="{MARGIN + width}" y2="{low:.1f}" stroke="#999"/>',
        f'<line x1="{x(warm_s):.1f}" y1="{top + 15:.1f}" x2="{x(warm_s):.1f}" y2="{low:.1f}" stroke="#bbb"/>',
        f'<polyline points="{points}" fill="none" stroke="#c0392b" stroke-width="1.2"/>',
    ]
