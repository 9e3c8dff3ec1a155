"""The type checker: resolves names and overloads, gives every node a type, refuses what cannot work.

Follows cel-go 0.29 (checker): gradual typing, homogeneous literals, cross-type numeric comparison.
"""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.celtypes import (
    ANY,
    BOOL,
    BYTES,
    CIDR,
    DEVICE,
    DOUBLE,
    DURATION,
    DYN,
    ERROR,
    INT,
    IP,
    NULL,
    QUANTITY,
    STRING,
    TIMESTAMP,
    TYPE,
    UINT,
    Mapping,
    Type,
    is_dyn,
    list_of,
    map_of,
    most_general,
    optional_of,
    param,
    struct,
    type_of,
    unwrap_optional,
)
from scheduler.cel.errors import CompileError
from scheduler.cel.libraries import FUNCTIONS
from scheduler.cel.nodes import (
    Call,
    Comprehension,
    Ident,
    ListExpr,
    Literal,
    MapExpr,
    Node,
    Select,
    StructExpr,
    children,
)
from scheduler.cel.registry import Function, Overload
from scheduler.cel.values import INT_MAX, Uint

DEVICE_FIELDS: Final = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}
_LITERALS: Final[dict[type, Type]] = {
    bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES, type(None): NULL,
}  # fmt: skip


def _wrapper(kind: Type) -> Type:
    return Type(kind.kind, kind.name, (), nullable=True)


# Types that can be named in an expression, and so are values: name -> the type named.
TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES, "null_type": NULL,
    "list": list_of(DYN), "map": map_of(DYN, DYN), "type": TYPE, "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION, "net.IP": IP, "net.CIDR": CIDR, "optional_type": optional_of(DYN),
}  # fmt: skip
# Messages that can be built with a literal: name -> (resulting type, fields).
MESSAGES: Final[dict[str, tuple[Type, dict[str, Type]]]] = {
    "kubernetes.DRADevice": (DEVICE, DEVICE_FIELDS),
    "google.protobuf.Timestamp": (TIMESTAMP, {"seconds": INT, "nanos": INT}),
    "google.protobuf.Duration": (DURATION, {"seconds": INT, "nanos": INT}),
    "google.protobuf.BoolValue": (_wrapper(BOOL), {"value": BOOL}),
    "google.protobuf.BytesValue": (_wrapper(BYTES), {"value": BYTES}),
    "google.protobuf.DoubleValue": (_wrapper(DOUBLE), {"value": DOUBLE}),
    "google.protobuf.FloatValue": (_wrapper(DOUBLE), {"value": DOUBLE}),
    "google.protobuf.Int32Value": (_wrapper(INT), {"value": INT}),
    "google.protobuf.Int64Value": (_wrapper(INT), {"value": INT}),
    "google.protobuf.StringValue": (_wrapper(STRING), {"value": STRING}),
    "google.protobuf.UInt32Value": (_wrapper(UINT), {"value": UINT}),
    "google.protobuf.UInt64Value": (_wrapper(UINT), {"value": UINT}),
    "google.protobuf.Any": (ANY, {"type_url": STRING, "value": BYTES}),
    "google.protobuf.ListValue": (list_of(DYN), {"values": list_of(DYN)}),
    "google.protobuf.Struct": (map_of(STRING, DYN), {"fields": map_of(STRING, DYN)}),
    "google.protobuf.Value": (
        DYN,
        {
            "number_value": DOUBLE,
            "string_value": STRING,
            "bool_value": BOOL,
            "struct_value": map_of(STRING, DYN),
            "list_value": list_of(DYN),
        },
    ),
}


def check(node: Node, functions: dict[str, Function] = FUNCTIONS) -> Type:
    """Check a tree against the device environment and return its type.

    Fills in ``type``, ``overloads`` and ``constant`` of its nodes. Raises CompileError at the first problem.
    """
    checker = _Checker(functions)
    checker.visit(node)
    checker.settle(node)
    return node.type


