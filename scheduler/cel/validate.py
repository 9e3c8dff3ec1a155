"""Checks on a type-checked tree: homogeneous literals, and constants that would fail at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.cel.celtypes import Type, unwrap_optional
from scheduler.cel.convert import convert
from scheduler.cel.errors import CelError, CompileError
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


_VALIDATORS: Final[dict[str, Callable[[Call], None]]] = {
    "duration": _conversion("duration"),
    "timestamp": _conversion("timestamp"),
    "matches": _regex,
}
