"""What the event loop itself complains about, as log lines: never a bare traceback on standard error."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import uvloop


class Log(Protocol):
    """Where the lines go."""

    def warning(self, event: str, **fields: object) -> object: ...
    def error(self, event: str, **fields: object) -> object: ...


def loop_trouble(log: Log) -> Callable[[asyncio.AbstractEventLoop, Mapping[str, Any]], None]:
    """An exception handler for the loop.

    A connection that breaks at a bad moment makes the loop's TLS code raise (uvloop, when a connection is cut while it
    answers): the request that used it gets its own error and is tried again, so this is a warning. Anything else, such
    as a task whose failure nobody has seen, is an error of ours.
    """

    def handle(loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        reason = "" if error is None else f"{type(error).__name__}: {error}"
        of_connection = "transport" in context or "protocol" in context
        tell = log.warning if of_connection else log.error
        tell("event loop", message=str(context.get("message", "")), error=reason)

    return handle


def run_to_end(main: Coroutine[Any, Any, int], log: Log) -> int:
    """What ``main`` returns, on a loop of its own that is closed afterwards, if it can be.

    Closing takes file handles, and there may be none left: all that matters has ended by then, so that is told in a
    line. What ``main`` itself raises is passed on.
    """
    ended: list[int] = []

    async def note() -> None:
        ended.append(await main)

    try:
        uvloop.run(note())
    except (OSError, RuntimeError) as error:
        if not ended:
            raise
        log.warning("the event loop was left open", error=f"{type(error).__name__}: {error}")
    return ended[0]
