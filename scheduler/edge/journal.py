"""The recording's files: a folder of segments, each a header, a snapshot and what happened since, one JSON line each.

Written by a thread of its own: encoding and writing cost the loop nothing but a place in a queue. Bounded in memory by
the queue, on disk by removing the oldest segments. A segment that could not be written to its end is closed, and a new
one begins with a new snapshot: what lies between cannot be replayed, and is refused.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from scheduler.audit.operations import FORMAT, Operation, encode
from scheduler.errors import SchedulerError

SEGMENTS = 8
"""The allowed size is divided by so many: a full recording keeps at least the last seven eighths of it."""
QUEUE_MAX = 100_000
RETRY_S = 10.0
FLUSH_S = 1.0
"""A killed process loses the operations of this long at most."""
CLOSE_TIMEOUT_S = 5.0
_SUFFIX = ".journal"


class JournalError(SchedulerError):
    """A recording cannot be read; the text names the file and says why."""


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """First line of a segment. ``config``: the effective configuration, as a v1 document. ``started``: Unix seconds."""

    format: int
    run: str
    position: int
    started: float
    version: str = ""
    replica: str = ""
    config: dict[str, Any] = {}
    gates: dict[str, bool] = {}
    namespaces: list[str] = []
    snapshot: int = 0


@dataclass(frozen=True, slots=True)
class _Begin:
    header: Header
    operations: list[Operation]


class JournalWriter:
    """The Journal in production. ``header(position)`` gives what a segment begins with.

    ``on_trouble`` is called from the loop's thread, with a sentence, when something was lost; ``clock``: Unix seconds.
    """

    def __init__(
        self,
        folder: str,
        max_bytes: int,
        header: Callable[[int], Header],
        on_trouble: Callable[[str], None],
        *,
        clock: Callable[[], float],
        queue_max: int = QUEUE_MAX,
        retry_s: float = RETRY_S,
    ) -> None:
        self._folder, self._max_bytes, self._header = Path(folder), max_bytes, header
        self._on_trouble, self._clock, self._retry_s = on_trouble, clock, retry_s
        self._queue: queue.Queue[_Begin | tuple[int, Operation] | None] = queue.Queue(queue_max)
        self._segment_bytes = max(1, max_bytes // SEGMENTS)
        self._open = self._told = False
        self._retry_at = 0.0
        self._problem = ""
        self._full = False
        self._file: BinaryIO | None = None
        self._written = 0
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    # in the loop's thread

    def wants_snapshot(self) -> bool:
        """True when the current segment is full, or there is none and it is time to try again."""
        if self._problem and self._open:
            self._lost(self._problem)
        if self._open:
            return self._full
        return self._clock() >= self._retry_at

    def begin(self, position: int, operations: list[Operation]) -> None:
        """Begin a segment."""
        self._full, self._problem = False, ""
        header = msgspec.structs.replace(self._header(position), snapshot=len(operations))
        try:
            self._queue.put_nowait(_Begin(header, operations))
            self._open = True
        except queue.Full:
            self._lost("the disk is too slow")

    def put(self, position: int, operation: Operation) -> bool:
        """One more operation; False when the segment ends here."""
        if not self._open or self._problem:
            if self._open:
                self._lost(self._problem)
            return False
        try:
            self._queue.put_nowait((position, operation))
            return True
        except queue.Full:
            self._lost("the disk is too slow")
            return False

    def give_up(self, why: str) -> None:
        """End the segment: its writer has failed."""
        self._lost(why)

    def _lost(self, why: str) -> None:
        self._open, self._problem = False, ""
        self._retry_at = self._clock() + self._retry_s
        self._on_trouble(f"recording: {why}; decisions from here on cannot be replayed until it begins anew")

    def close(self) -> None:
        """Write what waits, for a few seconds at most. Blocks."""
        self._open = False
        try:
            self._queue.put(None, timeout=CLOSE_TIMEOUT_S)
        except queue.Full:
            return
        self._thread.join(CLOSE_TIMEOUT_S)

    # in the writer's thread

    def _work(self) -> None:
        while True:
            try:
                item = self._queue.get(timeout=FLUSH_S)
            except queue.Empty:
                self._guarded(self._flush)
                continue
            if item is None:
                self._guarded(self._close_file)
                return
            self._guarded(lambda item=item: self._take(item))  # type: ignore[misc]  # bound at once

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # whatever the disk does: the loop learns of it at its next operation
            self._problem = f"{self._folder}: {error}"
            self._drop_file()

    def _take(self, item: _Begin | tuple[int, Operation]) -> None:
        if isinstance(item, _Begin):
            self._close_file()
            self._begin_file(item)
        elif self._file is not None:
            self._write(encode(*item))
            self._full = self._full or self._written >= self._segment_bytes
            if self._queue.empty():
                self._flush()

    def _begin_file(self, item: _Begin) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        header = item.header
        name = f"{int(header.started * 1000):015d}-{header.run}-{header.position:012d}{_SUFFIX}"  # see segment_name
        self._file = open(self._folder / name, "wb")  # noqa: SIM115  # stays open for the life of the segment
        self._write(msgspec.json.encode(header))
        for operation in item.operations:
            self._write(encode(header.position, operation))
        self._flush()
        self._written = 0  # a snapshot of a large cluster must not fill the segment by itself
        self._remove_oldest(keep=name)

    def _write(self, line: bytes) -> None:
        assert self._file is not None
        self._file.write(line + b"\n")
        self._written += len(line) + 1

    def _flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _drop_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what is left in its buffer cannot be written either; the descriptor is closed
                file.close()

    def _remove_oldest(self, keep: str) -> None:
        """The oldest segments go until the rest, and one full segment more, fit."""
        files = segment_files(self._folder)
        sizes = {file: file.stat().st_size for file in files}
        total = sum(sizes.values()) + self._segment_bytes
        for file in files:
            if total <= self._max_bytes or file.name == keep:
                return
            file.unlink(missing_ok=True)
            total -= sizes[file]


def segment_files(folder: Path) -> list[Path]:
    """The segments of a folder, oldest first."""
    return sorted(file for file in folder.iterdir() if file.name.endswith(_SUFFIX))


def segment_name(path: Path) -> tuple[float, str]:
    """When a segment began (Unix seconds) and in which run, by its name; 0 and "" for a name that is none of ours."""
    started, _, rest = path.name.partition("-")
    return (int(started) / 1000, rest.rpartition("-")[0]) if started.isdecimal() else (0.0, "")


def read_segment(path: Path) -> tuple[Header, Iterator[bytes]]:
    """Header and the lines after it. A last line without its end was cut off by the end of the process: left out.

    Raises JournalError for a file that is no segment, or of another format.
    """
    try:
        with path.open("rb") as file:
            first = file.readline()
        if not first.endswith(b"\n"):
            raise JournalError(f"recording {path}: ends before its first line does")
        header = msgspec.json.decode(first, type=Header)
    except (OSError, msgspec.DecodeError) as error:
        raise JournalError(f"recording {path}: {error}") from error
    if header.format != FORMAT:
        raise JournalError(f"recording {path}: format {header.format}, this version reads {FORMAT}")
    return header, _lines(path)


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        file.readline()
        for line in file:
            if line.endswith(b"\n"):
                yield line[:-1]
