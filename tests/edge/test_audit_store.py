"""The audit file: what is written stays, what is too much goes, and whatever the file does harms nobody else."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.audit.records import ClaimUse, DeviceUse, Record
from scheduler.edge.audit_store import AuditStore, AuditStoreError, known_names, read_records
from scheduler.edge.audit_store_writer import AuditWriter
from tests.audit.recording import Meter

DAY_S = 86400.0
SIZE = 16 * 1024 * 1024


def record(number: int, at: float = 0.0, kind: str = "decision", text: str = "") -> Record:
    """A decision about a Pod of its own."""
    use = ClaimUse(f"default/c{number}", f"uid-{number}", "1", True, (DeviceUse(f"d/p/gpu-{number}", "gpu"),))
    return Record(
        f"run-{number}", kind, at or float(number), pod=f"default/p{number}", node="n1", claims=(use,), text=text
    )


def store(folder: Path, max_size_bytes: int = SIZE, max_age_s: float = DAY_S) -> AuditStore:
    return AuditStore(str(folder / "audit.db"), max_age_s=max_age_s, max_size_bytes=max_size_bytes)


def stored(folder: Path) -> list[Record]:
    return list(read_records(str(folder / "audit.db")))


def test_records_come_back_by_subject_and_time_while_the_file_is_in_use(tmp_path: Path) -> None:
    """Pod, node, claim, claim uid and device find a record; a newer version of an id takes the older one's place."""
    open_store = store(tmp_path)
    open_store.write([record(1), record(2), record(3)])
    open_store.write([record(2, at=2.0, text="again")])
    path = str(tmp_path / "audit.db")
    for subject in (("pod", "default/p2"), ("claim", "default/c2"), ("claim-uid", "uid-2"), ("device", "d/p/gpu-2")):
        assert [found.text for found in read_records(path, [subject])] == ["again"]
    assert len(list(read_records(path, [("node", "n1")]))) == 3
    assert [found.id for found in read_records(path, None, since=2.0, until=2.5)] == ["run-2"]
    assert known_names(path, "device", "gpu-3") == ["d/p/gpu-3"]
    open_store.close()


def test_what_is_found_anew_keeps_its_first_time(tmp_path: Path) -> None:
    """Every start finds the same allocations; the first word counts."""
    open_store = store(tmp_path)
    open_store.write([record(1, at=5.0, kind="found")])
    open_store.write([record(1, at=9.0, kind="found")])
    assert [found.time for found in stored(tmp_path)] == [5.0]
    open_store.close()


def test_old_records_go_with_their_subjects(tmp_path: Path) -> None:
    """By the time something last happened, not by when it began."""
    open_store = store(tmp_path, max_age_s=100.0)
    lasting = Record("run-0", "rejection", 1.0, pod="default/waits", count=9, until=950.0)
    open_store.write([lasting, record(1, at=899.0), record(2, at=901.0)])
    assert open_store.trim(1000.0) == 1
    assert {found.id for found in stored(tmp_path)} == {"run-0", "run-2"}
    assert known_names(str(tmp_path / "audit.db"), "pod", "p1") == []
    open_store.close()


def test_the_file_stays_within_its_size_and_the_newest_stay(tmp_path: Path) -> None:
    """Many times the allowed size is written; file and WAL stay bounded, and the newest records are there."""
    size_bytes = 1024 * 1024
    open_store = store(tmp_path, max_size_bytes=size_bytes)
    for batch in range(40):
        open_store.write(record(n, at=float(n), text="x" * 300) for n in range(batch * 200 + 1, batch * 200 + 201))
        open_store.trim(0.0)
        assert open_store.size_bytes() <= size_bytes
    assert os.stat(tmp_path / "audit.db").st_size <= size_bytes * 1.3
    assert os.stat(tmp_path / "audit.db-wal").st_size <= 6 * 1024 * 1024
    kept = [int(found.time) for found in stored(tmp_path)]
    assert kept == list(range(kept[0], 8001))
    assert len(kept) > 500
    open_store.close()


