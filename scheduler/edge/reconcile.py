"""Now and then compares what we hold with a fresh LIST and repairs the difference.

A watch that silently lost an event would keep room taken, or a device free, for ever. What was wrong is repaired
through the same path as watch events, and counted: a number above zero is a fault to look for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from scheduler.api.kinds import Kind
from scheduler.edge.client import Sleep
from scheduler.edge.forks import ChildError, Outcome, can_fork, in_child
from scheduler.edge.memory import give_back
from scheduler.edge.reflector import Reflector
from scheduler.errors import InternalError, SchedulerError

INTERVAL_S = 300.0


class Reconciler:
    """Compares one kind after the other, then asks the state to recompute itself.

    ``check`` raises when a derived number is wrong: counted as kind "derived", and only told. It is run in a child.
    ``catch_up`` brings the state to a reflector's copy where it differs, and answers with the number of repairs.
    ``repaired(kind, count)`` and ``on_trouble(text)`` are told. One pass costs one LIST per kind, every ``interval_s``.
    """

    def __init__(
        self,
        reflectors: Sequence[Reflector],
        check: Callable[[], None],
        repaired: Callable[[str, int], None],
        on_trouble: Callable[[str], None],
        *,
        catch_up: Callable[[Kind, Mapping[str, Any]], int] = lambda kind, copy: 0,
        interval_s: float = INTERVAL_S,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._reflectors, self._check, self._repaired = reflectors, check, repaired
        self._on_trouble, self._interval_s, self._sleep = on_trouble, interval_s, sleep
        self._catch_up = catch_up

    async def run(self) -> None:
        """For ever; nothing the server or the state does ends it. Memory of the LISTs is given back after each pass."""
        while True:
            await self._sleep(self._interval_s)
            await self.reconcile()
            await asyncio.to_thread(give_back)

    async def reconcile(self) -> int:
        """One pass; how many objects had to be repaired."""
        total = 0
        for reflector in self._reflectors:
            if not reflector.synced.is_set():
                continue
            try:
                count = await reflector.reconcile()
                count += self._catch_up(reflector.kind, reflector.store)
            except Exception as error:  # an audit that breaks must not end the scheduler it looks after
                self._on_trouble(f"reconcile of {reflector.kind.resource}: {_named(error)}")
                continue
            if count:
                self._on_trouble(f"reconcile of {reflector.kind.resource}: {count} objects repaired")
                self._repaired(reflector.kind.name, count)
                total += count
        try:
            await in_background(self._check)
        except ChildError as error:
            self._on_trouble(f"what is derived was not verified: {error}")
        except Exception as error:  # as above
            self._on_trouble(_named(error))
            self._repaired("derived", 1)
        return total


async def in_background(check: Callable[[], None]) -> None:
    """Run ``check`` on the state of this moment, in a child: at 5,000 nodes it would hold the loop for half a second.

    Raises InternalError with what it found, ChildError when it did not get to an end. Without a child it is run here.
    """
    outcomes: list[Outcome] = []
    if can_fork():
        with suppress(OSError):  # no memory or too many processes
            outcomes.append(await in_child(lambda: _words(check)))
    words = outcomes[0].result() if outcomes else _words(check)
    if words:
        raise InternalError(*words)


def _words(check: Callable[[], None]) -> tuple[str, tuple[str, ...]] | None:
    """What ``check`` found, None for nothing: an error of its own does not come through a pipe."""
    try:
        check()
    except InternalError as error:
        return error.problem, error.story
    except Exception as error:  # a plugin's own verification may raise anything
        return _named(error), ()
    return None


def _named(error: Exception) -> str:
    return str(error) if isinstance(error, SchedulerError) else f"{type(error).__name__}: {error}"
