"""resource.k8s.io/v1: claims, classes, slices and taint rules, all fields a 1.37 scheduler reads.

Source: api/resource/v1 of Kubernetes 1.37. Absent and empty differ where the scheduler distinguishes them; such fields
are ``| None``. Quantities stay text (``quantity.parse_quantity``).
"""

from __future__ import annotations

from typing import Literal

import msgspec

from scheduler.api.core import QuantityText
from scheduler.api.meta import Condition, ObjectMeta
from scheduler.api.selectors import NodeSelector
from scheduler.api.taints import Taint, Toleration

FINALIZER = "resource.kubernetes.io/delete-protection"
EXTENDED_RESOURCE_CLAIM_ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
IMPLICIT_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
ALL: Literal["All"] = "All"
EXACT_COUNT: Literal["ExactCount"] = "ExactCount"
RESULTS_MAX = 32
RESERVED_FOR_MAX = 256


class CELSelector(msgspec.Struct, frozen=True, omit_defaults=True):
    """A CEL expression over ``device``."""

    expression: str = ""


class DeviceSelector(msgspec.Struct, frozen=True, omit_defaults=True):
    """One selector; without ``cel`` it is of a kind we do not know."""

    cel: CELSelector | None = None


class CapacityRequirements(msgspec.Struct, frozen=True, omit_defaults=True):
    """Consumable capacity a request asks for."""

    requests: dict[str, QuantityText] = {}


class DerivedAttribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """A CEL expression whose value serves as an attribute in constraints (alpha)."""

    name: str = ""
    cel: CELSelector | None = None
    expression: str = ""


class ExactDeviceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """``exactly``: one class, selectors, a count or All."""

    deviceClassName: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocationMode: str = ""
    count: int = 0
    adminAccess: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derivedAttributes: tuple[DerivedAttribute, ...] = ()


class DeviceSubRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """One alternative of ``firstAvailable``; like ExactDeviceRequest without adminAccess."""

    name: str = ""
    deviceClassName: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocationMode: str = ""
    count: int = 0
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derivedAttributes: tuple[DerivedAttribute, ...] = ()


class DeviceRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named request: ``exactly`` or ``firstAvailable``; neither is a kind we do not know."""

    name: str = ""
    exactly: ExactDeviceRequest | None = None
    firstAvailable: tuple[DeviceSubRequest, ...] = ()


class DeviceConstraint(msgspec.Struct, frozen=True, omit_defaults=True):
    """matchAttribute or distinctAttribute over ``requests`` (empty: all)."""

    requests: tuple[str, ...] = ()
    matchAttribute: str | None = None
    distinctAttribute: str | None = None


class OpaqueDeviceConfiguration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Driver parameters, passed on byte for byte."""

    driver: str = ""
    parameters: msgspec.Raw = msgspec.Raw(b"{}")


class DeviceClaimConfiguration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Configuration in a claim."""

    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClaim(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.devices of a claim."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ResourceClaimSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Immutable after creation."""

    devices: DeviceClaim = DeviceClaim()


class DeviceRequestAllocationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """One allocated device. ``request`` is ``req`` or ``req/sub``."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    adminAccess: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    bindingConditions: tuple[str, ...] = ()
    bindingFailureConditions: tuple[str, ...] = ()
    shareID: str | None = None
    consumedCapacity: dict[str, QuantityText] | None = None
    skipNodeOperations: tuple[str, ...] = ()


class DeviceAllocationConfiguration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Configuration in an allocation; ``source`` is FromClass or FromClaim."""

    source: str = ""
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


class DeviceAllocationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Devices in the order they were taken, and their configuration."""

    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


class AllocationResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.allocation."""

    devices: DeviceAllocationResult = DeviceAllocationResult()
    nodeSelector: NodeSelector | None = None
    allocationTimestamp: str | None = None


class ConsumerReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.reservedFor[]: who may use the claim."""

    apiGroup: str = ""
    resource: str = ""
    name: str = ""
    uid: str = ""


class AllocatedDeviceStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """status.devices[]: written by drivers; only conditions matter here."""

    driver: str = ""
    pool: str = ""
    device: str = ""
    shareID: str | None = None
    conditions: tuple[Condition, ...] = ()


class ResourceClaimStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """Allocation and reservations.

    ``reservedFor`` keeps each entry as the server sent it, because a merge patch replaces the whole list and entries
    may carry fields we do not model; ``consumers`` reads them.
    """

    allocation: AllocationResult | None = None
    reservedFor: tuple[msgspec.Raw, ...] = ()
    devices: tuple[AllocatedDeviceStatus, ...] = ()


_CONSUMER = msgspec.json.Decoder(ConsumerReference)


def _consumer(entry: msgspec.Raw) -> ConsumerReference:
    try:
        return _CONSUMER.decode(entry)
    except msgspec.ValidationError:  # only in dumps: the API server stores no such entry
        return ConsumerReference()


class ResourceClaim(msgspec.Struct, frozen=True, omit_defaults=True, eq=False, dict=True):
    """A claim: what is asked for and what was given."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return self.metadata.key

    @property
    def uid(self) -> str:
        """metadata.uid."""
        return self.metadata.uid

    @property
    def consumers(self) -> tuple[ConsumerReference, ...]:
        """status.reservedFor, decoded once per object; an entry that cannot be read is a user nobody knows."""
        cached: tuple[ConsumerReference, ...] | None = self.__dict__.get("_consumers")
        if cached is None:
            cached = tuple(map(_consumer, self.status.reservedFor))
            self.__dict__["_consumers"] = cached
        return cached

    def reserved_for(self, pod_uid: str) -> bool:
        """True when the Pod with this UID is among the consumers."""
        return any(consumer.uid == pod_uid for consumer in self.consumers)


