"""Faults on demand, and the record of what was asked: tests make the server misbehave and check the order of calls.

A fault matches requests by verb, kind (plural), namespace, name, sub-resource and user agent (shell patterns) and is
used up after `times` matches. Watches that are open already are broken by EmbeddedServer.break_watches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final


class Action(Enum):
    """What happens to a request that a fault matches."""

    DELAY = "delay"
    """Wait delay_s, then go on."""
    DROP_BEFORE = "drop before"
    """Close the connection; nothing was done."""
    DROP_AFTER = "drop after"
    """Do it, then close the connection instead of answering."""
    ANSWER = "answer"
    """Answer with `code`; nothing was done."""
    CUT = "cut"
    """Watch: after `after_events` events close the connection in the middle of a line."""
    CLOSE = "close"
    """Watch: end the stream properly after `after_events` events, as for a client that is too slow."""
    GONE = "gone"
    """Watch: after `after_events` events an ERROR event with a 410 Status, then the end."""


STREAM_ACTIONS: Final = frozenset({Action.CUT, Action.CLOSE, Action.GONE})

_TEXTS: Final = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "injected: forbidden"),
    404: ("NotFound", "injected: not found"),
    409: ("Conflict", "the object has been modified; please apply your changes to the latest version and try again"),
    410: ("Expired", "The resourceVersion for the provided list is too old."),
    422: ("Invalid", "injected: the object is invalid"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    500: ("InternalError", "Internal error occurred: injected"),
    504: ("Timeout", "Timeout: request did not complete within requested timeout"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
}


@dataclass(slots=True)
class Fault:
    """One planned fault. verb: get list watch create update patch delete deletecollection; "*" matches anything."""

    action: Action
    verb: str = "*"
    kind: str = "*"
    namespace: str = "*"
    name: str = "*"
    subresource: str = "*"
    user_agent: str = "*"
    times: int | None = 1
    """How many matches it affects; None is for ever."""
    skip: int = 0
    """How many matches pass unharmed first."""
    code: int = 500
    reason: str = ""
    message: str = ""
    retry_after_s: int | None = None
    delay_s: float = 0.0
    after_events: int = 0
    hits: int = 0
    """How many requests it has affected so far."""
    _seen: int = 0

    def text(self) -> tuple[str, str]:
        """(reason, message) of an ANSWER: as given, else the usual ones of the code."""
        reason, message = _TEXTS.get(self.code, ("InternalError", "injected"))
        return self.reason or reason, self.message or message

    def matches(self, call: Call) -> bool:
        return (
            fnmatchcase(call.verb, self.verb)
            and fnmatchcase(call.kind, self.kind)
            and fnmatchcase(call.namespace, self.namespace)
            and fnmatchcase(call.name, self.name)
            and fnmatchcase(call.subresource, self.subresource)
            and fnmatchcase(call.user_agent, self.user_agent)
        )

    def take(self, call: Call) -> bool:
        """Whether this call is affected; counts it."""
        if (self.times is not None and self.hits >= self.times) or not self.matches(call):
            return False
        self._seen += 1
        if self._seen <= self.skip:
            return False
        self.hits += 1
        return True


@dataclass(frozen=True, slots=True)
class Call:
    """A request as faults and the audit see it; kind is the plural."""

    verb: str
    kind: str
    namespace: str
    name: str
    subresource: str
    user_agent: str


class FaultPlan:
    """The faults in force, in the order they were added; a call is affected by every one that matches."""

    def __init__(self) -> None:
        self._faults: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        self._faults.clear()

    def take(self, call: Call) -> list[Fault]:
        if not self._faults:
            return []
        return [fault for fault in self._faults if fault.take(call)]


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One finished request (a watch: when it was opened). `revision` is the store's after it."""

    sequence: int
    call: Call
    path: str
    code: int
    """HTTP code; 0 when the connection was dropped instead of answered."""
    revision: int


@dataclass(slots=True)
class Audit:
    """The last `limit` requests, oldest first."""

    limit: int = 50_000
    _entries: deque[AuditEntry] = field(default_factory=deque)
    _count: int = 0

    def record(self, call: Call, path: str, code: int, revision: int) -> None:
        self._count += 1
        self._entries.append(AuditEntry(self._count, call, path, code, revision))
        if len(self._entries) > self.limit:
            self._entries.popleft()

    def __iter__(self) -> Iterator[AuditEntry]:
        return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()

    def writes(self, kind: str = "*", name: str = "*", user_agent: str = "*") -> list[AuditEntry]:
        """Everything but get, list and watch, narrowed by plural, name and user agent (shell patterns)."""
        pattern = Fault(Action.DELAY, kind=kind, name=name, user_agent=user_agent)
        reads = ("get", "list", "watch")
        return [entry for entry in self if entry.call.verb not in reads and pattern.matches(entry.call)]
