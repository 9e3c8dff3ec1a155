"""Which devices are alike for the rest of a search, and which search states are alike because of that.

Two devices are alike when no request, constraint, counter or capacity can tell them apart: a solution with one becomes
a solution with the other by swapping them everywhere. A value that only one device has counts as "unique" whatever it
is. States are alike when swapping alike devices, and renaming the values of the one attribute that constraints compare,
turns one into the other; then both fail or neither does.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from scheduler.cel import AttributeValue
from scheduler.dra.constraints import MATCH, SCALARS
from scheduler.dra.suitability import known
from scheduler.dra.taking import Taking

_UNIQUE = ("unique",)


class Symmetry:
    """Colours of devices for one search. Only usable once every alternative has been asked about every device."""

    __slots__ = ("_colors", "_grouped", "_groups", "_keys", "_lists", "_names", "_relevant", "_single", "_taking")

    def __init__(self, taking: Taking, lists: Sequence[tuple[int, ...]]) -> None:
        self._taking = taking
        self._lists = tuple(lists)
        names = {constraint.attribute for constraint in taking.plan.constraints}
        # Values are only renamed where they are plain: neither lists nor computed by a request.
        plain = not taking.features.list_attributes and not any(a.derived for a in taking.plan.alternatives)
        self._single = {name: _unique_values(taking, name) for name in names} if plain else {}
        self._names = tuple(sorted(names))
        # The attribute whose values may be renamed: the only one with a value that several devices share.
        shared = [name for name in self._names if self._shared(name)]
        self._grouped = shared[0] if plain and len(shared) == 1 else None
        ordered = _ordered_devices(taking, lists)
        ids: dict[Hashable, int] = {}
        pools: dict[Hashable, int] = {}
        self._keys: list[Hashable] = []
        self._colors: list[int] = []
        self._groups: list[Hashable] = []
        self._relevant = 0
        for position, info in enumerate(taking.view.devices):
            suits = tuple(bool(known(taking.view, a).yes >> position & 1) for a in taking.plan.alternatives)
            if any(suits):
                self._relevant |= 1 << position
            own = position if ordered >> position & 1 else None
            pool = pools.setdefault(taking.view.pool_of[position].key, len(pools))
            color = (suits, own, pool, static_color(taking, position), self._attributes(position, self._grouped))
            self._keys.append(color)
            self._colors.append(ids.setdefault(color, len(ids)))
            value = info.attribute(self._grouped) if self._grouped is not None else None
            self._groups.append(self._value(self._grouped, value, info.multi) if self._grouped is not None else None)

    def _shared(self, name: str) -> bool:
        """Whether some value of an attribute is on two devices, or on one that can be taken twice."""
        single = self._single.get(name, frozenset())
        for info in self._taking.view.devices:
            value = info.attribute(name)
            if value is not None and (info.multi or value not in single):
                return True
        return False

    def _value(self, name: str, value: AttributeValue | None, multi: bool) -> Hashable:
        if value is None or multi:
            return value
        return _UNIQUE if value[0] in SCALARS and value in self._single.get(name, ()) else value

    def _attributes(self, position: int, without: str | None) -> tuple[Hashable, ...]:
        info = self._taking.view.devices[position]
        derived = tuple(
            self._taking.value(alternative, info, constraint.attribute)
            for alternative in self._taking.plan.alternatives
            if alternative.derived and known(self._taking.view, alternative).yes >> position & 1
            for constraint in (self._taking.plan.constraints[index] for index in alternative.constraints)
        )
        names = (name for name in self._names if name != without)
        return (*(self._value(name, info.attribute(name), info.multi) for name in names), *derived)

    def twin(self, position: int) -> Hashable:
        """Equal for devices that are alike."""
        return self._colors[position], self._groups[position]

    def problem(self) -> Hashable:
        """Equal for nodes on which the search goes the same way, position by position.

        Names of pools, devices and values do not matter, as long as equal ones are in the same places.
        """
        taking = self._taking
        usage = taking.usage
        values: dict[Hashable, int] = {None: 0, _UNIQUE: 1}
        pools = [
            (
                pool.counters,
                pool.totals,
                usage.available.get(pool.key),
                frozenset(usage.groups.get(pool.key, {}).items()),
            )
            for pool in taking.view.pools
            if pool.usable
        ]
        return (
            tuple(self._keys),
            tuple(values.setdefault(group, len(values)) for group in self._groups),
            usage.used,
            usage.shared,
            tuple(pools),
            self._lists,
        )

    def state(self, claim: int, request: int) -> Hashable:
        """Equal for search states that are alike at the start of a request: the same rest fails or succeeds."""
        taking = self._taking
        flags = self._flags()
        groups: dict[Hashable, dict[int, int]] = {}
        free = self._relevant & ~(taking.usage.used | taking.bits[0])
        bits = free
        while bits:
            low = bits & -bits
            bits ^= low
            position = low.bit_length() - 1
            counts = groups.setdefault(self._groups[position], {})
            color = self._colors[position]
            counts[color] = counts.get(color, 0) + 1
        for group in flags:
            groups.setdefault(group, {})
        parts = [
            (flags.get(group, ()), frozenset(counts.items()), (group,) if self._fixed(group) else None)
            for group, counts in groups.items()
        ]
        multiset: dict[Hashable, int] = {}
        for part in parts:
            multiset[part] = multiset.get(part, 0) + 1
        return (
            claim,
            request,
            len(taking.picks[claim]),
            frozenset(multiset.items()),
            self._joined(),
            frozenset(taking.running.items()),
            frozenset(taking.groups.items()),
            frozenset(taking.shares.items()),
            frozenset(taking.consumed.items()),
            self._admin(),
        )

    def _fixed(self, group: Hashable) -> bool:
        """Groups that keep their name: no value at all, and values that only one device has."""
        return self._grouped is None or group is None or group == _UNIQUE

    def _flags(self) -> dict[Hashable, tuple[int, ...]]:
        """Per value of the grouped attribute: the constraints whose state holds it."""
        flags: dict[Hashable, tuple[int, ...]] = {}
        for index, constraint in enumerate(self._taking.plan.constraints):
            state = self._taking.joined[index]
            if state is None or constraint.attribute != self._grouped:
                continue
            for value in state:
                group = self._value(constraint.attribute, value, False)
                flags[group] = (*flags.get(group, ()), index)
        return flags

    def _joined(self) -> Hashable:
        """The states of all other constraints; of a distinct constraint, only values that can come again."""
        parts: list[Hashable] = []
        for index, constraint in enumerate(self._taking.plan.constraints):
            state = self._taking.joined[index]
            if state is None or constraint.attribute == self._grouped:
                parts.append(state is None)
            elif self._taking.features.list_attributes:
                parts.append(state)
            elif constraint.kind == MATCH:
                parts.append(self._value(constraint.attribute, state[0], False))
            else:
                values = (self._value(constraint.attribute, value, False) for value in state)
                parts.append(frozenset(value for value in values if value != _UNIQUE))
        return tuple(parts)

    def _admin(self) -> Hashable:
        """Which devices each claim has taken: only admin requests may take what others have."""
        taking = self._taking
        return tuple(taking.bits) if any(a.admin for a in taking.plan.alternatives) else None


def _ordered_devices(taking: Taking, lists: Sequence[tuple[int, ...]]) -> int:
    """The bitmap of devices that mode All takes under a constraint: in list order, and a broken one is an error.

    Such a device is like no other, so that what is called alike meets the same error or none.
    """
    bits = 0
    for alternative in taking.plan.alternatives:
        if alternative.take_all and alternative.constraints:
            for position in lists[alternative.index]:
                bits |= 1 << position
    return bits


class ExactStates:
    """States as they are: always sound, because a search from the same state meets the same errors or none."""

    __slots__ = ("_taking",)

    def __init__(self, taking: Taking) -> None:
        self._taking = taking

    def state(self, claim: int, request: int) -> Hashable:
        """Equal for equal states at the start of a request."""
        taking = self._taking
        return (
            claim,
            request,
            len(taking.picks[claim]),
            tuple(taking.bits),
            tuple(taking.joined),
            frozenset(taking.running.items()),
            frozenset(taking.groups.items()),
            frozenset(taking.shares.items()),
            frozenset(taking.consumed.items()),
        )


def _unique_values(taking: Taking, name: str) -> frozenset[Any]:
    """Comparable values of an attribute that exactly one device, which cannot be taken twice, has."""
    seen: dict[Any, int] = {}
    for info in taking.view.devices:
        value = info.attribute(name)
        if value is not None and value[0] in SCALARS:
            seen[value] = seen.get(value, 0) + (2 if info.multi else 1)
    return frozenset(value for value, count in seen.items() if count == 1)


def static_color(taking: Taking, position: int) -> Hashable:
    """What, besides attributes and suitability, tells devices apart."""
    view, usage = taking.view, taking.usage
    info = view.devices[position]
    bit = 1 << position
    committed: Mapping[str, int] | None = usage.consumed.get(position)
    return (
        tuple(
            (name, str(capacity.value), capacity.nano, capacity.policy and tuple(map(str, capacity.policy)))
            for name, capacity in sorted(info.capacities.items())
        ),
        view.charges[position],
        tuple((consumption.counter_set, consumption.groups) for consumption in info.consumption),
        # A device that can be taken twice is told apart by what has been taken of it.
        position if info.multi else None,
        info.taints,
        bool(usage.used & bit),
        bool(usage.shared & bit),
        tuple(sorted(committed.items())) if committed else None,
    )
