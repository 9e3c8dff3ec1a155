"""Seeded faults: one textual change of our source per rule, which one conformity run of the CI size must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """``old`` occurs exactly once in ``file`` and becomes ``new``; ``rule`` is what that breaks."""

    rule: str
    file: str
    old: str
    new: str


_DRA = "scheduler/dra/"

MUTATIONS: tuple[Mutation, ...] = (
    # Allocated state.
    Mutation(
        "admin access holds nothing",
        _DRA + "ledger.py",
        "for result in allocation.devices.results if not result.adminAccess]",
        "for result in allocation.devices.results]",
    ),
    Mutation(
        "a share without the gate counts as dedicated",
        _DRA + "ledger.py",
        "if not consumable_capacity or result.shareID is None:",
        "if result.shareID is None:",
    ),
    Mutation(
        "capacities of all shares add up",
        _DRA + "ledger.py",
        "holding.consumed[name] = holding.consumed.get(name, 0) + amount",
        "holding.consumed[name] = amount",
    ),
    # Pools.
    Mutation(
        "only the newest generation counts",
        _DRA + "pools.py",
        "if kept and info.generation < kept[0].generation:",
        "if kept and info.generation < 0:",
    ),
    Mutation(
        "a newer generation elsewhere drops the pool",
        _DRA + "pools.py",
        "if info.generation > first.generation:\n                return None",
        "if info.generation > first.generation + 9:\n                return None",
    ),
    Mutation(
        "a pool short of slices is incomplete",
        _DRA + "pools.py",
        "return self.seen == self.expected",
        "return self.seen >= self.expected",
    ),
    Mutation(
        "equal device names make a pool invalid",
        _DRA + "pools.py",
        "if device.key.device in names:",
        "if device.key.device in ():",
    ),
    Mutation(
        "an unknown counter set makes a pool invalid",
        _DRA + "pools.py",
        'return (), f"device {device.key.device} consumes unknown counter set {consumed.counter_set}"',
        "continue",
    ),
    Mutation(
        "pools with binding conditions come last",
        _DRA + "pools.py",
        "key=lambda pool: (pool.binding, pool.key)",
        "key=lambda pool: pool.key",
    ),
    Mutation(
        "pools are ordered by driver, then name",
        _DRA + "pools.py",
        "key=lambda pool: (pool.binding, pool.key)",
        "key=lambda pool: (pool.binding, pool.key.pool, pool.key.driver)",
    ),
    Mutation(
        "slices with compatibility groups need the gate",
        _DRA + "pools.py",
        "if info.groups and not features.compatibility_groups:\n        return",
        "if info.groups and False:\n        return",
    ),
    Mutation(
        "a device of a per-device slice must match the node",
        _DRA + "pools.py",
        "if not device.slice.slice.spec.perDeviceNodeSelection:\n        return True",
        "if device.slice is not None:\n        return True",
    ),
    Mutation(
        "invalid pools make a misfit a node error",
        _DRA + "allocator.py",
        "return NodeError(INVALID_POOLS) if self._view.invalid else NotAllocatable()",
        "return NotAllocatable()",
    ),
    # Requests and limits.
    Mutation(
        "a claim gets at most 32 devices",
        _DRA + "requests.py",
        "if least > RESULTS_MAX - total:",
        "if least > RESULTS_MAX:",
    ),
    Mutation(
        "an alternative that would exceed the limit is left",
        _DRA + "search.py",
        "frame.all_too_many and signal is _Signal.TOO_MANY",
        "True",
    ),
    Mutation(
        "the least of a firstAvailable request counts",
        _DRA + "requests.py",
        "least = count if least < 0 else min(least, count)",
        "least = count if least < 0 else max(least, count)",
    ),
    Mutation(
        "adminAccess false needs the gate, too",
        _DRA + "requests.py",
        "if admin is not None and not features.admin_access:",
        "if admin and not features.admin_access:",
    ),
    # Search.
    Mutation(
        "further devices of a request come after the last one",
        _DRA + "search.py",
        "frame.number + 1, position + 1)",
        "frame.number + 1, 0)",
    ),
    Mutation(
        "alternatives are tried in order",
        _DRA + "search.py",
        "alternatives[frame.next], 0, 0)",
        "alternatives[-1 - frame.next], 0, 0)",
    ),
    Mutation(
        "mode All needs a device",
        _DRA + "search.py",
        "if alternative.take_all and not count:",
        "if alternative.take_all and count < 0:",
    ),
    Mutation(
        "mode All fails on a pool being updated",
        _DRA + "search.py",
        'problem = "" if pool.complete else "being updated"',
        'problem = ""',
    ),
    Mutation(
        "undo gives back what was taken",
        _DRA + "taking.py",
        "if self._take(alternative, position):\n            return True\n        self.trail.undo(mark)",
        "if self._take(alternative, position):\n            return True\n        del mark",
    ),
    Mutation(
        "admin access sees devices in use",
        _DRA + "taking.py",
        "if alternative.admin:\n            return self.view.all_devices & ~self.bits[1 + alternative.claim]",
        "if alternative.admin:\n            return self.view.all_devices & ~(self.usage.used | self.bits[0])",
    ),
    Mutation(
        "admin access does not take a device of its claim twice",
        _DRA + "taking.py",
        "return self.view.all_devices & ~self.bits[1 + alternative.claim]",
        "return self.view.all_devices",
    ),
    # Shortcuts of a long search.
    Mutation(
        "devices with and without the compared attribute differ",
        _DRA + "symmetry.py",
        "(group,) if self._fixed(group) else None",
        "group if self._fixed(group) else None",
    ),
    Mutation(
        "alike devices have equal attributes",
        _DRA + "symmetry.py",
        "return self._colors[position], self._groups[position]",
        "return self._colors[position]",
    ),
    # Constraints.
    Mutation(
        "a constraint broken in mode All is an error",
        _DRA + "taking.py",
        "if take_all:\n                claim = self.plan.claims[alternative.claim]",
        "if take_all and self.plan is None:\n                claim = self.plan.claims[alternative.claim]",
    ),
    Mutation(
        "a constraint refuses devices without the attribute",
        _DRA + "taking.py",
        "if value is None:\n                self._refuse_constraint",
        "if value is None and self.features.admin_access:\n                continue\n            if value is None:\n"
        "                self._refuse_constraint",
    ),
    Mutation(
        "matchAttribute compares kinds, too",
        _DRA + "constraints.py",
        "return kind in SCALARS and state[0] == value, state",
        "return kind in SCALARS and state[0][1] == value[1], state",
    ),
    Mutation(
        "distinctAttribute compares with all devices",
        _DRA + "constraints.py",
        "return value not in state, (*state, value)",
        "return value not in state, (value,)",
    ),
    Mutation(
        "list values match by their intersection so far",
        _DRA + "constraints.py",
        "return bool(common), (kind, common)",
        "return bool(common), state",
    ),
    Mutation(
        "a constraint may name one alternative",
        _DRA + "constraints.py",
        "return not self.requests or request in self.requests or name in self.requests",
        "return not self.requests or request in self.requests",
    ),
    Mutation(
        "an id without domain belongs to the driver's domain",
        _DRA + "devices.py",
        "if slash and domain == self.key.driver:",
        "if slash:",
    ),
    # Taints.
    Mutation(
        "taints without the gate are ignored",
        _DRA + "suitability.py",
        "self._features.device_taints\n            and info.taints",
        "info.taints",
    ),
    Mutation(
        "a rule without selector taints nothing",
        _DRA + "devices.py",
        "if selector is None:\n        return False",
        "if selector is None:\n        return True",
    ),
    Mutation(
        "an effect of None keeps nothing away",
        "scheduler/api/taints.py",
        "effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE),",
        'effects: Sequence[str] = (NO_SCHEDULE, NO_EXECUTE, "None"),',
    ),
    # Counters.
    Mutation(
        "a share pays counters only once",
        _DRA + "taking.py",
        "return not self.usage.shared >> position & 1 and position not in self.shares",
        "return True",
    ),
    Mutation(
        "an overdrawn counter blocks all consumers of the pool",
        _DRA + "taking.py",
        "if negative:",
        "if negative and alternative is None:",
    ),
    Mutation(
        "allocated devices have used counters",
        _DRA + "ledger.py",
        "left[counter] -= amount",
        "left[counter] -= 0",
    ),
    # Capacity.
    Mutation(
        "the policy's default counts when nothing is asked",
        _DRA + "capacity.py",
        "return policy.default if policy is not None and policy.default is not None else capacity.value",
        "return capacity.value",
    ),
    Mutation(
        "a request is rounded up to a step",
        _DRA + "capacity.py",
        "rounded = low + step_whole * -(-(whole - low) // step_whole) if step_whole else whole",
        "rounded = whole",
    ),
    Mutation(
        "a request is rounded up to a valid value",
        _DRA + "capacity.py",
        "return min(fitting) if fitting else request",
        "return request",
    ),
    Mutation(
        "more than the policy's maximum is refused",
        _DRA + "capacity.py",
        "if policy.maximum is not None and amount > policy.maximum:",
        "if policy.maximum is not None and amount < policy.minimum:",
    ),
    Mutation(
        "a fatal capacity wins over a refusal",
        _DRA + "capacity.py",
        "if whole > _INT64_MAX:",
        "if whole > 2 * _INT64_MAX:",
    ),
    Mutation(
        "shares of this run count against the capacity",
        _DRA + "taking.py",
        "committed.get(share.name, 0) + consumed.get((position, share.name), 0)",
        "committed.get(share.name, 0)",
    ),
    Mutation(
        "shares in use count against the capacity",
        _DRA + "taking.py",
        "committed.get(share.name, 0) + consumed.get((position, share.name), 0)",
        "consumed.get((position, share.name), 0)",
    ),
    # Results.
    Mutation(
        "a claim's configuration for an unused alternative is left out",
        _DRA + "results.py",
        "if not config.requests or any(name in names for name in config.requests)",
        "if config is not None",
    ),
    Mutation(
        "configuration that covers all requests names none",
        _DRA + "results.py",
        "requests=() if _covers_all(requests, chosen) else tuple(requests)",
        "requests=tuple(requests)",
    ),
    Mutation(
        "bindsToNode pins the node selector",
        _DRA + "results.py",
        "if name or info.device.bindsToNode:",
        "if name:",
    ),
    Mutation(
        "equal requirements are merged",
        _DRA + "results.py",
        "and set(requirement.values) == set(old.values)",
        "and requirement.values == old.values",
    ),
    # Alpha features.
    Mutation(
        "skipNodeOperations needs the node's feature",
        _DRA + "suitability.py",
        "if NODE_FEATURE not in self._view.declared_features:",
        "if NODE_FEATURE not in (NODE_FEATURE,):",
    ),
    Mutation(
        "compatibility groups must have one in common",
        _DRA + "ledger.py",
        "return not no_groups and bool(common & groups)",
        "return not no_groups",
    ),
    Mutation(
        "a derived attribute comes before the device's",
        _DRA + "taking.py",
        "if expression is None:\n            return info.attribute(name)",
        "if expression is None or info.attribute(name) is not None:\n            return info.attribute(name)",
    ),
    # CEL.
    Mutation(
        "|| absorbs an error when the other side decides",
        "scheduler/cel/calls.py",
        "failed = failed or error\n                continue",
        "raise",
    ),
    Mutation(
        "a Semver against another kind is an error",
        "scheduler/cel/values.py",
        "if kind is Quantity:\n        if type(right) is not Quantity:\n            raise no_such_overload()",
        "if kind is Quantity:\n        if type(right) is not Quantity:\n            return False",
    ),
)
