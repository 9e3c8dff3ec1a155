"""The recording's files: bounded, readable after a sudden end, and a disk that refuses costs only the recording."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler.audit.operations import FORMAT, Operation
from scheduler.edge.journal import Header, JournalError, JournalWriter, read_segment, segment_files, segment_name

KIB = 1024


def writer(folder: Path, troubles: list[str], max_bytes: int = 800 * KIB, **options: Any) -> JournalWriter:
    def header(position: int) -> Header:
        return Header(FORMAT, "run", position, 1000.0 + position, "0")

    return JournalWriter(str(folder), max_bytes, header, troubles.append, clock=time.monotonic, **options)


def eventually(check: Callable[[], bool], what: str) -> None:
    """The writer is a thread: wait for what it does."""
    ends_at = time.monotonic() + 20
    while not check():
        assert time.monotonic() < ends_at, what
        time.sleep(0.005)


def operation(number: int, size: int = 200) -> Operation:
    return "needed", f"id-{number}", "x" * size


def record(journal: JournalWriter, first: int, count: int) -> None:
    """As the recorder does: a snapshot when one is wanted, then operations."""
    for number in range(first, first + count):
        if journal.wants_snapshot():
            journal.begin(number, [operation(0), operation(0)])
        journal.put(number, operation(number))


def test_lines_come_back_with_their_positions(tmp_path: Path) -> None:
    """Header, the snapshot at its position, then what followed."""
    troubles: list[str] = []
    journal = writer(tmp_path, troubles)
    record(journal, 1, 50)
    journal.close()
    (file,) = segment_files(tmp_path)
    header, lines = read_segment(file)
    assert (header.run, header.position, header.snapshot) == ("run", 1, 2)
    assert [int(line[1 : line.index(b",")]) for line in lines] == [1, 1, *range(1, 51)]
    assert troubles == []


def test_the_folder_stays_within_its_size(tmp_path: Path) -> None:
    """Ten times the allowed size is written; the newest segments stay, without a hole between them."""
    troubles: list[str] = []
    journal = writer(tmp_path, troubles)
    for first in range(1, 40_000, 200):
        record(journal, first, 200)
        eventually(journal._queue.empty, "the writer keeps up")
    journal.close()
    assert troubles == []
    files = segment_files(tmp_path)
    assert len(files) > 3
    assert sum(file.stat().st_size for file in files) <= 800 * KIB
    positions = [int(line[1 : line.index(b",")]) for file in files for line in list(read_segment(file)[1])[2:]]
    assert positions == list(range(positions[0], 40_001))


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    """What a killed process wrote last may be half a line."""
    journal = writer(tmp_path, [])
    record(journal, 1, 3)
    journal.close()
    (file,) = segment_files(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    assert len(list(read_segment(file)[1])) == 4


def test_a_full_disk_ends_the_part_and_a_new_one_begins_later(tmp_path: Path) -> None:
    """The write fails with ENOSPC: told once, nothing is kept until the pause is over, then a new snapshot begins."""
    troubles: list[str] = []
    journal = writer(tmp_path, troubles, retry_s=0.2)
    record(journal, 1, 10)
    eventually(journal._queue.empty, "written")
    eventually(lambda: journal._file is not None, "open")
    journal._close_file()
    journal._file = open("/dev/full", "wb")  # noqa: SIM115  # closed by the writer

    def refused() -> bool:
        return not journal.put(11, operation(11, 100_000))

    eventually(refused, "the loop learns of it")
    assert len(troubles) == 1
    assert "No space left on device" in troubles[0]
    assert not journal.wants_snapshot()
    eventually(journal.wants_snapshot, "it is tried again")
    record(journal, 20, 5)
    journal.close()
    assert len(troubles) == 1
    assert [read_segment(file)[0].position for file in segment_files(tmp_path)] == [1, 20]


def test_a_disk_that_is_too_slow_costs_the_part_not_the_loop(tmp_path: Path) -> None:
    """The queue is full: put answers at once, and says no."""
    troubles: list[str] = []
    journal = writer(tmp_path, troubles, queue_max=5)
    journal._take = lambda item: time.sleep(0.05)  # type: ignore[method-assign]
    assert journal.wants_snapshot()
    journal.begin(1, [])
    answers = [journal.put(number, operation(number)) for number in range(2, 40)]
    assert not all(answers)
    assert "too slow" in troubles[0]
    assert len(troubles) == 1
    journal.close()


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "ends before its first line"),
        (b'{"format":1,"run', "ends before its first line"),
        (b"nonsense\n", "JSON"),
        (b'{"format":99,"run":"r","position":0,"started":0}\n', "format 99"),
    ],
)
def test_a_file_that_is_no_segment_is_named(tmp_path: Path, content: bytes, text: str) -> None:
    """Never a traceback: the file's name and why."""
    file = tmp_path / "x.journal"
    file.write_bytes(content)
    with pytest.raises(JournalError, match=f"recording {file}: .*({text})"):
        read_segment(file)


def test_the_name_of_a_segment_tells_when_and_in_which_run_it_began() -> None:
    """Also when nothing else of it was written."""
    assert segment_name(Path("x/001700000000500-3f-2a-000000000007.journal")) == (1_700_000_000.5, "3f-2a")
    assert segment_name(Path("x/notes.journal")) == (0.0, "")
