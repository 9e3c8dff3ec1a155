"""The two spellings of time in the API, always UTC."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from functools import lru_cache


def rfc3339(seconds: float) -> str:
    """metav1.Time of ``seconds`` since the epoch: whole seconds."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_time(seconds: float) -> str:
    """metav1.MicroTime of ``seconds`` since the epoch: always six digits."""
    whole, micros = divmod(round(seconds * 1e6), 1_000_000)
    return f"{_to_the_second(whole)}.{micros:06d}Z"


@lru_cache(maxsize=64)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def rfc3339_now() -> str:
    """Now, as metav1.Time."""
    return rfc3339(time.time())
