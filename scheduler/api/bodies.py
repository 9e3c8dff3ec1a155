"""Request bodies: everything we send to the API server, as JSON bytes.

Patches carry ``metadata.uid`` (a recreated object is never hit) and, where a list is replaced, also
``metadata.resourceVersion``. Merge patches replace whole lists, so lists we extend are built from the object of that
very resourceVersion, entries we do not model included.
Source: kube-scheduler 1.37, DefaultBinder and DynamicResources; the API conventions for patches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.kinds import Kind
from scheduler.api.meta import Condition
from scheduler.api.resource import FINALIZER, AllocationResult, ConsumerReference, ResourceClaim
from scheduler.api.versions import claim_spec

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"

_encode = msgspec.json.encode


def binding_body(pod: Pod, node_name: str) -> bytes:
    """The Binding of ``pod`` to ``node_name``; the uid makes the server refuse a Pod that was recreated."""
    return _encode(
        {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.metadata.namespace, "name": pod.metadata.name, "uid": pod.metadata.uid},
            "target": {"kind": "Node", "name": node_name},
        }
    )


def _precondition(claim: ResourceClaim) -> dict[str, Any]:
    return {"uid": claim.metadata.uid, "resourceVersion": claim.metadata.resourceVersion}


def claim_finalizer_patch(claim: ResourceClaim) -> bytes:
    """Merge patch of the claim: its finalizers plus the one that keeps an allocated claim from vanishing."""
    finalizers = [*claim.metadata.finalizers, FINALIZER]
    return _encode({"metadata": {**_precondition(claim), "finalizers": finalizers}})


def claim_release_patch(claim: ResourceClaim) -> bytes:
    """Merge patch of the claim: its finalizers without ours."""
    finalizers = [finalizer for finalizer in claim.metadata.finalizers if finalizer != FINALIZER]
    return _encode({"metadata": {**_precondition(claim), "finalizers": finalizers}})


def claim_body(kind: Kind, claim: ResourceClaim, name: str) -> bytes:
    """A claim to create: metadata and spec of ``claim`` under ``name``."""
    meta = claim.metadata
    metadata = {
        "name": name,
        "generateName": meta.name,
        "namespace": meta.namespace,
        "annotations": meta.annotations,
        "ownerReferences": meta.ownerReferences,
    }
    spec = claim_spec(kind, claim.spec)
    return _encode({"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, "spec": spec})


def delete_options(uid: str) -> bytes:
    """The body of a DELETE that hits only the object with this uid."""
    return _encode({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}})


def claim_allocation_patch(
    claim: ResourceClaim, allocation: AllocationResult | None, consumers: Sequence[ConsumerReference]
) -> tuple[bytes, str]:
    """Patch of the claim's status and its content type: ``allocation`` (None: leave the present one), more consumers.

    The caller has set ``allocation.allocationTimestamp``; entries of reservedFor stay byte for byte. Usually a merge
    patch; but the server takes nulls out of those, inside lists too, so driver parameters that hold a null go as a
    JSON patch, which leaves values alone.
    """
    status: dict[str, Any] = {"reservedFor": [*claim.status.reservedFor, *consumers]}
    if allocation is not None:
        status["allocation"] = allocation
    if allocation is not None and _holds_null(allocation):
        replaced = [
            {"op": "replace", "path": f"/metadata/{key}", "value": value} for key, value in _precondition(claim).items()
        ]
        added = [{"op": "add", "path": f"/status/{key}", "value": value} for key, value in status.items()]
        return _encode([*replaced, *added]), JSON_PATCH
    return _encode({"metadata": _precondition(claim), "status": status}), MERGE_PATCH


def _holds_null(allocation: AllocationResult) -> bool:
    """True when driver parameters may hold a null (a string that spells it counts too: either patch is right then)."""
    return any(
        entry.opaque is not None and b"null" in bytes(entry.opaque.parameters) for entry in allocation.devices.config
    )


def claim_unreserve_patch(claim: ResourceClaim, pod_uid: str) -> bytes:
    """Merge patch of the claim's status: reservedFor without the consumer of that uid, other entries byte for byte.

    Not a strategic merge patch as upstream's: the server decodes the whole object for one and so may spell numbers in
    driver parameters anew (1.50 becomes 1.5), which it then refuses as a change of the immutable allocation.
    """
    entries = zip(claim.status.reservedFor, claim.consumers, strict=True)
    left = [raw for raw, consumer in entries if consumer.uid != pod_uid]
    return _encode({"metadata": _precondition(claim), "status": {"reservedFor": left or None}})


def claim_deallocation_patch(claim: ResourceClaim) -> bytes:
    """Merge patch of the claim's status that clears allocation, reservations and the devices' status."""
    return _encode(
        {"metadata": _precondition(claim), "status": {"allocation": None, "reservedFor": None, "devices": None}}
    )


def pod_condition_patch(
    pod: Pod,
    reason: str,
    message: str,
    transition_time: str | None,
    nominated_node_name: str | None = None,
) -> bytes:
    """Strategic merge patch of the Pod's status: PodScheduled=False with ``reason`` and ``message``.

    ``transition_time`` (RFC 3339) is given only when the condition's status changes. ``nominated_node_name``: None
    leaves it, "" clears it.
    """
    condition: dict[str, Any] = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    if transition_time is not None:
        condition["lastTransitionTime"] = transition_time
    status: dict[str, Any] = {"conditions": [condition]}
    if nominated_node_name is not None:
        status["nominatedNodeName"] = nominated_node_name or None
    return _encode({"metadata": {"uid": pod.metadata.uid}, "status": status})


def pod_disruption_patch(pod: Pod, reason: str, message: str, transition_time: str) -> bytes | None:
    """Strategic merge patch of the Pod's status: DisruptionTarget=True; None when ``pod`` says just that already."""
    condition: dict[str, Any] = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    present = next((entry for entry in pod.status.conditions if entry.type == "DisruptionTarget"), None)
    if present is not None and present.status == "True":
        if (present.reason, present.message) == (reason, message):
            return None
    else:
        condition["lastTransitionTime"] = transition_time
    if pod.metadata.generation:
        condition["observedGeneration"] = pod.metadata.generation
    return _encode({"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}})


def pod_group_condition_patch(uid: str, condition: Condition) -> bytes:
    """Strategic merge patch of a PodGroup's status: one whole condition, its transition time included."""
    entry: dict[str, Any] = {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,  # also when empty: an older one would stay
        "lastTransitionTime": condition.lastTransitionTime,
    }
    if condition.observedGeneration is not None:
        entry["observedGeneration"] = condition.observedGeneration
    return _encode({"metadata": {"uid": uid}, "status": {"conditions": [entry]}})


def pod_nomination_patch(pod: Pod, node_name: str) -> bytes:
    """Strategic merge patch of the Pod's status: nominatedNodeName alone; "" clears it."""
    return _encode({"metadata": {"uid": pod.metadata.uid}, "status": {"nominatedNodeName": node_name or None}})


def pod_status_patch(pod: Pod, status: Mapping[str, object]) -> bytes:
    """Merge patch of the Pod's status with these fields; lists are replaced."""
    return _encode({"metadata": {"uid": pod.metadata.uid}, "status": status})


class ObjectReference(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an Event is about."""

    kind: str = ""
    apiVersion: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resourceVersion: str = ""


def pod_reference(pod: Pod) -> ObjectReference:
    """The reference of ``pod`` in an Event."""
    meta = pod.metadata
    return ObjectReference("Pod", "v1", meta.namespace, meta.name, meta.uid, meta.resourceVersion)


def claim_reference(claim: ResourceClaim) -> ObjectReference:
    """The reference of ``claim`` in an Event."""
    meta = claim.metadata
    return ObjectReference(
        "ResourceClaim", "resource.k8s.io/v1", meta.namespace, meta.name, meta.uid, meta.resourceVersion
    )


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an events.k8s.io/v1 Event says; names and times are added when it is written."""

    type: str
    reason: str
    action: str
    note: str
    regarding: ObjectReference
    reportingController: str
    reportingInstance: str
    related: ObjectReference | None = None


def event_body(event: Event, name: str, namespace: str, event_time: str) -> bytes:
    """An events.k8s.io/v1 Event to create. ``event_time`` is a MicroTime in UTC."""
    body: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "eventTime": event_time,
        "reportingController": event.reportingController,
        "reportingInstance": event.reportingInstance,
        "action": event.action,
        "reason": event.reason,
        "regarding": event.regarding,
        "note": event.note,
        "type": event.type,
    }
    if event.related is not None:
        body["related"] = event.related
    return _encode(body)


def event_series_patch(count: int, last_observed: str) -> bytes:
    """Merge patch that turns an Event into a series seen ``count`` times (at least 2), last at ``last_observed``."""
    return _encode({"series": {"count": count, "lastObservedTime": last_observed}})


class LeaseSpec(msgspec.Struct, frozen=True, omit_defaults=True):
    """spec of a coordination.k8s.io/v1 Lease. Times are MicroTime in UTC, the duration is in seconds."""

    holderIdentity: str = ""
    leaseDurationSeconds: int = 0
    acquireTime: str | None = None
    renewTime: str | None = None
    leaseTransitions: int = 0


class LeaseMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """Name and version of a Lease."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resourceVersion: str = ""


class Lease(msgspec.Struct, frozen=True, omit_defaults=True):
    """A Lease as far as election needs it."""

    metadata: LeaseMeta = LeaseMeta()
    spec: LeaseSpec = LeaseSpec()


_LEASE = msgspec.json.Decoder(Lease)


def decode_lease(body: bytes) -> Lease:
    """A Lease from its JSON. Raises msgspec.DecodeError."""
    return _LEASE.decode(body)


def lease_body(namespace: str, name: str, spec: LeaseSpec) -> bytes:
    """A Lease to create."""
    return _encode(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": name},
            "spec": spec,
        }
    )


def lease_patch(lease: Lease, spec: LeaseSpec) -> bytes:
    """Merge patch of ``lease`` to ``spec``, refused when anybody wrote it since we read it."""
    fields = {
        "holderIdentity": spec.holderIdentity,
        "leaseDurationSeconds": spec.leaseDurationSeconds,
        "acquireTime": spec.acquireTime,
        "renewTime": spec.renewTime,
        "leaseTransitions": spec.leaseTransitions,
    }
    meta = lease.metadata
    return _encode({"metadata": {"uid": meta.uid, "resourceVersion": meta.resourceVersion}, "spec": fields})


def lease_path(namespace: str, name: str = "") -> str:
    """REST path of the Leases of ``namespace``, or of one."""
    base = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    return f"{base}/{name}" if name else base


def events_path(namespace: str, name: str = "") -> str:
    """REST path of the Events of ``namespace``, or of one."""
    base = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    return f"{base}/{name}" if name else base


def token_review_body(token: str) -> bytes:
    """A TokenReview asking who ``token`` is."""
    return _encode({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})


class ReviewedUser(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whom a TokenReview found; ``extra`` is passed on to the access review."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """status of a TokenReview."""

    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()


class _TokenReview(msgspec.Struct):
    status: TokenReviewStatus = TokenReviewStatus()


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


class _AccessReview(msgspec.Struct):
    status: _AccessStatus = msgspec.field(default_factory=_AccessStatus)


def decode_token_review(body: bytes) -> TokenReviewStatus:
    """The verdict of a TokenReview. Raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=_TokenReview).status


def access_review_body(user: ReviewedUser, path: str, verb: str = "get") -> bytes:
    """A SubjectAccessReview asking whether ``user`` may ``verb`` the non-resource ``path``."""
    spec: dict[str, Any] = {
        "user": user.username,
        "groups": user.groups,
        "uid": user.uid,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
    return _encode({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})


class ResourceAttributes(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a SubjectAccessReview about objects asks: ``namespace`` "" means all of them, ``name`` "" any."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


def object_review_body(user: ReviewedUser, asked: ResourceAttributes) -> bytes:
    """A SubjectAccessReview asking whether ``user`` may do what ``asked`` says."""
    spec: dict[str, Any] = {
        "user": user.username,
        "groups": user.groups,
        "uid": user.uid,
        "extra": user.extra,
        "resourceAttributes": asked,
    }
    return _encode({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec})


def decode_access_review(body: bytes) -> bool:
    """True when a SubjectAccessReview allows. Raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=_AccessReview).status.allowed


TOKEN_REVIEWS_PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS_PATH = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
