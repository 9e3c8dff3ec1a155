"""The versions of resource.k8s.io: which one a server speaks, and how older shapes become ours.

v1 and v1beta2 look the same. v1beta1 keeps the fields of ``exactly`` in the request itself and those of a device under
``basic``; DeviceTaintRules of v1alpha3 may select by class and CEL, which no newer version knows. The status of a claim
has one shape in all versions, so what we patch needs no conversion. Source: api/resource of Kubernetes 1.34 to 1.37.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from scheduler.api.kinds import DEVICE_CLASS, DEVICE_TAINT_RULE, RESOURCE_CLAIM, RESOURCE_SLICE, Kind
from scheduler.api.meta import ObjectMeta
from scheduler.api.resource import (
    CapacityRequirements,
    CounterSet,
    DerivedAttribute,
    Device,
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from scheduler.api.selectors import NodeSelector
from scheduler.api.taints import Taint, Toleration

GROUP = "resource.k8s.io"
GROUP_PATH = f"/apis/{GROUP}"
VERSIONS = ("v1", "v1beta2", "v1beta1")
"""What we can read and write, best first."""
TAINT_RULE_VERSIONS = ("v1", "v1beta2", "v1alpha3")
_NEEDED = frozenset({RESOURCE_CLAIM.plural, RESOURCE_SLICE.plural, DEVICE_CLASS.plural})


class ResourceKinds(msgspec.Struct, frozen=True):
    """The kinds of the group in the versions that one server serves."""

    claim: Kind = RESOURCE_CLAIM
    slice: Kind = RESOURCE_SLICE
    device_class: Kind = DEVICE_CLASS
    taint_rule: Kind = DEVICE_TAINT_RULE


def choose_kinds(served: Mapping[str, frozenset[str]]) -> ResourceKinds | None:
    """The kinds to use on a server; ``served``: version → plurals. None when it serves no version we know.

    A server without DeviceTaintRules gets the newest version of them: asking for them finds nothing.
    """
    version = next((name for name in VERSIONS if served.get(name, frozenset()) >= _NEEDED), None)
    if version is None:
        return None
    rules = next((name for name in TAINT_RULE_VERSIONS if DEVICE_TAINT_RULE.plural in served.get(name, ())), "v1")
    return ResourceKinds(
        _in(RESOURCE_CLAIM, version, ClaimV1beta1 if version == "v1beta1" else None),
        _in(RESOURCE_SLICE, version, SliceV1beta1 if version == "v1beta1" else None),
        _in(DEVICE_CLASS, version, None),
        _in(DEVICE_TAINT_RULE, rules, TaintRuleV1alpha3 if rules == "v1alpha3" else None),
    )


def _in(kind: Kind, version: str, wire: type | None) -> Kind:
    return msgspec.structs.replace(kind, version=version, wire=wire)


class _Group(msgspec.Struct):
    class Version(msgspec.Struct):
        version: str = ""

    versions: tuple[Version, ...] = ()


class _Resources(msgspec.Struct):
    class Resource(msgspec.Struct):
        name: str = ""

    resources: tuple[Resource, ...] = ()


def served_versions(body: bytes) -> tuple[str, ...]:
    """Versions in an APIGroup that are of any use to us, in our order. Raises msgspec.DecodeError."""
    listed = {entry.version for entry in msgspec.json.decode(body, type=_Group).versions}
    return tuple(name for name in dict.fromkeys((*VERSIONS, *TAINT_RULE_VERSIONS)) if name in listed)


def served_plurals(body: bytes) -> frozenset[str]:
    """Plural names in an APIResourceList, sub-resources left out. Raises msgspec.DecodeError."""
    names = (entry.name for entry in msgspec.json.decode(body, type=_Resources).resources)
    return frozenset(name for name in names if "/" not in name)


def claim_spec(kind: Kind, spec: ResourceClaimSpec) -> object:
    """``spec`` in the shape of the kind's version, to be encoded."""
    if kind.version != "v1beta1":
        return spec
    devices: dict[str, Any] = msgspec.to_builtins(spec.devices)
    for request in devices.get("requests", ()):
        request.update(request.pop("exactly", {}))
    return {"devices": devices}


