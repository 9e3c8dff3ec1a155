"""Status codes of the scheduling framework and what a plugin answers with.

Source: kube-scheduler 1.37, framework interface (spec 1.1).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum


class Code(IntEnum):
    """What a plugin says about a Pod; the values are upstream's."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def label(self) -> str:
        """Upstream's spelling in metrics and messages, for example ``UnschedulableAndUnresolvable``."""
        return _LABELS[self]

    @property
    def rejected(self) -> bool:
        """True when the Pod was refused, False for success and for errors."""
        return self in _REJECTED


_LABELS = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}
_REJECTED = frozenset((Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING))


@dataclass(frozen=True, slots=True)
class Status:
    """A plugin's answer: code, reasons in order, and the plugin that gave it ("" until the runner fills it in).

    Reasons carry no Pod or claim names where the same verdict serves many Pods (filter verdicts); they may elsewhere.
    ``detail`` is for explanations only: any frozen record, never shown in the condition.
    """

    code: Code
    reasons: tuple[str, ...] = ()
    plugin: str = ""
    detail: object = None

    @property
    def message(self) -> str:
        """Reasons joined as upstream joins them."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same status, attributed to ``plugin``."""
        return Status(self.code, self.reasons, plugin, self.detail)


SUCCESS = Status(Code.SUCCESS)
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """Rejected; preemption may help."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """Rejected; preemption cannot help."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error(text: str) -> Status:
    """Not a verdict: the attempt ends for all nodes and the Pod retries with error back-off."""
    return Status(Code.ERROR, (text,))


class VerdictTable:
    """Interned statuses of one filter plugin: small integers stand for (code, reasons) in verdict arrays.

    0 is feasible. Lifetime: the plugin's. Distinct verdicts are few (reasons carry no object names), so the table
    stays small; ``status(v)`` is a list lookup.
    """

    __slots__ = ("_ids", "_statuses", "plugin")

    def __init__(self, plugin: str) -> None:
        self.plugin = plugin
        self._statuses: list[Status] = [Status(Code.SUCCESS, (), plugin)]
        self._ids: dict[tuple[Code, tuple[str, ...]], int] = {}

    def intern(self, code: Code, reasons: Iterable[str]) -> int:
        """The id of (code, reasons), the same for equal arguments."""
        key = (code, tuple(reasons))
        verdict = self._ids.get(key)
        if verdict is None:
            verdict = len(self._statuses)
            self._ids[key] = verdict
            self._statuses.append(Status(code, key[1], self.plugin))
        return verdict

    def add(self, status: Status) -> int:
        """The id of ``status`` (its detail is dropped)."""
        return self.intern(status.code, status.reasons)

    def status(self, verdict: int) -> Status:
        """The status behind ``verdict``."""
        return self._statuses[verdict]

    def __len__(self) -> int:
        return len(self._statuses)
