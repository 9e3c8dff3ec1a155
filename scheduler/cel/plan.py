"""Compile a checked tree into closures over a Frame.

Each closure evaluates one expression, adds what the step costs to ``frame.cost``, and raises CelError where the
value is an error. Constant parts are evaluated here, where cel-go's planner does so, and its errors then refuse
the expression.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from scheduler.cel import aggregates, calls, loops
from scheduler.cel.attributes import Attribute, Closure, Qualifier
from scheduler.cel.check import TYPE_NAMES
from scheduler.cel.cost import LIST_COST, MAP_COST, STRUCT_COST
from scheduler.cel.errors import CelError, CompileError
from scheduler.cel.frame import Frame
from scheduler.cel.libraries import FUNCTIONS
from scheduler.cel.messages import build_message
from scheduler.cel.nodes import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
    StructExpr,
)
from scheduler.cel.values import MapValue, TypeValue, Uint, equal_keys, stored_key, type_name

_FOLDED_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "dyn", "duration", "int", "string", "timestamp", "type", "uint"}
)


# Upstream parses these constants at each evaluation, and charges for it; we parse once and charge alike.
_PARSERS: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "isQuantity", "isSemver"})


class Constant:
    """A planned constant: free to evaluate."""

    __slots__ = ("node", "value")

    def __init__(self, node: Node, value: Any) -> None:
        self.node = node
        self.value = value


Planned = Constant | Attribute | Closure


def closure_of(planned: Planned) -> Closure:
    """The closure that evaluates a planned expression."""
    if isinstance(planned, Constant):
        value = planned.value
        return lambda _frame: value
    if isinstance(planned, Attribute):
        return planned.closure()
    return planned


class Planner:
    """Plans one expression. ``slot_count`` tells afterwards how many macro variables it has."""

    def __init__(self) -> None:
        self.slot_count = 0
        self.scopes: list[dict[str, Closure]] = []

    def closure(self, node: Node) -> Closure:
        """Plan and finish."""
        return closure_of(self.plan(node))

    def plan(self, node: Node) -> Planned:
        """Plan one node and everything below."""
        # Few frames per level: trees are as deep as the parser allows.
        planner = _PLANNERS[type(node)]
        if isinstance(node, Call):
            planner = _SPECIAL.get(node.function, planner)
        planned: Planned = planner(self, node)
        return planned

    def literal(self, node: Literal) -> Planned:
        return Constant(node, node.value)

    def ident(self, node: Ident) -> Planned:
        if node.constant is not None:
            return Constant(node, TypeValue(type_value_name(node.constant)))
        if node.type.kind == "type":
            # Upstream takes every name of a type's type for the name of a type.
            raise CompileError(f"program instantiation failed: reference to undefined type: {node.name}", *node.at)
        if not node.absolute:
            for scope in reversed(self.scopes):
                if node.name in scope:
                    return Attribute(node, scope[node.name])
        attribute = Attribute(node, _device, of_device=True)
        # Behind a macro variable of the same name upstream loses its cost tracker along the path.
        attribute.uncharged = node.absolute and any(node.name in scope for scope in self.scopes)
        return attribute

    def select(self, node: Select) -> Planned:
        if node.constant is not None:
            return Constant(node, TypeValue(type_value_name(node.constant)))
        attribute = self.attribute(node.operand)
        attribute.qualify(Qualifier(node, key=node.field, test_only=node.test_only))
        if node.test_only:
            attribute.test_only = True
        return attribute

    def attribute(self, node: Node) -> Attribute:
        planned = self.plan(node)
        return planned if isinstance(planned, Attribute) else Attribute(node, closure_of(planned))

    def index(self, node: Call) -> Planned:
        optional = node.function != "_[_]"
        attribute = self.attribute(node.args[0])
        planned = self.plan(node.args[1])
        if isinstance(planned, Constant):
            if type(planned.value) not in (str, int, Uint, bool, float):
                problem = f"program instantiation failed: invalid qualifier type: {type_name(planned.value)}"
                raise CompileError(problem, *node.at)
            attribute.qualify(Qualifier(node, key=planned.value, optional=optional))
        elif isinstance(planned, Attribute):
            attribute.qualify(
                Qualifier(node, key_of=planned.resolver(), optional=optional, is_device=planned.is_device())
            )
        else:
            attribute.qualify(Qualifier(node, key_of=planned, optional=optional))
        return attribute

    def conditional(self, node: Call) -> Planned:
        condition, truthy, falsy = node.args
        return Attribute(
            node, condition=self.closure(condition), branches=(self.attribute(truthy), self.attribute(falsy))
        )

    def call(self, node: Call) -> Planned:
        nodes = node.args if node.target is None else (node.target, *node.args)
        if node.function == "_+_" and isinstance(nodes[0], Ident) and nodes[0].name == ACCUMULATOR:
            appended = self.append(nodes[1])
            if appended is not None:
                return appended
        planned = [self.plan(child) for child in nodes]
        overload = node.overloads[0] if len(node.overloads) == 1 else ""
        if node.function in ("or", "orValue") and overload in ("", "optional_or_optional", "optional_orValue_value"):
            return calls.optional_or(*map(closure_of, planned), unwrap=node.function == "orValue")
        if overload == "in_list" and isinstance(planned[1], Constant):
            members = self.set_membership(node, planned[0], planned[1].value)
            if members is not None:
                return members
        closures = [closure_of(part) for part in planned]
        if node.function in calls.PATTERN_FUNCTIONS:
            pattern = planned[1].value if isinstance(planned[1], Constant) else None
            if type(pattern) is str:
                return calls.with_pattern(node, overload, closures, pattern)
        closure = calls.plan_call(node, overload, FUNCTIONS[node.function], closures)
        if node.function in _PARSERS and all(isinstance(part, Constant) for part in planned):
            return calls.remembered(closure)
        if node.function in _FOLDED_CONVERSIONS and len(planned) == 1 and isinstance(planned[0], Constant):
            return self.fold(node, closure)
        return closure

    def append(self, element: Node) -> Closure | None:
        """Accumulator + [x] inside a macro: extends the list that only the macro can see."""
        if not isinstance(element, ListExpr) or len(element.elements) != 1:
            return None
        planned = self.plan(element.elements[0])
        slot = self.scopes[-2][ACCUMULATOR]
        return loops.append(slot, closure_of(planned), 0 if isinstance(planned, Constant) else LIST_COST)

    def fold(self, node: Node, closure: Closure) -> Constant:
        try:
            return Constant(node, closure(Frame(MapValue({}), 0)))
        except CelError as error:
            raise CompileError(f"program instantiation failed: {error.message}", *node.at) from None

    def set_membership(self, node: Node, element: Planned, members: Any) -> Planned | None:
        """``x in [constants]``: one look-up, free of charge. None if the members are not plain."""
        if not members:
            return Constant(node, False)
        keys: set[Any] = set()
        for member in members:
            if type(member) not in (str, int, Uint, bool, float):
                return None
            keys.update(equal_keys(member))
            if type(member) in (int, Uint):
                keys.add(stored_key(float(member)))
        return calls.membership(closure_of(element), frozenset(keys))

    def logical(self, node: Call) -> Planned:
        terms: list[Closure] = []
        self.collect_terms(node, node.function, terms)
        return calls.logical_or(terms) if node.function == "_||_" else calls.logical_and(terms)

    def collect_terms(self, node: Node, function: str, terms: list[Closure]) -> None:
        """Flatten a chain of one operator; iterative on the left, where chains grow."""
        stack = [node]
        while stack:
            current = stack.pop()
            if isinstance(current, Call) and current.function == function:
                stack.extend(reversed(current.args))
            else:
                terms.append(self.closure(current))

    def equals(self, node: Call) -> Planned:
        left, right = self.plan(node.args[0]), self.plan(node.args[1])
        constant = right.value if isinstance(right, Constant) else None
        return calls.equals(closure_of(left), closure_of(right), constant, negated=node.function == "_!=_")

    def list_literal(self, node: ListExpr) -> Planned:
        planned = [self.plan(child) for child in node.elements]
        if all(isinstance(part, Constant) for part in planned):
            return Constant(node, [part.value for part in planned if isinstance(part, Constant)])
        closures = [closure_of(part) for part in planned]
        return aggregates.list_literal(closures, node.optional, LIST_COST, node)

    def map_literal(self, node: MapExpr) -> Planned:
        entries = [(self.plan(key), self.plan(value), optional) for key, value, optional in node.entries]
        closure = aggregates.map_literal(
            [(closure_of(key), closure_of(value), optional) for key, value, optional in entries], MAP_COST, node
        )
        if all(isinstance(part, Constant) for key, value, _ in entries for part in (key, value)):
            for key, _, _ in entries:
                if isinstance(key, Constant) and type(key.value) is bytes:
                    raise CompileError("bytes cannot be a map key", *node.at)
            return self.fold(node, closure)
        return closure

    def message(self, node: StructExpr) -> Planned:
        fields = [(name, self.closure(value), optional) for name, value, optional in node.fields]
        return build_message(node, fields, STRUCT_COST)

    def comprehension(self, node: Comprehension) -> Planned:
        init = self.closure(node.accu_init)
        iter_range = self.closure(node.iter_range)
        accu, first, second = (self.new_slot() for _ in range(3))
        self.scopes.append({node.accu_var: loops.accumulator(accu, init)})
        variables = {node.iter_var: loops.variable(first)}
        if node.iter_var2:
            variables[node.iter_var2] = loops.variable(second)
        self.scopes.append(variables)
        condition = self.closure(node.condition)
        step = self.closure(node.step)
        self.scopes.pop()
        result = self.closure(node.result)
        self.scopes.pop()
        fresh: Callable[[], Any] | None = None
        if isinstance(node.accu_init, ListExpr) and not node.accu_init.elements:
            fresh = list
        elif isinstance(node.accu_init, MapExpr) and not node.accu_init.entries:
            fresh = _empty_map
        if isinstance(node.iter_range, ListExpr) and not node.iter_range.elements:
            return loops.binding(accu, result)
        slots = loops.Slots(accu, first, second if node.iter_var2 else -1)
        return loops.fold(slots, iter_range, condition, step, result, fresh)

    def new_slot(self) -> int:
        self.slot_count += 1
        return self.slot_count - 1


def _empty_map() -> MapValue:
    return MapValue({})


def _device(frame: Frame) -> Any:
    return frame.device


def type_value_name(name: str) -> str:
    """The run-time name of a type that an expression names."""
    return TYPE_NAMES[name].name


_SPECIAL: Final[dict[str, Callable[[Planner, Call], Planned]]] = {
    "_&&_": Planner.logical,
    "_||_": Planner.logical,
    "_?_:_": Planner.conditional,
    "_==_": Planner.equals,
    "_!=_": Planner.equals,
    "_[_]": Planner.index,
    "_[?_]": Planner.index,
    "_?._": Planner.index,
}

_PLANNERS: Final[dict[type, Any]] = {
    Literal: Planner.literal,
    Ident: Planner.ident,
    Select: Planner.select,
    Call: Planner.call,
    ListExpr: Planner.list_literal,
    MapExpr: Planner.map_literal,
    StructExpr: Planner.message,
    Comprehension: Planner.comprehension,
}
