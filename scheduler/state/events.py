"""Cluster events: what a change amounts to for waiting Pods.

Source: kube-scheduler 1.37, framework/events and the queueing hints (spec 4.7 to 4.9).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag, StrEnum
from typing import Any


class Resource(StrEnum):
    """What an event is about; the values are the prefixes of upstream's event labels."""

    NODE = "Node"
    POD = "Pod"  # in registrations only: any of the three below
    ASSIGNED_POD = "AssignedPod"
    TARGET_POD = "TargetPod"  # the waiting Pod itself
    UNSCHEDULED_POD = "UnscheduledPod"  # another waiting Pod
    POD_GROUP = "scheduling.k8s.io/PodGroup"
    PERSISTENT_VOLUME = "PersistentVolume"
    PERSISTENT_VOLUME_CLAIM = "PersistentVolumeClaim"
    CSI_NODE = "storage.k8s.io/CSINode"
    CSI_DRIVER = "storage.k8s.io/CSIDriver"
    VOLUME_ATTACHMENT = "storage.k8s.io/VolumeAttachment"
    CSI_STORAGE_CAPACITY = "storage.k8s.io/CSIStorageCapacity"
    STORAGE_CLASS = "storage.k8s.io/StorageClass"
    RESOURCE_CLAIM = "resource.k8s.io/ResourceClaim"
    RESOURCE_SLICE = "resource.k8s.io/ResourceSlice"
    DEVICE_CLASS = "resource.k8s.io/DeviceClass"
    ANY = "*"


class Action(IntFlag):
    """What happened. UPDATE covers every specific update; OTHER is an update of no specific kind."""

    ADD = 1
    DELETE = 2
    UPDATE_NODE_ALLOCATABLE = 4
    UPDATE_NODE_LABEL = 8
    UPDATE_NODE_TAINT = 16
    UPDATE_NODE_CONDITION = 32
    UPDATE_NODE_ANNOTATION = 64
    UPDATE_NODE_DECLARED_FEATURE = 128
    UPDATE_POD_LABEL = 256
    UPDATE_POD_SCALE_DOWN = 512
    UPDATE_POD_SCALE_UP = 1024
    UPDATE_POD_TOLERATION = 2048
    UPDATE_POD_SCHEDULING_GATES_ELIMINATED = 4096
    UPDATE_POD_GENERATED_RESOURCE_CLAIM = 8192
    UPDATE_OTHER = 16384
    UPDATE = 32764  # every update bit above
    ALL = 32767


_ACTION_TEXT = {
    Action.ADD: "Add",
    Action.DELETE: "Delete",
    Action.UPDATE_NODE_ALLOCATABLE: "UpdateNodeAllocatable",
    Action.UPDATE_NODE_LABEL: "UpdateNodeLabel",
    Action.UPDATE_NODE_TAINT: "UpdateNodeTaint",
    Action.UPDATE_NODE_CONDITION: "UpdateNodeCondition",
    Action.UPDATE_NODE_ANNOTATION: "UpdateNodeAnnotation",
    Action.UPDATE_NODE_DECLARED_FEATURE: "UpdateNodeDeclaredFeature",
    Action.UPDATE_POD_LABEL: "UpdatePodLabel",
    Action.UPDATE_POD_SCALE_DOWN: "UpdatePodScaleDown",
    Action.UPDATE_POD_SCALE_UP: "UpdatePodScaleUp",
    Action.UPDATE_POD_TOLERATION: "UpdatePodToleration",
    Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED: "UpdatePodSchedulingGatesEliminated",
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM: "UpdatePodGeneratedResourceClaim",
    Action.UPDATE_OTHER: "Update",
    Action.UPDATE: "Update",
}


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One occurrence: ``old`` is None for an addition, ``new`` None for a deletion.

    ``label`` is upstream's text for metrics ("NodeAdd", "AssignedPodDelete"); special events set their own
    ("BackoffComplete"). A wildcard event (resource ANY) wakes Pods whatever rejected them; with a Pod as ``new`` only
    that Pod.
    """

    resource: Resource
    action: Action
    old: Any = None
    new: Any = None
    special: str = ""

    @property
    def label(self) -> str:
        """Upstream's event label."""
        return self.special or f"{self.resource.value}{_ACTION_TEXT.get(self.action, 'Update')}"

    @property
    def wildcard(self) -> bool:
        """True for events that concern every waiting Pod."""
        return self.resource is Resource.ANY
