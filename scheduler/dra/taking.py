"""The state of a search and the taking of one device: counters, groups, constraints, shares, all undoable.

Source: kube-scheduler 1.37, structured allocator; the order of the checks is upstream's, because it decides which
error is met first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from scheduler.api.resource import RESULTS_MAX
from scheduler.cel import AttributeValue
from scheduler.dra.amounts import amount_text, value_text
from scheduler.dra.constraints import Constraint, broken_reason, join_scalar, join_set
from scheduler.dra.derived import DerivedError, derived_value
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey
from scheduler.dra.features import EXPERIMENTAL, Features
from scheduler.dra.ledger import GroupState, Usage, admits_groups, join_groups
from scheduler.dra.pools import NodeView, PoolView
from scheduler.dra.rejections import Reason, Rejection
from scheduler.dra.reporter import Reporter
from scheduler.dra.requests import Alternative, Plan
from scheduler.dra.suitability import Meter, Suitability
from scheduler.dra.trail import Trail

Holders = Callable[[DeviceKey], tuple[str, ...]]


class FatalError(Exception):
    """Upstream would end the attempt on all nodes with this text."""


class Pick(NamedTuple):
    """One device taken for one alternative; ``effective`` is what a share consumes."""

    alternative: Alternative
    position: int
    shared: bool
    consumed: tuple[tuple[str, Any], ...]


class Taking:
    """What has been taken so far in one search.

    ``bits[0]``: devices taken exclusively by any claim, ``bits[1 + c]``: by claim c. ``picks[c]``: tuple of Picks.
    All changes go through ``trail``.
    """

    def __init__(
        self,
        plan: Plan,
        view: NodeView,
        usage: Usage,
        features: Features,
        reporter: Reporter,
        holders: Holders,
        meter: Meter | None = None,
    ) -> None:
        self.plan = plan
        self.view = view
        self.usage = usage
        self.trail = Trail()
        self.bits: list[int] = [0] * (1 + len(plan.claims))
        self.picks: list[tuple[Pick, ...]] = [()] * len(plan.claims)
        self.joined: list[Any] = [None] * len(plan.constraints)
        self.running: dict[tuple[PoolKey, int], int] = {}
        self.groups: dict[tuple[PoolKey, str], GroupState] = {}
        self.shares: dict[int, int] = {}
        self.consumed: dict[tuple[int, str], int] = {}
        self.suitability = Suitability(view, features, meter)
        self.features = features
        self._experimental = features.channel == EXPERIMENTAL
        self._join = join_set if features.list_attributes else join_scalar
        self._reporter = reporter
        self._holders = holders
        self.reporting = reporter.wants_devices
        self._negative: dict[PoolKey, bool] = {}
        # Devices of which an alternative has told a reason: a search without shortcuts meets them again and again.
        self._told: set[tuple[int, int]] = set()

    def fresh(self) -> Taking:
        """The same world with nothing taken."""
        return Taking(self.plan, self.view, self.usage, self.features, self._reporter, self._holders)

    def snapshot(self) -> tuple[Any, ...]:
        """All state, for comparison in tests."""
        return (
            tuple(self.bits),
            tuple(self.picks),
            tuple(self.joined),
            dict(self.running),
            dict(self.groups),
            dict(self.shares),
            dict(self.consumed),
        )

    def free(self, alternative: Alternative) -> int:
        """The bitmap of devices the alternative may take as far as use is concerned."""
        if alternative.admin:
            return self.view.all_devices & ~self.bits[1 + alternative.claim]
        return self.view.all_devices & ~(self.usage.used | self.bits[0])

    def take(self, alternative: Alternative, position: int) -> bool:
        """Take a suitable device, or leave the state as it was and return False. Raises FatalError."""
        mark = self.trail.mark()
        if self._take(alternative, position):
            return True
        self.trail.undo(mark)
        return False

    def _take(self, alternative: Alternative, position: int) -> bool:
        info = self.view.devices[position]
        take_all = alternative.take_all
        if take_all and not self._all_may_take(alternative, info, position):
            return False
        if not take_all and not self._fits_capacity(alternative, info, position):
            return False
        if info.consumption and self._charges(info, position) and not self._charge(alternative, info, position):
            return False
        if take_all and self.suitability.tainted(alternative, info):
            self._refuse_static(alternative, position)
            return False
        if alternative.constraints and not self._constrain(alternative, info):
            if take_all:
                claim = self.plan.claims[alternative.claim]
                raise FatalError(
                    f"claim {claim.key}, request {alternative.label}: cannot add device {info.key} because a claim "
                    "constraint would not be satisfied"
                )
            return False
        if take_all and not self._fits_capacity(alternative, info, position):
            return False
        self._record(alternative, info, position)
        return True

    def _all_may_take(self, alternative: Alternative, info: DeviceInfo, position: int) -> bool:
        """Mode All: the device must be free, and nothing but its taints (asked later) may refuse it."""
        if not self.free(alternative) >> position & 1:
            self.refuse_in_use(alternative, position)
            return False
        if self.suitability.missing_feature(info):
            self._refuse_static(alternative, position)
            return False
        return True

    def _fits_capacity(self, alternative: Alternative, info: DeviceInfo, position: int) -> bool:
        if not info.capacities or not self.features.consumable_capacity:
            return True
        committed = self.usage.consumed.get(position, {})
        consumed = self.consumed
        if not committed and not consumed:
            return True
        for share in self.suitability.capacity(alternative, info).effective:
            before = committed.get(share.name, 0) + consumed.get((position, share.name), 0)
            if before + share.nano > info.capacities[share.name].nano:
                if self._wants_reason(alternative, position):
                    self._refuse(
                        Reason.CAPACITY_SHORT,
                        alternative,
                        position,
                        {
                            "capacity": share.name,
                            "asked": str(share.amount),
                            "free": amount_text(info.capacities[share.name].nano - before),
                            "total": str(info.capacities[share.name].value),
                            "taken by": ", ".join(self._holders(info.key)) or "this Pod",
                        },
                    )
                return False
        return True

    def _charges(self, info: DeviceInfo, position: int) -> bool:
        """Whether counters are charged: always, but a shared device pays for its first share only."""
        if not info.multi:
            return True
        return not self.usage.shared >> position & 1 and position not in self.shares

    def _charge(self, alternative: Alternative, info: DeviceInfo, position: int) -> bool:
        pool = self.view.pool_of[position]
        if self.features.compatibility_groups and not self._group(alternative, info, pool, position):
            return False
        available = self.usage.available[pool.key]
        negative = self._negative.get(pool.key)
        if negative is None:
            negative = self._negative[pool.key] = any(left < 0 for left in available)
        if negative:
            # Upstream compares every counter of the pool, so one overdrawn counter blocks all its consumers.
            worst = next(place for place, left in enumerate(available) if left < 0)
            self._refuse_counter(alternative, pool, position, worst)
            return False
        running = self.running
        for counter, amount in self.view.charges[position]:
            key = (pool.key, counter)
            total = running.get(key, 0) + amount
            if total > available[counter]:
                self._refuse_counter(alternative, pool, position, counter)
                return False
            self.trail.put(running, key, total)
        return True

    def _group(self, alternative: Alternative, info: DeviceInfo, pool: PoolView, position: int) -> bool:
        committed = self.usage.groups.get(pool.key, {})
        for consumption in info.consumption:
            key = (pool.key, consumption.counter_set)
            state = self.groups.get(key, committed.get(consumption.counter_set))
            if not admits_groups(state, consumption.groups):
                if self._wants_reason(alternative, position):
                    self._refuse(
                        Reason.INCOMPATIBLE_GROUP, alternative, position, {"counter set": consumption.counter_set}
                    )
                return False
            self.trail.put(self.groups, key, join_groups(state, consumption.groups))
        return True

    def value(self, alternative: Alternative, info: DeviceInfo, name: str) -> AttributeValue | None:
        """The attribute a constraint means; a derived one of that full name comes first. Raises FatalError."""
        expression = alternative.derived.get(name) if alternative.derived else None
        if expression is None:
            return info.attribute(name)
        try:
            return derived_value(name, expression, info)
        except DerivedError as error:
            raise FatalError(str(error)) from error

    def derived_error(self, alternative: Alternative, info: DeviceInfo) -> str:
        """What goes wrong with the alternative's derived attributes on a device, as far as constraints ask for them."""
        try:
            for index in alternative.constraints:
                self.value(alternative, info, self.plan.constraints[index].attribute)
        except FatalError as error:
            return str(error)
        return ""

    def _constrain(self, alternative: Alternative, info: DeviceInfo) -> bool:
        for index in alternative.constraints:
            constraint = self.plan.constraints[index]
            value = self.value(alternative, info, constraint.attribute)
            if value is None:
                self._refuse_constraint(Reason.ATTRIBUTE_MISSING, alternative, info, constraint, None)
                return False
            fits, state = self._join(constraint, self.joined[index], value)
            if not fits:
                self._refuse_constraint(broken_reason(constraint), alternative, info, constraint, value)
                return False
            self.trail.put(self.joined, index, state)
        return True

    def _record(self, alternative: Alternative, info: DeviceInfo, position: int) -> None:
        trail, claim = self.trail, alternative.claim
        consumed: tuple[tuple[str, Any], ...] = ()
        # Without the gate a device that allows sharing is given out whole.
        shared = info.multi and self.features.consumable_capacity
        if shared:
            trail.put(self.shares, position, self.shares.get(position, 0) + 1)
            effective = self.suitability.capacity(alternative, info).effective
            for share in effective:
                key = (position, share.name)
                trail.put(self.consumed, key, self.consumed.get(key, 0) + share.nano)
            consumed = tuple((share.name, share.amount) for share in effective)
        else:
            bit = 1 << position
            trail.put(self.bits, 0, self.bits[0] | bit)
            trail.put(self.bits, 1 + claim, self.bits[1 + claim] | bit)
        trail.put(self.picks, claim, (*self.picks[claim], Pick(alternative, position, shared, consumed)))

    def refuse_in_use(self, alternative: Alternative, position: int) -> None:
        """Report that a device is taken, and by whom; or why it would not do anyway, which is the better reason.

        Its selectors are not asked for errors: the search does not meet them on a device that is in use.
        """
        if self._wants_reason(alternative, position):
            claim = self.plan.claims[alternative.claim]
            unsuitable = self.suitability.rejection(alternative, claim, position)
            if unsuitable is not None and unsuitable.reason is not Reason.SELECTOR_ERROR:
                self._told.add((alternative.index, position))
                self._reporter.rejected(unsuitable)
                return
            holders = ", ".join(self._holders(self.view.devices[position].key)) or "this Pod"
            self._refuse(Reason.IN_USE, alternative, position, {"claim": holders})

    def refuse_limit(self, alternative: Alternative) -> None:
        """Report that the claim would get more devices than a claim may have."""
        if self._reporter.wants_devices:
            claim = self.plan.claims[alternative.claim]
            detail = {"devices": f"more than {RESULTS_MAX}"}
            self._reporter.rejected(Rejection(Reason.LIMIT, claim.key, alternative.name, None, detail))

    def refuse_unsuitable(self, alternative: Alternative, position: int) -> None:
        """Report why a device does not suit."""
        self._refuse_static(alternative, position)

    def _wants_reason(self, alternative: Alternative, position: int) -> bool:
        """Whether anybody listens, and nothing has been told of this device: the first reason counts."""
        return self._reporter.wants_devices and (alternative.index, position) not in self._told

    def _refuse_static(self, alternative: Alternative, position: int) -> None:
        if self._wants_reason(alternative, position):
            claim = self.plan.claims[alternative.claim]
            rejection = self.suitability.rejection(alternative, claim, position)
            if rejection is not None:
                self._told.add((alternative.index, position))
                self._reporter.rejected(rejection)

    def _refuse_counter(self, alternative: Alternative, pool: PoolView, position: int, counter: int) -> None:
        if self._wants_reason(alternative, position):
            counter_set, name = pool.counters[counter]
            total = pool.totals[counter]
            left = self.usage.available[pool.key][counter] - self.running.get((pool.key, counter), 0)
            self._refuse(
                Reason.COUNTER_SHORT,
                alternative,
                position,
                {
                    "counter": f"{counter_set}/{name}",
                    "asked": amount_text(dict(self.view.charges[position]).get(counter, 0)),
                    "free": amount_text(left),
                    "total": amount_text(total),
                },
            )

    def _refuse_constraint(
        self,
        reason: Reason,
        alternative: Alternative,
        info: DeviceInfo,
        constraint: Constraint,
        value: AttributeValue | None,
    ) -> None:
        position = self.view.positions[info.key]
        if self._wants_reason(alternative, position):
            detail = {"attribute": constraint.attribute}
            if value is not None:
                detail["value"] = value_text(value[1])
                detail["against"] = self._joined_by(alternative, constraint)
            self._refuse(reason, alternative, position, detail)

    def _joined_by(self, alternative: Alternative, constraint: Constraint) -> str:
        """What the constraint holds the device against: ``request=device (value)`` of each sibling, for reasons."""
        siblings = []
        for pick in self.picks[alternative.claim]:
            if any(self.plan.constraints[index] is constraint for index in pick.alternative.constraints):
                info = self.view.devices[pick.position]
                value = self.value(pick.alternative, info, constraint.attribute)
                shown = "" if value is None else value_text(value[1])
                siblings.append(f"{pick.alternative.name}={info.key.device} ({shown})")
        return ", ".join(siblings)

    def _refuse(self, reason: Reason, alternative: Alternative, position: int, detail: Mapping[str, str]) -> None:
        claim = self.plan.claims[alternative.claim]
        self._told.add((alternative.index, position))
        self._reporter.rejected(Rejection(reason, claim.key, alternative.name, self.view.devices[position].key, detail))
