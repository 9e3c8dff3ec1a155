"""What passes a soak: what levels off is flat, what goes on growing is not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from e2e.soak_report import Sample, problems

WARM_S, END_S = 600.0, 3600.0


def soak(**grown: Callable[[float], float]) -> list[str]:
    """The problems of an hour in which these readings are what the functions say of each second; the rest is flat."""
    flat = {"memory_mb": 110.0, "files": 50, "threads": 6, "tasks": 45, "queued": 10, "p50_ms": 20.0, "p99_ms": 80.0}
    samples = []
    for second in range(0, int(END_S) + 1, 20):
        found = {**flat, **{name: reading(second) for name, reading in grown.items()}}
        samples.append(Sample(second=float(second), bound=20 * second, cpu_s=second / 5, **found))  # type: ignore[arg-type]
    return problems(samples, WARM_S)


def test_flat_is_the_pass() -> None:
    """Nothing grows, nothing is told."""
    assert soak() == []


def test_connections_that_a_burst_opened_may_stay() -> None:
    """From 53 to 71 handles in the thirteenth minute, and 71 ever after."""
    assert soak(files=lambda second: 53 if second < 757 else 71) == []


@pytest.mark.parametrize(
    ("name", "reading", "told"),
    [
        ("files", lambda second: 50 + second / 100, "file handles grew from"),
        ("threads", lambda second: 6 + second / 600, "threads grew from"),
        ("tasks", lambda second: 45 + second / 50, "tasks grew from"),
        ("queued", lambda second: 10 + second / 20, "Pods in the queue grew from"),
        ("memory_mb", lambda second: 110 + second / 400, "memory grew by 6.4% after the first 600 s"),
    ],
)
def test_what_goes_on_growing_is_told(name: str, reading: Callable[[float], float], told: str) -> None:
    """Each of them, by name."""
    (problem,) = soak(**{name: reading})
    assert problem.startswith(told), problem
