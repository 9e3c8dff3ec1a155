"""What mutants leave behind in memory is bounded per kind, and a leak is found and named."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.fuzz import memory, objects
from e2e.fuzz.memory import GROWTH_MAX_MB, PEAK_MAX_MB, MemoryBound
from e2e.fuzz.mutate import BYTES_MAX, Mutant, Mutator, encode
from scheduler.edge import lister

LARGE_MUTANTS = 80
"""Of the largest size, each decoded once in a LIST: 240 MB if every one of them is kept."""


def large(self: Mutator, body: dict[str, Any]) -> Mutant:
    """The object itself, filled up with blanks to the largest size."""
    raw = encode(body)
    return Mutant("large", raw[:-1] + b" " * (BYTES_MAX - len(raw)) + b"}")


@pytest.fixture
def large_mutants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants of the largest size instead of random ones."""
    monkeypatch.setattr(Mutator, "mutate", large)


measured = pytest.mark.skipif(not memory.measurable(), reason="resident memory is read from Linux' /proc")


@measured
@pytest.mark.usefixtures("large_mutants")
async def test_a_reflector_that_keeps_every_mutant_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence names the kind and both amounts."""
    kept, decode = list[bytes](), lister.decode

    def keeping(kind: Any, raw: bytes) -> Any:
        kept.append(bytes(bytearray(raw)))
        return decode(kind, raw)

    monkeypatch.setattr(lister, "decode", keeping)
    outcome = await objects.run_kind("Service", LARGE_MUTANTS, 1, "default")
    assert not outcome.faults
    assert len(kept) >= LARGE_MUTANTS
    assert outcome.grown_mb > GROWTH_MAX_MB
    (sentence,) = outcome.memory
    assert sentence.startswith(f"{LARGE_MUTANTS} mutants of Service (default) left ")
    assert sentence.endswith(" MB behind, 150 are allowed")


@measured
@pytest.mark.usefixtures("large_mutants")
async def test_large_mutants_that_nobody_keeps_leave_little_behind() -> None:
    """The same ones without the leak stay far below the bound, so that it is not found by chance."""
    outcome = await objects.run_kind("Service", LARGE_MUTANTS, 1, "default")
    assert not outcome.faults
    assert not outcome.memory
    assert outcome.grown_mb < GROWTH_MAX_MB / 3


def test_memory_left_behind_fails_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """It counts as a fault and is printed."""
    outcome = objects.Outcome("Service (default)", runs=3, memory=["3 mutants of Service (default) left 200 MB behind"])
    assert objects.tell(outcome) == 1
    assert "3 mutants of Service (default) left 200 MB behind\n" in capsys.readouterr().out


def test_a_peak_counts_against_the_kind_in_which_it_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peak never falls again: the kind after is not blamed for it."""
    peaks = [100.0, 200.0 + PEAK_MAX_MB, 200.0 + PEAK_MAX_MB, 200.0 + PEAK_MAX_MB]
    monkeypatch.setattr(memory, "peak_mb", lambda: peaks.pop(0))
    monkeypatch.setattr(memory, "settled_mb", lambda: 100.0)
    assert MemoryBound("Pod").faults(9) == ["9 mutants of Pod took 1600 MB at one time, 1500 are allowed"]
    assert MemoryBound("Node").faults(9) == []
