"""PodGroups (scheduling.k8s.io/v1beta1): the claims that a group shares, and whether it wants gang scheduling.

Only watched with the gate GenericWorkload.
"""

from __future__ import annotations

import msgspec

from scheduler.api.core import PodResourceClaim
from scheduler.api.kinds import Kind
from scheduler.api.meta import ObjectMeta


class GangPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """All or nothing, for at least ``minCount`` Pods."""

    minCount: int = 0


class SchedulingPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the group's Pods are scheduled; without ``gang`` one by one."""

    gang: GangPolicy | None = None


class PodGroupSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Claims have the shape of a Pod's."""

    schedulingPolicy: SchedulingPolicy = SchedulingPolicy()
    resourceClaims: tuple[PodResourceClaim, ...] = ()


class PodGroup(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A group of Pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()


POD_GROUP = Kind("PodGroup", "scheduling.k8s.io", "v1beta1", "podgroups", True, PodGroup)
