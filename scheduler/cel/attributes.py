"""Attributes: a variable or value followed by a chain of fields, keys and positions, resolved in one go.

cel-go evaluates ``a.b[c].?d`` as one attribute with qualifiers; cost (1 for the attribute, 1 per qualifier reached)
and the meaning of optional steps follow from that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from scheduler.cel.errors import CelError, no_such_overload
from scheduler.cel.floats import format_float
from scheduler.cel.nodes import Node
from scheduler.cel.values import INT_MAX, NONE, DomainMap, MapValue, OptionalValue, QuantitySum, Uint, some, type_name

if TYPE_CHECKING:
    from scheduler.cel.frame import Frame

Closure = Callable[["Frame"], Any]

_KEY_TYPES: Final = frozenset({str, int, Uint, bool, float})


@dataclass(slots=True)
class Qualifier:
    """One step. Either ``key`` is constant, or ``key_of`` computes it."""

    node: Node
    key: Any = None
    key_of: Closure | None = None
    optional: bool = False
    test_only: bool = False
    is_device: bool = False

    def current_key(self, frame: Frame) -> Any:
        """The key to look up."""
        if self.key_of is None:
            return self.key
        key = self.key_of(frame)
        if type(key) not in _KEY_TYPES:
            raise CelError(
                f"invalid qualifier type: {'map[string]interface {}' if self.is_device else go_type(key)}", self.node
            )
        return key


@dataclass(slots=True)
class Attribute:
    """An attribute under construction. ``resolve_base`` gives the value the qualifiers apply to.

    A conditional attribute has ``branches`` instead, and every qualifier goes to both.
    """

    node: Node
    resolve_base: Closure | None = None
    qualifiers: list[Qualifier] = field(default_factory=list)
    condition: Closure | None = None
    branches: tuple[Attribute, Attribute] | None = None
    test_only: bool = False
    uncharged: bool = False
    of_device: bool = False

    def qualify(self, qualifier: Qualifier) -> None:
        """Append a step."""
        if self.branches is not None:
            for branch in self.branches:
                branch.qualify(qualifier)
        else:
            self.qualifiers.append(qualifier)

    def is_device(self) -> bool:
        """Is it the device itself? Upstream hands that one around unwrapped, which an error text shows."""
        return self.of_device and not self.qualifiers

    def resolver(self) -> Closure:
        """The closure that resolves the attribute, charging its qualifiers but not itself."""
        if self.branches is not None and self.condition is not None:
            return _conditional(self.condition, self.branches[0].resolver(), self.branches[1].resolver())
        assert self.resolve_base is not None
        if not self.qualifiers:
            return self.resolve_base
        if self.uncharged:
            return _uncharged(_general(self.resolve_base, self.qualifiers))
        if any(step.optional or step.test_only or step.key_of is not None for step in self.qualifiers):
            return _general(self.resolve_base, self.qualifiers)
        return _constant_path(self.resolve_base, self.qualifiers)

    def closure(self) -> Closure:
        """The closure for the attribute as an expression of its own."""
        resolve = self.resolver()
        # A ternary costs nothing itself; nor does the attribute inside has().
        if self.branches is not None:
            return resolve
        if self.of_device and not self.uncharged:
            direct = _device_value(self.qualifiers)
            if direct is not None:
                return direct
        if self.test_only:
            return _as_presence(resolve)
        return _charged(resolve)


def _charged(resolve: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        frame.cost += 1
        return resolve(frame)

    return evaluate


def _uncharged(resolve: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        before = frame.cost
        try:
            return resolve(frame)
        finally:
            frame.cost = before

    return evaluate


def _as_presence(resolve: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        value = resolve(frame)
        return value.present if type(value) is OptionalValue else value

    return evaluate


def _conditional(condition: Closure, truthy: Closure, falsy: Closure) -> Closure:
    def evaluate(frame: Frame) -> Any:
        chosen = condition(frame)
        if chosen is True:
            return truthy(frame)
        if chosen is False:
            return falsy(frame)
        raise no_such_overload()

    return evaluate


def _constant_path(base: Closure, qualifiers: list[Qualifier]) -> Closure:
    """The common case: only constant keys, nothing optional in the path."""
    steps = tuple((qualifier.key, qualifier.node) for qualifier in qualifiers)

    def evaluate(frame: Frame) -> Any:
        value = base(frame)
        if type(value) is OptionalValue:
            return _apply(frame, value, qualifiers)
        for key, node in steps:
            frame.cost += 1
            if isinstance(value, MapValue):
                present, value = value.find(key)
            else:
                present, value = find(value, key, node)
            if not present:
                raise missing(value, key, node)
        return value

    return evaluate


def _device_value(qualifiers: list[Qualifier]) -> Closure | None:
    """``device.attributes["domain"].id`` and ``device.capacity["domain"].id`` without a walk; None for other paths."""
    if len(qualifiers) != 3 or any(
        step.optional or step.test_only or step.key_of is not None or type(step.key) is not str for step in qualifiers
    ):
        return None
    kind, domain, name = (step.key for step in qualifiers)
    last = qualifiers[2].node

    def evaluate(frame: Frame) -> Any:
        frame.cost += 4
        values = frame.device.data[kind].data.get(domain)
        if values is not None:
            value = values.data.get(name)
            # No attribute is null, so None means absent.
            if value is not None:
                return value
        raise CelError(f"no such key: {name}", last)

    return evaluate


def _general(base: Closure, qualifiers: list[Qualifier]) -> Closure:
    return lambda frame: _apply(frame, base(frame), qualifiers)


def _apply(frame: Frame, value: Any, qualifiers: list[Qualifier]) -> Any:
    optional = type(value) is OptionalValue
    if optional:
        if not value.present:
            return value
        value = value.value
    for step in qualifiers:
        optional = optional or step.optional
        if step.test_only or optional:
            present, value = _present_step(frame, value, step, presence_only=step.test_only and not optional)
            if optional and not present:
                return NONE
            if step.test_only and not optional:
                value = present
        else:
            value = _required_step(frame, value, step)
    return some(value) if optional else value


def _required_step(frame: Frame, value: Any, step: Qualifier) -> Any:
    try:
        key = step.current_key(frame)
    finally:
        frame.cost += 1
    present, found = find(value, key, step.node)
    if not present:
        raise missing(value, key, step.node)
    return found


def _present_step(frame: Frame, value: Any, step: Qualifier, *, presence_only: bool) -> tuple[bool, Any]:
    """Look without insisting; an absent step is charged only in has()."""
    present = False
    try:
        present, found = find(value, step.current_key(frame), step.node)
    finally:
        if present or presence_only:
            frame.cost += 1
    return present, found


def find(value: Any, key: Any, node: Node | None = None) -> tuple[bool, Any]:
    """(present, element) of a map or list; anything else has no elements."""
    if isinstance(value, MapValue):
        return value.find(key)
    if type(value) is list:
        index = list_index(key, node)
        return (True, value[index]) if 0 <= index < len(value) else (False, value)
    return False, value


def list_index(key: Any, node: Node | None = None) -> int:
    """A list position from an int, a uint or a whole double. Raises CelError otherwise."""
    kind = type(key)
    if kind is int or (kind is Uint and key <= INT_MAX):
        return int(key)
    if kind is float and key == key and abs(key) < 2.0**63 and key == int(key):
        return int(key)
    if kind is float or kind is Uint:
        raise CelError(f"unsupported index value {shown(key)} in list", node)
    raise CelError(f"unsupported index type '{type_name(key)}' in list", node)


def missing(value: Any, key: Any, node: Node) -> CelError:
    """The error of a key or position that is not there."""
    if type(value) is list:
        return CelError(f"index out of bounds: {shown(key)}", node)
    return CelError(f"no such key: {shown(key)}", node)


def shown(key: Any) -> str:
    """A key as Go's %v prints it."""
    if type(key) is bool:
        return "true" if key else "false"
    if type(key) is float:
        return format_float(key)
    return str(key) if not isinstance(key, int) else str(int(key))


_GO_TYPES: Final = {
    "null_type": "types.Null", "list": "*types.baseList", "map": "*types.baseMap", "bytes": "types.Bytes",
    "type": "*types.Type", "optional_type": "*types.Optional", "google.protobuf.Duration": "types.Duration",
    "google.protobuf.Timestamp": "types.Timestamp", "kubernetes.Quantity": "cel.Quantity",
    "kubernetes.Semver": "cel.Semver", "kubernetes.URL": "cel.URL", "net.IP": "cel.IP", "net.CIDR": "cel.CIDR",
    "kubernetes.NamedFormat": "cel.Format", "bool": "types.Bool", "int": "types.Int", "uint": "types.Uint",
    "double": "types.Double", "string": "types.String",
}  # fmt: skip


def go_type(value: Any) -> str:
    """The Go type upstream prints with %T."""
    if type(value) is DomainMap:
        return "cel.mapper"
    if type(value) is QuantitySum:
        return "*cel.Quantity"
    return _GO_TYPES.get(type_name(value), type_name(value))
