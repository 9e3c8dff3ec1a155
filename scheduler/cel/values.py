"""Run-time values, their type names, equality and order.

int, str, bool, float, bytes and None stand for themselves; a list is a Python list that nobody changes after it
was built; everything else has a small class here or in a library module. ``bool`` is never an ``int`` in CEL, so
every test is on the exact type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from scheduler.api.quantity import Quantity
from scheduler.cel.errors import CelError, FatalError, no_such_overload
from scheduler.cel.work import visit

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
UINT_MAX: Final = 2**64 - 1


class Uint(int):
    """A CEL uint: the same numbers as a non-negative int, another type."""

    __slots__ = ()


class MapValue:
    """A CEL map. Keys are stored so that 1, 1u and 1.0 find each other and true does not find 1."""

    __slots__ = ("data",)

    def __init__(self, data: dict[Any, Any]) -> None:
        self.data = data

    @classmethod
    def of(cls, entries: Mapping[str, Any]) -> MapValue:
        """A map with string keys; the dict is copied."""
        return cls(dict(entries))

    def find(self, key: Any) -> tuple[bool, Any]:
        """(present, value). A number finds an equal number of another type; FatalError where upstream panics."""
        if type(key) is str:
            return (True, self.data[key]) if key in self.data else (False, None)
        # Go does not hash the key to look into an empty map, so nothing can go wrong there.
        for stored in equal_keys(key) if self.data else ():
            if stored in self.data:
                return True, self.data[stored]
        return False, None

    def contains(self, key: Any) -> bool:
        """Real membership, without any default."""
        return MapValue.find(self, key)[0]

    def keys(self) -> Iterator[Any]:
        """Keys as CEL values, in insertion order (upstream: random)."""
        for key in self.data:
            yield _plain_key(key)

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values, in the order of ``keys``."""
        for key, value in self.data.items():
            yield _plain_key(key), value

    def __len__(self) -> int:
        return len(self.data)


def _plain_key(stored: Any) -> Any:
    if type(stored) is not tuple:
        return stored
    key = stored[0]
    return key.value if type(key) is Identity else key


class NativeMap(MapValue):
    """A map of the device: string keys, and looking for anything else is no error."""

    __slots__ = ()

    def find(self, key: Any) -> tuple[bool, Any]:
        """(present, value)."""
        return (True, self.data[key]) if type(key) is str and key in self.data else (False, None)

    def contains(self, key: Any) -> bool:
        """Real membership, without any default."""
        return type(key) is str and key in self.data


class DomainMap(NativeMap):
    """``device.attributes`` and ``device.capacity``: an unknown domain reads as an empty map."""

    __slots__ = ()

    def find(self, key: Any) -> tuple[bool, Any]:
        """Always present; only real domains count for ``in``, size and iteration."""
        return True, self.data.get(key, EMPTY_MAP) if type(key) is str else EMPTY_MAP


# What Go cannot use as a map key; upstream does not notice before it panics.
_UNHASHABLE: Final = {
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.NamedFormat": "cel.Format",
    "bytes": "types.Bytes",
}


def stored_key(key: Any) -> Any:
    """How a map key is kept in the dict: strings and ints as they are, others with their type beside them.

    Raises FatalError for what upstream cannot hash.
    """
    kind = type(key)
    if kind is str or kind is int:
        return key
    name = type_name(key)
    if name in _UNHASHABLE:
        raise FatalError(f"internal error: runtime error: hash of unhashable type {_UNHASHABLE[name]}")
    # Lists and maps are distinct by identity, as pointers are; so are our objects without __eq__.
    return (key, name) if kind is not list else (Identity(key), name)


class Identity:
    """A key that equals only itself."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def equal_keys(key: Any) -> list[Any]:
    """The stored keys a look-up tries: the key itself, then equal numbers of the other types."""
    keys = [stored_key(key)]
    kind = type(key)
    if kind is float:
        if key == key and abs(key) < 2.0**64 and key == int(key):
            keys += [int(key), (Uint(int(key)), "uint")] if key >= 0 else [int(key)]
    elif kind is int or kind is Uint:
        # Not a double: upstream looks for one only the other way round.
        keys.append((Uint(key), "uint") if kind is int else int(key))
    return keys


EMPTY_MAP: Final = NativeMap({})


class TypeValue:
    """A type as a value: what ``type(x)`` gives."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name


class OptionalValue:
    """An optional: a value or nothing. ``value`` means nothing unless ``present``."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Any = None) -> None:
        self.present = present
        self.value = value


NONE: Final = OptionalValue(False)


def some(value: Any) -> OptionalValue:
    """An optional that holds a value."""
    return OptionalValue(True, value)


class Duration:
    """A signed span of time in nanoseconds, 64 bits."""

    __slots__ = ("nanos",)

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos


class Timestamp:
    """A point in time: nanoseconds since 1970 and the offset it was written with, in seconds."""

    __slots__ = ("nanos", "offset_s")

    def __init__(self, nanos: int, offset_s: int = 0) -> None:
        self.nanos = nanos
        self.offset_s = offset_s


class Opaque:
    """Base of the Kubernetes value types, whose equality is an error against another type."""

    __slots__ = ()
    type_name: str = ""

    def same(self, other: Any) -> bool:
        """Equality with a value of the same class."""
        raise NotImplementedError


class QuantitySum(Opaque):
    """Result of ``add`` and ``sub``. Upstream returns a pointer there, and its equality test wants a plain value
    on the right, so such a result compares only from the left (kube-scheduler 1.37)."""

    __slots__ = ("quantity",)
    type_name = "kubernetes.Quantity"

    def __init__(self, quantity: Quantity) -> None:
        self.quantity = quantity


_TYPE_NAMES: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    MapValue: "map",
    NativeMap: "map",
    DomainMap: "map",
    TypeValue: "type",
    OptionalValue: "optional_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    Quantity: "kubernetes.Quantity",
    CelError: "error",
}


def type_name(value: Any) -> str:
    """The CEL name of a value's type."""
    name = _TYPE_NAMES.get(type(value))
    if name is None:
        # A library's own type: remembered, so that the next look-up is as quick as for the others.
        name = _TYPE_NAMES[type(value)] = str(value.type_name)
    return name


