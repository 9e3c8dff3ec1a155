"""A bound on work that upstream's cost does not see: results that grow, values that contain themselves many times.

``cel.bind(b, [a, a], cel.bind(c, [b, b], ...))`` is cheap to build and takes ages to compare. Upstream runs into its
deadline there; we end the evaluation as if the cost limit were reached.
"""

from __future__ import annotations

from typing import Final

from scheduler.cel.errors import CostExceededError

# Elements visited in comparisons and conversions, per evaluation: about a second.
MAX_VISITS: Final = 1_000_000
# Length of a string, elements of a list that one call may produce.
MAX_RESULT: Final = 1_000_000


class _Visits:
    """A counter outside the frame, since equality is asked by functions that have none.

    Evaluations on several threads at once would share it: they could only be stopped for each other's work, and
    only when together they do more than any expression may.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


_visits: Final = _Visits()


def start() -> None:
    """Begin an evaluation."""
    _visits.count = 0


def visit(elements: int = 1) -> None:
    """Account for elements looked at. Raises CostExceededError when there were too many."""
    _visits.count += elements
    if _visits.count > MAX_VISITS:
        raise CostExceededError


def check_result(length: int) -> None:
    """Refuse to produce something of that length. Raises CostExceededError."""
    if length > MAX_RESULT:
        raise CostExceededError
