"""Which claims a Pod uses, whether they may be used, and what state they are in.

Source: kube-scheduler 1.37, resource claim helpers and DynamicResources; texts are upstream's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from scheduler.api.core import Pod
from scheduler.api.resource import AllocatedDeviceStatus, ResourceClaim

ClaimLookup = Callable[[str, str], ResourceClaim | None]
"""(namespace, name) → the newest known claim, None without one."""


class ClaimError(ValueError):
    """The Pod cannot use its claims yet; the text is upstream's."""


def claim_names(pod: Pod) -> Iterator[tuple[str, bool]]:
    """(claim name, must be owned by the Pod) of each entry of spec.resourceClaims, in order.

    Entries whose status says that no claim is needed are left out. Raises ClaimError at the first bad entry.
    """
    generated = {status.name: status.resourceClaimName for status in pod.status.resourceClaimStatuses}
    for entry in pod.spec.resourceClaims:
        if entry.resourceClaimName is not None:
            yield entry.resourceClaimName, False
        elif entry.resourceClaimTemplateName is not None:
            if entry.name not in generated:
                raise ClaimError(f'pod "{pod.key}": ResourceClaim not created yet')
            name = generated[entry.name]
            if name is not None:
                yield name, True
        else:
            raise ClaimError(
                f'pod "{pod.key}", spec.resourceClaim "{entry.name}": none of the supported fields are set'
            )


def claims_by_entry(pod: Pod) -> dict[str, str]:
    """Name of each entry of spec.resourceClaims → name of its claim, for those that have one."""
    generated = {status.name: status.resourceClaimName for status in pod.status.resourceClaimStatuses}
    names = {entry.name: entry.resourceClaimName or generated.get(entry.name) for entry in pod.spec.resourceClaims}
    return {entry: name for entry, name in names.items() if name}


def resolve_claims(pod: Pod, lookup: ClaimLookup, groups: bool = False) -> list[ResourceClaim]:
    """The Pod's claims, in order. Raises ClaimError for the first that is missing, being deleted or not its own.

    ``groups``: a claim made from a template may also belong to the Pod's group (gate DRAWorkloadResourceClaims).
    """
    namespace = pod.metadata.namespace
    claims = []
    for name, owned in claim_names(pod):
        claim = lookup(namespace, name)
        if claim is None:
            raise ClaimError(f'could not find ResourceClaim "{namespace}/{name}"')
        if claim.metadata.deletionTimestamp is not None:
            raise ClaimError(f'resourceclaim "{name}" is being deleted')
        if owned:
            _check_owner(claim, pod, groups)
        claims.append(claim)
    return claims


def _check_owner(claim: ResourceClaim, pod: Pod, groups: bool) -> None:
    controller = claim.metadata.controller()
    if controller is not None and controller.uid == pod.uid:
        return
    group = "" if pod.spec.schedulingGroup is None else pod.spec.schedulingGroup.podGroupName or ""
    if not groups or not group:
        raise ClaimError(f"ResourceClaim {claim.key} was not created for Pod {pod.key} (Pod is not owner)")
    owned = controller is not None and (controller.kind, controller.name) == ("PodGroup", group)
    if controller is None or not owned or not controller.apiVersion.startswith("scheduling.k8s.io/"):
        why = f"neither Pod nor PodGroup {group} is the owner"
        raise ClaimError(f"ResourceClaim {claim.key} was not created for Pod {pod.key} ({why})")


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Whether any allocated device has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.bindingConditions for result in allocation.devices.results)


def binding_state(claim: ResourceClaim) -> tuple[bool, str]:
    """(ready, failure text) of a claim's binding conditions; neither means that they are still awaited.

    Entries of status.devices are matched by share as well when both sides carry a share id, where upstream would read
    another share's conditions.
    """
    allocation = claim.status.allocation
    if allocation is None:
        return False, ""
    ready = True
    for result in allocation.devices.results:
        if not result.bindingConditions:
            continue
        status = _device_status(claim, result.driver, result.pool, result.device, result.shareID)
        if status is None:
            ready = False
            continue
        for condition in status.conditions:
            if condition.type in result.bindingFailureConditions and condition.status == "True":
                return False, (
                    f"device binding failed: claim={claim.metadata.name}, reason={condition.reason}, "
                    f"message={quoted(condition.message)}"
                )
        met = {condition.type for condition in status.conditions if condition.status == "True"}
        ready = ready and all(name in met for name in result.bindingConditions)
    return ready, ""


def quoted(text: str) -> str:
    """``text`` in double quotes, as Go's %q prints plain text."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def _device_status(
    claim: ResourceClaim, driver: str, pool: str, device: str, share_id: str | None
) -> AllocatedDeviceStatus | None:
    for status in claim.status.devices:
        same = (status.driver, status.pool, status.device) == (driver, pool, device)
        if same and (share_id is None or status.shareID is None or status.shareID == share_id):
            return status
    return None


def binding_timed_out(claim: ResourceClaim, now_s: float, timeout_s: float) -> bool:
    """Whether a claim with binding conditions was allocated longer than ``timeout_s`` ago. ``now_s``: Unix time."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocationTimestamp is None or not has_binding_conditions(claim):
        return False
    allocated_s = parse_time(allocation.allocationTimestamp)
    return allocated_s is not None and allocated_s + timeout_s < now_s


def parse_time(text: str) -> float | None:
    """Unix time of an RFC 3339 text, None when it is none."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
