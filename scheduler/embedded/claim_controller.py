"""Claims from templates, and the end of reservations.

Source: k8s.io/kubernetes 1.37 pkg/controller/resourceclaim: what it writes, in which order, with which names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from scheduler.embedded.kinds import Kind, by_path
from scheduler.embedded.objects import thaw
from scheduler.embedded.patch import STRATEGIC
from scheduler.embedded.registry import DeleteOptions, Registry
from scheduler.embedded.status import Json
from scheduler.embedded.store import Change, Key, Record

POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
FINALIZER = "resource.kubernetes.io/delete-protection"


def _kind(group: str, plural: str) -> Kind:
    kind = by_path(group, "v1", plural)
    if kind is None:
        raise LookupError(plural)
    return kind


_PODS = _kind("", "pods")
_EVENTS = _kind("", "events")
_CLAIMS = _kind("resource.k8s.io", "resourceclaims")
_TEMPLATES = _kind("resource.k8s.io", "resourceclaimtemplates")


class ClaimController:
    """Looks at Pods that need claims and at claims whose consumers may be gone."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._store = registry.store
        self._owned_by: dict[str, set[Key]] = {}
        """Claims by the UID of the Pod that owns them."""

    def affected(self, table: str, change: Change) -> Iterable[tuple[str, Key]]:
        match table:
            case "pods":
                if change.deleted:
                    self._owned_by.pop(change.after.uid, None)
                return self._around_pod(change)
            case "resourceclaims":
                self._note_owner(change)
                return [] if change.deleted else [("claim", change.key)]
            case "resourceclaimtemplates" if change.before is None:
                return [("pod", key) for key in self._waiting_for(change.key)]
            case _:
                return []

    def _note_owner(self, change: Change) -> None:
        owner = _owner(change.after.obj)
        if owner and change.deleted:
            self._owned_by.get(owner, set()).discard(change.key)
        elif owner:
            self._owned_by.setdefault(owner, set()).add(change.key)

    def _around_pod(self, change: Change) -> Iterator[tuple[str, Key]]:
        pod = change.after.obj
        if not pod["spec"].get("resourceClaims"):
            return
        if not change.deleted:
            yield "pod", change.key
        bound = change.before is not None and change.before.obj["spec"].get("nodeName") != pod["spec"].get("nodeName")
        if change.deleted or bound or _finished(pod):
            for name in _claim_names(pod):
                yield "claim", (change.key[0], name)

    def _waiting_for(self, template: Key) -> Iterator[Key]:
        for record in self._store.table("pods").ordered():
            for entry in record.obj["spec"].get("resourceClaims") or ():
                if (record.key[0], entry.get("resourceClaimTemplateName")) == template:
                    yield record.key

    def look_at_pod(self, key: Key) -> None:
        """Makes the missing claims of a Pod and names them in its status; reserves for a Pod bound without us."""
        record = self._store.get("pods", key)
        if record is None or _finished(record.obj) or record.obj["metadata"].get("deletionTimestamp"):
            return
        pod = record.obj
        known = {entry["name"] for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()}
        made: list[Json] = []
        for entry in pod["spec"].get("resourceClaims") or ():
            if entry.get("resourceClaimTemplateName") and entry["name"] not in known:
                claim = self._owned(record, entry["name"]) or self._make(record, entry)
                if claim is not None:
                    made.append({"name": entry["name"], "resourceClaimName": claim.key[1]})
        if made:
            body = {"metadata": {"uid": record.uid}, "status": {"resourceClaimStatuses": made}}
            self._registry.patch(_PODS, *key, STRATEGIC, body, subresource="status")

    def _owned(self, pod: Record, entry_name: str) -> Record | None:
        for key in sorted(self._owned_by.get(pod.uid, ())):
            claim = self._store.get("resourceclaims", key)
            if claim and (claim.obj["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME) == entry_name:
                return claim
        return None

    def _make(self, pod: Record, entry: Json) -> Record | None:
        namespace, pod_name = pod.key
        template = self._store.get("resourceclaimtemplates", (namespace, entry["resourceClaimTemplateName"]))
        if template is None:
            text = f'resourceclaimtemplate.resource.k8s.io "{entry["resourceClaimTemplateName"]}" not found'
            self._complain(pod, f"PodResourceClaim {entry['name']}: resource claim template: {text}")
            return None
        wanted = thaw(template)["spec"]
        metadata = dict(wanted.get("metadata") or {})
        metadata["generateName"] = f"{pod_name}-{entry['name']}-"
        metadata["annotations"] = {**(metadata.get("annotations") or {}), POD_CLAIM_NAME: entry["name"]}
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod_name, "uid": pod.uid}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
        body = {"metadata": metadata, "spec": wanted["spec"]}
        return self._registry.create(_CLAIMS, namespace, body)

    def _complain(self, pod: Record, message: str) -> None:
        """One Event per Pod and text: a count goes up when it happens again."""
        namespace, name = pod.key
        key = (namespace, f"{name}.claims")
        old = self._store.get("events", key)
        stamp = self._registry.stamp()
        if old is not None and old.obj.get("message") == message:
            body = {"count": int(old.obj.get("count") or 1) + 1, "lastTimestamp": stamp}
            self._registry.patch(_EVENTS, *key, STRATEGIC, body)
            return
        if old is not None:
            self._registry.delete(_EVENTS, *key, DeleteOptions())
        self._registry.create(
            _EVENTS,
            namespace,
            {
                "metadata": {"name": key[1]},
                "involvedObject": {
                    "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid
                },
                "type": "Warning",
                "reason": "FailedResourceClaimCreation",
                "message": message,
                "source": {"component": "resource_claim"},
                "reportingComponent": "resource_claim",
                "firstTimestamp": stamp,
                "lastTimestamp": stamp,
                "count": 1,
            },
        )  # fmt: skip

    def look_at_claim(self, key: Key) -> None:
        """Drops reservations of consumers that are gone; the last one takes the allocation and the finalizer along."""
        record = self._store.get("resourceclaims", key)
        if record is None:
            return
        record = self._reserve_for_bound(record)
        status = record.obj.get("status") or {}
        reserved = status.get("reservedFor") or []
        valid = [entry for entry in reserved if self._consumes(key[0], entry)]
        deleting = bool(record.obj["metadata"].get("deletionTimestamp"))
        if len(valid) < len(reserved) or (deleting and not valid and status.get("allocation")):
            record = self._write_status(record, valid)
            if record is None:
                return
        if not valid and (reserved or deleting) and not (record.obj.get("status") or {}).get("allocation"):
            record = self._drop_finalizer(record) or record
        if self._store.get("resourceclaims", key) is not None and self._owner_finished(record):
            self._registry.delete(_CLAIMS, *key, DeleteOptions(uid=record.uid))

    def _write_status(self, record: Record, valid: list[Json]) -> Record | None:
        obj = thaw(record)
        status = obj.setdefault("status", {})
        if valid:
            status["reservedFor"] = valid
        else:
            status.pop("reservedFor", None)
            if FINALIZER in (obj["metadata"].get("finalizers") or ()):
                # Observed on kube-controller-manager 1.37: without its finalizer the allocation is not ours to clear.
                status.pop("allocation", None)
        self._registry.update(_CLAIMS, *record.key, obj, subresource="status")
        return self._store.get("resourceclaims", record.key)

    def _drop_finalizer(self, record: Record) -> Record | None:
        obj = thaw(record)
        finalizers = obj["metadata"].get("finalizers") or []
        if FINALIZER not in finalizers:
            return record
        obj["metadata"]["finalizers"] = [name for name in finalizers if name != FINALIZER]
        self._registry.update(_CLAIMS, *record.key, obj)
        return self._store.get("resourceclaims", record.key)

    def _reserve_for_bound(self, record: Record) -> Record:
        """An allocated, unreserved claim of a Pod that is on a node already: the Pod was bound past the scheduler."""
        status = record.obj.get("status") or {}
        if not status.get("allocation") or status.get("reservedFor") or record.obj["metadata"].get("deletionTimestamp"):
            return record
        for pod in self._store.table("pods").records.values():
            spec = pod.obj["spec"]
            if pod.key[0] != record.key[0] or not spec.get("nodeName") or not spec.get("resourceClaims"):
                continue
            if _finished(pod.obj) or record.key[1] not in _claim_names(pod.obj):
                continue
            obj = thaw(record)
            obj["status"]["reservedFor"] = [{"resource": "pods", "name": pod.key[1], "uid": pod.uid}]
            self._registry.update(_CLAIMS, *record.key, obj, subresource="status")
            return self._registry.get(_CLAIMS, *record.key)
        return record

    def _consumes(self, namespace: str, entry: Json) -> bool:
        if entry.get("apiGroup") or entry.get("resource") != "pods":
            return True
        pod = self._store.get("pods", (namespace, str(entry.get("name"))))
        return pod is not None and pod.uid == entry.get("uid") and not _finished(pod.obj)

    def _owner_finished(self, claim: Record) -> bool:
        """The Pod this claim was generated for has run to its end (a Pod that is gone is the garbage collector's)."""
        owner = _owner(claim.obj)
        if not owner or claim.obj["metadata"].get("deletionTimestamp"):
            return False
        name = next(ref["name"] for ref in claim.obj["metadata"]["ownerReferences"] if ref.get("controller"))
        pod = self._store.get("pods", (claim.key[0], name))
        return pod is not None and pod.uid == owner and _finished(pod.obj)


def _finished(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _owner(claim: Json) -> str:
    """UID of the controlling Pod, or ""."""
    for ref in claim["metadata"].get("ownerReferences") or ():
        if ref.get("controller") and ref.get("kind") == "Pod":
            return str(ref.get("uid"))
    return ""


def _claim_names(pod: Json) -> list[str]:
    generated = {
        entry["name"]: entry.get("resourceClaimName")
        for entry in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    names = [
        entry.get("resourceClaimName") or generated.get(entry["name"])
        for entry in pod["spec"].get("resourceClaims") or ()
    ]
    return [name for name in names if name]
