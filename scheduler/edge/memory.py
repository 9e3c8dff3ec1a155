"""Keeps the C library from holding on to memory that nobody uses.

Whole LISTs and chunks of watches come and go beside small things that stay. glibc learns from the first large one that
such sizes belong into its heap, where what stays keeps the holes from being given back: the process grew by a third of
a megabyte a minute while it used no more than before. Elsewhere than under glibc both functions do nothing.
"""

from __future__ import annotations

import ctypes

LARGE_BYTES = 256 * 1024
"""From this size on a block is mapped for itself, and unmapped when it is free. A column of 32,000 nodes is smaller."""

_M_MMAP_THRESHOLD = -3


def keep_large_apart() -> bool:
    """From now on large blocks stay out of the heap, whatever was seen before. True where the C library takes it."""
    try:
        return bool(ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, LARGE_BYTES))
    except (AttributeError, OSError):
        return False


def give_back() -> bool:
    """Return whole pages that are free to the system. True when there were any.

    Cost: milliseconds per hundred megabytes; other threads run meanwhile.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError):
        return False
