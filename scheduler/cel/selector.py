"""Compiled expressions: selectors, which say yes or no, and derived attributes, which compute a value."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Final

from scheduler.cel import work
from scheduler.cel.attributes import go_type
from scheduler.cel.celtypes import BOOL, DYN, INT, SEMVER, STRING, Type
from scheduler.cel.check import check
from scheduler.cel.cost import LIMIT
from scheduler.cel.device import AttributeValue, CelDevice
from scheduler.cel.errors import (
    CelError,
    CompileError,
    CostExceededError,
    EvaluationError,
    FatalError,
)
from scheduler.cel.frame import Frame
from scheduler.cel.grammar import parse
from scheduler.cel.guards import guard_for
from scheduler.cel.native import NativeError, to_native
from scheduler.cel.plan import Planner
from scheduler.cel.reads import Reads, reads_of
from scheduler.cel.semver import Semver
from scheduler.cel.validate import validate
from scheduler.cel.values import Uint, type_name

Interrupt = Callable[[], bool]

_TOO_DEEP: Final = "expression is nested too deeply"


class _Program:
    """What selectors and derived attributes share: text, closure, reads, evaluation."""

    __slots__ = ("_closure", "_slot_count", "expression", "output_type", "reads")

    def __init__(self, expression: str) -> None:
        self.expression = expression
        try:
            node = parse(expression)
            self.output_type = check(node)
            validate(node)
            planner = Planner()
            self._closure = planner.closure(node)
            self.reads: Reads = reads_of(node)
        except RecursionError:
            raise CompileError(_TOO_DEEP) from None
        except FatalError as error:
            raise CompileError(f"program instantiation failed: {error.message}") from None
        self._slot_count = planner.slot_count

    def run(self, device: CelDevice, interrupted: Interrupt | None) -> tuple[Any, int]:
        """(value, cost) on a device. Raises EvaluationError."""
        if device.error:
            raise EvaluationError(device.error)
        frame = Frame(device.value, self._slot_count, interrupted)
        work.start()
        try:
            value = self._closure(frame)
            if frame.cost > LIMIT:
                raise CostExceededError
        except CelError as error:
            raise _evaluation_error(error, frame) from None
        except FatalError as error:
            kind = "cost" if isinstance(error, CostExceededError) else "runtime"
            raise EvaluationError(error.message, kind, cost=frame.cost) from None  # type: ignore[arg-type]  # narrowed above
        except RecursionError:
            raise EvaluationError(_TOO_DEEP, cost=frame.cost) from None
        except Exception as error:
            # Upstream recovers from panics here in the same way: an expression may fail, the scheduler may not.
            raise EvaluationError(f"internal error: {type(error).__name__}: {error}", cost=frame.cost) from error
        return value, frame.cost


def _evaluation_error(error: CelError, frame: Frame) -> EvaluationError:
    if frame.cost > LIMIT:
        return EvaluationError(CostExceededError().message, "cost", cost=frame.cost)
    line, column = error.node.at if error.node is not None else (0, 0)
    guard = guard_for(error.node) if error.node is not None and error.message.startswith("no such key") else ""
    return EvaluationError(error.message, "runtime", line, column, guard, frame.cost)


class Selector(_Program):
    """A device selector. Immutable, safe to share between threads; compile once per expression."""

    __slots__ = ()

    def evaluate(self, device: CelDevice, interrupted: Interrupt | None = None) -> bool:
        """Does the device match? ``interrupted`` is asked every 100 loop steps.

        Cost: from half a microsecond; bounded by 1,000,000 cost units. Raises EvaluationError.
        """
        return self.evaluate_with_cost(device, interrupted)[0]

    def evaluate_with_cost(self, device: CelDevice, interrupted: Interrupt | None = None) -> tuple[bool, int]:
        """(match, cost units as kube-scheduler 1.37 counts them)."""
        value, cost = self.run(device, interrupted)
        return (value if type(value) is bool else _as_bool(value, cost)), cost

    def read_key(self, device: CelDevice) -> Hashable:
        """Equal keys mean equal answers: the values the expression reads, and the device's conversion error."""
        return self.reads.key(device)


_NATIVE: Final = {
    "string": "string",
    "int": "int64",
    "uint": "uint64",
    "double": "float64",
    "bytes": "[]uint8",
}


def _as_bool(value: Any, cost: int) -> bool:
    """The answer of a selector. Upstream's conversion looks through optionals."""
    try:
        return bool(to_native(value, "bool"))
    except NativeError as error:
        text = f"CEL result of type {type_name(value)} could not be converted to bool: {error}"
        raise EvaluationError(text, cost=cost) from None


class DerivedAttribute(_Program):
    """A derived attribute (DRADerivedAttributes): computes an attribute value from the device."""

    __slots__ = ()

    def evaluate(self, device: CelDevice, interrupted: Interrupt | None = None) -> AttributeValue:
        """The value as (kind, value); versions as text. Raises EvaluationError; an empty list gives ("strings", [])."""
        value, cost = self.run(device, interrupted)
        if type(value) is list:
            return _derived_list(value, cost)
        kind = _SCALAR_KINDS.get(type(value))
        if kind is None:
            raise EvaluationError(f"unsupported CEL return type: {_native_type(value)}", cost=cost)
        return (kind, str(value)) if kind == "version" else (kind, value)  # type: ignore[return-value]  # closed table


_SCALAR_KINDS: Final[dict[type, str]] = {bool: "bool", int: "int", str: "string", Semver: "version"}


def _derived_list(values: list[Any], cost: int) -> AttributeValue:
    if not values:
        return "strings", []
    first = type(values[0])
    kind = _SCALAR_KINDS.get(first)
    if kind is None:
        raise EvaluationError(f"unsupported list element type: {_native_type(values[0])}", cost=cost)
    for index, value in enumerate(values):
        if type(value) is not first:
            name = "semver" if kind == "version" else kind
            raise EvaluationError(
                f"expected list element at index {index} to be {name}, got {_native_type(value)}", cost=cost
            )
    shown = [str(value) for value in values] if kind == "version" else list(values)
    return f"{kind}s", shown  # type: ignore[return-value]  # the plural of a kind is a kind


def _native_type(value: Any) -> str:
    if type(value) is bool:
        return "bool"
    if type(value) is Uint:
        return "uint64"
    return _NATIVE.get(type_name(value), go_type(value))


@lru_cache(maxsize=1024)
def compile_selector(expression: str) -> Selector:
    """Compile a device selector. Raises CompileError.

    Cost: about a millisecond; the result is shared between equal expressions. Source of the rules: kube-scheduler
    1.37, dynamic-resource-allocation/cel, environment for stored expressions.
    """
    selector = Selector(expression)
    if selector.output_type not in (BOOL, DYN):
        raise CompileError(f"must evaluate to bool or the unknown type, not {selector.output_type}")
    return selector


@lru_cache(maxsize=256)
def compile_derived(expression: str) -> DerivedAttribute:
    """Compile the expression of a derived attribute. Raises CompileError."""
    derived = DerivedAttribute(expression)
    kind = derived.output_type
    if not (_derivable(kind) or (kind.kind == "list" and _derivable(kind.params[0]))):
        raise CompileError(
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of these scalars,"
            f" not {kind}"
        )
    return derived


def _derivable(kind: Type) -> bool:
    return kind in (BOOL, INT, STRING, DYN, SEMVER) or kind.kind == "any"
