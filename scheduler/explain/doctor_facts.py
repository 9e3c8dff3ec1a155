"""What the doctor looks at, and the form of what it finds. The checks are in doctor_devices and doctor_claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from scheduler.api.core import Pod
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.resource import ConsumerReference, ResourceClaim, ResourceSlice
from scheduler.dra.claims import claims_by_entry, parse_time
from scheduler.dra.devices import DeviceInfo, DeviceKey, PoolKey, SliceInfo
from scheduler.dra.ledger import Ledger
from scheduler.dra.limits import DeviceLimit

SEVERITIES = ("error", "warning", "note")
"""error: somebody's work is wrong or stuck now; warning: it will be, or devices idle; note: worth knowing."""

SOON_S, TIDY_S = 5.0, 20.0
SETTLE_S: Mapping[str, float] = {
    "device-held-twice": SOON_S,
    "capacity-exceeded": SOON_S,
    "counters-exceeded": SOON_S,
    "device-gone": SOON_S,
    "pod-without-claim": SOON_S,
    "deletion-stuck": TIDY_S,
    "reserved-for-nobody": TIDY_S,
    "allocated-unreserved": TIDY_S,
    "foreign-finalizer": 0.0,
    "schedulers-overlap": 0.0,
}
"""Check → seconds for which a finding must stay true before it is told. LISTs of several kinds are not one moment, and
what kube-controller-manager tidies up by itself is not worth a word while it does (TIDY_S)."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One write that heals: a merge patch of a claim, bound to the uid and resourceVersion that were looked at.

    ``subresource``: "status" or "". ``body``: the JSON text of the patch. ``does``: what it does, in words.
    ``nobody``: the consumers that it takes the claim from; none of them may live. ``frees``: it lets go of the devices
    or of the claim itself, so that no Pod on a node may name the claim either.
    """

    namespace: str
    name: str
    uid: str
    version: str
    subresource: str
    body: str
    does: str
    nobody: tuple[ConsumerReference, ...] = ()
    frees: bool = False


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """``check``: one of SETTLE_S; ``subject``: ``Kind namespace/name``, or a device; ``what``: the facts; ``means``:
    what comes of it; ``commands``: shell commands that heal it, in order, as they stand; ``advice``: what to do where
    no command can (or what to think of before). ``repair``: set when it may be healed without asking anybody.
    ``identity``: equal in two looks when it is the same damage to the same objects.
    """

    severity: str
    check: str
    subject: str
    what: str
    means: str
    commands: tuple[str, ...] = ()
    advice: str = ""
    repair: Repair | None = None
    identity: tuple[str, ...] = ()


@dataclass(slots=True)
class Diagnosis:
    """Findings, worst first. ``checked``: objects by kind; ``caveats``: what was not judged."""

    findings: list[DoctorFinding] = field(default_factory=list)
    checked: dict[str, int] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)

    @property
    def troubled(self) -> bool:
        """Whether there is more than notes."""
        return any(finding.severity != "note" for finding in self.findings)


