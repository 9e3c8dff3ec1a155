"""Optional values (cel-go 0.29, cel/library.go)."""

from __future__ import annotations

from typing import Any, Final

from scheduler.api.quantity import Quantity
from scheduler.cel.errors import CelError
from scheduler.cel.registry import Library
from scheduler.cel.values import NONE, Duration, MapValue, OptionalValue, Timestamp, some

_YEAR_ONE_NANOS: Final = -62135596800 * 1_000_000_000


def _is_zero(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, (bool, int, float, str, bytes, list)):
        return not value
    if isinstance(value, MapValue):
        return len(value) == 0
    if type(value) is Duration:
        return value.nanos == 0
    if type(value) is Timestamp:
        return value.nanos == _YEAR_ONE_NANOS
    # Upstream's quantity inherits no zero test of the kind this function looks for.
    return type(value) is Quantity and False


def _of_non_zero(value: Any) -> OptionalValue:
    return NONE if _is_zero(value) else some(value)


def _value(optional: OptionalValue) -> Any:
    if not optional.present:
        raise CelError("optional.none() dereference")
    return optional.value


def _unwrap(optionals: list[Any]) -> list[Any]:
    found: list[Any] = []
    for optional in optionals:
        if type(optional) is not OptionalValue:
            raise CelError(f"value {optional} is not optional")
        if optional.present:
            found.append(optional.value)
    return found


LIBRARY: Final = Library(
    table="""
optional.of              optional_of               (V) optional(V)
optional.ofNonZeroValue  optional_ofNonZeroValue   (V) optional(V)
optional.none            optional_none             () optional(V)
value                    optional_value            optional(V).() V
hasValue                 optional_hasValue         optional(V).() bool
or                       optional_or_optional      optional(V).(optional(V)) optional(V)
orValue                  optional_orValue_value    optional(V).(V) V
_[?_]                    list_optindex_optional_int           (list(V), int) optional(V)
_[?_]                    optional_list_optindex_optional_int  (optional(list(V)), int) optional(V)
_[?_]                    map_optindex_optional_value          (map(K, V), K) optional(V)
_[?_]                    optional_map_optindex_optional_value (optional(map(K, V)), K) optional(V)
_[_]                     optional_list_index_int   (optional(list(V)), int) optional(V)
_[_]                     optional_map_index_value  (optional(map(K, V)), K) optional(V)
last                     list_last                 list(V).() optional(V)
first                    list_first                list(V).() optional(V)
optional.unwrap          optional_unwrap           (list(optional(V))) list(V)
unwrapOpt                optional_unwrapOpt        list(optional(V)).() list(V)
""",
    implementations={
        "optional_of": some,
        "optional_ofNonZeroValue": _of_non_zero,
        "optional_none": lambda: NONE,
        "optional_value": _value,
        "optional_hasValue": lambda optional: optional.present,
        "list_last": lambda elements: some(elements[-1]) if elements else NONE,
        "list_first": lambda elements: some(elements[0]) if elements else NONE,
        "optional_unwrap": _unwrap,
        "optional_unwrapOpt": _unwrap,
    },
)
