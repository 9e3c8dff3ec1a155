"""Objects nested deeper than the decoder's recursion goes.

The API server stores what users write under ``opaque.parameters`` up to 10,000 levels deep; msgspec gives up before
1,000, even where it only skips a field. Such an object must neither end a watch nor be left out: what an unreadable
claim holds would look free. So the deep parts are taken out, the rest is decoded, and the parts are put back where they
are passed on byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.api.halves import Halves

LEVELS_MAX = 200
"""What lies deeper is taken out; no field that is read lies deeper than 20 levels."""

T = TypeVar("T")
Decoded = TypeVar("Decoded", covariant=True)
_BLOCK_BYTES = 256 * 1024
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEPS = np.zeros(256, np.int8)
"""What a byte outside texts adds to the level."""
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


class TooDeepError(msgspec.DecodeError):
    """A field that is read is nested too deeply."""


class Decodes(Protocol[Decoded]):
    """What makes something of JSON, as msgspec's decoders do; what it passes on as sent is msgspec.Raw."""

    def decode(self, raw: bytes | msgspec.Raw, /) -> Decoded: ...


class Shallow:
    """JSON without its deep parts. ``text``: a placeholder stands for each of them. Cost: linear, about 50 MB/s."""

    def __init__(self, raw: bytes) -> None:
        salt = 0
        while (marker := f'"\\u0000deep-{salt}-'.encode()) in raw:
            salt += 1
        self._marker = marker
        self._said = msgspec.json.decode(marker + b'"')
        self._placeholder = re.compile(re.escape(marker) + rb'(\d+)"')
        self._parts: list[bytes] = []
        self.text = self._cut(raw)

    def _cut(self, raw: bytes) -> bytes:
        """Broken JSON comes out as broken JSON."""
        kept: list[bytes] = []
        start = begun = 0
        for at, opens in _borders(raw):
            if opens:
                begun = at
            else:
                kept += [raw[start:begun], self._marker + str(len(self._parts)).encode() + b'"']
                self._parts.append(raw[begun : at + 1])
                start = at + 1
        return b"".join([*kept, raw[start:]])

    def whole(self, part: bytes) -> bytes:
        """``part``, taken from the text, with its deep parts."""
        return self._placeholder.sub(lambda found: self._parts[int(found.group(1))], part)

    def restored(self, value: Any) -> Any:
        """A decoded ``value`` with its deep parts. Raises TooDeepError where a text is expected, not bytes as sent."""
        return _restored(value, self.whole, self._read)

    def _read(self, text: str) -> str:
        if text.startswith(self._said):
            raise TooDeepError("nested too deeply")
        return text


def _restored(value: Any, whole: Callable[[bytes], bytes], read: Callable[[str], str]) -> Any:
    """``value`` with what stands in for something else put back: ``whole`` in bytes as sent, ``read`` in texts."""
    if isinstance(value, msgspec.Raw):
        return msgspec.Raw(whole(bytes(value)))
    if isinstance(value, str):
        return read(value)
    if isinstance(value, msgspec.Struct):
        fields = {name: getattr(value, name) for name in value.__struct_fields__}
        return msgspec.structs.replace(value, **{name: _restored(f, whole, read) for name, f in fields.items()})
    if isinstance(value, tuple | list):
        return type(value)([_restored(entry, whole, read) for entry in value])
    if isinstance(value, dict):
        return {key: _restored(field, whole, read) for key, field in value.items()}
    return value


def _borders(raw: bytes) -> Iterator[tuple[int, bool]]:
    """Where a part deeper than LEVELS_MAX opens (True) and closes (False), in order; columns, block by block.

    A list of deep objects holds millions of brackets: looking at each of them in turn would stop the loop for seconds.
    """
    level, quoted, odd = 0, False, False
    for first in range(0, len(raw), _BLOCK_BYTES):
        codes: npt.NDArray[np.uint8] = np.frombuffer(raw[first : first + _BLOCK_BYTES], np.uint8)
        escaped, odd = _escaped(codes, odd)
        texts = (np.cumsum((codes == _QUOTE) & ~escaped) + quoted) & 1
        quoted = bool(texts[-1])
        steps = np.where(texts, 0, _STEPS[codes])
        levels = np.cumsum(steps, dtype=np.int64) + level
        level = int(levels[-1])
        opening = (steps > 0) & (levels == LEVELS_MAX + 1)
        for at in np.flatnonzero(opening | (steps < 0) & (levels == LEVELS_MAX)).tolist():
            yield first + at, bool(opening[at])


def _escaped(codes: npt.NDArray[np.uint8], odd: bool) -> tuple[npt.NDArray[np.bool_], bool]:
    """Which bytes follow an odd run of backslashes; ``odd``: the block before ended in one, and then this one."""
    backslash = codes == _BACKSLASH
    places = np.arange(len(codes))
    other = np.maximum.accumulate(np.where(backslash, -1 - odd, places))
    # The length of the run that ends at each place; a run from the block before counts by its parity.
    ends_odd = backslash & ((places - other) & 1 == 1)
    escaped = np.empty(len(codes), np.bool_)
    escaped[0], escaped[1:] = odd, ends_odd[:-1]
    return escaped, bool(ends_odd[-1])


def outline(raw: bytes) -> bytes:
    """JSON that is no deeper than LEVELS_MAX: below that a text stands for what is there. Cost: as Shallow, or a count.

    For plain dicts and lists, which are walked, copied and written again by functions that call themselves.
    """
    return Shallow(raw).text if raw.count(b"[") + raw.count(b"{") > LEVELS_MAX else raw


def plain(raw: bytes | msgspec.Raw) -> Any:
    """``outline`` as dicts and lists; halves of characters are U+FFFD or of private use. Raises msgspec.DecodeError."""
    text = outline(bytes(raw))
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return msgspec.json.decode(Halves(text).text)


def decode_deep(decoder: Decodes[T], raw: bytes | msgspec.Raw) -> T:
    """``decoder.decode(raw)`` for input of any depth, halves of characters included. Raises msgspec.DecodeError."""
    try:
        return _decode_deep(decoder, raw)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        halves = Halves(bytes(raw))
        if halves.text == bytes(raw):
            raise
        found: T = _restored(_decode_deep(decoder, halves.text), halves.whole, halves.read)
        return found


def _decode_deep(decoder: Decodes[T], raw: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(raw)
    except RecursionError:
        shallow = Shallow(bytes(raw))
        try:
            found: T = shallow.restored(decoder.decode(shallow.text))
        except RecursionError:  # brackets that do not match: no JSON at all
            raise TooDeepError("nested too deeply") from None
        return found
