"""The default plugins by name, in kube-scheduler's order (spec 2.1). Only the composition root imports this."""

from __future__ import annotations

from plugins.balanced_allocation import NodeResourcesBalancedAllocation
from plugins.default_binder import DefaultBinder
from plugins.default_preemption import DefaultPreemption
from plugins.dynamic_resources import DynamicResources
from plugins.gang_scheduling import GangScheduling
from plugins.image_locality import ImageLocality
from plugins.inter_pod_affinity import InterPodAffinity
from plugins.node_affinity import NodeAffinity
from plugins.node_declared_features import NodeDeclaredFeatures
from plugins.node_name import NodeName
from plugins.node_ports import NodePorts
from plugins.node_resources_fit import NodeResourcesFit
from plugins.node_unschedulable import NodeUnschedulable
from plugins.partition import Partition
from plugins.pod_topology_spread import PodTopologySpread
from plugins.priority_sort import PrioritySort
from plugins.scheduling_gates import SchedulingGates
from plugins.taint_toleration import TaintToleration
from plugins.volumes import NodeVolumeLimits, VolumeBinding, VolumeRestrictions, VolumeZone
from scheduler.framework.plugin import PluginFactory

OWN_PLUGINS: dict[str, PluginFactory] = {"Partition": Partition}
"""Plugins that kube-scheduler has not got; a profile must enable them."""

DEFAULT_PLUGINS: dict[str, PluginFactory] = {
    "SchedulingGates": SchedulingGates,
    "PrioritySort": PrioritySort,
    "NodeName": NodeName,
    "NodeUnschedulable": NodeUnschedulable,
    "TaintToleration": TaintToleration,
    "NodeAffinity": NodeAffinity,
    "NodePorts": NodePorts,
    "NodeResourcesFit": NodeResourcesFit,
    "VolumeRestrictions": VolumeRestrictions,
    "NodeVolumeLimits": NodeVolumeLimits,
    "VolumeBinding": VolumeBinding,
    "VolumeZone": VolumeZone,
    "PodTopologySpread": PodTopologySpread,
    "InterPodAffinity": InterPodAffinity,
    "DynamicResources": DynamicResources,
    "DefaultPreemption": DefaultPreemption,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocation,
    "ImageLocality": ImageLocality,
    "DefaultBinder": DefaultBinder,
    "NodeDeclaredFeatures": NodeDeclaredFeatures,
}

GATED_PLUGINS: dict[str, PluginFactory] = {"GangScheduling": GangScheduling}
"""Plugins that a feature gate adds to the defaults; a profile that names one gets one that does nothing without it."""