class _Checker:
    def __init__(self, functions: dict[str, Function]) -> None:
        self.functions = functions
        self.mapping = Mapping()
        self.scopes: list[dict[str, Type]] = [{"device": DEVICE}]
        self.free_variables = 0

    def visit(self, node: Node) -> Type:
        kind: Type = _VISITORS[type(node)](self, node)
        node.type = kind
        return kind

    def settle(self, root: Node) -> None:
        """Replace type parameters by what became known of them, everywhere."""
        stack = [root]
        while stack:
            node = stack.pop()
            node.type = self.mapping.substitute(node.type, params_to_dyn=True)
            stack.extend(children(node))

    def fresh(self) -> Type:
        self.free_variables += 1
        return param(f"_var{self.free_variables}")

    def literal(self, node: Literal) -> Type:
        if type(node.value) is int and node.value > INT_MAX:
            raise CompileError("invalid int literal", *node.at)
        return _LITERALS[type(node.value)]

    def variable(self, name: str, *, absolute: bool = False) -> Type | None:
        scopes = self.scopes[:1] if absolute else reversed(self.scopes)
        for scope in scopes:
            if name in scope:
                return scope[name]
        return None

    def ident(self, node: Ident) -> Type:
        found = self.variable(node.name, absolute=node.absolute)
        if found is not None:
            return found
        if node.name in TYPE_NAMES:
            node.constant = node.name
            return type_of(TYPE_NAMES[node.name])
        raise CompileError(f"undeclared reference to '{node.name}' (in container '')", *node.at)

    def select(self, node: Select) -> Type:
        name = qualified_name(node)
        if name is not None and name in TYPE_NAMES and self.variable(name.split(".")[0]) is None:
            node.constant = name
            return type_of(TYPE_NAMES[name])
        result = self.field(node, node.operand, node.field, optional=False)
        return BOOL if node.test_only else self.mapping.substitute(result)

    def field(self, at: Node, operand: Node, name: str, *, optional: bool) -> Type:
        target, was_optional = unwrap_optional(self.mapping.substitute(self.visit(operand)))
        if target.kind == "map":
            result = target.params[1]
        elif target.kind == "struct":
            fields = MESSAGES.get(target.name, (target, {}))[1]
            if name not in fields:
                raise CompileError(f"undefined field '{name}'", *at.at)
            result = fields[name]
        elif target.kind == "param":
            self.mapping.assignable([DYN], [target])
            result = DYN
        elif is_dyn(target) or target.kind == "error":
            result = DYN
        else:
            raise CompileError(f"type '{target}' does not support field selection", *at.at)
        return optional_of(result) if was_optional or optional else result

    def call(self, node: Call) -> Type:
        if node.function == "_?._":
            operand, name = node.args
            if not isinstance(name, Literal) or type(name.value) is not str:
                raise CompileError("unsupported optional field selection", *node.at)
            self.visit(name)
            node.overloads = ("select_optional_field",)
            return self.mapping.substitute(self.field(node, operand, name.value, optional=True))
        arguments = [self.visit(argument) for argument in node.args]
        if node.target is not None:
            prefix = qualified_name(node.target)
            if prefix is not None and f"{prefix}.{node.function}" in self.functions:
                node.function = f"{prefix}.{node.function}"
                node.target = None
            else:
                arguments.insert(0, self.visit(node.target))
        function = self.functions.get(node.function)
        if function is None:
            raise CompileError(f"undeclared reference to '{node.function}' (in container '')", *node.at)
        return self.resolve(node, function, arguments)

    def resolve(self, node: Call, function: Function, arguments: list[Type]) -> Type:
        member = node.target is not None
        result: Type | None = None
        chosen: list[str] = []
        for overload in function.overloads:
            if overload.member is not member:
                continue
            if function.name in ("_&&_", "_||_"):
                self.both_bool(node, arguments)
                node.overloads = (overload.id,)
                return BOOL
            wanted, given_result = self.instantiate(overload)
            if not self.mapping.assignable(arguments, wanted):
                continue
            chosen.append(overload.id)
            overload_result = self.mapping.substitute(given_result)
            if result is None:
                result = overload_result
            elif not is_dyn(result) and overload_result != result:
                result = DYN
        if result is None:
            raise CompileError(self.no_overload(function.name, arguments, member), *node.at)
        node.overloads = tuple(chosen)
        return result

    def both_bool(self, node: Call, arguments: list[Type]) -> None:
        for argument, kind in zip(node.args, arguments, strict=True):
            if not self.mapping.assignable([kind], [BOOL]):
                raise CompileError(f"expected type 'bool' but found '{self.shown(kind)}'", *argument.at)

    def instantiate(self, overload: Overload) -> tuple[list[Type], Type]:
        if not overload.type_params:
            return list(overload.params), overload.result
        fresh = Mapping({name: self.fresh() for name in overload.type_params})
        return [fresh.substitute(kind) for kind in overload.params], fresh.substitute(overload.result)

    def shown(self, kind: Type) -> str:
        return str(self.mapping.substitute(kind, params_to_dyn=True))

    def no_overload(self, name: str, arguments: list[Type], member: bool) -> str:
        shown = [self.shown(kind) for kind in arguments]
        signature = f"{shown[0]}.({', '.join(shown[1:])})" if member else f"({', '.join(shown)})"
        return f"found no matching overload for '{name}' applied to '{signature}'"

    def join(self, previous: Type | None, current: Type) -> Type:
        if previous is None:
            return current
        # A mixed literal is dyn here; the validator refuses it later, except as arguments of format().
        return most_general(previous, current) if self.mapping.assignable([previous], [current]) else DYN

    def optional_element(self, node: Node, kind: Type) -> Type:
        inner, was_optional = unwrap_optional(kind)
        if not was_optional:
            # Upstream lets dyn through and its compiler then fails on it; either way the expression is refused.
            raise CompileError(f"expected type 'optional_type({kind})' but found '{self.shown(kind)}'", *node.at)
        return inner

    def list_literal(self, node: ListExpr) -> Type:
        element: Type | None = None
        for index, child in enumerate(node.elements):
            kind = self.visit(child)
            if index in node.optional:
                kind = self.optional_element(child, kind)
            element = self.join(element, kind)
        return list_of(element if element is not None else self.fresh())

    def map_literal(self, node: MapExpr) -> Type:
        key_type: Type | None = None
        value_type: Type | None = None
        for key, value, optional in node.entries:
            key_type = self.join(key_type, self.visit(key))
            kind = self.visit(value)
            if optional:
                kind = self.optional_element(value, kind)
            value_type = self.join(value_type, kind)
        if key_type is None or value_type is None:
            return map_of(self.fresh(), self.fresh())
        return map_of(key_type, value_type)

    def message(self, node: StructExpr) -> Type:
        if node.name not in MESSAGES:
            if node.name in TYPE_NAMES:
                raise CompileError(f"'{node.name}' is not a message type", *node.at)
            raise CompileError(f"undeclared reference to '{node.name}' (in container '')", *node.at)
        result, fields = MESSAGES[node.name]
        for name, value, optional in node.fields:
            kind = self.visit(value)
            if name not in fields:
                raise CompileError(f"undefined field '{name}'", *value.at)
            if optional:
                kind = self.optional_element(value, kind)
            if not self.mapping.assignable([fields[name]], [kind]):
                raise CompileError(
                    f"expected type of field '{name}' is '{fields[name]}' but provided type is '{self.shown(kind)}'",
                    *value.at,
                )
        return result

    def comprehension(self, node: Comprehension) -> Type:
        self.visit(node.iter_range)
        accumulator = self.visit(node.accu_init)
        range_type = self.mapping.substitute(node.iter_range.type)
        first, second = self.iteration(node, range_type)
        self.scopes.append({node.accu_var: accumulator})
        variables = {node.iter_var: first}
        if node.iter_var2:
            variables[node.iter_var2] = second
        self.scopes.append(variables)
        self.expect(node.condition, BOOL)
        self.expect(node.step, accumulator)
        self.scopes.pop()
        result = self.mapping.substitute(self.visit(node.result))
        self.scopes.pop()
        return result

    def iteration(self, node: Comprehension, range_type: Type) -> tuple[Type, Type]:
        """Types of the one or two iteration variables."""
        if range_type.kind == "list":
            element = range_type.params[0]
            return (INT, element) if node.iter_var2 else (element, DYN)
        if range_type.kind == "map":
            key, value = range_type.params
            return key, value
        if is_dyn(range_type) or range_type.kind in ("error", "param"):
            self.mapping.assignable([DYN], [range_type])
            return DYN, DYN
        raise CompileError(
            f"expression of type '{self.shown(range_type)}' cannot be range of a comprehension (must be list, map,"
            " or dynamic)",
            *node.iter_range.at,
        )

    def expect(self, node: Node, wanted: Type) -> None:
        kind = self.visit(node)
        if not self.mapping.assignable([wanted], [kind]):
            raise CompileError(f"expected type '{self.shown(wanted)}' but found '{self.shown(kind)}'", *node.at)


_VISITORS: Final[dict[type, Any]] = {
    Literal: _Checker.literal,
    Ident: _Checker.ident,
    Select: _Checker.select,
    Call: _Checker.call,
    ListExpr: _Checker.list_literal,
    MapExpr: _Checker.map_literal,
    StructExpr: _Checker.message,
    Comprehension: _Checker.comprehension,
}


def qualified_name(node: Node) -> str | None:
    """The dotted name a chain of identifiers spells, or None."""
    if isinstance(node, Ident):
        return node.name
    if isinstance(node, Select) and not node.test_only and not node.quoted:
        prefix = qualified_name(node.operand)
        return None if prefix is None else f"{prefix}.{node.field}"
    return None


__all__ = ["DEVICE_FIELDS", "ERROR", "MESSAGES", "TYPE_NAMES", "check", "qualified_name", "struct"]
