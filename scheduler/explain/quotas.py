"""ResourceQuotas and the claims they refuse: what a namespace may ask for, and what it has asked for already.

Source: kube-apiserver 1.37, quota evaluator for ResourceClaims. Quotas count requests, not results: mode All counts as
the most that a claim may get, alternatives as the worst of them per class. Quotas with scopes do not speak of claims.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from scheduler.api.quantity import Quantity, QuantityError, parse_quantity
from scheduler.api.resource import ALL, EXACT_COUNT, RESULTS_MAX, DeviceSubRequest, ExactDeviceRequest, ResourceClaim

QUOTA = "ResourceQuota"
CLAIM_COUNT = "count/resourceclaims.resource.k8s.io"
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/"
REQUESTS = "requests."

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


@dataclass(frozen=True, slots=True)
class _Limit:
    """``elsewhere``: use that the claims we know do not explain."""

    quota: str
    resource: str
    limit: int
    elsewhere: int


def claim_usage(claim: ResourceClaim, extended: Mapping[str, str]) -> dict[str, int]:
    """What a claim counts against quotas. ``extended``: class → name of its extended resource, where it has one.

    Of a claim made for a Pod's extended resources upstream takes off what the Pod itself counts; that is left out here.
    """
    usage = {CLAIM_COUNT: 1}
    for request in claim.spec.devices.requests:
        worst: dict[str, int] = {}
        parts = request.firstAvailable or ([request.exactly] if request.exactly is not None else [])
        for part in parts:
            worst[part.deviceClassName] = max(worst.get(part.deviceClassName, 0), _devices(part))
        for name, count in worst.items():
            resources = [name + DEVICES_OF_CLASS, IMPLICIT + name]
            if name in extended:
                resources.append(REQUESTS + extended[name])
            for resource in resources:
                usage[resource] = usage.get(resource, 0) + count
    return usage


def _devices(part: ExactDeviceRequest | DeviceSubRequest) -> int:
    if part.allocationMode == ALL:
        return RESULTS_MAX
    return part.count if part.allocationMode == EXACT_COUNT else 0


class Quotas:
    """The quotas of a cluster, as the API server writes them. ``claims``: those that are there.

    What a status counts beyond these claims, because the input leaves some out, counts on. Limits that cannot be read
    limit nothing. ``extended`` as in ``claim_usage``.
    """

    def __init__(self, quotas: Iterable[Json], claims: Iterable[ResourceClaim], extended: Mapping[str, str]) -> None:
        self._extended = dict(extended)
        self._usages: dict[str, dict[str, int]] = {}
        self._limits: dict[str, list[_Limit]] = {}
        present = self._used(claims)
        for quota in quotas:
            status = _part(quota, "status")
            counted = dict(_amounts(_part(status, "used"), up=True))
            namespace, key = _names(quota)
            elsewhere = {name: max(0, used - present.get((namespace, name), 0)) for name, used in counted.items()}
            self._put(namespace, key, quota, _part(status, "hard") or _hard(quota), elsewhere)

    def __bool__(self) -> bool:
        """Whether anything limits claims."""
        return bool(self._limits)

    def put(self, quota: Json) -> None:
        """One more, as a manifest says it, or other limits of one that is there; a status is the API server's."""
        namespace, key = _names(quota)
        elsewhere = {one.resource: one.elsewhere for one in self._limits.get(namespace, []) if one.quota == key}
        self._put(namespace, key, quota, _hard(quota), elsewhere)

    def _put(self, namespace: str, key: str, quota: Json, hard: Json, elsewhere: Mapping[str, int]) -> None:
        entries = [entry for entry in self._limits.pop(namespace, []) if entry.quota != key]
        spec = _part(quota, "spec")
        limits = {} if spec.get("scopes") or spec.get("scopeSelector") else dict(_amounts(hard, up=False))
        if any(self._speaks_of_claims(resource) for resource in limits):
            entries += [_Limit(key, name, limit, elsewhere.get(name, 0)) for name, limit in limits.items()]
        if entries:
            self._limits[namespace] = entries

    def _speaks_of_claims(self, resource: str) -> bool:
        if resource.startswith(IMPLICIT):
            return resource.removeprefix(IMPLICIT) in self._extended
        if resource.startswith(REQUESTS):
            return resource.removeprefix(REQUESTS) in self._extended.values()
        return resource == CLAIM_COUNT or resource.endswith(DEVICES_OF_CLASS)

    def refusals(self, claim: ResourceClaim, claims: Iterable[ResourceClaim]) -> list[OverQuota]:
        """The limits that ``claim`` would exceed beside ``claims``. Cost: O(claims) where its namespace has limits."""
        namespace = claim.metadata.namespace
        limits = self._limits.get(namespace)
        if not limits:
            return []
        asked = claim_usage(claim, self._extended)
        used = self._used(one for one in claims if one.metadata.namespace == namespace)
        found = []
        for one in limits:
            count, before = asked.get(one.resource, 0), one.elsewhere + used.get((namespace, one.resource), 0)
            if count and before + count > one.limit:
                found.append(OverQuota(one.quota, one.resource, count, before, one.limit))
        return found

    def _used(self, claims: Iterable[ResourceClaim]) -> dict[tuple[str, str], int]:
        used: dict[tuple[str, str], int] = {}
        for claim in claims:
            usage = self._usages.get(claim.uid)  # what a claim asks for never changes
            if usage is None:
                usage = self._usages[claim.uid] = claim_usage(claim, self._extended)
            for resource, count in usage.items():
                key = claim.metadata.namespace, resource
                used[key] = used.get(key, 0) + count
        return used


def other_limits(quota: Json) -> list[str]:
    """What a quota limits beside claims."""
    claims = (CLAIM_COUNT, DEVICES_OF_CLASS)
    return [name for name in _hard(quota) if not name.endswith(claims) and not name.startswith(IMPLICIT)]


def _names(quota: Json) -> tuple[str, str]:
    metadata = _part(quota, "metadata")
    namespace = str(metadata.get("namespace") or "default")
    return namespace, f"{namespace}/{metadata.get('name')}"


def _hard(quota: Json) -> Json:
    return _part(_part(quota, "spec"), "hard")


def _part(item: Json, name: str) -> Json:
    found = item.get(name)
    return found if isinstance(found, dict) else {}


def _amounts(texts: Json, *, up: bool) -> Iterator[tuple[str, int]]:
    """Whole numbers: ``up`` rounds use up, else limits are rounded down."""
    for name, text in texts.items():
        try:
            amount: Quantity = parse_quantity(text)
            yield name, amount.value() if up else amount.milli_value() // 1000
        except (QuantityError, TypeError, AttributeError):
            continue
