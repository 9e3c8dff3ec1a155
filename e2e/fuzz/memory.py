"""What the mutants of one kind may leave behind in memory, and take at most.

Measured is memory of this process that no file backs, after a garbage collection, with free pages given back: what
fragments or waits for the collector does not count as kept.
"""

from __future__ import annotations

import gc
import resource
import sys
from pathlib import Path

from scheduler.edge.memory import give_back

GROWTH_MAX_MB = 150.0
"""Room for caches that fill up (programs of expressions and patterns, interned texts)."""
PEAK_MAX_MB = 1500.0
"""Above what there was before the first mutant. One mutant has 3 MB at most, and is a hundred times that as objects."""
_STATUS = Path("/proc/self/status")
_FIELDS = ("RssAnon:", "VmSwap:")


def measurable() -> bool:
    """True on Linux; elsewhere growth is taken for zero."""
    return _STATUS.exists()


def resident_mb() -> float:
    """Memory that no file backs, resident or swapped out; 0 where it cannot be measured."""
    if not measurable():
        return 0.0
    lines = (line.split() for line in _STATUS.read_text().splitlines())
    return sum(int(fields[1]) for fields in lines if fields and fields[0] in _FIELDS) / 1024


def settled_mb() -> float:
    """The same once everything that nobody can reach is given back to the system."""
    gc.collect()
    give_back()
    return resident_mb()


def peak_mb() -> float:
    """Peak resident memory of this process since it began."""
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


class MemoryBound:
    """Begins to measure when it is made. ``kind``: whose mutants come now."""

    def __init__(self, kind: str) -> None:
        self._kind, self._peak_mb, self._before_mb = kind, peak_mb(), settled_mb()
        self.grown_mb = 0.0

    def faults(self, mutants: int) -> list[str]:
        """A sentence for each bound that is broken after so many mutants; sets ``grown_mb``.

        A peak counts against the kind in which it was reached: it never falls again.
        """
        self.grown_mb = settled_mb() - self._before_mb
        found = []
        if self.grown_mb > GROWTH_MAX_MB:
            found.append(
                f"{mutants} mutants of {self._kind} left {self.grown_mb:.0f} MB behind, {GROWTH_MAX_MB:.0f} are allowed"
            )
        peak = peak_mb()
        above = peak - self._before_mb
        if peak > self._peak_mb and above > PEAK_MAX_MB:
            found.append(
                f"{mutants} mutants of {self._kind} took {above:.0f} MB at one time, {PEAK_MAX_MB:.0f} are allowed"
            )
        return found
