"""Which DRA features are on, by upstream's gate names and 1.37 defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.dra.limits import DeviceLimit
from scheduler.errors import ConfigError

STABLE = "stable"
INCUBATING = "incubating"
EXPERIMENTAL = "experimental"

# Gate name -> field. DRADeviceBindingConditions also needs DRAResourceClaimDeviceStatus, which is GA and locked.
_GATES = {
    "DRAAdminAccess": "admin_access",
    "DRAPrioritizedList": "prioritized_list",
    "DRAPartitionableDevices": "partitionable_devices",
    "DRADeviceTaints": "device_taints",
    "DRADeviceTaintRules": "device_taint_rules",
    "DRADeviceBindingConditions": "binding_conditions",
    "DRAConsumableCapacity": "consumable_capacity",
    "DRAFractionalCapacityRange": "fractional_capacity",
    "DRAListTypeAttributes": "list_attributes",
    "DRAOptionalNodeOperations": "optional_node_operations",
    "DRADerivedAttributes": "derived_attributes",
    "DRADeviceCompatibilityGroups": "compatibility_groups",
    "DRANodeAllocatableResources": "node_allocatable",
    "GenericWorkload": "generic_workload",
    "DRAWorkloadResourceClaims": "workload_claims",
}
_REQUIRES = {
    "DRADeviceTaintRules": "DRADeviceTaints",
    "DRAFractionalCapacityRange": "DRAConsumableCapacity",
    "DRADeviceCompatibilityGroups": "DRAPartitionableDevices",
    "DRAWorkloadResourceClaims": "GenericWorkload",
}
_LOCKED = ("DRAAdminAccess", "DRAPrioritizedList")


@dataclass(frozen=True, slots=True)
class Features:
    """The DRA features; node_allocatable and later gates act outside the allocator. Defaults are kube-scheduler 1.37's.

    ``device_limit`` is no gate: what a profile of ours may give away, None for everything.
    """

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    device_taint_rules: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    fractional_capacity: bool = False
    list_attributes: bool = False
    optional_node_operations: bool = False
    derived_attributes: bool = False
    compatibility_groups: bool = False
    node_allocatable: bool = False
    generic_workload: bool = False
    workload_claims: bool = False
    device_limit: DeviceLimit | None = None

    @property
    def channel(self) -> str:
        """The upstream allocator that would run: the first one whose features cover all that are on."""
        if (
            self.list_attributes
            or self.optional_node_operations
            or self.derived_attributes
            or self.compatibility_groups
        ):
            return EXPERIMENTAL
        if self.binding_conditions or self.consumable_capacity or self.fractional_capacity:
            return INCUBATING
        return STABLE

    @classmethod
    def from_gates(cls, gates: Mapping[str, bool]) -> Features:
        """Features with the given upstream gates changed. Unknown gates are ignored: others own them.

        Raises ConfigError when a locked gate is turned off or a gate is on without the one it needs.
        """
        for gate in _LOCKED:
            if gates.get(gate, True) is False:
                raise ConfigError(f"featureGates.{gate}", "cannot be turned off: it is locked to its default")
        fields: dict[str, Any] = {field: gates[gate] for gate, field in _GATES.items() if gate in gates}
        features = cls(**fields)
        for gate, needed in _REQUIRES.items():
            if getattr(features, _GATES[gate]) and not getattr(features, _GATES[needed]) and gates.get(gate):
                raise ConfigError(f"featureGates.{gate}", f"needs {needed}")
        return features
