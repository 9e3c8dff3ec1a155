"""Which waiting Pods would fit: counted by hand over the objects, so that no code of the scheduler judges itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from e2e.api import CLAIMS, PODS, Api, Object
from e2e.chaos.load import BIG, GPU, GPUS, KINDS, NODE_COUNT, NS, OURS, PART, PARTITIONS, SHARES

_ROOM = {GPU: GPUS, BIG: SHARES, PART: PARTITIONS // 2}
"""Devices, shares and partitions of a node that can be given at the same time."""


def free_room(claims: Iterable[Object]) -> dict[str, Counter[str]]:
    """Node -> class -> how many more can be given there. Pools are named like their nodes."""
    free = {f"node-{index}": Counter(_ROOM) for index in range(NODE_COUNT)}
    for item in claims:
        allocation = (item.get("status") or {}).get("allocation") or {}
        for result in allocation.get("devices", {}).get("results") or ():
            free[result["pool"]][result["driver"]] -= 1
    return free


def fits(pod: Object, claims: Mapping[str, Object], free: Mapping[str, Counter[str]]) -> bool:
    """Whether one node has what the Pod asks for; a claim that is allocated already fits where it is."""
    kind = (pod["metadata"].get("labels") or {}).get("kind")
    if kind is None:
        named = claims.get(pod["spec"]["resourceClaims"][0]["resourceClaimName"])
        if named is None or named["metadata"].get("deletionTimestamp"):
            return False
        return bool((named.get("status") or {}).get("allocation")) or any(room[GPU] > 0 for room in free.values())
    own = [claims[s["resourceClaimName"]] for s in pod["status"].get("resourceClaimStatuses") or ()]
    if any(item["metadata"].get("deletionTimestamp") for item in own):
        return False
    held = [r for item in own for r in _results(item)]
    for node, room in free.items():
        if any(result["pool"] != node for result in held):
            continue
        wanted = set(KINDS[kind]) - {result["driver"] for result in held}
        if all(room[name] > 0 for name in wanted):
            return True
    return False


def _results(item: Object) -> list[Object]:
    allocation = (item.get("status") or {}).get("allocation") or {}
    results: list[Object] = allocation.get("devices", {}).get("results") or []
    return results


async def waiting(api: Api) -> tuple[list[str], list[str]]:
    """Pods of ours that wait although they fit, and those that wait in right."""
    claims = await api.list(CLAIMS, NS)
    by_name = {item["metadata"]["name"]: item for item in claims}
    free = free_room(claims)
    wrong: list[str] = []
    right: list[str] = []
    for item in await api.list(PODS, NS):
        spec, meta = item["spec"], item["metadata"]
        if spec["schedulerName"] != OURS or spec.get("nodeName") or meta.get("deletionTimestamp"):
            continue
        try:
            (wrong if fits(item, by_name, free) else right).append(meta["name"])
        except KeyError:
            wrong.append(meta["name"])  # its claim was made after the claims were listed
    return wrong, right
