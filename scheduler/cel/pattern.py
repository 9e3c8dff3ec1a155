"""Regular expressions: RE2 through google-re2, compiled once per pattern."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

import re2

from scheduler.cel.errors import CelError


class PatternError(Exception):
    """A regular expression does not compile; the message is as near to Go's as RE2's own text allows."""


_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def whole(text: str) -> str:
    """Halves of characters, which files may contain, as Go reads them: U+FFFD."""
    return text if text.isascii() else _SURROGATE.sub("\ufffd", text)


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> Any:
    """An RE2 program. Raises PatternError. Patterns of expressions are few; run-time ones are bounded by the cache."""
    options = re2.Options()
    options.log_errors = False
    if _SURROGATE.search(pattern):
        raise PatternError(f"error parsing regexp: invalid UTF-8: `{whole(pattern)}`")
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        text = error.args[0] if error.args else ""
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        raise PatternError(_go_text(text, pattern)) from None


_GO_REASONS: Final = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "trailing \\": "trailing backslash at end of expression",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
}


def _go_text(text: str, pattern: str) -> str:
    # RE2 says "missing ): (abc"; Go says "error parsing regexp: missing closing ): `(abc`".
    reason, _, part = text.partition(": ")
    shown = "" if reason.startswith("trailing") else part or pattern
    return f"error parsing regexp: {_GO_REASONS.get(reason, reason)}: `{shown}`"


def search(pattern: str, text: str) -> bool:
    """Does the pattern occur in the text? Raises CelError when it does not compile."""
    try:
        return compile_pattern(pattern).search(whole(text)) is not None
    except PatternError as error:
        raise CelError(str(error)) from None
