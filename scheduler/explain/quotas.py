"""ResourceQuotas and the claims they refuse: what a namespace may ask for, and what it has asked for already.

Source: kube-apiserver 1.37, quota evaluator for ResourceClaims. Quotas count requests, not results: mode All counts as
the most that a claim may get, alternatives as the worst of them per class.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.api.resource import ALL, EXACT_COUNT, RESULTS_MAX, DeviceSubRequest, ExactDeviceRequest, ResourceClaim

QUOTA = "ResourceQuota"
CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class OverQuota:
    """One limit of the quota ``namespace/name`` that a claim would exceed."""

    quota: str
    resource: str
    asked: int
    used: int
    limit: int

    def words(self) -> str:
        """One line for people."""
        return f"ResourceQuota {self.quota}: {self.resource}: {self.asked} asked, {self.used} of {self.limit} used"

    def facts(self) -> dict[str, str]:
        """The same as data."""
        numbers = {"asked": str(self.asked), "used": str(self.used), "limit": str(self.limit)}
        return {"quota": self.quota, "resource": self.resource, **numbers}


def claim_usage(claim: ResourceClaim) -> dict[str, int]:
    """What a claim counts against quotas."""
    usage = {CLAIM_COUNT: 1}
    for request in claim.spec.devices.requests:
        worst: dict[str, int] = {}
        parts = request.firstAvailable or ([request.exactly] if request.exactly is not None else [])
        for part in parts:
            name = part.deviceClassName + DEVICES_OF_CLASS
            worst[name] = max(worst.get(name, 0), _devices(part))
        for name, count in worst.items():
            usage[name] = usage.get(name, 0) + count
    return usage


def _devices(part: ExactDeviceRequest | DeviceSubRequest) -> int:
    if part.allocationMode == ALL:
        return RESULTS_MAX
    return part.count if part.allocationMode == EXACT_COUNT else 0


class Quotas:
    """The quotas of a cluster, as the API server writes them. ``claims``: those that are there.

    What their status counts beyond these claims, some other input left out, counts on. Limits that cannot be read
    limit nothing.
    """

    def __init__(self, quotas: Iterable[Json], claims: Iterable[ResourceClaim]) -> None:
        self._limits: dict[str, list[tuple[str, str, int, int]]] = {}
        present = _used(claims)
        for quota in quotas:
            self._put(quota, present)

    def put(self, quota: Json, claims: Iterable[ResourceClaim]) -> None:
        """One more, or another one of the same name."""
        self._put(quota, _used(claims))

    def _put(self, quota: Json, present: Mapping[tuple[str, str], int]) -> None:
        metadata, status = _part(quota, "metadata"), _part(quota, "status")
        namespace = str(metadata.get("namespace") or "default")
        key = f"{namespace}/{metadata.get('name')}"
        limits = _amounts(_part(status, "hard") or _part(_part(quota, "spec"), "hard"))
        used = _amounts(_part(status, "used"))
        entries = [entry for entry in self._limits.pop(namespace, []) if entry[0] != key]
        for resource, limit in limits.items():
            if resource == CLAIM_COUNT or resource.endswith(DEVICES_OF_CLASS):
                elsewhere = max(0, used.get(resource, 0) - present.get((namespace, resource), 0))
                entries.append((key, resource, limit, elsewhere))
        if entries:
            self._limits[namespace] = entries

    def __bool__(self) -> bool:
        """Whether anything limits claims."""
        return bool(self._limits)

    def refusals(self, claim: ResourceClaim, claims: Iterable[ResourceClaim]) -> list[OverQuota]:
        """The limits that ``claim`` would exceed beside ``claims``. Cost: O(claims) where its namespace has limits."""
        namespace = claim.metadata.namespace
        limits = self._limits.get(namespace)
        if not limits:
            return []
        asked, used = claim_usage(claim), _used(one for one in claims if one.metadata.namespace == namespace)
        found = []
        for quota, resource, limit, elsewhere in limits:
            count, before = asked.get(resource, 0), elsewhere + used.get((namespace, resource), 0)
            if count and before + count > limit:
                found.append(OverQuota(quota, resource, count, before, limit))
        return found


def _used(claims: Iterable[ResourceClaim]) -> dict[tuple[str, str], int]:
    used: dict[tuple[str, str], int] = {}
    for claim in claims:
        for resource, count in claim_usage(claim).items():
            key = claim.metadata.namespace, resource
            used[key] = used.get(key, 0) + count
    return used


def _part(item: Json, name: str) -> Json:
    found = item.get(name)
    return found if isinstance(found, dict) else {}


def _amounts(texts: Json) -> dict[str, int]:
    return dict(_readable(texts))


def _readable(texts: Json) -> Iterator[tuple[str, int]]:
    for name, text in texts.items():
        try:
            yield name, parse_quantity(text).value()
        except (QuantityError, TypeError, AttributeError):
            continue
