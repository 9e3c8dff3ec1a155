"""Resource pools as one node sees them, built from the slices and kept until something they depend on changes.

Source: kube-scheduler 1.37, structured allocator, pool gathering (incubating and experimental agree).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from scheduler.api.core import Node
from scheduler.api.selectors import NodeSelector, SelectorError, check_node_selector, node_selector_matches
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey, SliceInfo
from scheduler.dra.features import Features

Charge = tuple[tuple[int, int], ...]


# Nodes per slice whose relevance is remembered.
_WHERE_MAX = 10_000


class GatherError(ValueError):
    """A node selector in a slice does not parse: upstream ends the attempt on all nodes with this text."""


@dataclass(frozen=True, slots=True)
class IgnoredSlice:
    """A slice that was not used although it may concern the node, and why: never drop one silently."""

    slice: str
    pool: PoolKey
    cause: str


@dataclass(frozen=True, slots=True, eq=False)
class PoolView:
    """A pool as one node sees it.

    ``devices`` are those of slices targeting the node, in slice-name order, then as listed. ``first`` is the position
    of the first one in the node view, -1 for a pool that cannot be used (incomplete or invalid).
    ``counters`` are (set, counter) names with ``totals`` in nano units; ``consumers`` lists every device of the pool
    that consumes counters, targeting the node or not.
    """

    key: PoolKey
    generation: int
    seen: int
    expected: int
    invalid: str
    devices: tuple[DeviceInfo, ...]
    counters: tuple[tuple[str, str], ...] = ()
    totals: tuple[int, ...] = ()
    consumers: tuple[tuple[DeviceKey, Charge, DeviceInfo], ...] = ()
    binding: bool = False
    first: int = -1

    @property
    def complete(self) -> bool:
        """True when every slice of the generation has been seen."""
        return self.seen == self.expected

    @property
    def usable(self) -> bool:
        """True when devices may be taken from it."""
        return self.complete and not self.invalid


@dataclass(slots=True)
class Known:
    """Static answers about the devices of one view, as bitmaps: asked at all, yes, error."""

    asked: int = 0
    yes: int = 0
    error: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class NodeView:
    """All pools one node sees, in allocation order, and their usable devices with positions 0..n-1.

    Bitmaps have bit p set for the device at position p. ``here`` marks devices whose own node selection matches
    (all devices of slices without per-device selection). ``watched``: every pool with a relevant slice, also an
    outdated one, which is not in ``pools``. ``answers`` caches static answers per request shape.
    """

    node_name: str
    labels: Mapping[str, str]
    declared_features: frozenset[str]
    pools: tuple[PoolView, ...]
    devices: tuple[DeviceInfo, ...]
    pool_of: tuple[PoolView, ...]
    charges: tuple[Charge, ...]
    positions: Mapping[DeviceKey, int]
    here: int
    multi: int
    invalid: bool
    error: str
    ignored: tuple[IgnoredSlice, ...]
    watched: frozenset[PoolKey]
    answers: dict[object, Known] = field(default_factory=dict)

    @property
    def all_devices(self) -> int:
        """The bitmap of every usable device."""
        return (1 << len(self.devices)) - 1

    def fingerprint(self) -> tuple[Any, ...]:
        """What two equal views agree in, caches left out."""
        pools = tuple(
            (pool.key, pool.generation, pool.seen, pool.expected, pool.invalid, pool.first, pool.counters, pool.totals)
            for pool in self.pools
        )
        devices = tuple((info.key, info.device, info.taints) for pool in self.pools for info in pool.devices)
        return self.node_name, pools, devices, self.here, self.error, self.ignored


def each_position(bits: int) -> Iterator[int]:
    """The positions whose bit is set, ascending."""
    while bits:
        low = bits & -bits
        bits ^= low
        yield low.bit_length() - 1


def node_matches(node: Node, name: str | None, all_nodes: bool | None, selector: NodeSelector | None) -> bool | None:
    """Whether node data of a slice or device select ``node``; None when there is none that we know.

    Raises SelectorError when the selector does not parse.
    """
    if name:
        return node.name == name
    if all_nodes:
        return True
    if selector is not None:
        check_node_selector(selector)
        return node_selector_matches(selector, node.name, node.metadata.labels)
    return None


def device_here(info: DeviceInfo, node: Node) -> bool:
    """Whether a device of a slice with perDeviceNodeSelection is available on ``node``. May raise SelectorError."""
    device = info.device
    return bool(node_matches(node, device.nodeName, device.allNodes, device.nodeSelector))


def relevant(info: SliceInfo, node: Node) -> bool:
    """Whether a slice concerns ``node``. Raises GatherError when a selector does not parse.

    Answers that need a selector are remembered in the slice per node, as long as the node keeps its labels.
    """
    spec = info.slice.spec
    if spec.nodeSelector is None and not spec.perDeviceNodeSelection:
        return bool(node_matches(node, spec.nodeName, spec.allNodes, None))
    labels = node.metadata.labels
    known = info.where.get(node.name)
    if known is not None and (known[0] is labels or known[0] == labels):
        return known[1]
    answer = _relevant(info, node)
    if len(info.where) >= _WHERE_MAX:
        info.where.clear()
    info.where[node.name] = labels, answer
    return answer


def _relevant(info: SliceInfo, node: Node) -> bool:
    spec = info.slice.spec
    try:
        match = node_matches(node, spec.nodeName, spec.allNodes, spec.nodeSelector)
    except SelectorError as error:
        raise GatherError(
            "gather pool information: failed to perform node selection for slice "
            f"{info.name}: failed to parse node selector {spec.nodeSelector}: {error}"
        ) from error
    if match is not None:
        return match
    if not spec.perDeviceNodeSelection:
        return False
    for device in info.devices:
        try:
            if device_here(device, node):
                return True
        except SelectorError as error:
            raise GatherError(
                f"gather pool information: failed to perform node selection for device {device.key.device} in slice "
                f"{info.name}: failed to parse node selector {device.device.nodeSelector}: {error}"
            ) from error
    return False


def skip_cause(info: SliceInfo, features: Features) -> str:
    """Why a slice is not looked at under ``features``; "" when it is."""
    spec = info.slice.spec
    if not features.partitionable_devices:
        if spec.perDeviceNodeSelection is not None:
            return "it uses perDeviceNodeSelection and DRAPartitionableDevices is disabled"
        if spec.sharedCounters:
            return "it uses sharedCounters and DRAPartitionableDevices is disabled"
    if info.groups and not features.compatibility_groups:
        return "it uses compatibilityGroups and DRADeviceCompatibilityGroups is disabled"
    return info.problem


def gather(
    node: Node,
    candidates: Iterable[SliceInfo],
    of_pool: Mapping[PoolKey, Mapping[str, SliceInfo]],
    features: Features,
) -> NodeView:
    """The pools that ``node`` sees.

    ``candidates``: slices with the node's name, then those without any; ``of_pool``: all slices of each pool by name.
    Order of both only matters where slices of one generation disagree about their number. Cost: O(candidates).
    """
    ignored: list[IgnoredSlice] = []
    found: dict[PoolKey, list[SliceInfo]] = {}
    try:
        for info in candidates:
            cause = skip_cause(info, features)
            if cause:
                ignored.append(IgnoredSlice(info.name, info.key, cause))
                continue
            if not relevant(info, node):
                continue
            kept = found.setdefault(info.key, [])
            if kept and info.generation < kept[0].generation:
                continue
            if kept and info.generation > kept[0].generation:
                kept.clear()
            kept.append(info)
    except GatherError as error:
        return _assemble(node, (), str(error), ignored, found)
    pools = [_pool(slices, of_pool.get(key, {}), features) for key, slices in found.items()]
    ordered = sorted((pool for pool in pools if pool is not None), key=lambda pool: (pool.binding, pool.key))
    return _assemble(node, ordered, "", ignored, found)


def _pool(slices: list[SliceInfo], everywhere: Mapping[str, SliceInfo], features: Features) -> PoolView | None:
    """The view of one pool from its relevant slices of the newest relevant generation; None when it is outdated."""
    first = slices[0]
    seen, others = len(slices), []
    if seen != first.slice_count:
        seen = 0
        names = {info.name for info in slices}
        for info in everywhere.values():
            if info.generation > first.generation:
                return None
            if info.generation < first.generation or info.problem:
                continue
            if info.groups and not features.compatibility_groups:
                continue
            seen += 1
            if info.name not in names:
                others.append(info)
    slices.sort(key=lambda info: info.name)
    devices = tuple(device for info in slices for device in info.devices)
    if seen != first.slice_count:
        return PoolView(first.key, first.generation, seen, first.slice_count, "", devices)
    return _complete_pool(slices, others, devices, features)


def newest_generation(everywhere: Mapping[str, SliceInfo], features: Features) -> PoolView | None:
    """The newest generation of one pool with all its devices, wherever they are; None without a usable slice."""
    usable = [info for info in everywhere.values() if not skip_cause(info, features)]
    if not usable:
        return None
    newest = max(info.generation for info in usable)
    return _pool([info for info in usable if info.generation == newest], everywhere, features)


def _complete_pool(
    slices: list[SliceInfo],
    others: list[SliceInfo],
    devices: tuple[DeviceInfo, ...],
    features: Features,
) -> PoolView:
    first = slices[0]
    count = first.slice_count
    invalid = ""
    names: set[str] = set()
    for device in devices:
        if device.key.device in names:
            invalid = invalid or f"duplicate device name {device.key.device}"
        names.add(device.key.device)
    counters: list[tuple[str, str]] = []
    totals: list[int] = []
    consumers: list[tuple[DeviceKey, Charge, DeviceInfo]] = []
    if features.partitionable_devices:
        sets: set[str] = set()
        for info in (*slices, *others):
            for name, values in info.counter_sets:
                if name in sets:
                    invalid = invalid or f"duplicate counter set name {name}"
                sets.add(name)
                for counter, value in values.items():
                    counters.append((name, counter))
                    totals.append(value)
        index = {name: place for place, name in enumerate(counters)}
        for info in (*slices, *others):
            for device in info.devices:
                if device.consumption:
                    charge, problem = _charge(device, index, sets)
                    invalid = invalid or problem
                    consumers.append((device.key, charge, device))
    return PoolView(
        first.key,
        first.generation,
        count,
        count,
        invalid,
        devices,
        tuple(counters),
        tuple(totals),
        tuple(consumers),
        # Only pools that can be used are put behind the others.
        not invalid and any(device.device.bindingConditions for device in devices),
    )


def _charge(device: DeviceInfo, index: Mapping[tuple[str, str], int], sets: set[str]) -> tuple[Charge, str]:
    """What a device takes as (counter index, nano units), and what is wrong with it."""
    charge: list[tuple[int, int]] = []
    for consumed in device.consumption:
        if consumed.counter_set not in sets:
            return (), f"device {device.key.device} consumes unknown counter set {consumed.counter_set}"
        for counter, amount in consumed.counters:
            place = index.get((consumed.counter_set, counter))
            if place is None:
                return (), (
                    f"device {device.key.device} consumes unknown counter {counter} of counter set "
                    f"{consumed.counter_set}"
                )
            charge.append((place, amount))
    return tuple(charge), ""


def _assemble(
    node: Node,
    pools: Sequence[PoolView],
    error: str,
    ignored: Sequence[IgnoredSlice],
    found: Iterable[PoolKey],
) -> NodeView:
    placed: list[PoolView] = []
    devices: list[DeviceInfo] = []
    pool_of: list[PoolView] = []
    charges: list[Charge] = []
    here = multi = 0
    for pool in pools:
        if not pool.usable:
            placed.append(pool)
            continue
        view = _placed(pool, len(devices))
        placed.append(view)
        charged = {info: charge for _, charge, info in view.consumers}
        for device in view.devices:
            bit = 1 << len(devices)
            if _is_here(device, node):
                here |= bit
            if device.multi:
                multi |= bit
            devices.append(device)
            pool_of.append(view)
            charges.append(charged.get(device, ()))
    return NodeView(
        node.name,
        node.metadata.labels,
        frozenset(node.status.declaredFeatures),
        tuple(placed),
        tuple(devices),
        tuple(pool_of),
        tuple(charges),
        {device.key: position for position, device in enumerate(devices)},
        here,
        multi,
        any(pool.invalid for pool in pools),
        error,
        tuple(ignored),
        frozenset(found),
    )


def _placed(pool: PoolView, first: int) -> PoolView:
    return PoolView(
        pool.key,
        pool.generation,
        pool.seen,
        pool.expected,
        pool.invalid,
        pool.devices,
        pool.counters,
        pool.totals,
        pool.consumers,
        pool.binding,
        first,
    )


def _is_here(device: DeviceInfo, node: Node) -> bool:
    if not device.slice.slice.spec.perDeviceNodeSelection:
        return True
    try:
        return device_here(device, node)
    except SelectorError:
        # The slice was relevant through another device; one that cannot say where it is, is nowhere.
        return False
