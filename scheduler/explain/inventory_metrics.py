"""The inventory as metric samples: names, labels and values; who serves them is not known here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler.api.quantity import parse_quantity
from scheduler.dra.amounts import nano
from scheduler.explain.inventory_facts import Inventory, Line

NANO = 10**9
PREFIX = "dra_scheduler_inventory_"
_STATES = ("free", "used", "shared", "tainted", "blocked")
GAUGES = {
    "devices": "Published devices by driver, model and state; a shared device with room left is free as well.",
    "devices_total": "Published devices by driver and model.",
    "largest_request": "The most devices that one request could get on one node now, by driver and model.",
    "fragmentation_ratio": "Part by which the largest request falls short of what as many free devices could serve "
    "together on one node, by driver and model; 0 when none is in use.",
    "capacity_left": "What is left of the capacities of devices that may be shared, summed, by driver and model.",
    "capacity_left_largest": "The most that is left of a capacity on one device, by driver and model.",
    "namespace_devices": "Devices held by the claims of a namespace, by driver.",
    "namespace_capacity": "Capacity of shared devices held by the claims of a namespace, by driver.",
    "claims_leaked": "Claims that hold devices for Pods that do not exist.",
    "claims_lost": "Claims that hold devices which no driver publishes.",
    "claims_on_tainted_devices": "Claims that hold devices whose taints they do not tolerate.",
    "claims_waiting_long": "Claims that have waited for devices for more than five minutes.",
    "pools_unusable": "Pools that are incomplete or invalid.",
}
"""Name without PREFIX → help text. All are gauges; capacities are in the base unit (bytes for memory)."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One value of a gauge. ``labels`` in the order in which they are always given."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def metric_samples(found: Inventory) -> Iterator[Sample]:
    """Samples of an inventory that was taken ``by`` model. Grouped by name as the text format wants them.

    Cost: O(lines and namespaces); label values are drivers, models, capacities and namespaces, never nodes or devices.
    """
    samples = [*_of_lines(found), *_of_namespaces(found), *_of_troubles(found)]
    for name in GAUGES:
        yield from (sample for sample in samples if sample.name == PREFIX + name)


def _sample(name: str, value: float, **labels: str) -> Sample:
    return Sample(PREFIX + name, tuple(labels.items()), value)


def _of_lines(found: Inventory) -> Iterator[Sample]:
    for line in found.lines:
        kind = {"driver": line.driver, "model": line.model}
        for state in _STATES:
            yield _sample("devices", getattr(line, state), **kind, state=state)
        yield _sample("devices_total", line.total, **kind)
        yield _sample("largest_request", line.largest, **kind)
        yield _sample("fragmentation_ratio", line.fragmentation, **kind)
        yield from _capacities(line, kind)


def _capacities(line: Line, kind: dict[str, str]) -> Iterator[Sample]:
    for name, amounts in (("capacity_left", line.remainder), ("capacity_left_largest", line.largest_share)):
        for capacity, amount in amounts.items():
            yield _sample(name, _number(amount), **kind, capacity=capacity)


def _of_namespaces(found: Inventory) -> Iterator[Sample]:
    for namespace, drivers in found.namespaces.items():
        for driver, count in drivers.items():
            yield _sample("namespace_devices", count, namespace=namespace, driver=driver)
    for namespace, amounts in found.shares.items():
        for name, amount in amounts.items():
            driver, _, capacity = name.partition("/")
            labels = {"namespace": namespace, "driver": driver, "capacity": capacity}
            yield _sample("namespace_capacity", _number(amount), **labels)


def _of_troubles(found: Inventory) -> Iterator[Sample]:
    yield _sample("claims_leaked", len(found.leaked))
    yield _sample("claims_lost", len(found.lost))
    yield _sample("claims_on_tainted_devices", len(found.on_tainted))
    yield _sample("claims_waiting_long", len(found.waiting))
    yield _sample("pools_unusable", len(found.pools))


def _number(amount: str) -> float:
    return nano(parse_quantity(amount)) / NANO
