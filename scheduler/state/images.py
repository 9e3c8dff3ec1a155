"""Images: which rows hold an image, and how large it is taken to be."""

from __future__ import annotations

from collections.abc import Iterable

from scheduler.api.core import ContainerImage


class ImageEntry:
    """One image name: ``size_bytes`` as the first node that had it reported, ``rows`` that hold it now."""

    __slots__ = ("rows", "size_bytes")

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.rows: set[int] = set()


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
                entry.rows.add(row)

    def remove(self, row: int, images: Iterable[ContainerImage]) -> None:
        """The node of ``row`` no longer holds ``images``."""
        for image in images:
            for name in image.names:
                entry = self._entries.get(name)
                if entry is None:
                    continue
                entry.rows.discard(row)
                if not entry.rows:
                    del self._entries[name]

    def holders(self) -> dict[str, frozenset[int]]:
        """Rows per image name."""
        return {name: frozenset(entry.rows) for name, entry in self._entries.items()}
