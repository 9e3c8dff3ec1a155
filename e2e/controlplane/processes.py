"""Child processes that cannot outlive the test run, and the loopback ports they listen on."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Run by the child before it becomes the binary: ask the kernel for SIGKILL when the starter dies (option 1 is
# PR_SET_PDEATHSIG), and give up when that already happened. It costs 20 ms and spares us preexec_fn, which
# is not safe in a process with threads.
_LAUNCHER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])
"""

# The kernel sends the death signal when the *thread* that started the child ends, so one thread that lives as
# long as this process starts them all.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="process-starter")

# Below the kernel's range for outgoing connections, so that nothing takes a chosen port before its server does.
_FIRST_PORT, _LAST_PORT = 20000, 32000
_given_ports: set[int] = set()


class ProcessFailedError(Exception):
    """A process ended, or was not ready in time; the message holds the tail of its log."""


def free_port() -> int:
    """A loopback TCP port that nobody listens on now and that this process has not given away before.

    Whoever got one may listen only later: without a memory two servers of one control plane met on a port.
    """
    for _ in range(2000):
        port = _FIRST_PORT + secrets.randbelow(_LAST_PORT - _FIRST_PORT)
        if port in _given_ports:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            _given_ports.add(port)
            return port
    raise ProcessFailedError("no free loopback port found in 2000 tries")


class ManagedProcess:
    """One child with its log file. start/stop may be repeated; the log is appended to.

    Threads may start it side by side (a supervisor beside a test): there is one child at a time all the same.
    """

    def __init__(self, name: str, command: Sequence[str], log_file: Path) -> None:
        self.name = name
        self.command = list(command)
        self.log_file = log_file
        self._child: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()

    @property
    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        return self._child.pid if self._child is not None and self._child.poll() is None else None

    def start(self) -> None:
        """Start the child; does not wait for it to be ready."""
        with self._starting:
            if self.pid is None:
                self._child = _starter.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid())]
        with self.log_file.open("ab") as log:
            return subprocess.Popen(
                [*launcher, *self.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
            )

    def wait_ready(self, ready: Callable[[], bool], timeout_s: float) -> None:
        """Poll ``ready`` until it is true; raises ProcessFailedError when the child ends or time is up."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            if self._child is None or self._child.poll() is not None:
                code = None if self._child is None else self._child.returncode
                raise ProcessFailedError(f"{self.name} ended with code {code}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise ProcessFailedError(f"{self.name} not ready after {timeout_s} s:\n{self.log_tail()}")
            time.sleep(0.05)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal (SIGSTOP and SIGCONT freeze and thaw it)."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, at once; the process has no chance to finish anything."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self, grace_s: float = 10.0) -> int | None:
        """SIGTERM, after ``grace_s`` SIGKILL; returns the exit code (None when it never ran)."""
        if self._child is None:
            return None
        if self._child.poll() is None:
            self._child.send_signal(signal.SIGCONT)  # a frozen process would not see the SIGTERM
            self._child.terminate()
            try:
                self._child.wait(grace_s)
            except subprocess.TimeoutExpired:
                self._child.kill()
                self._child.wait()
        return self._child.returncode

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of its log; empty when there is none."""
        if not self.log_file.exists():
            return ""
        with self.log_file.open("rb") as log:
            log.seek(max(0, self.log_file.stat().st_size - 64 * 1024))
            return "\n".join(log.read().decode(errors="replace").splitlines()[-lines:])
