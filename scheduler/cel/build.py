"""From parser callbacks to our tree: literals decoded, operators named, macros expanded.

The parser calls these methods bottom-up while it parses, so no recursion depends on the depth of the input.
"""

from __future__ import annotations

from typing import Any, Final

from lark import Token, Transformer

from scheduler.cel.errors import CompileError
from scheduler.cel.literals import decode_bytes, decode_string
from scheduler.cel.macros import expand_global, expand_member
from scheduler.cel.nodes import Call, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.values import INT_MAX, INT_MIN, UINT_MAX, Uint

# cel-go counts two depths: nested operators, and nested sub-expressions.
MAX_NESTING: Final = 250
# Macros copy their operand; a short text can stand for an enormous tree.
MAX_NODES: Final = 100_000

_RESERVED: Final = frozenset(
    {
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    }
)  # fmt: skip


def _guard(node: Node) -> Node:
    if max(node.depth, node.nest, node.nest_relation, node.nest_calc) > MAX_NESTING:
        raise CompileError(f"expression recursion limit exceeded: {MAX_NESTING}", *node.at)
    if node.size > MAX_NODES:
        raise CompileError(f"expression expands to more than {MAX_NODES} nodes", *node.at)
    return node


def _place(token: Token) -> tuple[int, int]:
    return token.line or 1, token.column or 1


def _nested(node: Node) -> Node:
    """Count one more level of sub-expression around the operands of a node."""
    node.nest += 1
    node.nest_relation += 1
    node.nest_calc += 1
    return node


def _operator(function: str, rule: str) -> Any:
    """``rule``: the counter of the rule that its last operand enters anew."""

    def build(_self: TreeBuilder, children: list[Any]) -> Node:
        operands = tuple(child for child in children if isinstance(child, Node))
        call = Call(operands[0].at, function, operands)
        call.depth += 1
        setattr(call, rule, max(getattr(call, rule), getattr(operands[-1], rule) + 1))
        return _guard(call)

    return build


def _logical(function: str) -> Any:
    """A chain of one logical operator is one call with many operands, however long it is."""

    def build(_self: TreeBuilder, children: list[Any]) -> Node:
        left, right = children
        if isinstance(left, Call) and left.function == function:
            left.add_operand(right)
            return _guard(left)
        return _guard(Call(left.at, function, (left, right)))

    return build


