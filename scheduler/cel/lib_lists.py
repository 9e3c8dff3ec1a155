"""List functions: cel-go's list and set extensions, and the Kubernetes list library."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Any, Final

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.lib_standard import add
from scheduler.cel.registry import Library
from scheduler.cel.values import ORDERED, Duration, MapValue, Timestamp, Uint, compare, member_equal, type_name
from scheduler.cel.work import visit

_KINDS: Final = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_LONG: Final = {"duration": "google.protobuf.Duration", "timestamp": "google.protobuf.Timestamp"}
_ZEROS: Final[dict[str, Any]] = {"int": 0, "uint": Uint(0), "double": 0.0, "duration": Duration(0)}
_MAX_RANGE: Final = 1_000_000
_RECEIVERS: Final = (str, Duration, Timestamp, list)


def _slice(elements: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(elements) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(elements)}")
    return elements[start:end]


def _no_flatten(elements: Any, depth: Any, given: bool) -> CelError:
    names = {"map": "map(dyn, dyn)", "list": "list(dyn)"}
    shown = [names.get(name, name) for name in map(type_name, (elements, depth))]
    return CelError(f"no such overload: {shown[0]}.flatten({shown[1] if given else ''})")


def _flatten_to(elements: Any, depth: Any) -> list[Any]:
    return _flatten(elements, depth, given=True)


def _flatten(elements: Any, depth: Any = 1, given: bool = False) -> list[Any]:
    if type(elements) is not list or type(depth) is not int:
        raise _no_flatten(elements, depth, given)
    if depth < 0:
        raise CelError("level must be non-negative")
    flat: list[Any] = []
    visit(len(elements))
    for element in elements:
        if type(element) is list and depth > 0:
            flat.extend(_flatten(element, depth - 1))
        else:
            flat.append(element)
    return flat


def _sort(elements: Any) -> list[Any]:
    return _sorted_by("sort", elements, elements)


def _sort_by(elements: Any, keys: Any) -> list[Any]:
    return _sorted_by("@sortByAssociatedKeys", elements, keys)


def _sorted_by(function: str, elements: Any, keys: Any) -> list[Any]:
    if type(elements) is not list or type(keys) is not list:
        # Types with methods of their own answer for themselves upstream, and do not name the function.
        raise no_such_overload() if type(elements) in _RECEIVERS else CelError(f"no such overload: {function}")
    if len(elements) != len(keys):
        raise CelError(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got"
            f" {len(elements)} and {len(keys)} elements respectively"
        )
    if not elements:
        return elements
    if type(keys[0]) not in ORDERED:
        raise CelError("list elements must be comparable")
    if len(keys) > 1 and any(type(key) is not type(keys[0]) for key in keys):
        raise CelError("list elements must have the same type")

    def order(one: int, two: int) -> int:
        # A NaN is neither less nor greater.
        return _order_or_none(keys[one], keys[two]) or 0

    return [elements[index] for index in sorted(range(len(keys)), key=cmp_to_key(order))]


def _range(count: int) -> list[int]:
    if count < 0:
        raise CelError(f"lists.range: size must be non-negative, got {count}")
    if count > _MAX_RANGE:
        raise CelError(f"lists.range: size {count} exceeds maximum allowed ({_MAX_RANGE})")
    return list(range(count))


def _distinct(elements: list[Any]) -> list[Any]:
    unique: list[Any] = []
    for element in elements:
        if not any(member_equal(element, other) for other in unique):
            unique.append(element)
    return unique


def _ordered_elements(elements: Any) -> list[Any]:
    if isinstance(elements, MapValue):
        elements = list(elements.keys())
    if type(elements) is not list:
        raise no_such_overload()
    return elements


def _is_sorted(elements: Any) -> bool:
    previous: Any = None
    for position, element in enumerate(_ordered_elements(elements)):
        if type(element) not in ORDERED:
            raise no_such_overload()
        if position and _order_or_none(previous, element) == 1:
            return False
        previous = element
    return True


def _order_or_none(left: Any, right: Any) -> int | None:
    """The order, or None where comparing is an error: upstream only looks for one definite answer."""
    try:
        return compare(left, right)
    except CelError:
        return None


def _best(name: str, replaced_when: int) -> Any:
    def evaluate(elements: Any) -> Any:
        found: list[Any] = []
        for element in _ordered_elements(elements):
            if type(element) not in ORDERED:
                raise no_such_overload()
            if not found:
                found = [element]
            elif _order_or_none(found[0], element) == replaced_when:
                found[0] = element
        if not found:
            raise CelError(f"{name} called on empty list")
        return found[0]

    return evaluate


def _sum(kind: str) -> Any:
    def evaluate(elements: Any) -> Any:
        total = _ZEROS[kind]
        for element in _ordered_elements(elements):
            total = add(total, element)
        return total

    return evaluate


def _index_of(elements: Any, wanted: Any) -> int:
    if type(elements) is not list:
        raise no_such_overload()
    for index, element in enumerate(elements):
        if member_equal(element, wanted):
            return index
    return -1


def _last_index_of(elements: Any, wanted: Any) -> int:
    if type(elements) is not list:
        raise no_such_overload()
    for index in range(len(elements) - 1, -1, -1):
        if member_equal(elements[index], wanted):
            return index
    return -1


def _includes(target: Any, wanted: Any) -> bool:
    if type(target) is list:
        return any(member_equal(element, wanted) for element in target)
    return member_equal(target, wanted)


def _contains_all(elements: list[Any], wanted: list[Any]) -> bool:
    return all(any(member_equal(one, element) for element in elements) for one in wanted)


def _intersects(left: list[Any], right: list[Any]) -> bool:
    return any(member_equal(one, two) for one in left for two in right)


def _equivalent(left: list[Any], right: list[Any]) -> bool:
    return _contains_all(left, right) and _contains_all(right, left)


def _table() -> str:
    lines = [
        "slice          list_slice        list(T).(int, int) list(T)",
        "flatten        list_flatten      list(list(T)).() list(T)",
        "flatten        list_flatten_int  list(dyn).(int) list(dyn)",
        "lists.range    lists_range       (int) list(int)",
        "reverse        list_reverse      list(T).() list(T)",
        "distinct       list_distinct     list(T).() list(T)",
        "indexOf        list_a_index_of_int       list(A).(A) int",
        "lastIndexOf    list_a_last_index_of_int  list(A).(A) int",
        "includes       list_includes_dyn_dyn     dyn.(dyn) bool",
        "sets.contains    list_sets_contains_list    (list(T), list(T)) bool",
        "sets.equivalent  list_sets_equivalent_list  (list(T), list(T)) bool",
        "sets.intersects  list_sets_intersects_list  (list(T), list(T)) bool",
    ]
    for kind in _KINDS:
        long = _LONG.get(kind, kind)
        lines += [
            f"sort list_{long}_sort list({kind}).() list({kind})",
            f"@sortByAssociatedKeys list_{long}_sortByAssociatedKeys list(T).(list({kind})) list(T)",
            f"isSorted list_{kind}_is_sorted_bool list({kind}).() bool",
            f"max list_{kind}_max_{kind} list({kind}).() {kind}",
            f"min list_{kind}_min_{kind} list({kind}).() {kind}",
        ]
        if kind in _ZEROS:
            lines.append(f"sum list_{kind}_sum_{kind} list({kind}).() {kind}")
    return "\n".join(lines)


LIBRARY: Final = Library(
    table=_table(),
    implementations={
        "list_slice": _slice,
        "list_flatten": _flatten,
        "list_flatten_int": _flatten_to,
        "lists_range": _range,
        "list_reverse": lambda elements: elements[::-1],
        "list_distinct": _distinct,
        "list_a_index_of_int": _index_of,
        "list_a_last_index_of_int": _last_index_of,
        "list_includes_dyn_dyn": _includes,
        "list_sets_contains_list": _contains_all,
        "list_sets_equivalent_list": _equivalent,
        "list_sets_intersects_list": _intersects,
        **{f"list_{kind}_is_sorted_bool": _is_sorted for kind in _KINDS},
        **{f"list_{kind}_max_{kind}": _best("max", -1) for kind in _KINDS},
        **{f"list_{kind}_min_{kind}": _best("min", 1) for kind in _KINDS},
        **{f"list_{kind}_sum_{kind}": _sum(kind) for kind in _ZEROS},
    },
    singletons={"sort": _sort, "@sortByAssociatedKeys": _sort_by},
    unguarded=frozenset({"flatten"}),
)
