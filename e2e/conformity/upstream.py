"""Upstream's answers: the Go program of e2e/oracle as one subprocess, a case per line in and an answer per line out."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from e2e.controlplane import build

Json = dict[str, Any]
WORKERS = 2


class OracleMissingError(Exception):
    """There is neither a built oracle nor Go to build one."""


def find_oracle() -> Path:
    """The oracle's binary, built when it is not there. Cost: 0.2 s when present."""
    done = subprocess.run([sys.executable, build.__file__, "--oracle"], capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        if line.startswith("oracle: "):
            return Path(line.removeprefix("oracle: "))
    raise OracleMissingError(done.stderr.strip() or done.stdout.strip())


class Oracle:
    """One running oracle. ``ask`` hands a batch over and returns a function that waits for its answers.

    Answers come in the order of the cases. ``timeout_s`` is upstream's deadline per case.
    """

    def __init__(self, binary: Path, command: str, timeout_s: float = 10.0) -> None:
        self._process = subprocess.Popen(
            [str(binary), command, "-workers", str(WORKERS), "-timeout", f"{timeout_s}s"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if error is not None:
            self._process.kill()
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def ask(self, lines: Sequence[bytes]) -> Waiting:
        """Start answering ``lines``; one batch at a time."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return Waiting(self._process.stdin, self._process.stdout, lines)

    def answers(self, lines: Sequence[bytes]) -> list[Json]:
        """The answers to ``lines``, waited for."""
        return self.ask(lines).wait()


class Waiting:
    """A batch the oracle works on. Writing has a thread of its own: both pipes are of bounded size."""

    def __init__(self, into: Any, out: Any, lines: Sequence[bytes]) -> None:
        self._out = out
        self._count = len(lines)
        self._writer = threading.Thread(target=self._write, args=(into, lines), daemon=True)
        self._writer.start()
        self._answers: list[Json] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @staticmethod
    def _write(into: Any, lines: Sequence[bytes]) -> None:
        try:
            into.write(b"".join(line + b"\n" for line in lines))
            into.flush()
        except BrokenPipeError:
            # The oracle has gone; the reader sees the missing answers and says so.
            return

    def _read(self) -> None:
        for _ in range(self._count):
            line = self._out.readline()
            if not line:
                return
            self._answers.append(json.loads(line))

    def wait(self) -> list[Json]:
        """All answers. Raises RuntimeError when the oracle ended early."""
        self._reader.join()
        self._writer.join()
        if len(self._answers) != self._count:
            raise RuntimeError(f"the oracle answered {len(self._answers)} of {self._count} cases and ended")
        return self._answers
