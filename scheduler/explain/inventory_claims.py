"""The inventory's look at claims: uses, leaks, long waits, devices that are gone or tainted."""

from __future__ import annotations

from collections.abc import Generator, Mapping

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import AllocationResult, ResourceClaim
from scheduler.api.taints import first_untolerated
from scheduler.dra.amounts import amount_text, nano
from scheduler.dra.claims import parse_time
from scheduler.dra.devices import DeviceInfo, DeviceKey
from scheduler.explain.holders import duration
from scheduler.explain.inventory_facts import ClaimNote, Inventory
from scheduler.state.cluster import ClusterState

LONG_WAIT_S = 300.0
CLAIMS_PER_STEP = 500


def note_claims(
    found: Inventory, state: ClusterState, published: Mapping[DeviceKey, DeviceInfo], now: float, pods_known: bool
) -> Generator[None, None, None]:
    """Fill in everything about claims, sorted by name. ``published``: devices of all slices, old ones too."""
    taken: dict[str, dict[str, int]] = {}
    for number, claim in enumerate(sorted(state.devices.claims.values(), key=lambda one: one.key), 1):
        if number % CLAIMS_PER_STEP == 0:
            yield
        allocation = claim.status.allocation
        if allocation is None:
            _note_waiting(found, claim, now)
            continue
        _add_use(found, claim.metadata.namespace, allocation, taken)
        _note_devices(found, state, claim, allocation, published)
        pods = [user for user in claim.consumers if user.resource == "pods" and not user.apiGroup]
        gone = [user.name for user in pods if user.uid not in state.pods]
        if pods_known and gone and len(gone) == len(claim.consumers):
            shown = [str(DeviceKey(r.driver, r.pool, r.device)) for r in allocation.devices.results]
            found.leaked.append(_note(claim, f"reserved for {', '.join(gone)}, which does not run", shown))
    found.shares = {
        namespace: {name: amount_text(amount) for name, amount in sorted(amounts.items())}
        for namespace, amounts in sorted(taken.items())
    }


def _note(claim: ResourceClaim, because: str, devices: list[str], age_s: float | None = None) -> ClaimNote:
    return ClaimNote(claim.key, because, devices, age_s)


def _add_use(found: Inventory, namespace: str, allocation: AllocationResult, taken: dict[str, dict[str, int]]) -> None:
    """Devices by driver, and what is taken of shared ones; admin access takes nothing."""
    usage = found.namespaces.setdefault(namespace, {})
    for result in allocation.devices.results:
        if result.adminAccess:
            continue
        usage[result.driver] = usage.get(result.driver, 0) + 1
        for name, text in (result.consumedCapacity or {}).items():
            try:
                amount = nano(parse_quantity(text))
            except QuantityError:
                continue
            amounts = taken.setdefault(namespace, {})
            key = f"{result.driver}/{name}"
            amounts[key] = amounts.get(key, 0) + amount


def _note_devices(
    found: Inventory,
    state: ClusterState,
    claim: ResourceClaim,
    allocation: AllocationResult,
    published: Mapping[DeviceKey, DeviceInfo],
) -> None:
    taints: dict[str, str] = {}
    lost: list[str] = []
    for result in allocation.devices.results:
        key = DeviceKey(result.driver, result.pool, result.device)
        device = published.get(key)
        taint = None if device is None else first_untolerated(device.taints, result.tolerations)
        if device is None:
            lost.append(str(key))
        elif taint is not None:
            taints[str(key)] = f"{taint.key}={taint.value}:{taint.effect}"
    if lost:
        found.lost.append(_note(claim, "no driver publishes what it holds", lost))
    if taints:
        users = [state.pods[user.uid].key for user in claim.consumers if user.uid in state.pods]
        who = f"used by pod {', '.join(users)}" if users else "used by no Pod"
        found.on_tainted.append(_note(claim, f"tainted {', '.join(sorted(set(taints.values())))}; {who}", list(taints)))


def _note_waiting(found: Inventory, claim: ResourceClaim, now: float) -> None:
    created = parse_time(claim.metadata.creationTimestamp) if claim.metadata.creationTimestamp else None
    if created is not None and now - created >= LONG_WAIT_S:
        age_s = now - created
        found.waiting.append(_note(claim, f"without devices for {duration(age_s)}", [], round(age_s, 1)))
