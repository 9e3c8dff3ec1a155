"""Advice for a failed look-up: the test that would have avoided it."""

from __future__ import annotations

from scheduler.cel.nodes import Call, Ident, Literal, Node, Select


def guard_for(node: Node) -> str:
    """``has(a.b)`` for a field, ``k in a`` for a key; empty if the operand is not a plain path."""
    if isinstance(node, Select):
        path = _path(node.operand)
        return f"has({path}.{_field(node)})" if path else ""
    if isinstance(node, Call) and node.function == "_[_]":
        path, key = _path(node.args[0]), _key(node.args[1])
        return f"{key} in {path}" if path and key else ""
    return ""


def _path(node: Node) -> str:
    if isinstance(node, Ident):
        return node.name if node.name.isidentifier() else ""
    if isinstance(node, Select) and not node.test_only:
        prefix = _path(node.operand)
        return f"{prefix}.{_field(node)}" if prefix else ""
    if isinstance(node, Call) and node.function == "_[_]":
        prefix, key = _path(node.args[0]), _key(node.args[1])
        return f"{prefix}[{key}]" if prefix and key else ""
    return ""


def _field(node: Select) -> str:
    return f"`{node.field}`" if node.quoted else node.field


def _key(node: Node) -> str:
    if isinstance(node, Literal) and type(node.value) is str:
        text = node.value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{text}"'
    if isinstance(node, Literal) and type(node.value) in (int, bool):
        return str(node.value).lower()
    return node.name if isinstance(node, Ident) else ""
