"""Services and the controllers whose selectors say which Pods belong together: what default spread constraints ask.

Only the fields that PodTopologySpread reads.
"""

from __future__ import annotations

import msgspec

from scheduler.api.kinds import Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.selectors import LabelSelector


class MapSelectorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a Service or ReplicationController: a plain map, None when absent."""

    selector: dict[str, str] | None = None


class LabelSelectorSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class Service(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A Service."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MapSelectorSpec = MapSelectorSpec()


class ReplicationController(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A ReplicationController."""

    metadata: ObjectMeta = ObjectMeta()
    spec: MapSelectorSpec = MapSelectorSpec()


class ReplicaSet(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A ReplicaSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A StatefulSet."""

    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


SERVICE = Kind("Service", "", "v1", "services", True, Service)
REPLICATION_CONTROLLER = Kind("ReplicationController", "", "v1", "replicationcontrollers", True, ReplicationController)
REPLICA_SET = Kind("ReplicaSet", "apps", "v1", "replicasets", True, ReplicaSet)
STATEFUL_SET = Kind("StatefulSet", "apps", "v1", "statefulsets", True, StatefulSet)

WORKLOADS = (SERVICE, REPLICATION_CONTROLLER, REPLICA_SET, STATEFUL_SET)
"""Kinds watched without any event: they only shape default spread constraints."""