def test_a_killed_process_keeps_what_was_committed(tmp_path: Path) -> None:
    """kill -9 between two batches: the first is there, complete, and the next start goes on with the file."""
    program = (
        "import sys, time; sys.path.insert(0, sys.argv[2])\n"
        "from pathlib import Path\n"
        "from tests.edge.test_audit_store import record, store\n"
        "s = store(Path(sys.argv[1]))\n"
        "s.write([record(n) for n in range(1, 101)])\n"
        "print('written', flush=True)\n"
        "time.sleep(60)\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    child = subprocess.Popen([sys.executable, "-c", program, str(tmp_path), root], stdout=subprocess.PIPE, cwd=root)
    assert child.stdout is not None
    with child.stdout:
        assert child.stdout.readline() == b"written\n"
        os.kill(child.pid, signal.SIGKILL)
        child.wait(10)
    again = store(tmp_path)
    again.write([record(101)])
    assert len(stored(tmp_path)) == 101
    again.close()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda path: path.write_bytes(b"no database, but long enough to be taken for one" * 200), "not a database"),
        (lambda path: path.mkdir(), "unable to open"),
        (lambda path: None, "no such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, make: Callable[[Path], object], text: str) -> None:
    """Never a traceback: the file's name and why."""
    path = tmp_path / "audit.db"
    make(path)
    with pytest.raises(AuditStoreError, match=f"audit file {path}: .*({text}|there is no such file)"):
        list(read_records(str(path)))


def test_another_database_is_not_taken_for_a_trail(tmp_path: Path) -> None:
    """A SQLite file of somebody else, or of a later format, is refused."""
    import sqlite3

    path = str(tmp_path / "audit.db")
    for version, text in ((0, "not an audit trail"), (99, "another version")):
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE IF NOT EXISTS t (a)")
        connection.execute(f"PRAGMA user_version={version}")
        connection.commit()
        connection.close()
        with pytest.raises(AuditStoreError, match=text):
            list(read_records(path))
    with pytest.raises(AuditStoreError, match="newer version"):
        store(tmp_path)


class Troubles(list[str]):
    """Keeps what is told."""


def writer(
    folder: Path, meter: Meter, troubles: Troubles, max_size_bytes: int = SIZE, **options: object
) -> AuditWriter:
    path = str(folder / "audit.db")
    return AuditWriter(
        lambda: AuditStore(path, max_age_s=DAY_S, max_size_bytes=max_size_bytes),
        meter,
        troubles.append,
        clock=time.time,
        **options,  # type: ignore[arg-type]
    )


async def test_records_of_one_id_are_written_once_per_batch(tmp_path: Path) -> None:
    """A decision and its end within a second are one write."""
    meter, troubles = Meter(), Troubles()
    trail = writer(tmp_path, meter, troubles)
    for count in range(1, 50):
        trail.put(record(1, at=time.time(), text=f"{count}"))
    await trail.close()
    assert (meter.written, meter.failed, meter.dropped, troubles) == (1, 0, 0, [])
    assert [found.text for found in stored(tmp_path)] == ["49"]


async def test_a_full_disk_is_told_once_and_overcome(tmp_path: Path) -> None:
    """SQLite's own "database or disk is full": records wait, what is too much is dropped and counted; once there is
    room again the file takes records, and that is told.
    """
    meter, troubles = Meter(), Troubles()
    trail = writer(tmp_path, meter, troubles, max_size_bytes=1024 * 1024, waiting_max=3000)
    # Newer than anything that trimming would remove, and larger than the hard limit as one batch.
    now = time.time()
    for number in range(1, 4001):
        trail.put(record(number, at=now + number, text="x" * 3000))
    assert meter.dropped == 1000
    assert not await trail.flush()
    assert meter.failed == 1
    assert any("disk is full" in text for text in troubles)
    count = len(troubles)
    while not await trail.flush():  # smaller and smaller batches, each after making room
        assert meter.failed < 12
        assert len(troubles) == count
    assert troubles[-1] == "audit: records are written again"
    await trail.close()
    kept = [int(found.id.partition("-")[2]) for found in stored(tmp_path)]
    assert kept == list(range(kept[0], 3001))
    assert len(kept) > 100


@pytest.mark.parametrize("missing", ["folder", "file instead of folder"])
async def test_a_file_that_cannot_be_opened_is_tried_again(tmp_path: Path, missing: str) -> None:
    """Told with its name; once the folder is there, what waited is written."""
    folder = tmp_path / "later"
    if missing == "file instead of folder":
        folder.write_text("in the way")
    meter, troubles = Meter(), Troubles()
    trail = writer(folder, meter, troubles)
    trail.put(record(1, at=time.time()))
    assert not await trail.flush()
    assert not await trail.flush()
    assert len(troubles) == 1
    assert str(folder / "audit.db") in troubles[0]
    if folder.exists():
        folder.unlink()
    folder.mkdir()
    assert await trail.flush()
    assert meter.written == 1
    await trail.close()
    assert len(stored(folder)) == 1


async def test_a_file_that_is_removed_while_in_use_is_made_anew(tmp_path: Path) -> None:
    """Writing on to a file without a name would lose everything in silence."""
    meter, troubles = Meter(), Troubles()
    trail = writer(tmp_path, meter, troubles)
    trail.put(record(1, at=time.time()))
    assert await trail.flush()
    for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
        (tmp_path / name).unlink()
    trail.put(record(2, at=time.time()))
    assert not await trail.flush()
    assert "removed or replaced" in troubles[0]
    assert await trail.flush()
    await trail.close()
    assert [found.id for found in stored(tmp_path)] == ["run-2"]


async def test_put_never_waits_for_the_file(tmp_path: Path) -> None:
    """While the thread writes (here: while somebody else holds the file), the loop goes on and nothing is lost."""
    import sqlite3

    meter, troubles = Meter(), Troubles()
    trail = writer(tmp_path, meter, troubles)
    trail.put(record(1, at=time.time()))
    assert await trail.flush()
    other = sqlite3.connect(tmp_path / "audit.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    trail.put(record(2, at=time.time()))
    flushing = asyncio.create_task(trail.flush())
    turns = 0
    for number in range(3, 1003):
        trail.put(record(number, at=time.time()))
        await asyncio.sleep(0)
        turns += 1
    assert turns == 1000
    assert not flushing.done()
    other.execute("ROLLBACK")
    other.close()
    assert await flushing
    await trail.close()
    assert len(stored(tmp_path)) == 1002
