"""What each step costs at run time, exactly as kube-scheduler 1.37 counts it.

Source: cel-go 0.29 interpreter/runtimecost.go and the Kubernetes cost estimator (apiserver 0.37, cel/library).
Products are computed in floating point and rounded as there, so that 70 * 0.1 costs 8.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from scheduler.api.quantity import Quantity
from scheduler.cel.attributes import go_type
from scheduler.cel.errors import CelError, FatalError
from scheduler.cel.values import Duration, MapValue, OptionalValue, Timestamp, Uint
from scheduler.cel.work import visit

LIMIT: Final = 1_000_000
LIST_COST: Final = 10
MAP_COST: Final = 30
STRUCT_COST: Final = 40

_TRAVERSAL: Final = 0.1
_REGEX: Final = 0.25
_EQUAL_UNIT_TYPES: Final = frozenset(
    {"kubernetes.Quantity", "kubernetes.Semver", "kubernetes.URL", "kubernetes.NamedFormat", "net.IP", "net.CIDR"}
)

# Type names as they stand in the overload ids of the list extension.
_COMPARABLE: Final = (
    "int", "uint", "double", "bool", "google.protobuf.Duration", "google.protobuf.Timestamp", "string", "bytes",
)  # fmt: skip

# Types that know "+": the first method that a list has and they lack is another one.
_ADDERS: Final = (int, Uint, float, str, bytes, Duration, Timestamp)

CallCost = Callable[[Sequence[Any]], int]


def size_of(value: Any) -> int:
    """Length of what has one, of an optional's content; else 1."""
    if isinstance(value, (str, bytes, list, MapValue)):
        return len(value)
    if type(value) is OptionalValue and value.present:
        return size_of(value.value)
    size: int = getattr(value, "size_bytes", 1)
    return size


def _plain_size(value: Any) -> int:
    """As ``size_of``, but an optional counts 1: the Kubernetes estimator does not look inside."""
    return 1 if type(value) is OptionalValue else size_of(value)


def traversal(length: float) -> int:
    """Cost of walking over ``length`` characters once."""
    return math.ceil(length * _TRAVERSAL)


def equality(left: Any, right: Any) -> int:
    """Cost of comparing two values for equality: the smaller size, a tenth."""
    return math.ceil(min(size_of(left), size_of(right)) * _TRAVERSAL)


def walk(value: Any) -> int:
    """Cost of visiting every leaf of a value; strings count a tenth of their bytes, rounded down."""
    if type(value) is str:
        return int(len(value.encode("utf-8", "surrogatepass")) * _TRAVERSAL)
    if type(value) is bytes:
        return int(len(value) * _TRAVERSAL)
    if type(value) is list:
        visit(len(value))
        return sum(walk(element) for element in value)
    if isinstance(value, MapValue):
        visit(len(value))
        return sum(walk(key) + walk(element) for key, element in value.items())
    return 1


def _first(factor: float) -> CallCost:
    return lambda args: math.ceil(_plain_size(args[0]) * factor * _TRAVERSAL)


def _pattern(args: Sequence[Any]) -> int:
    return math.ceil((1.0 + _plain_size(args[0])) * _TRAVERSAL) * math.ceil(_plain_size(args[1]) * _REGEX)


def _contains_ip(args: Sequence[Any]) -> int:
    size = _plain_size(args[0])
    return math.ceil((size + size) * _TRAVERSAL)


def _contains_cidr(args: Sequence[Any]) -> int:
    return _contains_ip(args) + traversal(_plain_size(args[0])) + 1


def _with_parsing(cost: CallCost) -> CallCost:
    return lambda args: cost(args) + traversal(_plain_size(args[1]))


def _validate(args: Sequence[Any]) -> int:
    regex_size: int = getattr(args[0], "regex_size", 0)
    if not regex_size:
        return 1
    return math.ceil((1.0 + _plain_size(args[1])) * _TRAVERSAL) * math.ceil(regex_size * _REGEX)


def _smaller(args: Sequence[Any]) -> int:
    return equality(args[0], args[1])


def _both(args: Sequence[Any]) -> int:
    return math.ceil((size_of(args[0]) + size_of(args[1])) * _TRAVERSAL)


def _product(args: Sequence[Any]) -> int:
    return traversal(size_of(args[0])) * traversal(size_of(args[1]))


def _matches(args: Sequence[Any]) -> int:
    return math.ceil((1.0 + size_of(args[0])) * _TRAVERSAL) * math.ceil(size_of(args[1]) * _REGEX)


