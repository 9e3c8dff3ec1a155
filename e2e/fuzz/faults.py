"""Errors in words: where one came from, and whether a text for people names one that nobody foresaw."""

from __future__ import annotations

import re

_FOREIGN = re.compile(
    r"\b(?:Type|Key|Index|Attribute|Value|Overflow|Recursion|ZeroDivision|Assertion|Unicode\w*|Memory|Internal|Name"
    r"|FloatingPoint|Validation|Decode|NotImplemented|StopIteration)Error\b"
)
"""A Python error's name in a text for people: something was not foreseen."""


def names_an_error(text: str) -> bool:
    """Whether a text for people names an error of Python."""
    return _FOREIGN.search(text) is not None


def where(error: BaseException | None) -> str:
    """The last frames of an error."""
    frames, tb = [], error.__traceback__ if error is not None else None
    while tb is not None:
        frames.append(f"{tb.tb_frame.f_code.co_filename.rpartition('/')[2]}:{tb.tb_lineno}")
        tb = tb.tb_next
    return " at " + " > ".join(frames[-5:]) if frames else ""
