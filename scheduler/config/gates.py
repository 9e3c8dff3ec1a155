"""--feature-gates: kube-scheduler's gates at 1.37, their defaults, and which may be changed here.

Source: pkg/features (spec 0.3). A gate whose other value has no effect in dra-scheduler yet is refused, not ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from scheduler.config.durations import go_quote
from scheduler.errors import ConfigError

_LOCKED_ON = (
    "DynamicResourceAllocation",
    "DRAExtendedResource",
    "DRAPrioritizedList",
    "DRAAdminAccess",
    "DRAResourceClaimDeviceStatus",
    "InPlacePodVerticalScaling",
    "NodeDeclaredFeatures",
    "NodeInclusionPolicyInPodTopologySpread",
    "PodObservedGenerationTracking",
)
_ON = (
    "DRADeviceTaints",
    "DRADeviceTaintRules",
    "SchedulerPopFromBackoffQ",
    "SchedulerAsyncPreemption",
    "NominatedNodeNameForExpectation",
    "ClearingNominatedNodeNameAfterBinding",
    "OpportunisticBatching",
    "PodLevelResources",
    "InPlacePodLevelResourcesVerticalScaling",
    "MatchLabelKeysInPodTopologySpread",
    "MatchLabelKeysInPodTopologySpreadSelectorMerge",
    "StorageCapacityScoring",
    "VolumeLimitScaling",
    "PodTopologyLabelsAdmission",
    "DRAConsumableCapacity",
    "DRAPartitionableDevices",
    "DRADeviceBindingConditions",
    "DRASchedulerFilterTimeout",
    "DRAResourceClaimGranularStatusAuthorization",
)
_OFF = (
    "SchedulerAsyncAPICalls",
    "GenericWorkload",
    "DRAWorkloadResourceClaims",
    "TopologyAwareWorkloadScheduling",
    "CompositePodGroup",
    "PodGroupPreemptionPolicy",
    "SchedulerPreQueueingHints",
    "InterPodAffinityHostnameFastPath",
    "InPlacePodVerticalScalingSchedulerPreemption",
    "TaintTolerationComparisonOperators",
    "DRANodeAllocatableResources",
    "DRAListTypeAttributes",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAOptionalNodeOperations",
    "DRAFractionalCapacityRange",
)
_CHANGEABLE = frozenset(
    {
        "DRADeviceTaints",
        "DRADeviceTaintRules",
        "DRAConsumableCapacity",
        "DRAPartitionableDevices",
        "DRADeviceBindingConditions",
        "DRAListTypeAttributes",
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAOptionalNodeOperations",
        "DRAFractionalCapacityRange",
        "DRANodeAllocatableResources",
        "GenericWorkload",
        "DRAWorkloadResourceClaims",
    }
)
_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")

DEFAULT_GATES: Mapping[str, bool] = MappingProxyType(
    dict.fromkeys((*_LOCKED_ON, *_ON), True) | dict.fromkeys(_OFF, False)
)
"""Gate → default at 1.37. AllAlpha and AllBeta are not offered."""


def parse_feature_gates(text: str) -> dict[str, bool]:
    """``A=true,B=false`` to the gates named; empty text to none.

    Raises ConfigError(path ``feature-gates``): a gate nobody knows, no boolean, a locked gate changed, or a change
    that would have no effect here.
    """
    path = "feature-gates"
    gates: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        if not equals:
            raise ConfigError(path, f"missing bool value for {name}")
        if value not in _TRUE + _FALSE:
            raise ConfigError(path, f"invalid value of {name}={value}, expected true or false")
        gates[name] = value in _TRUE
    for name, on in gates.items():
        if name not in DEFAULT_GATES:
            raise ConfigError(path, f"unrecognized feature gate: {name}")
        if on == DEFAULT_GATES[name]:
            continue
        shown = str(on).lower()
        if name in _LOCKED_ON:
            raise ConfigError(path, f"cannot set feature gate {name} to {shown}, feature is locked to true")
        if name not in _CHANGEABLE:
            raise ConfigError(path, f"{go_quote(name)}={shown} is not built yet in dra-scheduler")
    return gates
