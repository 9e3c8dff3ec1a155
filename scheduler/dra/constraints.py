"""matchAttribute and distinctAttribute: one immutable state per constraint, replaced when a device joins.

Source: kube-scheduler 1.37, structured allocator, constraints (scalar form: incubating; set form: experimental with
list-type attributes).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from scheduler.cel import AttributeValue
from scheduler.dra.devices import UNKNOWN_KIND
from scheduler.dra.rejections import Reason

SCALARS = ("int", "bool", "string", "version")
_ELEMENT = {"ints": "int", "bools": "bool", "strings": "string", "versions": "version"}

MATCH = "match"
DISTINCT = "distinct"
# The state of a constraint: the values of devices so far (distinct), the value or intersection (match), or None.
State = Any


@dataclass(frozen=True, slots=True)
class Constraint:
    """One constraint of a claim: ``kind`` is MATCH or DISTINCT, ``requests`` empty means all of the claim."""

    kind: str
    attribute: str
    requests: frozenset[str]

    def applies(self, request: str, name: str) -> bool:
        """Whether it covers a request (``req``), or the alternative ``name`` (``req/sub``) of it."""
        return not self.requests or request in self.requests or name in self.requests


def join_scalar(constraint: Constraint, state: State, value: AttributeValue) -> tuple[bool, State]:
    """Whether a device with ``value`` may join, and the state with it. Lists are an unsupported kind here."""
    kind = value[0]
    if constraint.kind == MATCH:
        if state is None:
            return True, (value,)
        return kind in SCALARS and state[0] == value, state
    if state is None:
        return True, (value,)
    if kind not in SCALARS:
        return False, state
    return value not in state, (*state, value)


def join_set(constraint: Constraint, state: State, value: AttributeValue) -> tuple[bool, State]:
    """As ``join_scalar`` with values as sets: a scalar is a set of one.

    match: the running intersection must stay non-empty; distinct: pairwise disjoint. Unknown kinds and empty lists
    are refused even on the first device.
    """
    values = as_set(value)
    if values is None:
        return False, state
    if constraint.kind == MATCH:
        if state is None:
            return True, values
        kind, known = state
        if kind != values[0]:
            return False, state
        common = known & values[1]
        return bool(common), (kind, common)
    if state is None:
        return True, (values,)
    if any(kind == values[0] and elements & values[1] for kind, elements in state):
        return False, state
    return True, (*state, values)


def as_set(value: AttributeValue) -> tuple[str, frozenset[Any]] | None:
    """(element kind, elements) of an attribute, None for a kind we do not know or an empty list."""
    kind, content = value
    if kind in SCALARS:
        return kind, frozenset((content,))
    if kind == UNKNOWN_KIND or kind not in _ELEMENT or not content:
        return None
    return _ELEMENT[kind], frozenset(content)


def broken_reason(constraint: Constraint) -> Reason:
    """The reason word for a refusal by ``constraint``."""
    return Reason.MATCH_BROKEN if constraint.kind == MATCH else Reason.DISTINCT_BROKEN
