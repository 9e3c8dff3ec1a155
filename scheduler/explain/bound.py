"""What is wrong with a Pod that has its place: warnings, as facts of the cluster now."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler.api.core import Pod
from scheduler.api.resource import ResourceClaim
from scheduler.api.taints import NO_EXECUTE, first_untolerated
from scheduler.dra.devices import DeviceKey, PoolKey
from scheduler.explain.facts import Cause
from scheduler.state.cluster import ClusterState

DELETION, NODE, DEVICE_GONE, DEVICE_TAINT = "deletion", "node", "device gone", "device taint"
"""What a warning is about."""


def bound_warnings(state: ClusterState, pod: Pod) -> Iterator[Cause]:
    """One for each thing. Nodes and devices are missed only where any are known at all. Cost: its pools' devices."""
    if pod.metadata.deletionTimestamp is not None:
        yield Cause(DELETION, "the Pod is being deleted", {"deletionTimestamp": pod.metadata.deletionTimestamp})
    name = pod.spec.nodeName
    if len(state.nodes.order()) and state.nodes.row_of(name) is None:
        yield Cause(NODE, f"node {name} does not exist", {"node": name})
    special = state.devices.special_claim_of(pod.metadata.namespace, pod.uid)
    claims = {claim.key: claim for claim in (*state.devices.claims_of(pod), *([special] if special else []))}
    for claim in claims.values():
        yield from _of_devices(state, claim)


def _of_devices(state: ClusterState, claim: ResourceClaim) -> Iterator[Cause]:
    allocation = claim.status.allocation
    if allocation is None or not state.devices.slices.infos():
        return
    for result in allocation.devices.results:
        slices = state.devices.slices.pool(PoolKey(result.driver, result.pool))
        # As in the inventory: a device that only an older generation has may still come with the new one.
        device = next((one for info in slices for one in info.devices if one.key.device == result.device), None)
        what = f"device {DeviceKey(result.driver, result.pool, result.device)} of claim {claim.key}"
        facts = {"claim": claim.key, "driver": result.driver, "pool": result.pool, "device": result.device}
        if device is None:
            yield Cause(DEVICE_GONE, f"{what} is not published any more", facts)
            continue
        taint = first_untolerated(device.taints, result.tolerations, (NO_EXECUTE,))
        if taint is not None:
            words = f"{taint.key}={taint.value}:{taint.effect}"
            text = f"{what} is tainted {words}, which its request does not tolerate: the Pod is to be evicted"
            yield Cause(DEVICE_TAINT, text, {**facts, "taint": words})
