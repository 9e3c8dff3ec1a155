"""What an expression reads of a device, known before it runs: the key of the memo of selector answers."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final

from scheduler.api.quantity import Quantity
from scheduler.cel.device import CelDevice
from scheduler.cel.nodes import Call, Comprehension, Ident, ListExpr, Literal, MapExpr, Node, Select, StructExpr
from scheduler.cel.semver import Semver
from scheduler.cel.values import MapValue, type_name

_ABSENT: Final = ("absent",)
Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Reads:
    """Names are (domain, id). ``domains`` and ``capacity_domains``: domains read as a whole, or for presence.

    ``everything``: all of the device counts (iteration, size, comparison, computed keys).
    """

    attributes: frozenset[Name] = frozenset()
    capacity: frozenset[Name] = frozenset()
    attribute_domains: frozenset[str] = frozenset()
    capacity_domains: frozenset[str] = frozenset()
    driver: bool = False
    allow_multiple: bool = False
    everything: bool = False
    # The names in a fixed order, split by where they are read.
    _attribute_order: tuple[Name, ...] = field(default=(), compare=False)
    _capacity_order: tuple[Name, ...] = field(default=(), compare=False)

    def qualified_attributes(self) -> frozenset[str]:
        """Attributes read by name, as ``domain/id``."""
        return frozenset(f"{domain}/{name}" for domain, name in self.attributes)

    def qualified_capacity(self) -> frozenset[str]:
        """Capacities read by name, as ``domain/id``."""
        return frozenset(f"{domain}/{name}" for domain, name in self.capacity)

    def key(self, device: CelDevice) -> Hashable:
        """The values read, and the conversion error. Cost: one look-up per name."""
        if device.error:
            return ("error", device.error)
        if self.everything:
            return _frozen(device.value)
        parts: list[Hashable] = [device.driver if self.driver else None, self.allow_multiple and device.multiple]
        for domains, names in (
            (device.attributes, self._attribute_order),
            (device.capacity, self._capacity_order),
        ):
            for domain, name in names:
                found = domains.get(domain)
                value = found.data.get(name) if found is not None else None
                parts.append(value if type(value) is str or type(value) is int else _atom(value))
        parts.extend(_frozen(device.attributes.get(domain)) for domain in sorted(self.attribute_domains))
        parts.extend(_frozen(device.capacity.get(domain)) for domain in sorted(self.capacity_domains))
        return tuple(parts)


def _atom(value: Any) -> Hashable:
    """A hashable stand-in that keeps types apart (true is not 1)."""
    return ("bool", value) if type(value) is bool else _frozen(value)


def _frozen(value: Any) -> Hashable:
    if value is None:
        return _ABSENT
    if isinstance(value, MapValue):
        return frozenset((key, _frozen(element)) for key, element in value.data.items())
    if type(value) is list:
        return ("list", *(_frozen(element) for element in value))
    if type(value) is Semver:
        # Build metadata never shows in an answer, but costs nothing to keep apart.
        return ("semver", value.text)
    if type(value) is Quantity:
        return ("quantity", value.mantissa, value.power, value.format, value.big)
    return (type_name(value), value)


class _Collector:
    def __init__(self) -> None:
        self.attributes: set[Name] = set()
        self.capacity: set[Name] = set()
        self.attribute_domains: set[str] = set()
        self.capacity_domains: set[str] = set()
        self.driver = False
        self.allow_multiple = False
        self.everything = False

    def visit(self, root: Node) -> None:
        # (node, names that hide `device` there); a stack, since trees may be deep.
        stack: list[tuple[Node, frozenset[str]]] = [(root, frozenset())]
        while stack:
            node, hidden = stack.pop()
            steps = _device_path(node, hidden)
            if steps is None:
                stack.extend(_children(node, hidden))
                continue
            path, computed = steps
            stack.extend((child, hidden) for child in computed)
            self.read(path, dynamic=bool(computed))

    def read(self, path: list[str | None], *, dynamic: bool) -> None:
        """Record a path below ``device``; None stands for a step that is not a constant string."""
        if not path or path[0] is None:
            self.everything = True
        elif path[0] == "driver":
            self.driver = True
        elif path[0] == "allowMultipleAllocations":
            self.allow_multiple = True
        elif len(path) < 2 or path[1] is None:
            # Which domain is unknown until it runs, or the whole map is used.
            self.everything = True
        else:
            names, domains = (
                (self.attributes, self.attribute_domains)
                if path[0] == "attributes"
                else (self.capacity, self.capacity_domains)
            )
            if len(path) >= 3 and path[2] is not None:
                names.add((path[1], path[2]))
            else:
                domains.add(path[1])


def reads_of(node: Node) -> Reads:
    """The static reads of a checked expression."""
    collector = _Collector()
    collector.visit(node)
    return Reads(
        attributes=frozenset(collector.attributes),
        capacity=frozenset(collector.capacity),
        attribute_domains=frozenset(collector.attribute_domains),
        capacity_domains=frozenset(collector.capacity_domains),
        driver=collector.driver,
        allow_multiple=collector.allow_multiple,
        everything=collector.everything,
        _attribute_order=tuple(sorted(collector.attributes)),
        _capacity_order=tuple(sorted(collector.capacity)),
    )


def _device_path(node: Node, hidden: frozenset[str]) -> tuple[list[str | None], list[Node]] | None:
    """Steps from ``device`` to the node and the computed keys among them; None if it does not start there."""
    steps: list[str | None] = []
    computed: list[Node] = []
    while True:
        if isinstance(node, Ident):
            if node.name != "device" or (not node.absolute and "device" in hidden):
                return None
            steps.reverse()
            return steps, computed
        if isinstance(node, Select):
            steps.append(node.field)
            node = node.operand
        elif isinstance(node, Call) and node.function in ("_[_]", "_[?_]", "_?._"):
            operand, key = node.args
            if isinstance(key, Literal) and type(key.value) is str:
                steps.append(key.value)
            else:
                steps.append(None)
                computed.append(key)
            node = operand
        elif isinstance(node, Call) and node.function == "@in" and not steps:
            # The presence of one key: as much as reading it.
            key, operand = node.args
            if not isinstance(key, Literal) or type(key.value) is not str:
                return None
            steps.append(key.value)
            node = operand
        else:
            return None


def _children(node: Node, hidden: frozenset[str]) -> list[tuple[Node, frozenset[str]]]:
    if isinstance(node, Call):
        nodes = node.args if node.target is None else (node.target, *node.args)
        return [(child, hidden) for child in nodes]
    if isinstance(node, Select):
        return [(node.operand, hidden)]
    if isinstance(node, ListExpr):
        return [(child, hidden) for child in node.elements]
    if isinstance(node, MapExpr):
        return [(child, hidden) for key, value, _ in node.entries for child in (key, value)]
    if isinstance(node, StructExpr):
        return [(value, hidden) for _, value, _ in node.fields]
    if isinstance(node, Comprehension):
        inner = hidden | {node.accu_var}
        loop = inner | {node.iter_var, node.iter_var2}
        return [
            (node.iter_range, hidden),
            (node.accu_init, hidden),
            (node.condition, loop),
            (node.step, loop),
            (node.result, inner),
        ]
    return []
