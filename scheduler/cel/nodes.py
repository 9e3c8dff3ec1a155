"""The syntax tree our compiler works on: macros expanded, types and overloads filled in by the checker.

Positions count lines and columns from 1. Nodes are shared where a macro needs its operand twice.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.celtypes import Type

# The hidden variable a macro accumulates into; no identifier can spell it.
ACCUMULATOR: Final = "@result"
# An iteration variable that no expression can name (bindings iterate over nothing).
UNUSED: Final = "#unused"


class Node:
    """An expression. ``size`` counts nodes below, ``depth`` nested operators.

    ``nest``, ``nest_relation`` and ``nest_calc`` count how often upstream's parser is inside its rules for an
    expression, a comparison and a calculation at the same time.
    """

    __slots__ = ("column", "depth", "line", "nest", "nest_calc", "nest_relation", "size", "type")
    type: Type

    def __init__(self, at: tuple[int, int], children: tuple[Node, ...] = ()) -> None:
        self.line, self.column = at
        self.size = 1
        self.depth = 0
        self.nest = self.nest_relation = self.nest_calc = 1
        for child in children:
            self._count(child)

    def _count(self, child: Node) -> None:
        self.size += child.size
        self.depth = max(self.depth, child.depth)
        self.nest = max(self.nest, child.nest)
        self.nest_relation = max(self.nest_relation, child.nest_relation)
        self.nest_calc = max(self.nest_calc, child.nest_calc)

    @property
    def at(self) -> tuple[int, int]:
        """(line, column) where the expression starts."""
        return self.line, self.column


class Literal(Node):
    """A constant; ``bare`` while it stands alone in the source, so that a minus sign in front belongs to it."""

    __slots__ = ("bare", "value")

    def __init__(self, at: tuple[int, int], value: Any, bare: bool = False) -> None:
        super().__init__(at)
        self.value = value
        self.bare = bare


class Ident(Node):
    """A name. ``absolute``: written with a leading dot. ``constant``: the type it names, after checking."""

    __slots__ = ("absolute", "constant", "name")

    def __init__(self, at: tuple[int, int], name: str, absolute: bool = False) -> None:
        super().__init__(at)
        self.name = name
        self.absolute = absolute
        self.constant: str | None = None


class Select(Node):
    """``operand.field``; ``test_only`` for ``has()``. ``constant`` as in Ident (``google.protobuf.Duration``)."""

    __slots__ = ("constant", "field", "operand", "quoted", "test_only")

    def __init__(
        self, at: tuple[int, int], operand: Node, field: str, test_only: bool = False, quoted: bool = False
    ) -> None:
        super().__init__(at, (operand,))
        self.depth += 1
        self.operand = operand
        self.field = field
        self.test_only = test_only
        self.quoted = quoted
        self.constant: str | None = None


class Call(Node):
    """A function, operator or method call. ``overloads``: candidate ids, after checking."""

    __slots__ = ("args", "function", "overloads", "target")

    def __init__(self, at: tuple[int, int], function: str, args: tuple[Node, ...], target: Node | None = None) -> None:
        super().__init__(at, args if target is None else (target, *args))
        self.function = function
        self.args = args
        self.target = target
        self.overloads: tuple[str, ...] = ()

    def add_operand(self, operand: Node) -> None:
        """Append an argument: how chains of logical operators grow."""
        self.args = (*self.args, operand)
        self._count(operand)


class ListExpr(Node):
    """A list literal; ``optional`` holds the positions written with ``?``."""

    __slots__ = ("elements", "optional")

    def __init__(self, at: tuple[int, int], elements: tuple[Node, ...], optional: frozenset[int] = frozenset()) -> None:
        super().__init__(at, elements)
        self.elements = elements
        self.optional = optional


class MapExpr(Node):
    """A map literal: (key, value, optional) entries in source order."""

    __slots__ = ("entries",)

    def __init__(self, at: tuple[int, int], entries: tuple[tuple[Node, Node, bool], ...]) -> None:
        super().__init__(at, tuple(node for key, value, _ in entries for node in (key, value)))
        self.entries = entries


class StructExpr(Node):
    """A message literal: (field, value, optional) entries."""

    __slots__ = ("fields", "name")

    def __init__(self, at: tuple[int, int], name: str, fields: tuple[tuple[str, Node, bool], ...]) -> None:
        super().__init__(at, tuple(value for _, value, _ in fields))
        self.name = name
        self.fields = fields


class Comprehension(Node):
    """The loop every macro expands to, as cel-go has it: so its costs add up the same way."""

    __slots__ = ("accu_init", "accu_var", "condition", "iter_range", "iter_var", "iter_var2", "result", "step")

    def __init__(
        self,
        at: tuple[int, int],
        *,
        iter_range: Node,
        iter_var: str,
        iter_var2: str = "",
        accu_var: str = ACCUMULATOR,
        accu_init: Node,
        condition: Node,
        step: Node,
        result: Node,
    ) -> None:
        super().__init__(at, (iter_range, accu_init, condition, step, result))
        self.depth += 1
        self.iter_range = iter_range
        self.iter_var = iter_var
        self.iter_var2 = iter_var2
        self.accu_var = accu_var
        self.accu_init = accu_init
        self.condition = condition
        self.step = step
        self.result = result


def children(node: Node) -> tuple[Node, ...]:
    """Sub-expressions, in source order."""
    if isinstance(node, Call):
        return node.args if node.target is None else (node.target, *node.args)
    if isinstance(node, Select):
        # A qualified type name is one thing; its parts are no expressions.
        return () if node.constant is not None else (node.operand,)
    if isinstance(node, ListExpr):
        return node.elements
    if isinstance(node, MapExpr):
        return tuple(child for key, value, _ in node.entries for child in (key, value))
    if isinstance(node, StructExpr):
        return tuple(value for _, value, _ in node.fields)
    if isinstance(node, Comprehension):
        return node.iter_range, node.accu_init, node.condition, node.step, node.result
    return ()
