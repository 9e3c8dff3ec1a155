"""What one review leaves in the log."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from scheduler.dra.devices import DeviceKey
from scheduler.dra.judge import Reason, Refusal
from scheduler.guard.process import Guard
from scheduler.guard.reviewer import Answer


def answer(reason: Reason) -> Answer:
    """A refusal."""
    return Answer(False, (Refusal(reason, DeviceKey("d", "p", "a"), f"words of {reason}"),))


def test_that_there_is_no_room_is_logged_once_and_each_other_refusal_for_itself() -> None:
    """A flood of reviews is no flood of lines; once there was room again the next is told."""
    lines = list[tuple[str, str]]()

    def line(text: str, **fields: Any) -> None:
        lines.append((text, fields["message"]))

    guard = SimpleNamespace(
        log=SimpleNamespace(warning=line, error=line), book=SimpleNamespace(held=9), _told_full=False
    )
    for reason in ("held", "full", "full", "held", "full"):
        Guard._log_refusals(cast("Guard", guard), "ns/one", answer(cast("Reason", reason)), False)
    told = ("no room for reservations", "words of full")
    assert lines == [("refused", "words of held"), told, ("refused", "words of held")]
    guard._told_full = False
    Guard._log_refusals(cast("Guard", guard), "ns/one", answer("full"), False)
    assert lines[-1] == told
