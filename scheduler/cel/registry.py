"""Declarations: which overloads exist, what they take and give, and the code behind them.

A library module brings a table in text form, one overload a line (``function  overload_id  signature``), and the
implementations by overload id. A signature is ``(string, int) string``, or ``string.(int) string`` for a method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.cel.celtypes import Type, parse_type
from scheduler.cel.errors import CelError
from scheduler.cel.values import MapValue, type_name

Implementation = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. ``implementation`` is None for what the compiler treats specially."""

    id: str
    function: str
    member: bool
    params: tuple[Type, ...]
    result: Type
    type_params: tuple[str, ...]
    implementation: Implementation | None

    def accepts(self, values: tuple[Any, ...]) -> bool:
        """Do the run-time types fit? Of lists and maps only the first element is looked at, as in cel-go."""
        return len(values) == len(self.params) and all(
            runtime_match(kind, value) for kind, value in zip(self.params, values, strict=True)
        )


@dataclass(slots=True)
class Function:
    """All overloads of a name, in the order in which they are tried.

    ``singleton``: one implementation for all of them, which does its own checks. ``unguarded``: run-time types are
    left to the implementation.
    """

    name: str
    overloads: list[Overload] = field(default_factory=list)
    singleton: Implementation | None = None
    unguarded: bool = False

    def dispatch(self, values: tuple[Any, ...]) -> Any:
        """Call the first overload that accepts the values; CelError if none does."""
        for overload in self.overloads:
            if overload.implementation is None or len(overload.params) != len(values):
                continue
            if self.unguarded or overload.accepts(values):
                return overload.implementation(*values)
        raise missing(self.name, values)


def missing(function: str, values: tuple[Any, ...]) -> CelError:
    """The error of a call whose run-time types fit no overload."""
    return CelError(f"no such overload: {function}({', '.join(map(type_name, values))})")


def runtime_match(kind: Type, value: Any) -> bool:
    """Can the value be passed where ``kind`` is declared?"""
    if kind.kind in ("dyn", "param"):
        return True
    if type_name(value) != kind.name:
        return False
    if kind.kind == "list" and value:
        return runtime_match(kind.params[0], value[0])
    if kind.kind == "map" and isinstance(value, MapValue) and len(value):
        key, element = next(value.items())
        return runtime_match(kind.params[0], key) and runtime_match(kind.params[1], element)
    return True


@dataclass(frozen=True, slots=True)
class Library:
    """What a library module contributes."""

    table: str
    implementations: Mapping[str, Implementation] = field(default_factory=dict)
    singletons: Mapping[str, Implementation] = field(default_factory=dict)
    unguarded: frozenset[str] = frozenset()


def build(libraries: list[Library]) -> dict[str, Function]:
    """Merge libraries into functions by name; overloads keep library order."""
    functions: dict[str, Function] = {}
    for library in libraries:
        for line in library.table.splitlines():
            if not line.strip():
                continue
            name, overload_id, signature = line.split(None, 2)
            function = functions.setdefault(name, Function(name))
            function.overloads.append(_overload(name, overload_id, signature, library.implementations.get(overload_id)))
            function.singleton = library.singletons.get(name, function.singleton)
            function.unguarded = function.unguarded or name in library.unguarded
    return functions


_OPENING: Final = ".("


def _overload(name: str, overload_id: str, signature: str, implementation: Implementation | None) -> Overload:
    # A receiver may itself have parentheses: list(T).(int) bool
    dot = signature.find(_OPENING)
    member = dot >= 0
    start = dot + 1 if member else signature.index("(")
    receiver = signature[:dot] if member else ""
    end = _closing(signature, start)
    inner = signature[start + 1 : end].strip()
    params = [parse_type(receiver)] if member else []
    params += [parse_type(part) for part in _split(inner)]
    result = parse_type(signature[end + 1 :])
    names: set[str] = set()
    for kind in (*params, result):
        _collect(kind, names)
    return Overload(overload_id, name, member, tuple(params), result, tuple(sorted(names)), implementation)


def _closing(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        depth += (text[index] == "(") - (text[index] == ")")
        if depth == 0:
            return index
    raise ValueError(f"unbalanced signature: {text}")


def _split(text: str) -> list[str]:
    parts: list[str] = []
    depth = 0
    current = ""
    for character in text:
        if character == "," and depth == 0:
            parts.append(current)
            current = ""
            continue
        depth += (character == "(") - (character == ")")
        current += character
    return [*parts, current] if current.strip() else parts


def _collect(kind: Type, names: set[str]) -> None:
    if kind.kind == "param":
        names.add(kind.name)
    for part in kind.params:
        _collect(part, names)
