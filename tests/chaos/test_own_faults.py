"""Faults of a replica's own machine: limits that really bite, clocks that really move, trails that are really read."""

from __future__ import annotations

import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.chaos.own_faults import FEW_HANDLES, WALL_JUMPS_S, Machine, limit
from scheduler.edge.journal import segment_files
from tests.audit.test_refusals import recorded

_TRIES = """
import sys
for line in sys.stdin:
    try:
        if line.strip() == "open":
            kept = [open("/dev/null") for _ in range(10)]
            del kept
        else:
            with open(sys.argv[1], "a") as file:
                file.write("more")
        print("ok", flush=True)
    except OSError as error:
        print(type(error).__name__, error.strerror, flush=True)
"""


@pytest.mark.parametrize(
    ("which", "soft", "what", "refused"),
    [
        (resource.RLIMIT_NOFILE, FEW_HANDLES, "open", "OSError Too many open files"),
        (resource.RLIMIT_FSIZE, 0, "write", "OSError File too large"),
    ],
    ids=("handles", "disk"),
)
def test_a_limit_bites_until_it_is_given_back(tmp_path: Path, which: int, soft: int, what: str, refused: str) -> None:
    """A running process meets it, and then does not any more."""
    command = [sys.executable, "-c", _TRIES, str(tmp_path / "file")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def answer() -> str:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(what + "\n")
            child.stdin.flush()
            return child.stdout.readline().strip()

        assert answer() == "ok"
        give_back = limit(child.pid, which, soft)
        assert answer() == refused
        give_back()
        assert answer() == "ok"
        child.stdin.close()
    give_back()  # of a process that is gone: nothing


def test_clocks_move_and_the_one_since_boot_never_goes_back(tmp_path: Path) -> None:
    """A jump of the wall clock ends with the calm; sleep adds up."""
    machine = Machine(tmp_path, "replica")
    offsets = machine.clocks.folder / "offsets"
    machine.jump(random.Random(1))
    assert float(offsets.read_text().split()[0]) in WALL_JUMPS_S
    machine.suspend()
    machine.suspend()
    machine.calm()
    assert offsets.read_text() == "0.0 1200.0"


def test_a_spoilt_trail_is_found(tmp_path: Path) -> None:
    """Nothing written is no problem; a file that is no trail is one."""
    machine = Machine(tmp_path, "replica")
    assert machine.problems() == []
    machine.audit_file.write_bytes(b"no database, and quite long" * 100)
    (problem,) = machine.problems()
    assert problem.startswith("audit trail: ")


async def _recorded(folder: Path) -> tuple[Machine, Path]:
    """A machine whose recording holds two decisions, and the only segment."""
    await recorded(folder, "a", "b")
    machine = Machine(folder, "replica")
    machine.recording = folder / "journal"
    (segment,) = segment_files(machine.recording)
    return machine, segment


async def test_a_recording_that_was_cut_off_is_no_problem(tmp_path: Path) -> None:
    """Killed, or out of disk: in the middle, in its first line, before it."""
    machine, segment = await _recorded(tmp_path)
    assert machine.problems() == []
    assert machine.replayed == 2
    whole = segment.read_bytes()
    for length in (len(whole) - 1, len(whole) // 2, 300, 20, 0):
        segment.write_bytes(whole[:length])
        assert machine.problems() == []


async def test_a_spoilt_recording_is_found(tmp_path: Path) -> None:
    """A line that cannot be read, a decision that comes out otherwise, another format."""
    machine, segment = await _recorded(tmp_path)
    whole = segment.read_bytes()
    lines = whole.splitlines(keepends=True)
    segment.write_bytes(b"".join([*lines[:5], b"garbage\n", *lines[5:]]))
    assert any("cannot be read" in problem for problem in machine.problems())
    segment.write_bytes(
        b"".join(line.replace(b'"node":"n', b'"node":"m') if b'"decided"' in line[:30] else line for line in lines)
    )
    assert any("differs" in problem for problem in machine.problems())
    segment.write_bytes(whole.replace(b'"format":1', b'"format":9', 1))
    assert any("format 9" in problem for problem in machine.problems())
