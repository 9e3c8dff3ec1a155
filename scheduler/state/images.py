"""Images: which rows hold an image, and how large it is taken to be."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler.api.core import ContainerImage
from scheduler.state.columns import Int64


class ImageEntry:
    """One image name: ``size_bytes`` as the first node that had it reported, ``rows`` that hold it now."""

    __slots__ = ("_array", "rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()
        self._array: Int64 | None = None

    def array(self) -> Int64:
        """``rows`` as an array, in no particular order; kept until a holder comes or goes."""
        if self._array is None:
            self._array = np.fromiter(self.rows, np.int64, len(self.rows))
        return self._array

    def put(self, row: int) -> None:
        """``row`` holds the image."""
        self.rows.add(row)
        self._array = None

    def drop(self, row: int) -> None:
        """``row`` does not hold it any more."""
        self.rows.discard(row)
        self._array = None


class ImageIndex:
    """Image name → entry; every name of an image counts (spec 3.10).

    The size stays that of the node from which the name was first learned while any node holds it.
    """

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, ImageEntry] = {}

    def entry(self, name: str) -> ImageEntry | None:
        """Size and rows of ``name``, None when no node has it."""
        return self._entries.get(name)

    def add(self, row: int, images: Iterable[ContainerImage]) -> None:
        """The node of ``row`` holds ``images``."""
        for image in images:
            for name in image.names:
                entry = self._entries.get(name)
                if entry is None:
                    entry = self._entries[name] = ImageEntry(image.sizeBytes)
                entry.put(row)

    def remove(self, row: int, images: Iterable[ContainerImage]) -> None:
        """The node of ``row`` no longer holds ``images``."""
        for image in images:
            for name in image.names:
                entry = self._entries.get(name)
                if entry is None:
                    continue
                entry.drop(row)
                if not entry.rows:
                    del self._entries[name]

    def holders(self) -> dict[str, frozenset[int]]:
        """Rows per image name."""
        return {name: frozenset(entry.rows) for name, entry in self._entries.items()}