def _flatten(args: Sequence[Any]) -> int:
    depth = args[1] if len(args) == 2 else 1
    if type(depth) is not int:
        raise FatalError(f"internal error: interface conversion: ref.Val is {_go_type_or_error(depth)}, not types.Int")
    return _allocation(float(depth), size_of(args[0]))


def _go_type_or_error(value: Any) -> str:
    return "*types.Err" if isinstance(value, CelError) else go_type(value)


def _self_compare(position: int) -> CallCost:
    def cost(args: Sequence[Any]) -> int:
        elements = args[position]
        if type(elements) is not list:
            # Upstream's tracker converts without looking and panics on anything but a list.
            missing = "Contains" if type(elements) in _ADDERS else "Add"
            raise FatalError(
                f"internal error: interface conversion: {_go_type_or_error(elements)} is not traits.Lister: "
                f"missing method {missing}"
            )
        factor = 2.1 if elements and type(elements[0]) in (str, bytes) else 2.0
        return _allocation(factor, len(elements) ** 2)

    return cost


def _allocation(factor: float, size: int) -> int:
    return int(size * (factor if factor >= 0 else 1.0)) + 1 + LIST_COST


def _sets(factor: int) -> CallCost:
    return lambda args: 1 + math.ceil(size_of(args[0]) * size_of(args[1]) * factor)


# By function name, whatever the overload: the Kubernetes estimator.
_BY_FUNCTION: Final[dict[str, CallCost]] = {
    **dict.fromkeys(
        ("isSorted", "sum", "max", "min", "indexOf", "lastIndexOf", "includes"), lambda args: walk(args[0])
    ),
    **dict.fromkeys(("url", "lowerAscii", "upperAscii", "substring", "trim"), _first(1)),
    **dict.fromkeys(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"), _first(1)),
    **dict.fromkeys(("replace", "split", "ip.isCanonical"), _first(2)),
    **dict.fromkeys(("find", "findAll"), _pattern),
    "containsIP": _contains_ip,
    "containsCIDR": _contains_cidr,
    "validate": _validate,
}
# By overload, tried first where the function is in both tables.
_BY_OVERLOAD: Final[dict[str, CallCost]] = {
    "cidr_ip": lambda _args: 1,
    "cidr_contains_ip_string": _with_parsing(_contains_ip),
    "cidr_contains_cidr_string": _with_parsing(_contains_cidr),
    "starts_with_string": lambda args: traversal(size_of(args[1])),
    "ends_with_string": lambda args: traversal(size_of(args[1])),
    **dict.fromkeys(
        ("string_to_bytes", "bytes_to_string", "strings_quote", "string_format"),
        lambda args: traversal(size_of(args[0])),
    ),
    "in_list": lambda args: size_of(args[1]),
    **dict.fromkeys(
        (
            f"{operator}_{kind}"
            for operator in ("less", "less_equals", "greater", "greater_equals")
            for kind in ("string", "bytes")
        ),
        _smaller,
    ),
    "add_string": _both,
    "add_bytes": _both,
    "matches": _matches,
    "matches_string": _matches,
    "contains_string": _product,
    "list_flatten": _flatten,
    "list_flatten_int": _flatten,
    "list_distinct": _self_compare(0),
    **{f"list_{kind}_sort": _self_compare(0) for kind in _COMPARABLE},
    **{f"list_{kind}_sortByAssociatedKeys": _self_compare(1) for kind in _COMPARABLE},
    "list_sets_contains_list": _sets(1),
    "list_sets_intersects_list": _sets(1),
    "list_sets_equivalent_list": _sets(2),
}


def call_cost(function: str, overload: str) -> CallCost | None:
    """How a call is charged from its arguments; None for a flat 1. ``overload`` is "" when several fit."""
    return _BY_OVERLOAD.get(overload) or _BY_FUNCTION.get(function)


def equal_cost(left: Any, right: Any) -> int:
    """``==``: as ``equality``, but 1 for a Kubernetes value on the left."""
    if type(left) is Quantity or getattr(left, "type_name", "") in _EQUAL_UNIT_TYPES:
        return 1
    return equality(left, right)


def result_cost(function: str, overload: str) -> Callable[[Any], int] | None:
    """How a call is charged from its result, for the few that are."""
    if function == "join":
        return lambda result: math.ceil(_plain_size(result) * 2 * _TRAVERSAL)
    if overload in ("list_slice", "lists_range", "list_reverse"):
        return lambda result: _allocation(1.0, size_of(result))
    return None
