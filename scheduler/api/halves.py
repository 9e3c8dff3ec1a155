"""Halves of characters: JSON escapes of one half of a surrogate pair, which Go takes and msgspec does not.

The API server stores what users write under ``opaque.parameters`` byte for byte, ``"\\ud800"`` included; msgspec
refuses a whole list for it, even where it only skips the field. Such an object must neither end a watch nor be left
out: what an unreadable claim holds would look free. So each half is written as another character of the same length,
and written back where bytes are passed on.
"""

from __future__ import annotations

import re

REPLACEMENT = "\ufffd"
"""What Go reads a half as, where a text is read."""
_ESCAPES = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u)[dD]([89a-fA-F])([0-9a-fA-F]{2})|.)", re.DOTALL
)
_BASES = {0xE000: re.compile(rb"\\u[eE][0-7]"), 0xF000: re.compile(rb"\\u[fF][0-7]")}
"""Where halves may go, 2,048 characters each for private use, and what shows that they are in use."""
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
_CODES = re.compile(rb"\\(?:u([0-9a-f]{4})|.)", re.DOTALL)
_FIRST, _COUNT = 0xD800, 0x800


class Halves:
    """JSON with no half of a character in it. ``text``: the same length; equal to ``raw`` when there was none.

    Halves are written back in lower case. When both ranges for private use occur as escapes, halves stay U+FFFD. Cost:
    linear in the number of escapes, about 1 us each, a search without any.
    """

    def __init__(self, raw: bytes) -> None:
        self._base = next((base for base, used in _BASES.items() if not used.search(raw)), 0)
        self.text = _ESCAPES.sub(self._moved, raw) if _HALF.search(raw) else raw

    def _moved(self, found: re.Match[bytes]) -> bytes:
        if found.group(1) is None:
            return found.group()
        half = int(b"d" + found.group(2) + found.group(3), 16)
        return rb"\u%04x" % (self._base + half - _FIRST if self._base else ord(REPLACEMENT))

    def whole(self, part: bytes) -> bytes:
        """``part``, taken from the text, with its halves."""
        return _CODES.sub(self._moved_back, part) if self._base else part

    def _moved_back(self, found: re.Match[bytes]) -> bytes:
        if found.group(1) is None or not self._stands_for_half(code := int(found.group(1), 16)):
            return found.group()
        return rb"\u%04x" % (code - self._base + _FIRST)

    def _stands_for_half(self, code: int) -> bool:
        return bool(self._base) and self._base <= code < self._base + _COUNT

    def read(self, text: str) -> str:
        """A decoded text, as Go reads it."""
        return "".join(REPLACEMENT if self._stands_for_half(ord(one)) else one for one in text)
