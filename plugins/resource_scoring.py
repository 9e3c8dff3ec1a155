"""What both resource plugins share: per resource, what a node has, uses, and would use with the Pod added."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from plugins.device_counts import DeviceCounter
from scheduler.api.podrequests import is_scalar
from scheduler.errors import ConfigError
from scheduler.framework.plugin import Rows
from scheduler.state.nodes import NodeTable

_SUMMAND_MAX = 2**62 - 1
"""Two of these still fit into int64."""


@dataclass(frozen=True, slots=True)
class ResourceWeight:
    """A resource that is scored, and how much it counts."""

    name: str
    weight: int


@dataclass(frozen=True, slots=True)
class ResourceUse:
    """One resource over rows: ``capacity`` is allocatable, ``used`` by Pods there, ``wanted`` with the Pod added.

    ``present`` is False where the resource is left out of the score: the node has none of it.
    """

    weight: int
    capacity: NDArray[np.int64]
    used: NDArray[np.int64]
    wanted: NDArray[np.int64]

    @property
    def present(self) -> NDArray[np.bool_]:
        """Rows that have the resource."""
        return np.not_equal(self.capacity, 0)


def resource_weights(entries: object, path: str) -> tuple[ResourceWeight, ...]:
    """Resources from a plugin's arguments: a list of {name, weight}; weight 0 or absent counts as 1."""
    if not isinstance(entries, Sequence):
        raise ConfigError(path, "must be a list of {name, weight}")
    weights = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str):
            raise ConfigError(f"{path}[{index}]", "must have a name")
        weight = entry.get("weight", 1) or 1
        if not isinstance(weight, int) or not 0 < weight <= 100:
            raise ConfigError(f"{path}[{index}].weight", "must be a whole number from 1 to 100")
        weights.append(ResourceWeight(entry["name"], weight))
    return tuple(weights)


def row_uses(
    nodes: NodeTable, row: int, resources: Sequence[ResourceWeight], requests: Mapping[str, int], *, defaults: bool
) -> list[tuple[int, int, int, int]] | None:
    """``resource_uses`` of one row as (weight, capacity, used, wanted); None where devices may have to be counted."""
    uses = []
    for resource in resources:
        name = resource.name
        request = min(requests.get(name, 0), _SUMMAND_MAX)
        if is_scalar(name):
            if request:
                return None
            continue
        column = nodes.nonzero_requested(name) if defaults else nodes.requested(name)
        used = min(int(column[row]), _SUMMAND_MAX)
        capacity = int(nodes.allocatable(name)[row]) if name != "pods" else 0
        uses.append((resource.weight, capacity, used, used + request))
    return uses


def resource_uses(
    nodes: NodeTable,
    rows: Rows,
    resources: Sequence[ResourceWeight],
    requests: Mapping[str, int],
    devices: DeviceCounter,
    *,
    defaults: bool,
) -> list[ResourceUse]:
    """Columns of the configured resources; scalars that the Pod does not ask for are left out (spec 3.8.4).

    ``devices`` counts for nodes that have none of a resource themselves. ``defaults``: what Pods use is counted with
    100m and 200Mi for silent containers. Amounts are capped so that sums stay inside int64.
    """
    uses = []
    for resource in resources:
        request = min(requests.get(resource.name, 0), _SUMMAND_MAX)
        if request == 0 and is_scalar(resource.name):
            continue
        column = nodes.nonzero_requested(resource.name) if defaults else nodes.requested(resource.name)
        used = np.minimum(column[rows], _SUMMAND_MAX)
        # "pods" is an ordinary name here, of which a node has nothing.
        capacity = nodes.allocatable(resource.name)[rows] if resource.name != "pods" else np.zeros(len(rows), np.int64)
        capacity, used = devices.fill(nodes, rows, resource.name, capacity, used)
        uses.append(ResourceUse(resource.weight, capacity, used, used + request))
    return uses
