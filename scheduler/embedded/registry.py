"""What each verb does to the store: the API server's generic registry with the rules of the kinds plugged in.

Synchronous and without HTTP: handlers, controllers and bulk loading all come through here. Raises ApiError.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from scheduler.embedded import claims, defaults, deletion, expressions, patch, pods, validation
from scheduler.embedded.kinds import Kind, by_path
from scheduler.embedded.names import generated
from scheduler.embedded.objects import carry_over, normalise, strip_type, thaw, timestamp, translation
from scheduler.embedded.status import (
    ApiError,
    FieldError,
    Json,
    already_exists,
    bad_request,
    conflict,
    field_forbidden,
    field_invalid,
    forbidden,
    invalid,
    not_found,
    plain_internal,
    too_many_requests,
    unsupported_patch,
)
from scheduler.embedded.store import Record, Store

_PATCH_TYPES = (patch.JSON, patch.MERGE, patch.STRATEGIC)
_NAME_TRIES = 8
_NOT_A_MAP = "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    grace_period_s: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


@dataclass(slots=True)
class Registry:
    """The verbs. `now` gives aware UTC time; `source` makes name suffixes and uids, so a seed fixes both."""

    store: Store
    now: Callable[[], datetime]
    source: random.Random = field(default_factory=random.Random)

    def stamp(self) -> str:
        return timestamp(self.now())

    def new_uid(self) -> str:
        return str(uuid.UUID(int=self.source.getrandbits(128), version=4))

    def get(self, kind: Kind, namespace: str, name: str) -> Record:
        record = self.store.get(kind.table, (namespace, name))
        if record is None:
            raise not_found(kind.plural, kind.group, name)
        return record

    # create

    def create(self, kind: Kind, namespace: str, body: Any, *, dry_run: bool = False, trusted: bool = False) -> Record:
        """Takes the body over. 409 when the name is taken, 404 or 403 for the namespace, 422 for its content.

        trusted: uid and creationTimestamp of the body are kept, its selectors need not compile.
        """
        obj = strip_type(kind, body)
        validation.decode(kind, obj)
        obj["metadata"] = metadata = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise plain_internal("resourceVersion should not be set on objects to be created")
        self._place(kind, namespace, metadata)
        self._prepare_create(kind, obj, metadata, trusted)
        self._check_namespace(kind, namespace, metadata.get("name", ""))
        errors = validation.validate_create(kind, obj)
        errors += self._admin_access(kind, namespace, obj)
        if not trusted:
            errors += expressions.validate(kind.plural, obj)
        if errors:
            raise _invalid(kind, metadata.get("name", ""), errors)
        key = (namespace, metadata["name"])
        present = self.store.get(kind.table, key)
        if present is not None:
            error = already_exists(kind.plural, kind.group, metadata["name"])
            if present.obj["metadata"].get("deletionTimestamp"):
                error.message = f"object is being deleted: {error.message}"
            raise error
        obj = normalise(obj)
        if dry_run:
            return Record(key, obj, 0)
        return self.store.put(kind.table, key, obj)

    def _place(self, kind: Kind, namespace: str, metadata: Json) -> None:
        if kind.namespaced:
            if (metadata.get("namespace") or namespace) != namespace:
                text = "the namespace of the provided object does not match the namespace sent on the request"
                raise bad_request(text)
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            for _ in range(_NAME_TRIES):
                metadata["name"] = generated(metadata["generateName"], self.source)
                if self.store.get(kind.table, (namespace, metadata["name"])) is None:
                    break

    def _prepare_create(self, kind: Kind, obj: Json, metadata: Json, trusted: bool) -> None:
        stamp = self.stamp()
        for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink", "generation"):
            metadata.pop(name, None)
        if not trusted:
            metadata.pop("uid", None)
            metadata.pop("creationTimestamp", None)
        metadata["uid"] = metadata.get("uid") or self.new_uid()
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or stamp
        if kind.counts_generation:
            metadata["generation"] = 1
        if kind.has_status and not kind.status_at_create:
            obj.pop("status", None)
        defaults.apply(kind.plural, obj, stamp)
        if kind.plural == "pods":
            classes = self.store.table("priorityclasses").records
            pods.prepare_create(obj, {name: record.obj for (_, name), record in classes.items()})
        elif kind.plural == "namespaces":
            obj["spec"] = {"finalizers": ["kubernetes"]}
            obj["status"] = {"phase": "Active"}

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        if not kind.namespaced:
            return
        record = self.store.get("namespaces", ("", namespace))
        if record is None:
            raise not_found("namespaces", "", namespace)
        if record.obj["metadata"].get("deletionTimestamp") and kind.plural != "events":
            text = f"unable to create new content in namespace {namespace} because it is being terminated"
            error = forbidden(kind.plural, kind.group, name, text)
            cause = {
                "reason": "NamespaceTerminating",
                "message": f"namespace {namespace} is being terminated",
                "field": "metadata.namespace",
            }
            (error.details or {})["causes"] = [cause]
            raise error

    def _admin_access(self, kind: Kind, namespace: str, obj: Json) -> list[FieldError]:
        """Admin access needs a label on the namespace."""
        if kind.plural not in ("resourceclaims", "resourceclaimtemplates"):
            return []
        spec = obj.get("spec") or {}
        asked = claims.admin_access(spec.get("spec") or {} if kind.plural == "resourceclaimtemplates" else spec)
        record = self.store.get("namespaces", ("", namespace))
        labels = (record.obj["metadata"].get("labels") or {}) if record else {}
        if labels.get(claims.ADMIN_ACCESS_LABEL) == "true":
            return []
        label = f"`{claims.ADMIN_ACCESS_LABEL}: true` label"
        text = f"admin access to devices requires the {label} on the containing namespace"
        return [field_forbidden(f"spec.devices.requests[{index}].adminAccess", text) for index in asked]

    # update and patch

    def update(
        self, kind: Kind, namespace: str, name: str, body: Any, *, subresource: str = "", dry_run: bool = False
    ) -> tuple[Record, bool]:
        """PUT. Returns the record and whether it was created (only kinds that allow that)."""
        obj = strip_type(kind, body)
        validation.decode(kind, obj)
        obj["metadata"] = metadata = dict(obj.get("metadata") or {})
        given = metadata.get("name") or ""
        if given != name:
            text = f"the name of the object ({given}) does not match the name on the URL ({name})"
            if not given:
                text = "name must be provided"
            raise bad_request(text)
        if kind.namespaced and (metadata.get("namespace") or namespace) != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        old = self.store.get(kind.table, (namespace, name))
        if old is None:
            if not kind.create_on_update or subresource:
                raise not_found(kind.plural, kind.group, name)
            if metadata.get("resourceVersion") or metadata.get("uid"):
                raise conflict(kind.plural, kind.group, name)
            return self.create(kind, namespace, obj, dry_run=dry_run), True
        _check_uid(kind, old, metadata.get("uid") or "")
        return self._replace(kind, old, obj, subresource, dry_run), False

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        content_type: str,
        body: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Record:
        """PATCH in one of the three formats. A patch that changes nothing makes no revision and no event."""
        if content_type not in _PATCH_TYPES:
            raise unsupported_patch()
        old = self.get(kind, namespace, name)
        shown = thaw(old)
        show = translation(kind)
        shown = show(shown) if show else shown
        shown["apiVersion"], shown["kind"] = kind.api_version, kind.kind
        if content_type == patch.JSON:
            new = patch.json_patch(shown, body)
        elif not isinstance(body, dict):
            raise bad_request(_NOT_A_MAP)
        elif content_type == patch.MERGE:
            new = patch.merge_patch(shown, body)
        else:
            new = patch.strategic_merge_patch(kind.kind, shown, body)
        obj = strip_type(kind, new)
        try:
            validation.decode(kind, obj)
        except ApiError as error:
            text = msgspec.json.encode(new).decode()
            raise invalid("", "", "", [field_invalid("patch", text, error.message.split(": ", 1)[-1])]) from error
        metadata = obj.get("metadata") or {}
        obj["metadata"] = dict(metadata)
        if kind.namespaced and metadata.get("namespace") != namespace:
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        if metadata.get("name") != name:
            raise bad_request(
                f"the name of the object ({metadata.get('name', '')}) does not match the name on the URL ({name})"
            )
        return self._replace(kind, old, obj, subresource, dry_run)

    def _replace(self, kind: Kind, old: Record, new: Json, subresource: str, dry_run: bool) -> Record:
        name = old.key[1]
        version = new["metadata"].get("resourceVersion")
        if version and version != str(old.revision):
            raise conflict(kind.plural, kind.group, name)
        if not version and not kind.unconditional_update:
            text = "must be specified for an update"
            raise invalid(kind.plural, kind.group, name, [field_invalid("metadata.resourceVersion", 0, text)])
        before = thaw(old)
        defaults.apply(kind.plural, new, self.stamp())
        if kind.plural == "pods" and not subresource:
            pods.add_default_tolerations(new["spec"])
        new = carry_over(kind, new, before, subresource)
        if kind.plural == "resourceclaims" and subresource == "status":
            claims.prepare_status_update(new, before)
        new = normalise(new)
        errors = validation.validate_update(kind, new, old.obj, subresource)
        errors += expressions.validate(kind.plural, new, old.obj)
        if errors:
            raise _invalid(kind, name, errors)
        new["metadata"]["resourceVersion"] = str(old.revision)
        if new == old.obj:
            return old
        if dry_run:
            return Record(old.key, new, old.revision)
        if deletion.complete(new["metadata"]):
            # As on the real server, what watches see last is the state before the write that let it go.
            return self.store.remove(kind.table, old.key)
        return self.store.put(kind.table, old.key, new)

    # delete

    def delete(self, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> tuple[Record, bool]:
        """Returns the last or the now terminating object, and whether it is gone."""
        old = self.get(kind, namespace, name)
        metadata = old.obj["metadata"]
        if options.uid and options.uid != old.uid:
            text = (
                f"the UID in the precondition ({options.uid}) does not match the UID in record ({old.uid}). "
                "The object might have been deleted and then recreated"
            )
            raise conflict(kind.kind, kind.group, name, text)
        if options.resource_version and options.resource_version != metadata["resourceVersion"]:
            text = (
                f"the ResourceVersion in the precondition ({options.resource_version}) does not match the "
                f"ResourceVersion in record ({metadata['resourceVersion']}). The object might have been modified"
            )
            raise conflict(kind.kind, kind.group, name, text)
        if options.propagation == "Orphan" and not options.dry_run:
            self._orphan(old.uid)
        fate, last = deletion.decide(kind, thaw(old), options.grace_period_s, self.now())
        gone = fate is deletion.Fate.GOES
        if options.dry_run:
            return Record(old.key, last, old.revision), gone
        if last != old.obj:
            old = self.store.put(kind.table, old.key, last)
        if gone:
            return self.store.remove(kind.table, old.key), True
        return old, False

    def _orphan(self, owner_uid: str) -> None:
        for table in self.store.tables():
            for record in table.ordered():
                owners = record.obj["metadata"].get("ownerReferences") or ()
                if any(owner.get("uid") == owner_uid for owner in owners):
                    obj = thaw(record)
                    obj["metadata"]["ownerReferences"] = [o for o in owners if o.get("uid") != owner_uid]
                    self.store.put(table.name, record.key, normalise(obj))

    # sub-resources

    def bind(self, namespace: str, name: str, binding: Any, *, dry_run: bool = False) -> None:
        """POST pods/binding: node name, condition, labels and annotations in one write."""
        pod_kind = by_path("", "v1", "pods")
        if not isinstance(binding, dict) or pod_kind is None:
            raise bad_request("the object provided is unrecognized (must be of type Binding)")
        binding["metadata"] = dict(binding.get("metadata") or {})
        pods.check_binding(binding, name)
        old = self.get(pod_kind, namespace, name)
        node = self.store.get("nodes", ("", binding["target"]["name"]))
        labels = (node.obj["metadata"].get("labels") or {}) if node and binding["target"].get("kind") == "Node" else {}
        _check_uid(pod_kind, old, binding["metadata"].get("uid") or "")
        version = binding["metadata"].get("resourceVersion")
        if version and version != str(old.revision):
            raise _precondition_failed(pod_kind, old, "ResourceVersion", version, str(old.revision))
        new = pods.bound(thaw(old), binding, labels, self.stamp())
        if not dry_run:
            self.store.put("pods", old.key, new)

    def evict(self, namespace: str, name: str, options: DeleteOptions) -> None:
        """POST pods/eviction: 429 when a disruption budget has nothing left, else a delete."""
        pod_kind = by_path("", "v1", "pods")
        if pod_kind is None:
            raise not_found("pods", "", name)
        record = self.get(pod_kind, namespace, name)
        labels = record.obj["metadata"].get("labels") or {}
        for budget in self.store.table("poddisruptionbudgets").ordered():
            if budget.key[0] == namespace and deletion.budget_exhausted(budget.obj, labels):
                raise too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.")
        self.delete(pod_kind, namespace, name, options)


def _invalid(kind: Kind, name: str, errors: list[FieldError]) -> ApiError:
    group = "" if kind.plural == "events" else kind.group
    return invalid(kind.kind, group, name, errors)


def _check_uid(kind: Kind, old: Record, uid: str) -> None:
    if uid and uid != old.uid:
        raise _precondition_failed(kind, old, "UID", uid, old.uid)


def _precondition_failed(kind: Kind, old: Record, label: str, given: str, actual: str) -> ApiError:
    group = f"/{kind.group}" if kind.group else ""
    path = f"/registry{group}/{kind.plural}/" + "/".join(part for part in old.key if part)
    text = (
        f"StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: "
        f"Precondition failed: {label} in precondition: {given}, {label} in object meta: {actual}"
    )
    return conflict(kind.plural, kind.group, old.key[1], text)
