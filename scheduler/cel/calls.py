"""Closures for calls, operators and literals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler.cel.attributes import Closure
from scheduler.cel.celtypes import DEVICE, Type
from scheduler.cel.cost import LIMIT, call_cost, equal_cost, equality, result_cost
from scheduler.cel.errors import CelError, CompileError, CostExceededError, no_such_overload
from scheduler.cel.frame import Frame
from scheduler.cel.lib_regex import COMPILED
from scheduler.cel.libraries import FUNCTIONS
from scheduler.cel.nodes import Call, Ident, ListExpr, Literal, Node, Select
from scheduler.cel.pattern import PatternError, compile_pattern
from scheduler.cel.registry import Function, Overload, missing
from scheduler.cel.values import MapValue, OptionalValue, equal, stored_key, type_name

# Calls whose pattern argument is compiled with the expression when it is constant.
PATTERN_FUNCTIONS: Final = frozenset({"matches", "find", "findAll"})

Implementation = Callable[..., Any]


def plan_call(node: Call, overload_id: str, function: Function, arguments: list[Closure]) -> Closure:
    """A call of a declared function: by its one overload, or by run-time types when several fit."""
    implementation = _implementation(node, overload_id, function)
    # Upstream evaluates one or two arguments before it looks for errors, but stops at the first of more. Several
    # candidates, and a few overloads with one implementation for any number of arguments, go the latter way.
    early = len(arguments) > 2 or (overload_id == "" and function.singleton is None and len(function.overloads) > 1)
    return _invoke(node, overload_id, implementation, arguments, early=early)


def _invoke(
    node: Call, overload_id: str, implementation: Implementation, arguments: list[Closure], *, early: bool
) -> Closure:
    cost = call_cost(node.function, overload_id)
    after = result_cost(node.function, overload_id)
    if cost is None and after is None:
        if len(arguments) == 1:
            return _unary(node, implementation, arguments[0])
        if len(arguments) == 2 and not early:
            return _binary(node, implementation, arguments[0], arguments[1])

    def evaluate(frame: Frame) -> Any:
        values = _arguments(frame, arguments, early=early, charge=lambda given: _charge(frame, cost, after, given))
        if after is None:
            _charge(frame, cost, None, values)
        try:
            result = implementation(*values)
        except CelError as error:
            if after is not None:
                frame.cost += after(error)
            error.node = error.node or node
            raise
        if after is not None:
            frame.cost += after(result)
            if frame.cost > LIMIT:
                raise CostExceededError
        return result

    return evaluate


def _charge(
    frame: Frame, cost: Callable[[Sequence[Any]], int] | None, after: Callable[[Any], int] | None, values: list[Any]
) -> None:
    """Charge a call. With an error among the values its result is the first one."""
    if after is not None:
        frame.cost += after(next((value for value in values if isinstance(value, CelError)), values[-1]))
    else:
        frame.cost += 1 if cost is None else cost(values)
    # Before the work is done: a call that is over the budget never runs.
    if frame.cost > LIMIT:
        raise CostExceededError


def _arguments(
    frame: Frame, arguments: list[Closure], *, early: bool, charge: Callable[[list[Any]], None]
) -> list[Any]:
    values: list[Any] = []
    failed: CelError | None = None
    for closure in arguments:
        try:
            values.append(closure(frame))
        except CelError as error:
            values.append(error)
            failed = failed or error
            if early and len(values) < len(arguments):
                # Not all arguments were evaluated: upstream's tracker then skips the call.
                raise
    if failed is not None:
        charge(values)
        raise failed
    return values


def _unary(node: Call, implementation: Implementation, argument: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        try:
            value = argument(frame)
        except CelError:
            frame.cost += 1
            raise
        frame.cost += 1
        try:
            return implementation(value)
        except CelError as error:
            error.node = error.node or node
            raise

    return evaluate


def _binary(node: Call, implementation: Implementation, left: Closure, right: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        try:
            one = left(frame)
        except CelError as error:
            _evaluate_for_cost(frame, right)
            frame.cost += 1
            raise error from None
        try:
            two = right(frame)
        except CelError:
            frame.cost += 1
            raise
        frame.cost += 1
        try:
            return implementation(one, two)
        except CelError as error:
            error.node = error.node or node
            raise

    return evaluate


def _evaluate_for_cost(frame: Frame, closure: Closure) -> Any:
    """Upstream evaluates both operands even if the first one failed; only the cost shows it."""
    try:
        return closure(frame)
    except CelError as error:
        return error


def remembered(closure: Closure) -> Closure:
    """A closure that depends on nothing: run it now, repeat its outcome and its cost."""
    trial = Frame(MapValue({}), 0)
    error: CelError | None = None
    value: Any = None
    try:
        value = closure(trial)
    except CelError as raised:
        error = raised
    cost = trial.cost

    def evaluate(frame: Frame) -> Any:
        frame.cost += cost
        if error is not None:
            raise CelError(error.message, error.node)
        return value

    return evaluate


def _implementation(node: Call, overload_id: str, function: Function) -> Implementation:
    if function.singleton is not None:
        return function.singleton
    if not overload_id:
        return lambda *values: function.dispatch(values)
    overload = next(one for one in function.overloads if one.id == overload_id and _same_arity(one, node))
    implementation = overload.implementation
    if implementation is None:
        raise CompileError(f"program instantiation failed: no such overload: {function.name}", *node.at)
    nodes = node.args if node.target is None else (node.target, *node.args)
    if function.unguarded or all(
        _firm(child) and _surely(child.type, wanted) for child, wanted in zip(nodes, overload.params, strict=True)
    ):
        return implementation
    return _guarded(function, overload, implementation)


def _same_arity(overload: Overload, node: Call) -> bool:
    return len(overload.params) == len(node.args) + (node.target is not None) and overload.member is (
        node.target is not None
    )


def _guarded(function: Function, overload: Overload, implementation: Implementation) -> Implementation:
    def evaluate(*values: Any) -> Any:
        if not overload.accepts(values):
            raise missing(function.name, values)
        return implementation(*values)

    if len(overload.params) != 2 or any(kind.kind in ("list", "map", "dyn", "param") for kind in overload.params):
        return evaluate
    # The usual case, two plain types: compare() and its kin, once per device.
    first, second = (kind.name for kind in overload.params)

    def evaluate_two(one: Any, two: Any) -> Any:
        if type_name(one) != first or type_name(two) != second:
            raise missing(function.name, (one, two))
        return implementation(one, two)

    return evaluate_two


def _firm(node: Node) -> bool:
    """Does the value surely have the static type? Not if inference only guessed it from how a dyn was used."""
    if isinstance(node, Literal):
        return True
    if isinstance(node, Ident):
        return node.type == DEVICE
    if isinstance(node, Select):
        return node.constant is not None or _firm(node.operand)
    if isinstance(node, ListExpr):
        return bool(node.elements) and all(map(_firm, node.elements))
    if not isinstance(node, Call):
        return False
    if node.function in ("_[_]", "_[?_]", "_?._"):
        return _firm(node.args[0])
    if len(node.overloads) != 1 or node.function not in FUNCTIONS:
        return False
    declared = [one for one in FUNCTIONS[node.function].overloads if one.id == node.overloads[0]]
    return bool(declared) and not any(one.type_params for one in declared)


def _surely(kind: Type, wanted: Type) -> bool:
    """Will every value of the static type pass the run-time test?"""
    if wanted.kind in ("param", "dyn"):
        return True
    return (
        kind.kind == wanted.kind
        and kind.name == wanted.name
        and not kind.nullable
        and len(kind.params) == len(wanted.params)
        and all(_surely(one, two) for one, two in zip(kind.params, wanted.params, strict=True))
    )


def with_pattern(node: Call, overload_id: str, arguments: list[Closure], pattern: str) -> Closure:
    """A regular expression function whose pattern is constant: compiled now, refused now if it is wrong."""
    try:
        program = compile_pattern(pattern)
    except PatternError as error:
        raise CompileError(f"program instantiation failed: {error}", *node.at) from None
    run = COMPILED[node.function]
    return _invoke(node, overload_id, lambda *values: run(program, *values), arguments, early=True)


def equals(left: Closure, right: Closure, constant: Any, *, negated: bool) -> Closure:
    """``==`` and ``!=``. ``constant``: the right operand if it is constant, else None."""
    if type(constant) is str:
        return _equals_text(left, right, constant, negated=negated)
    charge = equality if negated else equal_cost

    def evaluate(frame: Frame) -> bool:
        try:
            one = left(frame)
        except CelError as error:
            other = _evaluate_for_cost(frame, right)
            frame.cost += charge(error, other)
            raise error from None
        try:
            two = right(frame)
        except CelError as error:
            frame.cost += charge(one, error)
            raise
        frame.cost += charge(one, two)
        if not negated:
            return equal(one, two)
        try:
            return not equal(one, two)
        except CelError:
            # "Not definitely equal" is what upstream's != tests.
            return True

    return evaluate


def _equals_text(left: Closure, right: Closure, constant: str, *, negated: bool) -> Closure:
    """Comparison with a constant string: by far the most frequent one."""
    limit = len(constant)
    own_cost = math.ceil(limit * 0.1)
    charge = equality if negated else equal_cost

    def evaluate(frame: Frame) -> bool:
        try:
            one = left(frame)
        except CelError as error:
            frame.cost += charge(error, constant)
            raise
        if type(one) is str:
            length = len(one)
            frame.cost += own_cost if length >= limit else math.ceil(length * 0.1)
            same = bool(one == constant)
            return not same if negated else same
        frame.cost += charge(one, constant)
        if not negated:
            return equal(one, constant)
        try:
            return not equal(one, constant)
        except CelError:
            return True

    del right
    return evaluate


def logical_or(terms: list[Closure]) -> Closure:
    """``||``: true decides, whatever failed before; else the first error; else false."""
    return _logical(terms, deciding=True)


def logical_and(terms: list[Closure]) -> Closure:
    """``&&``: false decides, whatever failed before; else the first error; else true."""
    return _logical(terms, deciding=False)


def _logical(terms: list[Closure], *, deciding: bool) -> Closure:
    other = not deciding

    def evaluate(frame: Frame) -> bool:
        failed: CelError | None = None
        for term in terms:
            try:
                value = term(frame)
            except CelError as error:
                failed = failed or error
                continue
            if value is deciding:
                return not other
            if value is not other and failed is None:
                failed = no_such_overload()
        if failed is not None:
            raise failed
        return other

    return evaluate


def membership(element: Closure, members: frozenset[Any]) -> Closure:
    """``x in [constants]``."""

    def evaluate(frame: Frame) -> bool:
        value = element(frame)
        return stored_key(value) in members

    return evaluate


def optional_or(left: Closure, right: Closure, *, unwrap: bool) -> Closure:
    """``.or(x)`` and ``.orValue(x)``: lazy on the right, and free."""

    def evaluate(frame: Frame) -> Any:
        value = left(frame)
        if type(value) is not OptionalValue:
            raise no_such_overload()
        if value.present:
            return value.value if unwrap else value
        return right(frame)

    return evaluate
