"""What answers are made from: copies of the watches and a state of their own, here and, kept current, in a helper."""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass

from scheduler.app.service import Service
from scheduler.edge.copies import News, follow, follow_no_more, learn, noted_count, take_news
from scheduler.edge.mirror import Mirror, Promises, promises_of


@dataclass(frozen=True, slots=True)
class Told:
    """What a helper has to learn: objects, promises, and the time by the scheduler's clock."""

    objects: News
    promises: Promises
    now: float


class ClusterKnowledge:
    """``mirror`` is what questions may try things out on. ``clock``: wall-clock seconds, as told in a helper.

    ``verify``: recompute the mirror's state after each refresh.
    """

    def __init__(self, service: Service, clock: Callable[[], float], verify: bool) -> None:
        self._service, self.clock, self._verify = service, clock, verify
        self.mirror = Mirror(service.state.features)
        self._copies = {name: reflector.store for name, reflector in service.reflectors.items()}
        self._kinds = {name: reflector.kind for name, reflector in service.reflectors.items()}
        self._promises: Promises | None = None
        """In a helper: those it was told."""
        self._told: Promises | None = None
        self._version = 0

    def promises(self) -> Promises:
        """What was promised and the copies do not show yet."""
        return promises_of(self._service.state) if self._promises is None else self._promises

    def refresh_steps(self) -> Generator[None, None, Hashable]:
        """Bring the mirror up to date, see ``Mirror.refresh_steps``; returns its version."""
        first = self.mirror.version == 0
        copies = {name: (self._kinds[name], copy) for name, copy in self._copies.items()}
        yield from self.mirror.refresh_steps(copies, self.promises)
        if first:
            # As after the first LISTs: the collector shall not walk through all of this again and again.
            gc.freeze()
        if self._verify:
            self.mirror.state.verify()
        return "mirror", self.mirror.version

    # for a helper

    def follow(self) -> None:
        """From now on ``news`` tells what has changed."""
        follow(self._copies)
        self._told = None

    def follow_no_more(self) -> None:
        """Nobody will ask for news."""
        follow_no_more(self._copies)

    def news_count(self) -> int:
        """Objects that have changed."""
        return noted_count(self._copies)

    def news(self, most: int) -> tuple[Hashable, Told]:
        """The version of what is known by now, and what has changed since the last time, ``most`` objects of it."""
        objects, promises = take_news(self._copies, most), promises_of(self._service.state)
        if objects or promises != self._told:
            self._version += 1
        self._told = promises
        return ("told", self._version), Told(objects, promises, self.clock())

    def learn(self, told: Told) -> None:
        """In the helper: what the scheduler has told."""
        learn(self._copies, told.objects)
        self._promises = told.promises
        self.clock = lambda: told.now
