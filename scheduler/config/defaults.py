"""The defaults that profiles start from. Source: kube-scheduler 1.37, apis/config/v1 (default plugins)."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.api.names import UPSTREAM_SCHEDULER_NAME as UPSTREAM_SCHEDULER_NAME
from scheduler.config.model import PluginRef, PluginSet

API_VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER_NAME = "dra-scheduler"

UPSTREAM_PLUGINS = (
    PluginRef("SchedulingGates"),
    PluginRef("PrioritySort"),
    PluginRef("NodeName"),
    PluginRef("NodeUnschedulable"),
    PluginRef("TaintToleration", 3),
    PluginRef("NodeAffinity", 2),
    PluginRef("NodePorts"),
    PluginRef("NodeResourcesFit", 1),
    PluginRef("VolumeRestrictions"),
    PluginRef("NodeVolumeLimits"),
    PluginRef("VolumeBinding"),
    PluginRef("VolumeZone"),
    PluginRef("PodTopologySpread", 2),
    PluginRef("InterPodAffinity", 2),
    PluginRef("DynamicResources", 2),
    PluginRef("DefaultPreemption"),
    PluginRef("NodeResourcesBalancedAllocation", 1),
    PluginRef("ImageLocality", 1),
    PluginRef("DefaultBinder"),
    PluginRef("NodeDeclaredFeatures"),
)
"""kube-scheduler's default multiPoint list, in its order: the order is part of the behaviour."""

NOT_BUILT_YET = frozenset(
    {
        # Off by default in kube-scheduler, behind feature gates.
        "DeferredPodScheduling",
        "TopologyPlacementGenerator",
        "PodGroupPodsCount",
    }
)
"""Plugins of kube-scheduler that dra-scheduler has not got yet. The one place to change when one is built."""

REMOVED_IN_V1 = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})

DEFAULT_PLUGINS = PluginSet(tuple(ref for ref in UPSTREAM_PLUGINS if ref.name not in NOT_BUILT_YET))
"""What a profile's multiPoint starts from."""

GATED_PLUGINS = (("GenericWorkload", PluginRef("GangScheduling")),)
"""Gate → what it appends to the multiPoint list of every profile."""


def default_plugins(gates: Mapping[str, bool]) -> PluginSet:
    """DEFAULT_PLUGINS and those of the gates that are on."""
    gated = tuple(ref for gate, ref in GATED_PLUGINS if gates.get(gate))
    return PluginSet(DEFAULT_PLUGINS.enabled + gated, DEFAULT_PLUGINS.disabled)
