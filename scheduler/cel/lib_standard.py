"""The standard library: operators, conversions, strings and containers (cel-go 0.29, common/stdlib)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.cel.convert import convert
from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.pattern import search
from scheduler.cel.registry import Library
from scheduler.cel.timing import add_times, negate_duration, subtract_times
from scheduler.cel.values import (
    INT_MAX,
    INT_MIN,
    ORDERED,
    UINT_MAX,
    Duration,
    MapValue,
    Timestamp,
    TypeValue,
    Uint,
    compare,
    member_equal,
    type_name,
    unsupported,
)
from scheduler.cel.work import check_result

_ORDERED_PAIRS: Final = (
    "bool bool", "int64 int int", "int64_double int double", "int64_uint64 int uint", "uint64 uint uint",
    "uint64_double uint double", "uint64_int64 uint int", "double double double", "double_int64 double int",
    "double_uint64 double uint", "string string string", "bytes bytes bytes", "timestamp timestamp timestamp",
    "duration duration duration",
)  # fmt: skip


def _comparison_table() -> str:
    lines = []
    for operator, prefix in (("_<_", "less"), ("_<=_", "less_equals"), ("_>_", "greater"), ("_>=_", "greater_equals")):
        for pair in _ORDERED_PAIRS:
            suffix, *operands = pair.split()
            left, right = operands if len(operands) == 2 else operands * 2
            lines.append(f"{operator} {prefix}_{suffix} ({left}, {right}) bool")
    return "\n".join(lines)


_TABLE: Final = """
_?_:_                conditional          (bool, A, A) A
_&&_                 logical_and          (bool, bool) bool
_||_                 logical_or           (bool, bool) bool
!_                   logical_not          (bool) bool
@not_strictly_false  not_strictly_false   (bool) bool
_==_                 equals               (A, A) bool
_!=_                 not_equals           (A, A) bool
_+_                  add_bytes            (bytes, bytes) bytes
_+_                  add_double           (double, double) double
_+_                  add_duration_duration    (duration, duration) duration
_+_                  add_duration_timestamp   (duration, timestamp) timestamp
_+_                  add_timestamp_duration   (timestamp, duration) timestamp
_+_                  add_int64            (int, int) int
_+_                  add_list             (list(A), list(A)) list(A)
_+_                  add_string           (string, string) string
_+_                  add_uint64           (uint, uint) uint
_/_                  divide_double        (double, double) double
_/_                  divide_int64         (int, int) int
_/_                  divide_uint64        (uint, uint) uint
_%_                  modulo_int64         (int, int) int
_%_                  modulo_uint64        (uint, uint) uint
_*_                  multiply_double      (double, double) double
_*_                  multiply_int64       (int, int) int
_*_                  multiply_uint64      (uint, uint) uint
-_                   negate_double        (double) double
-_                   negate_int64         (int) int
_-_                  subtract_double      (double, double) double
_-_                  subtract_duration_duration    (duration, duration) duration
_-_                  subtract_int64       (int, int) int
_-_                  subtract_timestamp_duration   (timestamp, duration) timestamp
_-_                  subtract_timestamp_timestamp  (timestamp, timestamp) duration
_-_                  subtract_uint64      (uint, uint) uint
_[_]                 index_list           (list(A), int) A
_[_]                 index_map            (map(A, B), A) B
@in                  in_list              (A, list(A)) bool
@in                  in_map               (A, map(A, B)) bool
size                 size_bytes           (bytes) int
size                 bytes_size           bytes.() int
size                 size_list            (list(A)) int
size                 list_size            list(A).() int
size                 size_map             (map(A, B)) int
size                 map_size             map(A, B).() int
size                 size_string          (string) int
size                 string_size          string.() int
type                 type                 (A) type(A)
bool                 bool_to_bool         (bool) bool
bool                 string_to_bool       (string) bool
bytes                bytes_to_bytes       (bytes) bytes
bytes                string_to_bytes      (string) bytes
double               double_to_double     (double) double
double               int64_to_double      (int) double
double               string_to_double     (string) double
double               uint64_to_double     (uint) double
duration             duration_to_duration (duration) duration
duration             string_to_duration   (string) duration
dyn                  to_dyn               (A) dyn
int                  int64_to_int64       (int) int
int                  double_to_int64      (double) int
int                  duration_to_int64    (duration) int
int                  string_to_int64      (string) int
int                  timestamp_to_int64   (timestamp) int
int                  uint64_to_int64      (uint) int
string               string_to_string     (string) string
string               bool_to_string       (bool) string
string               bytes_to_string      (bytes) string
string               double_to_string     (double) string
string               duration_to_string   (duration) string
string               int64_to_string      (int) string
string               timestamp_to_string  (timestamp) string
string               uint64_to_string     (uint) string
timestamp            timestamp_to_timestamp   (timestamp) timestamp
timestamp            int64_to_timestamp   (int) timestamp
timestamp            string_to_timestamp  (string) timestamp
uint                 uint64_to_uint64     (uint) uint
uint                 double_to_uint64     (double) uint
uint                 int64_to_uint64      (int) uint
uint                 string_to_uint64     (string) uint
contains             contains_string      string.(string) bool
endsWith             ends_with_string     string.(string) bool
startsWith           starts_with_string   string.(string) bool
matches              matches              (string, string) bool
matches              matches_string       string.(string) bool
"""


def _checked(value: int) -> int:
    if INT_MIN <= value <= INT_MAX:
        return value
    raise CelError("integer overflow")


def _checked_uint(value: int) -> Uint:
    if 0 <= value <= UINT_MAX:
        return Uint(value)
    raise CelError("unsigned integer overflow")


def add(left: Any, right: Any) -> Any:
    """``+`` on equal types, and on times."""
    kind = type(left)
    if kind is Duration or kind is Timestamp:
        return add_times(left, right)
    if kind not in (int, Uint, float, str, bytes, list):
        raise unsupported("_+_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if kind is int:
        return _checked(left + right)
    if kind is Uint:
        return _checked_uint(left + right)
    if kind is not float:
        check_result(len(left) + len(right))
    return left + right


def subtract(left: Any, right: Any) -> Any:
    """``-`` on equal types, and on times."""
    kind = type(left)
    if kind is Duration or kind is Timestamp:
        return subtract_times(left, right)
    if kind is not int and kind is not float and kind is not Uint:
        raise unsupported("_-_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if kind is int:
        return _checked(left - right)
    return _checked_uint(int(left) - int(right)) if kind is Uint else left - right


def multiply(left: Any, right: Any) -> Any:
    """``*``"""
    kind = type(left)
    if kind is not int and kind is not float and kind is not Uint:
        raise unsupported("_*_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if kind is int:
        return _checked(left * right)
    return _checked_uint(int(left) * int(right)) if kind is Uint else left * right


def divide(left: Any, right: Any) -> Any:
    """``/``: integers towards zero, doubles by IEEE 754."""
    kind = type(left)
    if kind is not int and kind is not float and kind is not Uint:
        raise unsupported("_/_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if kind is float:
        return _divide_float(left, right)
    if right == 0:
        raise CelError("division by zero")
    quotient = abs(int(left)) // abs(int(right))
    if kind is Uint:
        return Uint(quotient)
    return _checked(quotient if (left < 0) == (right < 0) else -quotient)


def _divide_float(left: float, right: float) -> float:
    if right != 0.0:
        return left / right
    if left != left or left == 0.0:
        return float("nan")
    negative = (left < 0) != (str(right).startswith("-"))
    return float("-inf") if negative else float("inf")


def modulo(left: Any, right: Any) -> Any:
    """``%``: the sign follows the dividend."""
    kind = type(left)
    if kind is not int and kind is not Uint:
        raise unsupported("_%_", left)
    if type(right) is not kind:
        raise no_such_overload()
    if right == 0:
        raise CelError("modulus by zero")
    if kind is Uint:
        return Uint(int(left) % int(right))
    if left == INT_MIN and right == -1:
        raise CelError("integer overflow")
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


def negate(operand: Any) -> Any:
    """Unary ``-``."""
    kind = type(operand)
    if kind is int:
        return _checked(-operand)
    if kind is float:
        return -operand
    if kind is Duration:
        return negate_duration(operand)
    if kind is bool:
        raise no_such_overload()
    raise unsupported("-_", operand)


def logical_not(operand: Any) -> bool:
    """``!``"""
    if type(operand) is not bool:
        raise no_such_overload()
    return not operand


def _comparison(operator: str, wanted: tuple[int, ...]) -> Any:
    def evaluate(left: Any, right: Any) -> bool:
        if type(left) not in ORDERED:
            raise unsupported(operator, left)
        return compare(left, right) in wanted

    return evaluate


def contains(element: Any, container: Any) -> bool:
    """``in``: an element of a list, a key of a map."""
    if type(container) is list:
        return any(member_equal(element, other) for other in container)
    if isinstance(container, MapValue):
        return container.contains(element)
    raise no_such_overload()


def size(operand: Any) -> int:
    """Characters of a string, bytes, elements or entries."""
    if isinstance(operand, (str, bytes, list, MapValue)):
        return len(operand)
    raise unsupported("size", operand)


def _string_method(method: str) -> Any:
    def evaluate(operand: Any, argument: Any) -> bool:
        if type(operand) is not str or type(argument) is not str:
            raise no_such_overload()
        return bool(getattr(operand, method)(argument))

    return evaluate


def matches(operand: Any, pattern: Any) -> bool:
    """RE2, unanchored."""
    if type(operand) is not str:
        raise unsupported("matches", operand)
    if type(pattern) is not str:
        raise no_such_overload()
    return search(pattern, operand)


def _conversion(target: str) -> Any:
    return lambda operand: convert(operand, target)


def _conversions() -> dict[str, Any]:
    """One entry per conversion overload of the table: the target is the function's name."""
    found: dict[str, Any] = {}
    targets = {"bool", "bytes", "double", "duration", "int", "string", "timestamp", "uint"}
    for line in _TABLE.splitlines():
        name, overload_id = [*line.split(), "", ""][:2]
        if name in targets:
            found[overload_id] = _conversion(name)
    return found


LIBRARY: Final = Library(
    table=_TABLE + _comparison_table(),
    implementations={
        **_conversions(),
        "contains_string": _string_method("__contains__"),
        "ends_with_string": _string_method("endswith"),
        "starts_with_string": _string_method("startswith"),
        "not_strictly_false": lambda value: value if type(value) is bool else True,
    },
    singletons={
        "_+_": add,
        "_-_": subtract,
        "_*_": multiply,
        "_/_": divide,
        "_%_": modulo,
        "-_": negate,
        "!_": logical_not,
        "_<_": _comparison("_<_", (-1,)),
        "_<=_": _comparison("_<=_", (-1, 0)),
        "_>_": _comparison("_>_", (1,)),
        "_>=_": _comparison("_>=_", (0, 1)),
        "@in": contains,
        "size": size,
        "type": lambda value: TypeValue(type_name(value)),
        "dyn": lambda value: value,
        "matches": matches,
    },
    unguarded=frozenset({"contains", "endsWith", "startsWith"}),
)
