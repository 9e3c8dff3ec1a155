"""Macros: calls that expand to comprehensions, presence tests or bindings while parsing.

The expansions have the shape cel-go gives them (parser/macro.go, ext, 0.29.2), since costs follow from the shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from scheduler.cel.errors import CompileError
from scheduler.cel.nodes import (
    ACCUMULATOR,
    UNUSED,
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
)

Place = tuple[int, int]
Args = tuple[Node, ...]
MemberMacro = Callable[[Place, Node, Args], Node | None]

_SORT_INPUT: Final = "@__sortBy_input__"


def expand_global(at: Place, name: str, args: Args) -> Node | None:
    """``has(a.b)``; None if the call is no macro."""
    if name != "has" or len(args) != 1:
        return None
    (argument,) = args
    if not isinstance(argument, Select) or argument.test_only:
        raise CompileError("invalid argument to has() macro", *argument.at)
    return Select(at, argument.operand, argument.field, test_only=True)


def expand_member(at: Place, name: str, target: Node, args: Args) -> Node | None:
    """A receiver-style macro, by name and number of arguments; None if the call is none."""
    macro = _MEMBER_MACROS.get((name, len(args)))
    return None if macro is None else macro(at, target, args)


def _variable(node: Node, message: str) -> str:
    if not isinstance(node, Ident):
        raise CompileError(message, *node.at)
    if node.name == "__result__":
        raise CompileError("iteration variable overwrites accumulator variable", *node.at)
    return node.name


def _two_variables(args: Args) -> tuple[str, str]:
    first = _variable(args[0], "argument must be a simple name")
    second = _variable(args[1], "argument must be a simple name")
    if first == second:
        raise CompileError(f"duplicate variable name: {first}", *args[1].at)
    return first, second


def _accu(at: Place) -> Ident:
    return Ident(at, ACCUMULATOR)


def _loop(
    at: Place, target: Node, names: tuple[str, str], init: Node, step: Node, *, condition: Node | None = None,
    result: Node | None = None,
) -> Node:  # fmt: skip
    return Comprehension(
        at,
        iter_range=target,
        iter_var=names[0],
        iter_var2=names[1],
        accu_init=init,
        condition=condition or Literal(at, True),
        step=step,
        result=result or _accu(at),
    )


def _all(at: Place, target: Node, names: tuple[str, str], predicate: Node) -> Node:
    return _loop(
        at,
        target,
        names,
        Literal(at, True),
        Call(at, "_&&_", (_accu(at), predicate)),
        condition=Call(at, "@not_strictly_false", (_accu(at),)),
    )


def _exists(at: Place, target: Node, names: tuple[str, str], predicate: Node) -> Node:
    return _loop(
        at,
        target,
        names,
        Literal(at, False),
        Call(at, "_||_", (_accu(at), predicate)),
        condition=Call(at, "@not_strictly_false", (Call(at, "!_", (_accu(at),)),)),
    )


def _exists_one(at: Place, target: Node, names: tuple[str, str], predicate: Node) -> Node:
    count = Call(at, "_+_", (_accu(at), Literal(at, 1)))
    return _loop(
        at,
        target,
        names,
        Literal(at, 0),
        Call(at, "_?_:_", (predicate, count, _accu(at))),
        result=Call(at, "_==_", (_accu(at), Literal(at, 1))),
    )


def _quantifier(build: Callable[[Place, Node, tuple[str, str], Node], Node], variables: int) -> MemberMacro:
    def expand(at: Place, target: Node, args: Args) -> Node:
        if variables == 2:
            return build(at, target, _two_variables(args), args[2])
        return build(at, target, (_variable(args[0], "argument must be a simple name"), ""), args[1])

    return expand


def _collect(at: Place, target: Node, names: tuple[str, str], condition: Node | None, element: Node) -> Node:
    step: Node = Call(at, "_+_", (_accu(at), ListExpr(at, (element,))))
    if condition is not None:
        step = Call(at, "_?_:_", (condition, step, _accu(at)))
    return _loop(at, target, names, ListExpr(at, ()), step)


def _map(at: Place, target: Node, args: Args) -> Node:
    name = _variable(args[0], "argument is not an identifier")
    return _collect(at, target, (name, ""), args[1] if len(args) == 3 else None, args[-1])


def _filter(at: Place, target: Node, args: Args) -> Node:
    name = _variable(args[0], "argument is not an identifier")
    return _collect(at, target, (name, ""), args[1], args[0])


def _transform_list(at: Place, target: Node, args: Args) -> Node:
    return _collect(at, target, _two_variables(args), args[2] if len(args) == 4 else None, args[-1])


def _insert(at: Place, target: Node, args: Args, inserted: Args) -> Node:
    names = _two_variables(args)
    step: Node = Call(at, "cel.@mapInsert", (_accu(at), *inserted))
    if len(args) == 4:
        step = Call(at, "_?_:_", (args[2], step, _accu(at)))
    return _loop(at, target, names, MapExpr(at, ()), step)


def _transform_map(at: Place, target: Node, args: Args) -> Node:
    return _insert(at, target, args, (Ident(at, _two_variables(args)[0]), args[-1]))


def _transform_map_entry(at: Place, target: Node, args: Args) -> Node:
    return _insert(at, target, args, (args[-1],))


def _binding(at: Place, name: str, init: Node, result: Node) -> Node:
    """A comprehension over nothing: its accumulator is the variable, evaluated when first read."""
    return Comprehension(
        at,
        iter_range=ListExpr(at, ()),
        iter_var=UNUSED,
        accu_var=name,
        accu_init=init,
        condition=Literal(at, False),
        step=Ident(at, name),
        result=result,
    )


def _bind(at: Place, target: Node, args: Args) -> Node | None:
    if not isinstance(target, Ident) or target.name != "cel" or target.absolute:
        return None
    if not isinstance(args[0], Ident):
        raise CompileError("cel.bind() variable names must be simple identifiers", *args[0].at)
    return _binding(at, args[0].name, args[1], args[2])


def _opt_map(at: Place, target: Node, args: Args) -> Node:
    return _optional_step(at, "optMap", target, args, wrap=True)


def _opt_flat_map(at: Place, target: Node, args: Args) -> Node:
    return _optional_step(at, "optFlatMap", target, args, wrap=False)


def _optional_step(at: Place, macro: str, target: Node, args: Args, *, wrap: bool) -> Node:
    if not isinstance(args[0], Ident):
        raise CompileError(f"{macro}() variable name must be a simple identifier", *args[0].at)
    bound = _binding(at, args[0].name, Call(at, "value", (), target), args[1])
    present = Call(at, "optional.of", (bound,)) if wrap else bound
    return Call(at, "_?_:_", (Call(at, "hasValue", (), target), present, Call(at, "optional.none", ())))


def _sort_by(at: Place, target: Node, args: Args) -> Node:
    if isinstance(target, (Literal, MapExpr)):
        raise CompileError(
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression", *target.at
        )
    keys = _map(at, Ident(at, _SORT_INPUT), args)
    sort = Call(at, "@sortByAssociatedKeys", (keys,), Ident(at, _SORT_INPUT))
    return _binding(at, _SORT_INPUT, target, sort)


_MEMBER_MACROS: Final[dict[tuple[str, int], MemberMacro]] = {
    ("all", 2): _quantifier(_all, 1),
    ("all", 3): _quantifier(_all, 2),
    ("exists", 2): _quantifier(_exists, 1),
    ("exists", 3): _quantifier(_exists, 2),
    ("exists_one", 2): _quantifier(_exists_one, 1),
    ("exists_one", 3): _quantifier(_exists_one, 2),
    ("existsOne", 3): _quantifier(_exists_one, 2),
    ("map", 2): _map,
    ("map", 3): _map,
    ("filter", 2): _filter,
    ("transformList", 3): _transform_list,
    ("transformList", 4): _transform_list,
    ("transformMap", 3): _transform_map,
    ("transformMap", 4): _transform_map,
    ("transformMapEntry", 3): _transform_map_entry,
    ("transformMapEntry", 4): _transform_map_entry,
    ("bind", 3): _bind,
    ("optMap", 2): _opt_map,
    ("optFlatMap", 2): _opt_flat_map,
    ("sortBy", 2): _sort_by,
}
