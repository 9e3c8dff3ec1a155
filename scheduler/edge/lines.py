"""Splits a byte stream into lines without copying a long line more than once."""

from __future__ import annotations

LINE_BYTES_MAX = 64 * 1024 * 1024


class LineTooLongError(ValueError):
    """A line is longer than any object the API server can hold: the stream is broken."""


class LineSplitter:
    """Feed chunks, get complete lines. What is left over at the end of a stream is a cut line: drop it."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._held_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Bytes of the line that is not complete yet."""
        return self._held_bytes

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` completes, without their newlines; empty lines are left out.

        Cost: linear in all bytes fed, whatever the sizes of chunks and lines. Raises LineTooLongError.
        """
        if b"\n" not in chunk:
            self._parts.append(chunk)
            self._held_bytes += len(chunk)
            if self._held_bytes > LINE_BYTES_MAX:
                raise LineTooLongError(f"a line of more than {LINE_BYTES_MAX} bytes")
            return []
        lines = chunk.split(b"\n")
        if self._parts:
            self._parts.append(lines[0])
            lines[0] = b"".join(self._parts)
            self._parts.clear()
        rest = lines.pop()
        self._held_bytes = len(rest)
        if rest:
            self._parts.append(rest)
        return [line for line in lines if line.strip()]
