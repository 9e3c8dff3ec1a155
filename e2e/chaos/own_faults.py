"""Faults of the machine a replica runs on: no file handle left, no file may grow, clocks that jump."""

from __future__ import annotations

import random
import resource
from collections.abc import Callable
from pathlib import Path

from e2e.clocks import Clocks
from scheduler.app.replaying import replay
from scheduler.edge.audit_store import AuditStoreError, read_records
from scheduler.edge.journal import JournalError, segment_files

FEW_HANDLES = 8
"""Fewer than it has open: nothing new can be opened, what is open stays."""
WALL_JUMPS_S = (-7200.0, -60.0, -3.0, 3.0, 60.0, 3600.0)
SUSPENDED_S = 600.0
CUT_OFF = ("ends before its first line does", "the snapshot at its beginning is incomplete")
"""What a process that was killed, or a disk that was full, leaves at the end of a segment: no fault of the writer."""


class Machine:
    """What a replica has of its own: clocks, limits, a place for its audit trail and its recording."""

    def __init__(self, folder: Path, name: str) -> None:
        self.clocks = Clocks(folder / f"{name}-clocks")
        self.audit_file, self.recording = folder / f"{name}-audit.db", folder / f"{name}-recording"
        self.replayed = 0
        self._wall_s = self._boot_s = 0.0

    def arguments(self) -> list[str]:
        """Of the command line: what writes files."""
        return [f"--audit-file={self.audit_file}", f"--record={self.recording}", "--record-max-size=16Mi"]

    def jump(self, rng: random.Random) -> None:
        """The wall clock is wrong from now on, forwards or backwards."""
        self._wall_s = rng.choice(WALL_JUMPS_S)
        self.clocks.move(self._wall_s, self._boot_s)

    def suspend(self) -> None:
        """As after ten minutes of sleep. The clock since boot never goes back."""
        self._boot_s += SUSPENDED_S
        self.clocks.move(self._wall_s, self._boot_s)

    def calm(self) -> None:
        """The wall clock is right again."""
        self._wall_s = 0.0
        self.clocks.move(0.0, self._boot_s)

    def problems(self) -> list[str]:
        """What cannot be read of the trail and the recording, or is made differently when it is made once more.

        What the disk did not take is missing in both; that is no problem.
        """
        found = []
        try:
            if self.audit_file.exists():
                list(read_records(str(self.audit_file)))
        except AuditStoreError as error:
            found.append(f"audit trail: {error}")
        if self.recording.exists() and segment_files(self.recording):
            found += self._replayed()
        return found

    def _replayed(self) -> list[str]:
        try:
            again = replay(str(self.recording), "", "", lambda text: None)
        except JournalError as error:
            return [] if str(error).endswith(CUT_OFF) else [f"recording: {error}"]
        self.replayed = sum(result.equal for result in again.results)
        problems = [window.problem for window in again.windows if not window.problem.endswith(CUT_OFF)]
        return [
            *(f"recording: {problem}" for problem in problems if problem),
            *(f"replay of {result.id}, {result.pod}, differs" for result in again.different),
        ]


def limit(pid: int, which: int, soft: int) -> Callable[[], None]:
    """Lower a limit of a process now; what is returned gives it back, if that process still runs."""
    before = resource.prlimit(pid, which)
    resource.prlimit(pid, which, (soft, before[1]))

    def give_back() -> None:
        try:
            resource.prlimit(pid, which, before)
        except ProcessLookupError:
            return

    return give_back
