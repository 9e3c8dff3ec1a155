"""Checks on a type-checked tree: homogeneous literals, and constants that would fail at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.cel.celtypes import Type, unwrap_optional
from scheduler.cel.convert import convert
from scheduler.cel.errors import CelError, CompileError
from scheduler.cel.formatting import FormatError, interpret
from scheduler.cel.nodes import Call, ListExpr, Literal, MapExpr, Node, children
from scheduler.cel.pattern import PatternError, compile_pattern


def validate(root: Node) -> None:
    """Raise CompileError for the first literal that can never work.

    Source: the AST validators of the Kubernetes base environment (duration, timestamp, regular expression and
    format literals, homogeneous aggregates).
    """
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, in_format = stack.pop()
        if isinstance(node, Call):
            _check_call(node)
            in_format = in_format or node.function == "format"
        elif not in_format and isinstance(node, ListExpr):
            _homogeneous([(child, index in node.optional) for index, child in enumerate(node.elements)])
        elif not in_format and isinstance(node, MapExpr):
            _homogeneous([(key, False) for key, _, _ in node.entries])
            _homogeneous([(value, optional) for _, value, optional in node.entries])
        stack.extend((child, in_format) for child in children(node))


def _homogeneous(nodes: list[tuple[Node, bool]]) -> None:
    first: Type | None = None
    for node, optional in nodes:
        kind = unwrap_optional(node.type)[0] if optional else node.type
        if first is None:
            first = kind
        elif first != kind:
            raise CompileError(f"expected type '{first}' but found '{kind}'", *node.at)


def _check_call(node: Call) -> None:
    validator = _VALIDATORS.get(node.function)
    if validator is not None:
        validator(node)


def _conversion(target: str) -> Callable[[Call], None]:
    def check(node: Call) -> None:
        if len(node.args) != 1 or not isinstance(node.args[0], Literal):
            return
        try:
            convert(node.args[0].value, target)
        except CelError:
            raise CompileError(f"invalid {target} argument", *node.args[0].at) from None

    return check


def _regex(node: Call) -> None:
    pattern = node.args[-1]
    if not isinstance(pattern, Literal) or type(pattern.value) is not str:
        return
    try:
        compile_pattern(pattern.value)
    except PatternError:
        raise CompileError("invalid matches argument", *pattern.at) from None


_FORMATTABLE: Final = frozenset(
    {
        "list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null",
        "dyn",
    }
)  # fmt: skip
# What a clause takes, by kind of type, and how its error begins.
_CLAUSES: Final[dict[str, tuple[frozenset[str], str]]] = {
    "d": (frozenset({"int", "uint"}), "decimal clause can only be used on integers"),
    "f": (frozenset({"double", "string"}), "fixed-point clause can only be used on doubles"),
    "e": (frozenset({"double", "string"}), "scientific clause can only be used on doubles"),
    "b": (frozenset({"int", "uint", "bool"}), "only integers and bools can be formatted as binary"),
    "x": (
        frozenset({"int", "uint", "string", "bytes"}),
        "only integers, byte buffers, and strings can be formatted as hex",
    ),
    "o": (frozenset({"int", "uint"}), "octal clause can only be used on integers"),
}
_STRING_CLAUSE: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and"
    " timestamps"
)


def _format(node: Call) -> None:
    """A constant format string with a literal list of arguments must fit it."""
    template = node.target
    if not isinstance(template, Literal) or type(template.value) is not str or len(node.args) != 1:
        return
    arguments = node.args[0]
    if not isinstance(arguments, ListExpr):
        return
    elements = arguments.elements
    requested: list[int] = []

    def argument(index: int) -> Node:
        requested.append(index)
        return elements[index]

    try:
        interpret(template.value, len(elements), argument, _format_check)
    except FormatError as error:
        raise CompileError(str(error), *node.at) from None
    if len(elements) > len(requested):
        raise CompileError(
            f"too many arguments supplied to string.format (expected {len(requested)}, got {len(elements)})",
            *node.at,
        )


def _format_check(verb: str, _precision: int | None) -> Callable[[Node], str] | None:
    if verb == "s":
        return _check_string_clause
    if verb.lower() not in _CLAUSES or (verb.isupper() and verb != "X"):
        return None
    kinds, problem = _CLAUSES[verb.lower()]

    def check(node: Node) -> str:
        if node.type.kind != "dyn" and node.type.kind not in kinds:
            raise FormatError(f"{problem}, was given {node.type.name}")
        return ""

    return check


def _check_string_clause(node: Node) -> str:
    stack = [node]
    while stack:
        current = stack.pop()
        if current.type.kind not in _FORMATTABLE:
            raise FormatError(f"{_STRING_CLAUSE}, was given {current.type.name}")
        if isinstance(current, (ListExpr, MapExpr)):
            stack.extend(children(current))
    return ""


_VALIDATORS: Final[dict[str, Callable[[Call], None]]] = {
    "duration": _conversion("duration"),
    "timestamp": _conversion("timestamp"),
    "matches": _regex,
    "format": _format,
}