class DeviceClassConfiguration(msgspec.Struct, frozen=True, omit_defaults=True):
    """Configuration in a class."""

    opaque: OpaqueDeviceConfiguration | None = None


class DeviceClassSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Selectors and configuration shared by all requests for the class."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClassConfiguration, ...] = ()
    extendedResourceName: str | None = None


class DeviceClass(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A device class (cluster-wide)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceClassSpec = DeviceClassSpec()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name


class ResourcePool(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pool a slice belongs to; complete when ``resourceSliceCount`` slices of ``generation`` are seen."""

    name: str = ""
    generation: int = 0
    resourceSliceCount: int = 0


class DeviceAttribute(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attribute value; exactly one field is set, none is a kind we do not know."""

    int_: int | None = msgspec.field(name="int", default=None)
    bool_: bool | None = msgspec.field(name="bool", default=None)
    string: str | None = None
    version: str | None = None
    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None


class CapacityRequestPolicyRange(msgspec.Struct, frozen=True, omit_defaults=True):
    """validRange of a request policy."""

    min: QuantityText | None = None
    max: QuantityText | None = None
    step: QuantityText | None = None


class CapacityRequestPolicy(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a request for shared capacity is rounded."""

    default: QuantityText | None = None
    validValues: tuple[QuantityText, ...] = ()
    validRange: CapacityRequestPolicyRange | None = None


class DeviceCapacity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A capacity of a device: the total, never the free part."""

    value: QuantityText = "0"
    requestPolicy: CapacityRequestPolicy | None = None


class Counter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A counter's value."""

    value: QuantityText = "0"


class CounterSet(msgspec.Struct, frozen=True, omit_defaults=True):
    """A named set of counters shared by the devices of a pool."""

    name: str = ""
    counters: dict[str, Counter] = {}


class DeviceCounterConsumption(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a device takes from one counter set."""

    counterSet: str = ""
    counters: dict[str, Counter] = {}
    compatibilityGroups: tuple[str, ...] = ()


class NodeAllocatableMapping(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a device counts as a node resource (alpha)."""

    capacityKey: str | None = None
    capacityMultiplier: QuantityText | None = None
    deviceMultiplier: QuantityText | None = None


class NodeAllocatableOverhead(msgspec.Struct, frozen=True, omit_defaults=True):
    """Extra node resources a device costs (alpha)."""

    perPod: QuantityText | None = None
    perContainer: QuantityText | None = None


class NodeAllocatableResource(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of nodeAllocatableResources (alpha)."""

    mapping: NodeAllocatableMapping | None = None
    overhead: NodeAllocatableOverhead | None = None


class Device(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device of a slice."""

    name: str = ""
    attributes: dict[str, DeviceAttribute] = {}
    capacity: dict[str, DeviceCapacity] = {}
    consumesCounters: tuple[DeviceCounterConsumption, ...] = ()
    nodeName: str | None = None
    nodeSelector: NodeSelector | None = None
    allNodes: bool | None = None
    taints: tuple[Taint, ...] = ()
    bindsToNode: bool | None = None
    bindingConditions: tuple[str, ...] = ()
    bindingFailureConditions: tuple[str, ...] = ()
    allowMultipleAllocations: bool | None = None
    nodeAllocatableResources: dict[str, NodeAllocatableResource] = {}


class ResourceSliceSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """Devices of one pool, or its shared counters, and where they are."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    nodeName: str | None = None
    nodeSelector: NodeSelector | None = None
    allNodes: bool | None = None
    perDeviceNodeSelection: bool | None = None
    devices: tuple[Device, ...] = ()
    sharedCounters: tuple[CounterSet, ...] = ()
    skipNodeOperations: tuple[str, ...] = ()
    partitionTypeAttribute: str | None = None


class ResourceSlice(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A slice of a pool (cluster-wide)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceSliceSpec = ResourceSliceSpec()

    @property
    def name(self) -> str:
        """metadata.name."""
        return self.metadata.name


class DeviceTaintSelector(msgspec.Struct, frozen=True, omit_defaults=True):
    """Which devices a rule taints: all given fields must match; ``{}`` is every device, absent none."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class DeviceTaintRuleSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """One taint for the selected devices."""

    deviceSelector: DeviceTaintSelector | None = None
    taint: Taint = Taint()


class DeviceTaintRule(msgspec.Struct, frozen=True, omit_defaults=True, eq=False):
    """A taint laid over devices from outside their slices (cluster-wide)."""

    metadata: ObjectMeta = ObjectMeta()
    spec: DeviceTaintRuleSpec = DeviceTaintRuleSpec()
