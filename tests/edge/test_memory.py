"""Memory that nobody uses goes back to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes
from scheduler.edge import memory
libc = ctypes.CDLL(None)
class Info(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()]
libc.mallinfo2.restype = Info
{before}
big = bytes(4 << 20)
del big  # glibc takes four megabytes for the new border between large and small
before = libc.mallinfo2().arena
blocks = [bytearray(300_000) for _ in range(20)]
print((libc.mallinfo2().arena - before) // 300_000)
held = [bytearray(100_000) for _ in range(200)]
kept = held[::100]
del held
print(int(memory.give_back()))
"""


def ran(before: str) -> list[int]:
    """Large blocks that went into the heap; whether anything was given back."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, check=True
    )
    return [int(line) for line in done.stdout.split()]


@pytest.mark.skipif(sys.platform != "linux", reason="glibc only")
def test_large_blocks_stay_out_of_the_heap_and_holes_are_given_back() -> None:
    """Without the call they go into it, as soon as one larger block was freed."""
    assert ran("") == [20, 1]
    assert ran("assert memory.keep_large_apart()") == [0, 1]