class Look:
    """One look at a cluster: claims, Pods by uid, slices by pool, and a ledger of all holds.

    ``groups`` (uids of PodGroups) is None when they are not known; ``ours``: schedulerNames of this
    scheduler with the device limit of each. Without ``pods_known`` or ``slices_known`` nobody is gone, and no device.
    ``unread``: kind → namespaces that have objects of it which could not be read, "" when it is not known which: who
    is missing there may be one of them. Cost: O(objects).
    """

    def __init__(
        self,
        claims: Iterable[ResourceClaim],
        pods: Iterable[Pod],
        slices: Iterable[ResourceSlice],
        groups: Iterable[str] | None = None,
        ours: Mapping[str, DeviceLimit] | None = None,
        *,
        pods_known: bool = True,
        slices_known: bool = True,
        unread: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        self.pods_known, self.slices_known = pods_known, slices_known
        self._unread = dict(unread or {})
        self.claims = sorted(claims, key=lambda claim: claim.key)
        self.by_key = {claim.key: claim for claim in self.claims}
        self.by_uid = {claim.uid: claim for claim in self.claims}
        self.pods = {pod.uid: pod for pod in pods}
        self.groups = None if groups is None else frozenset(groups)
        self.ours = dict(ours or {})
        self.pools: dict[PoolKey, list[SliceInfo]] = {}
        for one in slices:
            info = SliceInfo(one)
            self.pools.setdefault(info.key, []).append(info)
        self.ledger = Ledger()
        for claim in self.claims:
            self.ledger.set_claim(claim)
        self.users = self._users()

    def _users(self) -> dict[str, list[Pod]]:
        """Claim key → living Pods that name it, whether it is reserved for them or not."""
        users: dict[str, list[Pod]] = {}
        for pod in self.pods.values():
            if not pod.terminal:
                for name in claims_of(pod):
                    users.setdefault(f"{pod.metadata.namespace}/{name}", []).append(pod)
        return users

    def consumer_state(self, consumer: ConsumerReference) -> str:
        """``alive``, ``gone``, ``ended``, or ``unknown`` for a kind that cannot be looked up."""
        if is_pod(consumer):
            pod = self.pods.get(consumer.uid)
            if pod is None:
                return "gone" if self.pods_known else "unknown"
            return "ended" if pod.terminal else "alive"
        if is_group(consumer) and self.groups is not None:
            return "alive" if consumer.uid in self.groups else "gone"
        return "unknown"

    def unread(self, kind: str, namespace: str) -> bool:
        """Whether an object of the kind that may be in the namespace could not be read."""
        return not {"", namespace}.isdisjoint(self._unread.get(kind, ()))

    def unsure(self, claim: ResourceClaim) -> str:
        """Why it is not known whether the claim is used although nobody is seen to; "" when it is known.

        Then nothing may be taken from it: a Pod that could not be read runs all the same.
        """
        namespace = claim.metadata.namespace
        if not self.pods_known:
            return "the Pods are not known"
        if self.unread("Pod", namespace):
            return "a Pod that may use it could not be read"
        gone = any(is_group(one) and self.consumer_state(one) == "gone" for one in claim.consumers)
        if gone and self.unread("PodGroup", namespace):
            return "a PodGroup that may be the one it is reserved for could not be read"
        return ""

    def in_use(self, claim: ResourceClaim) -> bool:
        """Whether anybody who lives, or of whom nothing is known, may use the claim's devices now."""
        reserved = any(self.consumer_state(consumer) in ("alive", "unknown") for consumer in claim.consumers)
        return reserved or any(pod.spec.nodeName for pod in self.users.get(claim.key, ()))

    def pods_of(self, claim: ResourceClaim) -> list[Pod]:
        """Living Pods that the claim is reserved for, by name."""
        pods = (self.pods.get(consumer.uid) for consumer in claim.consumers)
        return sorted((pod for pod in pods if pod is not None and not pod.terminal), key=lambda pod: pod.key)

    def current(self, pool: PoolKey) -> tuple[list[SliceInfo], bool]:
        """The slices of a pool's newest generation, and whether all of them are there."""
        slices = self.pools.get(pool, [])
        newest = max((info.generation for info in slices), default=0)
        current = [info for info in slices if info.generation == newest]
        return current, bool(current) and len(current) == current[0].slice_count

    def device(self, key: DeviceKey) -> DeviceInfo | None:
        """The device in the newest generation that has it; None when it is not published any more.

        While a driver writes a new generation, older slices still speak for devices that have not come yet.
        """
        pool = PoolKey(key.driver, key.pool)
        current, complete = self.current(pool)
        slices = current if complete else sorted(self.pools.get(pool, []), key=lambda info: -info.generation)
        return next((one for info in slices for one in info.devices if one.key == key), None)

    def unreadable(self, pool: PoolKey) -> bool:
        """Whether a slice of the pool could not be read as a whole: then nothing is said about its devices."""
        return any(info.problem for info in self.pools.get(pool, []))

    def by_age(self, uids: Iterable[str]) -> list[ResourceClaim]:
        """Claims, the one that was allocated first in front; those without a time last."""
        claims = [self.by_uid[uid] for uid in set(uids) if uid in self.by_uid]
        return sorted(claims, key=lambda claim: (allocated_at(claim), claim.key))


def is_group(consumer: ConsumerReference) -> bool:
    """Whether it is a PodGroup of Kubernetes' own; other projects have some of the same name."""
    return consumer.resource == POD_GROUP.plural and consumer.apiGroup == POD_GROUP.group


def is_pod(consumer: ConsumerReference) -> bool:
    """Whether it is a Pod."""
    return consumer.resource == "pods" and not consumer.apiGroup


def claims_of(pod: Pod) -> list[str]:
    """Names of the claims a Pod uses, the one for its extended resources included."""
    names = list(claims_by_entry(pod).values())
    special = pod.status.extendedResourceClaimStatus
    return [*names, special.resourceClaimName] if special is not None and special.resourceClaimName else names


def allocated_at(claim: ResourceClaim) -> float:
    """Unix seconds of the claim's allocation; infinity when it does not say."""
    allocation = claim.status.allocation
    text = allocation.allocationTimestamp if allocation is not None else None
    then = parse_time(text) if text else None
    return float("inf") if then is None else then
