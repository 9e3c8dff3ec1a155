"""Make a failing expression small: try its parts, and leave out what the device does not need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

Json = dict[str, Any]

_OPEN = {"(": ")", "[": "]", "{": "}"}
_OPERATORS = (" && ", " || ", " ? ", " : ", " == ", " != ", " in ", " < ", " <= ", " > ", " >= ", " + ", ", ")
BATCH = 40


def shrink_cel(case: Json, fails: Callable[[Sequence[Json]], list[bool]], rounds_max: int = 60) -> Json:
    """A case with a shorter expression that still fails. ``fails`` tells for each of a batch whether it does."""
    for _ in range(rounds_max):
        smaller = _step(case, fails)
        if smaller is None:
            return case
        case = smaller
    return case


def _step(case: Json, fails: Callable[[Sequence[Json]], list[bool]]) -> Json | None:
    candidates = [*_simpler_devices(case), *_shorter(case)]
    for start in range(0, len(candidates), BATCH):
        batch = candidates[start : start + BATCH]
        for candidate, failing in zip(batch, fails(batch), strict=True):
            if failing:
                return candidate
    return None


def _simpler_devices(case: Json) -> Iterator[Json]:
    device = case["device"]
    for part in ("attributes", "capacity"):
        for name in device.get(part) or ():
            fewer = {key: value for key, value in device[part].items() if key != name}
            yield case | {"device": device | {part: fewer}}


def _shorter(case: Json) -> Iterator[Json]:
    """Parts of the expression, shortest first: itself, made a truth value, or in place of what holds it."""
    text = case["expression"]
    found: set[str] = set()
    for start, end in sorted(_parts(text), key=lambda place: place[1] - place[0]):
        part = text[start:end].strip()
        found |= {part, f"dyn({part})", f"dyn({part}) == dyn(1)", f"{part}.size() == 1"}
    for start, end in _parts(text):
        for place in ("1", "'a'", "true"):
            found.add(f"{text[:start]}{place}{text[end:]}")
    yield from (case | {"expression": shorter} for shorter in sorted(found, key=len) if len(shorter) < len(text))


def _parts(text: str) -> Iterator[tuple[int, int]]:
    """(start, end) of what stands between brackets and operators. Brackets in string literals only make bad parts."""
    opened: list[int] = []
    for place, sign in enumerate(text):
        if sign in _OPEN:
            opened.append(place)
        elif opened and sign == _OPEN[text[opened[-1]]]:
            start = opened.pop()
            yield start + 1, place
            yield start, place + 1
            yield from _operands(text, start + 1, place)
    yield from _operands(text, 0, len(text))


def _operands(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    depth, last = 0, start
    cuts: list[tuple[int, int]] = []
    place = start
    while place < end:
        if text[place] in "([{":
            depth += 1
        elif text[place] in ")]}":
            depth -= 1
        elif not depth:
            for operator in _OPERATORS:
                if text.startswith(operator, place):
                    cuts.append((last, place))
                    last = place + len(operator)
                    place = last - 1
                    break
        place += 1
    if cuts:
        yield from cuts
        yield last, end
