"""``dra-scheduler conformity schedule``: one attempt of the whole scheduler per line, in the oracle's format."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from scheduler.api.kinds import without_nulls
from scheduler.cli.case_lines import answer_lines
from scheduler.errors import SchedulerError


class ScheduleCase(msgspec.Struct, forbid_unknown_fields=True):
    """One case. ``answer`` and ``meta`` are not ours to read."""

    pod: dict[str, Any]
    name: str = ""
    objects: list[dict[str, Any]] = []
    config: dict[str, Any] | None = None
    answer: Any = None
    meta: Any = None


_DECODER = msgspec.json.Decoder(ScheduleCase)


def answer_schedule(case: ScheduleCase, clock: Callable[[], float] = time.time) -> dict[str, Any]:
    """Our answer to one case. Raises SchedulerError when the case itself cannot be used. Cost: about 10 ms."""
    # Imported here: the other kinds of case need neither the service nor its plugins.
    from scheduler.app.observation import observe
    from scheduler.app.whole_case import build_case

    pod, objects = without_nulls(case.pod), without_nulls(case.objects)
    return {"name": case.name, **observe(build_case(objects, pod, case.config, clock()))}


def run_schedule(lines: Iterable[str | bytes]) -> Iterator[bytes]:
    """One answer line per case line, in order. A case that cannot be used answers ``input_error``."""
    unusable = (msgspec.DecodeError, SchedulerError, ValueError)
    return answer_lines(lines, lambda raw: answer_schedule(_DECODER.decode(raw)), unusable)
