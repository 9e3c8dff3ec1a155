"""A device and its slice, in the form the allocator works on: parsed once per slice version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.api.resource import Device, DeviceAttribute, DeviceTaintRule, ResourceSlice
from scheduler.api.taints import Taint
from scheduler.cel import AttributeValue, CelDevice
from scheduler.dra.amounts import nano

UNKNOWN_KIND: Final = "unknown"
# Lists first, and only when they hold something: the order in which an experimental kube-scheduler looks.
_LISTS: Final = ("ints", "bools", "strings", "versions")
# Cached answers per device are dropped together when there are more: old Pods' requests must not pile up.
_VERDICTS_MAX = 256


class DeviceKey(NamedTuple):
    """driver, pool, device: a device's identity in the cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class PoolKey(NamedTuple):
    """driver, pool: a pool's identity in the cluster."""

    driver: str
    pool: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}"


class CapacityPolicy(NamedTuple):
    """requestPolicy with its quantities parsed; ``minimum`` None means no validRange."""

    default: Quantity | None
    valid_values: tuple[Quantity, ...]
    minimum: Quantity | None
    maximum: Quantity | None
    step: Quantity | None


class Capacity(NamedTuple):
    """A capacity of a device: its total and how requests for it are rounded."""

    value: Quantity
    nano: int
    policy: CapacityPolicy | None


class Consumption(NamedTuple):
    """What a device takes from one counter set of its pool, in nano units."""

    counter_set: str
    counters: tuple[tuple[str, int], ...]
    groups: frozenset[str]


def attribute_value(value: DeviceAttribute) -> AttributeValue:
    """An attribute of a slice as (kind, value); kind ``unknown`` when no field we know is set."""
    for kind in _LISTS:
        listed = getattr(value, kind)
        if listed:
            return kind, listed
    if value.int_ is not None:
        return "int", value.int_
    if value.bool_ is not None:
        return "bool", value.bool_
    if value.string is not None:
        return "string", value.string
    if value.version is not None:
        return "version", value.version
    return UNKNOWN_KIND, None


def _capacities(device: Device) -> dict[str, Capacity]:
    found: dict[str, Capacity] = {}
    for name, capacity in device.capacity.items():
        value = parse_quantity(capacity.value)
        policy = None
        if capacity.requestPolicy is not None:
            given = capacity.requestPolicy
            limits = given.validRange
            policy = CapacityPolicy(
                _optional(given.default),
                tuple(parse_quantity(text) for text in given.validValues),
                _optional(limits.min) if limits else None,
                _optional(limits.max) if limits else None,
                _optional(limits.step) if limits else None,
            )
        found[name] = Capacity(value, nano(value), policy)
    return found


def _optional(text: str | int | float | None) -> Quantity | None:
    return None if text is None else parse_quantity(text)


class DeviceInfo:
    """One device of one slice version.

    Immutable but for ``verdicts``, a cache of static answers per request shape. ``cel`` is what selectors see of it.
    """

    __slots__ = (
        "attributes",
        "capacities",
        "cel",
        "consumption",
        "device",
        "key",
        "multi",
        "slice",
        "taints",
        "verdicts",
    )

    def __init__(self, slice_: SliceInfo, device: Device, taints: tuple[Taint, ...]) -> None:
        self.slice = slice_
        self.device = device
        self.key = DeviceKey(slice_.key.driver, slice_.key.pool, device.name)
        self.multi = bool(device.allowMultipleAllocations)
        self.taints = taints
        self.attributes: dict[str, AttributeValue] = {
            name: attribute_value(value) for name, value in device.attributes.items()
        }
        self.capacities: dict[str, Capacity] = _capacities(device) if device.capacity else {}
        self.consumption: tuple[Consumption, ...] = tuple(
            Consumption(
                consumed.counterSet,
                tuple((name, nano(parse_quantity(counter.value))) for name, counter in consumed.counters.items()),
                frozenset(consumed.compatibilityGroups),
            )
            for consumed in device.consumesCounters
        )
        # Built here and not at the first question: slices change rarely, and a decision should not wait for it.
        self.cel = CelDevice(
            self.key.driver,
            self.attributes,
            {name: capacity.value for name, capacity in self.capacities.items()},
            self.multi,
        )
        self.verdicts: dict[object, Any] = {}

    def attribute(self, name: str) -> AttributeValue | None:
        """The attribute a constraint means: by its full name, else by its id if the domain is the driver's."""
        value = self.attributes.get(name)
        if value is None:
            domain, slash, identifier = name.partition("/")
            if slash and domain == self.key.driver:
                return self.attributes.get(identifier)
        return value

    def remember(self, question: object, answer: object) -> None:
        """Keep a static answer for as long as this slice version lives."""
        if len(self.verdicts) >= _VERDICTS_MAX:
            self.verdicts.clear()
        self.verdicts[question] = answer


class SliceInfo:
    """One version of a slice with its devices parsed.

    ``problem`` says why no device of it can be used (a quantity that does not parse); "" when all is well. ``where``
    caches on which nodes it is relevant.
    """

    __slots__ = (
        "counter_sets",
        "devices",
        "generation",
        "groups",
        "key",
        "name",
        "problem",
        "slice",
        "slice_count",
        "where",
    )

    def __init__(self, slice_: ResourceSlice, rules: Sequence[DeviceTaintRule] = ()) -> None:
        spec = slice_.spec
        self.slice = slice_
        self.name = slice_.name
        self.key = PoolKey(spec.driver, spec.pool.name)
        self.generation = spec.pool.generation
        self.slice_count = spec.pool.resourceSliceCount
        self.groups = any(
            consumed.compatibilityGroups for device in spec.devices for consumed in device.consumesCounters
        )
        self.problem = ""
        self.where: dict[str, tuple[Mapping[str, str], bool]] = {}
        self.devices: tuple[DeviceInfo, ...] = ()
        self.counter_sets: tuple[tuple[str, dict[str, int]], ...] = ()
        part = ""
        try:
            devices = []
            for device in spec.devices:
                part = f"device {device.name}"
                devices.append(DeviceInfo(self, device, device.taints + rule_taints(self.key, device.name, rules)))
            sets = []
            for counter_set in spec.sharedCounters:
                part = f"counter set {counter_set.name}"
                values = {name: nano(parse_quantity(c.value)) for name, c in counter_set.counters.items()}
                sets.append((counter_set.name, values))
        except QuantityError as error:
            self.problem = f"{part}: {error}"
        else:
            self.devices, self.counter_sets = tuple(devices), tuple(sets)


def rule_taints(pool: PoolKey, device: str, rules: Sequence[DeviceTaintRule]) -> tuple[Taint, ...]:
    """The taints that DeviceTaintRules lay over a device, in rule order. A rule without selector taints nothing."""
    return tuple(rule.spec.taint for rule in rules if rule_matches(rule, pool, device))


def rule_matches(rule: DeviceTaintRule, pool: PoolKey, device: str | None) -> bool:
    """True when ``rule`` selects the device; ``device`` None asks whether it may select any of the pool."""
    selector = rule.spec.deviceSelector
    if selector is None:
        return False
    return (
        (selector.driver is None or selector.driver == pool.driver)
        and (selector.pool is None or selector.pool == pool.pool)
        and (selector.device is None or device is None or selector.device == device)
    )


def attribute_names(devices: Sequence[DeviceInfo]) -> Mapping[str, int]:
    """How many of ``devices`` carry each attribute: lets an explanation say that a name is probably a typo."""
    counts: dict[str, int] = {}
    for info in devices:
        for name in info.attributes:
            counts[name] = counts.get(name, 0) + 1
    return counts