class TreeBuilder(Transformer[Token, Any]):
    """One method per grammar rule; each gets the finished children and returns a node (or a small tuple)."""

    conditional = _operator("_?_:_", "nest")
    logical_or = _logical("_||_")
    logical_and = _logical("_&&_")
    relation_lt = _operator("_<_", "nest_relation")
    relation_le = _operator("_<=_", "nest_relation")
    relation_gt = _operator("_>_", "nest_relation")
    relation_ge = _operator("_>=_", "nest_relation")
    relation_eq = _operator("_==_", "nest_relation")
    relation_ne = _operator("_!=_", "nest_relation")
    relation_in = _operator("@in", "nest_relation")
    addition_add = _operator("_+_", "nest_calc")
    addition_sub = _operator("_-_", "nest_calc")
    multiplication_mul = _operator("_*_", "nest_calc")
    multiplication_div = _operator("_/_", "nest_calc")
    multiplication_mod = _operator("_%_", "nest_calc")

    def unary_not(self, children: list[Any]) -> Node:
        """An even number of ``!`` vanishes."""
        *signs, operand = children
        return operand if len(signs) % 2 == 0 else _guard(Call(_place(signs[0]), "!_", (operand,)))

    def unary_neg(self, children: list[Any]) -> Node:
        """An even number of ``-`` vanishes; one before a number belongs to the number."""
        *signs, operand = children
        if isinstance(operand, Literal) and operand.bare and type(operand.value) in (int, float) and len(signs) == 1:
            value = -operand.value
            if type(value) is int and value < INT_MIN:
                raise CompileError("invalid int literal", *operand.at)
            return Literal(_place(signs[0]), value)
        return operand if len(signs) % 2 == 0 else _guard(Call(_place(signs[0]), "-_", (operand,)))

    def paren_expr(self, children: list[Any]) -> Node:
        """Parentheses leave no node, but end the life of a literal as a bare number."""
        (node,) = children
        if isinstance(node, Literal):
            node.bare = False
        return _guard(_nested(node))

    def field(self, children: list[Any]) -> tuple[str, bool]:
        """(name, was it quoted)."""
        (token,) = children
        return (str(token)[1:-1], True) if token.type == "QUOTED_IDENT" else (str(token), False)

    def member_dot(self, children: list[Any]) -> Node:
        """``a.b`` and ``a.?b``"""
        operand, optional, (name, quoted) = children
        if optional is None:
            return _guard(Select(operand.at, operand, name, quoted=quoted))
        call = Call(operand.at, "_?._", (operand, Literal(operand.at, name)))
        call.depth += 1
        return _guard(call)

    def member_index(self, children: list[Any]) -> Node:
        """``a[b]`` and ``a[?b]``"""
        operand, optional, index = children
        call = Call(operand.at, "_[_]" if optional is None else "_[?_]", (operand, _nested(index)))
        call.depth += 1
        return _guard(call)

    def member_dot_arg(self, children: list[Any]) -> Node:
        """A method call, a namespaced function or a macro."""
        operand, name, arguments = children
        args = tuple(arguments or ())
        expanded = expand_member(operand.at, str(name), operand, args)
        if expanded is None:
            expanded = Call(operand.at, str(name), args, operand)
            expanded.depth += 1
        return _guard(expanded)

    def member_object(self, children: list[Any]) -> Node:
        """A message literal; the name must be a plain chain of identifiers."""
        operand, fields = children if len(children) == 2 else (children[0], None)
        return _guard(StructExpr(operand.at, _dotted(operand), tuple(fields or ())))

    def ident(self, children: list[Any]) -> Node:
        """A name."""
        (token,) = children
        return Ident(_place(token), _allowed(token))

    def dot_ident(self, children: list[Any]) -> Node:
        """A name with a leading dot."""
        (token,) = children
        return Ident(_place(token), _allowed(token), absolute=True)

    def ident_arg(self, children: list[Any]) -> Node:
        """A global function call or a macro."""
        token, arguments = children
        args = tuple(arguments or ())
        name = _allowed(token)
        return _guard(expand_global(_place(token), name, args) or Call(_place(token), name, args))

    dot_ident_arg = ident_arg

    def exprlist(self, children: list[Any]) -> list[Node]:
        """Call arguments."""
        return [_nested(child) for child in children]

    def listinit(self, children: list[Any]) -> tuple[bool, Node]:
        """(optional, element)."""
        optional, element = children
        return optional is not None, _nested(element)

    def listinits(self, children: list[Any]) -> list[Any]:
        """All elements."""
        return children

    def list_lit(self, children: list[Any]) -> Node:
        """A list literal."""
        bracket, elements = children if len(children) == 2 else (children[0], None)
        elements = elements or []
        optional = frozenset(index for index, (flag, _) in enumerate(elements) if flag)
        return _guard(ListExpr(_place(bracket), tuple(node for _, node in elements), optional))

    def mapinit(self, children: list[Any]) -> tuple[Node, Node, bool]:
        """(key, value, optional)."""
        optional, key, value = children
        return _nested(key), _nested(value), optional is not None

    def mapinits(self, children: list[Any]) -> list[Any]:
        """All entries."""
        return children

    def map_lit(self, children: list[Any]) -> Node:
        """A map literal."""
        brace, entries = children if len(children) == 2 else (children[0], None)
        return _guard(MapExpr(_place(brace), tuple(entries or ())))

    def fieldinit(self, children: list[Any]) -> tuple[str, Node, bool]:
        """(field, value, optional)."""
        optional, (name, _quoted), value = children
        return name, _nested(value), optional is not None

    def fieldinits(self, children: list[Any]) -> list[Any]:
        """All fields."""
        return children

    def literal(self, children: list[Any]) -> Node:
        """A constant."""
        (token,) = children
        return Literal(_place(token), _literal_value(token), bare=token.type in ("INT_LIT", "FLOAT_LIT"))


def _literal_value(token: Token) -> Any:
    text = str(token)
    kind = token.type
    if kind == "INT_LIT":
        value = int(text, 16 if text.startswith("0x") else 10)
        if value > INT_MAX + 1:
            raise CompileError("invalid int literal", *_place(token))
        return value
    if kind == "UINT_LIT":
        number = int(text[:-1], 16 if text.startswith("0x") else 10)
        if number > UINT_MAX:
            raise CompileError("invalid uint literal", *_place(token))
        return Uint(number)
    if kind == "FLOAT_LIT":
        value_f = float(text)
        if value_f == float("inf"):
            raise CompileError("invalid double literal", *_place(token))
        return value_f
    if kind == "STRING_LIT":
        return decode_string(text, *_place(token))
    if kind == "BYTES_LIT":
        return decode_bytes(text[1:], *_place(token))
    return None if kind == "NULL_LIT" else text == "true"


def _allowed(token: Token) -> str:
    if str(token) in _RESERVED:
        raise CompileError(f"reserved identifier: {token}", *_place(token))
    return str(token)


def _dotted(node: Node) -> str:
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only and not node.quoted:
        return f"{_dotted(node.operand)}.{node.field}"
    raise CompileError("syntax error at '{'", *node.at)
