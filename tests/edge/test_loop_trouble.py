"""The event loop's own complaints become one line each."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
import uvloop

from scheduler.edge.loop_trouble import loop_trouble, run_to_end


class Lines:
    """A log."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str, object]] = []

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields["error"]))

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields["error"]))


async def test_a_connection_that_breaks_is_a_warning() -> None:
    """As uvloop reports a connection that was cut while it was being answered."""
    log = Lines()
    context = {"message": "SSL error", "exception": RuntimeError("the handler is closed"), "transport": object()}
    loop_trouble(log)(asyncio.get_running_loop(), context)
    assert log.lines == [("warning", "event loop", "RuntimeError: the handler is closed")]


async def test_a_failure_that_nobody_saw_is_an_error() -> None:
    """A task of ours that died unnoticed must not be silent."""
    log, loop = Lines(), asyncio.get_running_loop()
    loop.set_exception_handler(loop_trouble(log))

    async def fail() -> None:
        raise ValueError("unseen")

    task = loop.create_task(fail())
    await asyncio.sleep(0)
    del task
    gc.collect()
    loop.set_exception_handler(None)
    assert log.lines == [("error", "event loop", "ValueError: unseen")]


async def test_a_complaint_without_an_exception() -> None:
    """The message alone."""
    log = Lines()
    loop_trouble(log)(asyncio.get_running_loop(), {"message": "odd"})
    assert log.lines == [("error", "event loop", "")]


async def _returns() -> int:
    return 3


async def _raises() -> int:
    raise OSError(24, "Too many open files")


def test_a_loop_that_cannot_be_closed_keeps_its_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told in one line; what the program itself raised is not taken for that."""
    run = uvloop.run

    def fails_at_its_end(main: Any) -> None:
        run(main)
        raise RuntimeError("Cannot close a running event loop")

    log = Lines()
    assert run_to_end(_returns(), log) == 3
    assert log.lines == []
    monkeypatch.setattr(uvloop, "run", fails_at_its_end)
    assert run_to_end(_returns(), log) == 3
    told = ("warning", "the event loop was left open", "RuntimeError: Cannot close a running event loop")
    assert log.lines == [told]
    with pytest.raises(OSError, match="Too many open files"):
        run_to_end(_raises(), log)
    assert log.lines == [told]
