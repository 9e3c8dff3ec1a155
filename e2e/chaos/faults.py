"""Which faults there are, and which one a request meets: a seeded draw with rates that the schedule changes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

T = TypeVar("T")


class Fault(Enum):
    """What can happen to a request between a client and its API server. The value is its row in the table."""

    DELAYED = "answer delayed"
    LOST_BEFORE = "request lost before it took effect"
    LOST_AFTER = "answer lost after it took effect"
    DUPLICATED = "request sent twice"
    CONFLICT = "409 Conflict, nothing done"
    OVERLOADED = "429 with Retry-After"
    ERROR_500 = "500, nothing done"
    ERROR_503 = "503, nothing done"
    ERROR_AFTER = "500 although it took effect"
    TIMEOUT_AFTER = "504 although it took effect"
    TRUNCATED = "200 with half of the JSON"
    CUT_BODY = "connection cut in the middle of the body"
    WRONG_TYPE = "200 with an HTML page"
    GONE = "410 for a LIST or a watch: resourceVersion too old"
    WATCH_CUT = "watch cut in the middle of a line"
    WATCH_CLOSED = "watch closed in good order, as for a slow client"
    WATCH_GONE = "410 in the middle of a watch"
    WATCH_ERROR = "500 in the middle of a watch"
    WATCH_GARBAGE = "half a JSON document as a line of a watch"
    WATCH_LATE = "watch that shows nothing for seconds"


WATCH_FAULTS = tuple(fault for fault in Fault if fault.name.startswith("WATCH_"))
WRITE_FAULTS = (Fault.DUPLICATED, Fault.CONFLICT)
REQUEST_FAULTS = tuple(fault for fault in Fault if fault not in WATCH_FAULTS)
OPENING_FAULTS = (Fault.GONE, Fault.OVERLOADED, Fault.ERROR_500, Fault.ERROR_503, Fault.LOST_BEFORE, Fault.WRONG_TYPE)
"""What may meet a watch when it is opened."""


class Deck(Generic[T]):
    """Draws from a shuffled deck that is shuffled again when it is empty: all come up, in random order."""

    def __init__(self, cards: Sequence[T], rng: random.Random) -> None:
        self._cards, self._rng = list(cards), rng
        self._left: list[T] = []

    def draw(self) -> T:
        """The next card."""
        if not self._left:
            self._left = self._rng.sample(self._cards, len(self._cards))
        return self._left.pop()


@dataclass
class FaultPlan:
    """Draws a fault for each request. ``rates``: chance per request by fault, empty while all is well."""

    rng: random.Random
    rates: Mapping[Fault, float] = field(default_factory=dict)
    injected: Counter[Fault] = field(default_factory=Counter)

    def draw(self, method: str, *, watch: bool, listing: bool) -> Fault | None:
        """The fault this request meets, None for none. It is counted."""
        if not self.rates:
            return None
        for fault, rate in self.rates.items():
            if watch and fault not in OPENING_FAULTS:
                continue
            if fault in WRITE_FAULTS and method == "GET":
                continue
            if fault is Fault.GONE and not (watch or listing):
                continue
            if self.rng.random() < rate:
                return self.count(fault)
        return None

    def count(self, fault: Fault) -> Fault:
        """It happens."""
        self.injected[fault] += 1
        return fault

    def storm(self, faults: Iterable[Fault], strength: float) -> None:
        """From now on these faults meet requests, each with this chance."""
        self.rates = dict.fromkeys(faults, strength)

    def calm(self) -> None:
        """No more faults."""
        self.rates = {}