class RequestV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request with the fields of ``exactly`` beside its name."""

    name: str = ""
    deviceClassName: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocationMode: str = ""
    count: int = 0
    adminAccess: bool | None = None
    firstAvailable: tuple[DeviceSubRequest, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derivedAttributes: tuple[DerivedAttribute, ...] = ()

    def v1(self) -> DeviceRequest:
        """The same request; one that is of no kind we know stays so."""
        if self.firstAvailable or not self.deviceClassName:
            return DeviceRequest(self.name, None, self.firstAvailable)
        exactly = ExactDeviceRequest(
            self.deviceClassName,
            self.selectors,
            self.allocationMode,
            self.count,
            self.adminAccess,
            self.tolerations,
            self.capacity,
            self.derivedAttributes,
        )
        return DeviceRequest(self.name, exactly)


class DeviceClaimV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec.devices of a claim."""

    requests: tuple[RequestV1beta1, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


class ClaimSpecV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a claim."""

    devices: DeviceClaimV1beta1 = DeviceClaimV1beta1()


class ClaimV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """A claim as v1beta1 spells it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimSpecV1beta1 = ClaimSpecV1beta1()
    status: ResourceClaimStatus = ResourceClaimStatus()

    def v1(self) -> ResourceClaim:
        """The same claim."""
        devices = self.spec.devices
        asked = DeviceClaim(tuple(request.v1() for request in devices.requests), devices.constraints, devices.config)
        return ResourceClaim(self.metadata, ResourceClaimSpec(asked), self.status)


class DeviceV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """A device whose properties are under ``basic``; without it, it is of a kind that we do not know."""

    name: str = ""
    basic: Device = Device()

    def v1(self) -> Device:
        """The same device."""
        return msgspec.structs.replace(self.basic, name=self.name)


class SliceSpecV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a slice: as in v1 but for the devices."""

    driver: str = ""
    pool: ResourcePool = ResourcePool()
    nodeName: str | None = None
    nodeSelector: NodeSelector | None = None
    allNodes: bool | None = None
    perDeviceNodeSelection: bool | None = None
    devices: tuple[DeviceV1beta1, ...] = ()
    sharedCounters: tuple[CounterSet, ...] = ()
    skipNodeOperations: tuple[str, ...] = ()
    partitionTypeAttribute: str | None = None


class SliceV1beta1(msgspec.Struct, frozen=True, omit_defaults=True):
    """A slice as v1beta1 spells it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: SliceSpecV1beta1 = SliceSpecV1beta1()

    def v1(self) -> ResourceSlice:
        """The same slice."""
        spec = msgspec.structs.asdict(self.spec)
        spec["devices"] = tuple(device.v1() for device in self.spec.devices)
        return ResourceSlice(self.metadata, ResourceSliceSpec(**spec))


class TaintSelectorV1alpha3(msgspec.Struct, frozen=True, omit_defaults=True):
    """May name a class and CEL selectors besides."""

    deviceClassName: str | None = None
    driver: str | None = None
    pool: str | None = None
    device: str | None = None
    selectors: tuple[DeviceSelector, ...] = ()

    def v1(self) -> DeviceTaintSelector:
        """The same selector. Raises msgspec.ValidationError for what only v1alpha3 can say."""
        if self.deviceClassName is not None or self.selectors:
            problem = "selecting devices by class or CEL is not supported, the rule is not applied"
            raise msgspec.ValidationError(f"{problem} - at `$.spec.deviceSelector`")
        return DeviceTaintSelector(self.driver, self.pool, self.device)


class TaintRuleSpecV1alpha3(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a taint rule."""

    deviceSelector: TaintSelectorV1alpha3 | None = None
    taint: Taint = Taint()


class TaintRuleV1alpha3(msgspec.Struct, frozen=True, omit_defaults=True):
    """A taint rule as v1alpha3 spells it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: TaintRuleSpecV1alpha3 = TaintRuleSpecV1alpha3()

    def v1(self) -> DeviceTaintRule:
        """The same rule. Raises msgspec.ValidationError when v1 cannot say it."""
        selector = self.spec.deviceSelector
        chosen = None if selector is None else selector.v1()
        return DeviceTaintRule(self.metadata, DeviceTaintRuleSpec(chosen, self.spec.taint))
