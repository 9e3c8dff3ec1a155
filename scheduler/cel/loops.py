"""Closures for macros: loops over lists and maps, and bindings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from scheduler.cel.attributes import Closure, go_type
from scheduler.cel.cost import LIMIT
from scheduler.cel.errors import CelError, CostExceededError, DeadlineError, no_such_overload
from scheduler.cel.frame import CHECK_EVERY, UNSET, Frame
from scheduler.cel.values import MapValue


@dataclass(frozen=True, slots=True)
class Slots:
    """Positions of a macro's variables in the frame; ``second`` is -1 if there is none."""

    accumulator: int
    first: int
    second: int


def variable(slot: int) -> Closure:
    """Read an iteration variable."""
    return lambda frame: frame.slots[slot]


def accumulator(slot: int, init: Closure) -> Closure:
    """Read an accumulator or a bound variable: evaluated at the first read, and an error is kept as its value."""

    def read(frame: Frame) -> Any:
        value = frame.slots[slot]
        if value is UNSET:
            try:
                value = init(frame)
            except CelError as error:
                value = error
            frame.slots[slot] = value
        if type(value) is CelError:
            raise value
        return value

    return read


def append(read: Closure, element: Closure, literal_cost: int) -> Closure:
    """``accumulator + [element]``, in place: nobody else sees the list before the loop ends."""

    def evaluate(frame: Frame) -> Any:
        frame.cost += 1
        error: CelError | None = None
        accumulated: Any = None
        try:
            accumulated = read(frame)
        except CelError as raised:
            error = raised
        try:
            value = element(frame)
        except CelError as raised:
            error = error or raised
        frame.cost += literal_cost + 1
        if error is not None:
            raise error
        if type(accumulated) is not list:
            raise no_such_overload()
        accumulated.append(value)
        return accumulated

    return evaluate


def binding(slot: int, result: Closure) -> Closure:
    """A loop over nothing: only its accumulator matters."""

    def evaluate(frame: Frame) -> Any:
        frame.slots[slot] = UNSET
        return result(frame)

    return evaluate


def fold(
    slots: Slots,
    iter_range: Closure,
    condition: Closure,
    step: Closure,
    result: Closure,
    fresh: Callable[[], Any] | None,
) -> Closure:
    """A loop. ``fresh`` makes the empty container it fills, if it fills one."""
    start, first, second = slots.accumulator, slots.first, slots.second

    def evaluate(frame: Frame) -> Any:
        values = frame.slots
        values[start] = UNSET if fresh is None else fresh()
        entries = _entries(iter_range(frame), second >= 0)
        for entry in entries:
            if second >= 0:
                values[first], values[second] = entry
            else:
                values[first] = entry
            try:
                if condition(frame) is False:
                    break
            except CelError:
                # An error is not false: the loop goes on.
                pass
            try:
                values[start] = step(frame)
            except CelError as error:
                values[start] = error
            tick(frame)
        return result(frame)

    return evaluate


def tick(frame: Frame) -> None:
    """Stop a loop that is over its budget or its deadline."""
    if frame.cost > LIMIT:
        raise CostExceededError
    frame.steps += 1
    if frame.steps % CHECK_EVERY == 0 and frame.interrupted is not None and frame.interrupted():
        raise DeadlineError


def _entries(container: Any, pairs: bool) -> Iterable[Any]:
    if type(container) is list:
        # A snapshot is not needed: lists never change once a macro can iterate over them.
        return enumerate(container) if pairs else container
    if isinstance(container, MapValue):
        return list(container.items()) if pairs else list(container.keys())
    if pairs:
        raise CelError(f"unsupported comprehension range type: {go_type(container)}")
    raise CelError(f"got '{go_type(container)}', expected iterable type")
