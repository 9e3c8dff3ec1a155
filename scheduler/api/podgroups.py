"""PodGroups (scheduling.k8s.io/v1beta1): policy, priority, the claims that a group shares, and its conditions.

Only watched with the gate GenericWorkload.
"""

from __future__ import annotations

import msgspec

from scheduler.api.core import PodResourceClaim
from scheduler.api.kinds import Kind
from scheduler.api.meta import Condition, ObjectMeta


class GangPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All or nothing, for at least ``minCount`` Pods."""

    minCount: int = 0


class SchedulingPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the group's Pods are scheduled; without ``gang`` each that fits is placed."""

    gang: GangPolicy | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Claims have the shape of a Pod's."""

    schedulingPolicy: SchedulingPolicy = SchedulingPolicy()
    resourceClaims: tuple[PodResourceClaim, ...] = ()
    priority: int | None = None


class PodGroupStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """What schedulers and controllers say about the group."""

    conditions: tuple[Condition, ...] = ()


class PodGroup(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A group of Pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def min_count(self) -> int:
        """How many members must have a node at the same time; 0 without the gang policy."""
        gang = self.spec.schedulingPolicy.gang
        return 0 if gang is None else gang.minCount

    @property
    def is_gang(self) -> bool:
        """True for all or nothing."""
        return self.spec.schedulingPolicy.gang is not None


POD_GROUP = Kind("PodGroup", "scheduling.k8s.io", "v1beta1", "podgroups", True, PodGroup)
