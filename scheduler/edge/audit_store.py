"""The audit trail's file: one SQLite database per replica. Blocks; to be called from an executor, or by commands.

WAL with ``synchronous=NORMAL``: what was committed survives the death of the process; a crash of the machine may cost
the newest commits, never the file. Bounded by age and by size: the oldest records go first.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec

from scheduler.audit.records import Record, subjects
from scheduler.errors import SchedulerError

SCHEMA_VERSION = 1
TRIM_TO = 0.9
"""Once the file is too large, so much of the allowed size is kept: trimming must not follow every batch."""
HARD_LIMIT = 1.25
"""SQLite itself refuses to let the file grow beyond so much of the allowed size."""
WAL_LIMIT_BYTES = 4 * 1024 * 1024
_BUSY_TIMEOUT_S = 5.0
_PAGE_BYTES = 4096
_SCHEMA = """
CREATE TABLE IF NOT EXISTS records (
  id TEXT PRIMARY KEY, time REAL NOT NULL, last REAL NOT NULL, kind TEXT NOT NULL, body BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS records_last ON records (last);
CREATE TABLE IF NOT EXISTS subjects (
  kind TEXT NOT NULL, name TEXT NOT NULL, id TEXT NOT NULL, PRIMARY KEY (kind, name, id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS subjects_id ON subjects (id);
"""
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Record)


class AuditStoreError(SchedulerError):
    """The file cannot be used; the text names it and says why."""


class AuditStore:
    """One open file, for writing. ``max_size_bytes``: of the database; its WAL adds at most a few MiB.

    Raises AuditStoreError, from every method.
    """

    def __init__(self, path: str, *, max_age_s: float, max_size_bytes: int) -> None:
        self.path, self.max_age_s, self.max_size_bytes = path, max_age_s, max_size_bytes
        try:
            # One thread at a time uses it, but not always the same one of the executor.
            self._connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, check_same_thread=False)
            self._prepare()
            self._inode = os.stat(path).st_ino
        except (sqlite3.Error, OSError) as error:
            raise AuditStoreError(f"audit file {path}: {error}") from error

    def _prepare(self) -> None:
        run = self._connection.execute
        run(f"PRAGMA page_size={_PAGE_BYTES}")
        run("PRAGMA auto_vacuum=INCREMENTAL")
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=NORMAL")
        run(f"PRAGMA journal_size_limit={WAL_LIMIT_BYTES}")
        found = int(run("PRAGMA user_version").fetchone()[0])
        if found > SCHEMA_VERSION:
            raise AuditStoreError(f"audit file {self.path}: written by a newer version (format {found})")
        self._connection.executescript(_SCHEMA)
        run(f"PRAGMA user_version={SCHEMA_VERSION}")
        page_bytes = int(run("PRAGMA page_size").fetchone()[0])
        run(f"PRAGMA max_page_count={max(64, int(self.max_size_bytes * HARD_LIMIT) // page_bytes)}")
        self._connection.commit()

    def write(self, records: Iterable[Record]) -> None:
        """Add or replace records, in one transaction: all of them or none."""
        self._check_place()
        rows: list[tuple[object, ...]] = []
        first: list[tuple[object, ...]] = []
        names: list[tuple[str, str, str]] = []
        for record in records:
            kept = first if record.kind == "found" else rows
            kept.append((record.id, record.time, record.last, record.kind, _ENCODER.encode(record)))
            names += [(kind, name, record.id) for kind, name in subjects(record)]
        try:
            with self._connection:
                self._connection.executemany("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", rows)
                # What each start finds anew was first seen when it was first told.
                self._connection.executemany("INSERT OR IGNORE INTO records VALUES (?, ?, ?, ?, ?)", first)
                self._connection.executemany("INSERT OR IGNORE INTO subjects VALUES (?, ?, ?)", names)
        except sqlite3.Error as error:
            raise AuditStoreError(f"audit file {self.path}: {error}") from error

    def _check_place(self) -> None:
        """SQLite goes on writing to a file that was removed or replaced; nobody would ever read that."""
        try:
            same = os.stat(self.path).st_ino == self._inode
        except OSError:
            same = False
        if not same:
            raise AuditStoreError(f"audit file {self.path}: it was removed or replaced")

    def trim(self, now: float) -> int:
        """Remove what is too old, then the oldest until the file is small enough; how many records went."""
        try:
            gone = self._remove("last < ?", (now - self.max_age_s,))
            while self.size_bytes() > self.max_size_bytes:
                count = int(self._connection.execute("SELECT count(*) FROM records").fetchone()[0])
                share = max(1, int(count * (1 - TRIM_TO)))
                removed = self._remove("id IN (SELECT id FROM records ORDER BY last LIMIT ?)", (share,))
                gone += removed
                if not removed:
                    break
            return gone
        except sqlite3.Error as error:
            raise AuditStoreError(f"audit file {self.path}: {error}") from error

    def _remove(self, condition: str, values: tuple[object, ...]) -> int:
        with self._connection:
            ids = self._connection.execute(f"SELECT id FROM records WHERE {condition}", values).fetchall()
            self._connection.executemany("DELETE FROM subjects WHERE id = ?", ids)
            self._connection.executemany("DELETE FROM records WHERE id = ?", ids)
        if ids:
            # A script is stepped to its end; execute would stop after the first page.
            self._connection.executescript("PRAGMA incremental_vacuum")
        return len(ids)

    def size_bytes(self) -> int:
        """The database without its WAL."""
        run = self._connection.execute
        return int(run("PRAGMA page_count").fetchone()[0]) * int(run("PRAGMA page_size").fetchone()[0])

    def close(self) -> None:
        """Fold the WAL in and close; never raises."""
        # A file that is broken or full keeps what is committed in its WAL.
        with suppress(sqlite3.Error):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._connection.close()


def read_records(
    path: str, wanted: Iterable[tuple[str, str]] | None = None, since: float = 0.0, until: float = float("inf")
) -> Iterator[Record]:
    """Records of one file by time, those that last happened in the window; the file may be in use.

    ``wanted``: subjects (kind, name), any of which has to fit; None: all records. Raises AuditStoreError.
    """
    connection = _open_for_reading(path)
    try:
        query, values = "SELECT body FROM records WHERE last >= ? AND time <= ?", [since, min(until, 1e18)]
        if wanted is not None:
            connection.execute("CREATE TEMP TABLE wanted (kind TEXT, name TEXT)")
            connection.executemany("INSERT INTO wanted VALUES (?, ?)", wanted)
            query += " AND id IN (SELECT id FROM subjects JOIN temp.wanted USING (kind, name))"
        for (body,) in connection.execute(f"{query} ORDER BY time, id", values):
            yield _DECODER.decode(body)
    except sqlite3.Error as error:
        raise AuditStoreError(f"audit file {path}: {error}") from error
    except msgspec.DecodeError as error:
        raise AuditStoreError(f"audit file {path}: a record cannot be read: {error}") from error
    finally:
        connection.close()


def known_names(path: str, kind: str, part: str, limit: int = 10) -> list[str]:
    """Names of subjects of a kind that contain ``part``, sorted. Raises AuditStoreError."""
    connection = _open_for_reading(path)
    try:
        query = "SELECT DISTINCT name FROM subjects WHERE kind = ? AND instr(name, ?) > 0 ORDER BY name LIMIT ?"
        return [str(name) for (name,) in connection.execute(query, (kind, part, limit))]
    except sqlite3.Error as error:
        raise AuditStoreError(f"audit file {path}: {error}") from error
    finally:
        connection.close()


def _open_for_reading(path: str) -> sqlite3.Connection:
    if not Path(path).is_file():
        raise AuditStoreError(f"audit file {path}: there is no such file")
    problem: sqlite3.Error | None = None
    # A copy in a folder that cannot be written has no WAL beside it, and is read as it is.
    for options in ("mode=ro", "mode=ro&immutable=1"):
        connection = None
        try:
            connection = sqlite3.connect(f"file:{quote(path)}?{options}", uri=True, timeout=_BUSY_TIMEOUT_S)
            found = int(connection.execute("PRAGMA user_version").fetchone()[0])
            if found != SCHEMA_VERSION:
                connection.close()
                what = "not an audit trail" if not found else f"format {found}, which another version wrote"
                raise AuditStoreError(f"audit file {path}: {what}")
            connection.execute("SELECT count(*) FROM records").fetchone()
            return connection
        except sqlite3.OperationalError as error:
            problem = error
        except sqlite3.Error as error:
            problem = error
            break
        if connection is not None:
            connection.close()
    raise AuditStoreError(f"audit file {path}: {problem}")