def equal(left: Any, right: Any) -> bool:
    """CEL ``==``. Raises CelError for a Kubernetes value on the left against another type."""
    if left is None or right is None:
        return left is right
    kind = type(left)
    if kind is str or kind is bool or kind is bytes:
        return type(right) is kind and left == right
    if kind is int or kind is float or kind is Uint:
        return _numbers_equal(left, right)
    if kind is list:
        return type(right) is list and _lists_equal(left, right)
    if isinstance(left, MapValue):
        return isinstance(right, MapValue) and _maps_equal(left, right)
    if kind is Quantity:
        if type(right) is not Quantity:
            raise no_such_overload()
        return bool(left == right)
    if kind is QuantitySum:
        if type(right) is not Quantity:
            raise no_such_overload()
        return bool(left.quantity == right)
    if isinstance(left, Opaque):
        if type(right) is not kind:
            raise no_such_overload()
        return left.same(right)
    return _plain_equal(left, right)


def _plain_equal(left: Any, right: Any) -> bool:
    kind = type(left)
    if type(right) is not kind:
        return False
    if kind is TypeValue:
        return bool(left.name == right.name)
    if kind is OptionalValue:
        if left.present and right.present:
            return equal(left.value, right.value)
        return bool(left.present == right.present)
    return bool(left.nanos == right.nanos)


def _numbers_equal(left: Any, right: Any) -> bool:
    kind = type(right)
    if kind is float or type(left) is float:
        if kind is not float and kind is not int and kind is not Uint:
            return False
        order = compare_numbers(left, right)
        return order == 0
    return (kind is int or kind is Uint) and int(left) == int(right)


def compare_numbers(left: Any, right: Any) -> int | None:
    """-1, 0, 1 over int, uint and double; None when a NaN takes part."""
    if type(left) is not float and type(right) is not float:
        return int(left > right) - int(left < right)
    if left != left or right != right:
        return None
    # Upstream bounds the double by the integer's range, then compares as doubles.
    if type(left) is not float:
        order = compare_numbers(right, left)
        return None if order is None else -order
    if type(right) is not float:
        low, high = (0.0, float(UINT_MAX)) if type(right) is Uint else (float(INT_MIN), float(INT_MAX))
        if left < low:
            return -1
        if left > high:
            return 1
        right = float(right)
    return int(left > right) - int(left < right)


def _lists_equal(left: list[Any], right: list[Any]) -> bool:
    if len(left) != len(right):
        return False
    visit(len(left))
    return all(_not_unequal(one, two) for one, two in zip(left, right, strict=True))


def _maps_equal(left: MapValue, right: MapValue) -> bool:
    if len(left) != len(right):
        return False
    visit(len(left))
    for key, value in left.items():
        present, other = right.find(key)
        if not present or not _not_unequal(value, other):
            return False
    return True


def _not_unequal(left: Any, right: Any) -> bool:
    # Inside lists and maps upstream only looks for a definite "false": an error counts as equal.
    try:
        return equal(left, right)
    except CelError:
        return True


def member_equal(left: Any, right: Any) -> bool:
    """Equality as ``in`` and the list functions use it: an error is no match."""
    try:
        return equal(left, right)
    except CelError:
        return False


NAN_ORDER = "NaN values cannot be ordered"


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1 for the ordered types; CelError otherwise. The caller has checked that ``left`` is ordered."""
    kind = type(left)
    other = type(right)
    if kind is int or kind is float or kind is Uint:
        if other is not int and other is not float and other is not Uint:
            if kind is float and left != left:
                raise CelError(NAN_ORDER)
            raise no_such_overload()
        order = compare_numbers(left, right)
        if order is None:
            raise CelError(NAN_ORDER)
        return order
    if kind is not other:
        raise no_such_overload()
    if kind is Duration or kind is Timestamp:
        left, right = left.nanos, right.nanos
    return int(left > right) - int(left < right)


ORDERED: Final = frozenset({int, Uint, float, str, bytes, bool, Duration, Timestamp})
# Types with methods of their own upstream: they answer an unknown call with the short text.
_RECEIVERS: Final = frozenset({str, Duration, Timestamp})


def unsupported(function: str, operand: Any) -> CelError:
    """The error of a builtin called on an operand whose type lacks the ability."""
    if type(operand) in _RECEIVERS:
        return no_such_overload()
    return CelError(f"no such overload: {function}")
