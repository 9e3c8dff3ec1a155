"""The frame of every ``conformity`` command: one JSON case a line in, one JSON answer a line out, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec


class _Name(msgspec.Struct):
    name: str = ""


_NAME = msgspec.json.Decoder(_Name)


def answer_lines(
    lines: Iterable[str | bytes],
    answer: Callable[[bytes], dict[str, Any]],
    unusable: tuple[type[Exception], ...],
) -> Iterator[bytes]:
    """``answer`` of each line that is not blank; one of the errors ``unusable`` becomes ``input_error``."""
    for line in lines:
        raw = line.encode() if isinstance(line, str) else line
        if not raw.strip():
            continue
        found: dict[str, Any]
        try:
            found = answer(raw)
        except unusable as error:
            found = {"name": _name_of(raw), "input_error": str(error)}
        yield msgspec.json.encode(found)


def _name_of(raw: bytes) -> str:
    try:
        return _NAME.decode(raw).name
    except msgspec.DecodeError:
        return ""
