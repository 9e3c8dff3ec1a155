"""Manifests as people apply them: Pods, workloads with their Pods, and every kind that decisions read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from scheduler.api.core import Pod
from scheduler.api.kinds import DEVICE_TAINT_RULE, POD, RESOURCE_CLAIM, RESOURCE_SLICE, DecodeError, Kind, convert
from scheduler.errors import UserError
from scheduler.explain.quotas import QUOTA, other_limits
from scheduler.whatif.admission import LIMIT_RANGE, admit_pod
from scheduler.whatif.controllers import make_claims_of
from scheduler.whatif.objects import KEPT_RAW, TEMPLATE, Json, completed, read_objects
from scheduler.whatif.store import Store

_WITHOUT_PART = frozenset(
    ("ClusterRole", "ClusterRoleBinding", "ConfigMap", "CustomResourceDefinition", "HorizontalPodAutoscaler", "Ingress",
     "NetworkPolicy", "Role", "RoleBinding", "Secret", "ServiceAccount")
)  # fmt: skip
"""Kinds that often stand beside Pods in a manifest."""
Kinds = Mapping[tuple[str, str], Kind]
_IMMUTABLE = (POD.name, RESOURCE_CLAIM.name)


def apply_manifests(store: Store, kinds: Kinds, documents: Iterable[Any], count: int, namespace: str) -> list[Pod]:
    """Create what the documents describe, Pods and workloads ``count`` times; the Pods, in order.

    An object that is there already is replaced, but for Pods and claims, which cannot be. Raises UserError that names
    object and field.
    """
    pods: list[Pod] = []
    templates_first = sorted(flat(documents), key=lambda item: item["kind"] in _EXPANDED or item["kind"] == POD.name)
    for item in templates_first:
        try:
            pods += _apply(store, kinds, item, count, namespace)
        except (TypeError, AttributeError, ValueError, KeyError) as error:
            subject = f"{item['kind']} {item['metadata']['name']}"
            raise UserError(subject, "", "does not have the shape of its kind") from error
    return pods


def _apply(store: Store, kinds: Kinds, item: Json, count: int, namespace: str) -> Iterator[Pod]:
    if item["kind"] not in _EXPANDED and item["kind"] != POD.name:
        _put(store, kinds, _placed_in(item, kinds, namespace))
        return
    # One name for all of them in what is told.
    subject = f"{item['kind']} {item['metadata'].get('namespace') or namespace}/{item['metadata']['name']}"
    for number in range(1, count + 1):
        for made in _expanded(store, _numbered(item, number, count), namespace, subject):
            if made["kind"] == POD.name:
                yield _put_pod(store, made)
            else:
                _put(store, kinds, _placed_in(made, kinds, namespace))


def flat(documents: Iterable[Any]) -> Iterator[Json]:
    """Single objects out of documents and Lists. Raises UserError for what is no object."""
    for number, item in enumerate(documents, start=1):
        if item is None:
            continue
        metadata = item.get("metadata") if isinstance(item, dict) else None
        if not isinstance(item, dict) or not isinstance(item.get("kind"), str):
            raise UserError(f"document {number}", "kind", "is missing: this is no Kubernetes object")
        if item["kind"].endswith("List") and isinstance(item.get("items"), list):
            yield from flat(item["items"])
            continue
        if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
            raise UserError(f"document {number} ({item['kind']})", "metadata.name", "is missing")
        name = metadata.get("name") or str(metadata["generateName"]).rstrip("-")
        yield {**item, "metadata": {**metadata, "name": name}}


def _numbered(item: Json, number: int, count: int) -> Json:
    if count == 1:
        return item
    return {**item, "metadata": {**item["metadata"], "name": f"{item['metadata']['name']}-{number}"}}


def _placed_in(item: Json, kinds: Kinds, namespace: str) -> Json:
    """With a namespace, when its kind has one."""
    kind = kinds.get((str(item.get("apiVersion", "")), item["kind"]))
    namespaced = item["kind"] in (TEMPLATE, LIMIT_RANGE, QUOTA) or (kind is not None and kind.namespaced)
    if not namespaced or item["metadata"].get("namespace"):
        return item
    return {**item, "metadata": {**item["metadata"], "namespace": namespace}}


def _put_pod(store: Store, item: Json) -> Pod:
    try:
        convert(POD, completed({key: value for key, value in item.items() if key != "status"}, POD))
        pod: Pod = convert(POD, completed(admit_pod(store, item), POD))
    except DecodeError as error:
        subject = f"Pod {item['metadata']['namespace']}/{item['metadata']['name']}"
        raise UserError(subject, error.field, error.problem) from error
    if store.get(POD.name, pod.key) is not None:
        raise UserError(f"Pod {pod.key}", "metadata.name", "exists already")
    metadata = msgspec.structs.replace(
        pod.metadata, uid=store.new_uid(), creationTimestamp=store.stamp(), deletionTimestamp=None
    )
    stored: Pod = store.put(POD, msgspec.structs.replace(pod, metadata=metadata))
    return make_claims_of(store, stored)


def _put(store: Store, kinds: Kinds, item: Json) -> None:
    """Any other object: one that decisions read, one that admission reads, or a template."""
    name, metadata = item["kind"], item["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else str(metadata["name"])
    if name in KEPT_RAW:
        store.raw[name, key] = item
        if name == QUOTA:
            store.quotas.put(item)
            others = other_limits(item)
            if others:
                store.note(f"ResourceQuota {key}: its limits on {', '.join(others)} are not imagined")
        return
    if name in (RESOURCE_CLAIM.name, POD.name):
        item = {field: value for field, value in item.items() if field != "status"}
    if name in (DEVICE_TAINT_RULE.name, RESOURCE_SLICE.name):
        item = _dated(item, store.stamp())
    before = store.raw.get((name, key))
    if before is not None and "status" in before and "status" not in item:
        item = {**item, "status": before["status"]}
    found = read_objects([item], kinds)
    for problem in found.problems:
        raise UserError(f"{name} {key}", problem.field, problem.problem)
    if found.unknown and name in _WITHOUT_PART:
        store.note(f"{name} {key} has no part in where Pods go: left out")
        return
    if found.unknown:
        raise UserError(f"{name} {key}", "kind", "is not a kind that decides where Pods go")
    store.raw.update(found.raw)
    store.templates.update(found.templates)
    for kind, decoded in found.decoded.values():
        old = store.get(kind.name, decoded.metadata.key)
        if old is not None and kind.name in _IMMUTABLE:
            raise UserError(f"{kind.name} {decoded.metadata.key}", "metadata.name", "exists already")
        uid = store.new_uid() if old is None else old.metadata.uid
        stamp = store.stamp() if old is None else old.metadata.creationTimestamp
        fresh = msgspec.structs.replace(decoded.metadata, uid=uid, creationTimestamp=stamp)
        store.put(kind, msgspec.structs.replace(decoded, metadata=fresh))


def _dated(item: Json, stamp: str) -> Json:
    """Taints that say when they were added, as the API server makes them."""
    spec = dict(item.get("spec") or {})
    if isinstance(spec.get("taint"), dict):
        spec["taint"] = {"timeAdded": stamp, **spec["taint"]}
    if isinstance(spec.get("devices"), list):
        spec["devices"] = [
            {**device, "taints": [{"timeAdded": stamp, **taint} for taint in device["taints"]]}
            if isinstance(device, dict) and device.get("taints")
            else device
            for device in spec["devices"]
        ]
    return {**item, "spec": spec}


# Workloads


def _expanded(store: Store, item: Json, namespace: str, subject: str) -> Iterator[Json]:
    """What a workload's controllers make of it; a Pod is itself. ``subject``: what errors and notes are about."""
    metadata = {**item["metadata"], "namespace": item["metadata"].get("namespace") or namespace}
    item = {**item, "metadata": metadata}
    expand = _EXPANDED.get(item["kind"])
    if expand is None:
        yield item
        return
    yield from expand(store, item if expand is _refused else _with_template(store, item, subject), subject)


def _with_template(store: Store, item: Json, subject: str) -> Json:
    """``item``, which has a template for its Pods; of a CronJob one run. Raises UserError without a template."""
    field = "spec"
    if not isinstance(item.get(field), dict):
        raise UserError(subject, field, "is missing")
    if item["kind"] == "CronJob":
        item, field = _one_run(store, item, subject), "spec.jobTemplate.spec"
    template = item["spec"].get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise UserError(subject, f"{field}.template.spec", "is missing")
    return item


def _one_run(store: Store, item: Json, subject: str) -> Json:
    """The Job that a CronJob makes when its time comes."""
    job = item["spec"].get("jobTemplate")
    if not isinstance(job, dict) or not isinstance(job.get("spec"), dict):
        raise UserError(subject, "spec.jobTemplate.spec", "is missing")
    store.note(f"{subject} is taken as one run of its Job, whatever its schedule")
    suspended = {"suspend": True} if item["spec"].get("suspend") is True else {}
    metadata = {"name": f"{item['metadata']['name']}-run", "namespace": item["metadata"]["namespace"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {**job["spec"], **suspended}}


def _pod_of(item: Json, uid: str, name: str, labels: Mapping[str, str] | None = None, **spec: Any) -> Json:
    """One Pod of a workload."""
    template = item["spec"]["template"]
    metadata = dict(template.get("metadata") or {})
    owner = {"apiVersion": item.get("apiVersion", ""), "kind": item["kind"], "name": item["metadata"]["name"]}
    metadata |= {"name": name, "namespace": item["metadata"]["namespace"]}
    metadata["labels"] = {**(metadata.get("labels") or {}), **(labels or {})}
    metadata["ownerReferences"] = [{**owner, "uid": uid, "controller": True}]
    return {"apiVersion": "v1", "kind": POD.name, "metadata": metadata, "spec": {**template["spec"], **spec}}


def _number(item: Json, subject: str, field: str, default: int) -> int:
    value = item["spec"].get(field)
    value = default if value is None else value
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(subject, f"spec.{field}", f"{value!r} is not a number of at least 0")
    return value


def _job(store: Store, item: Json, subject: str) -> Iterator[Json]:
    """A Job starts as many Pods as may run at once."""
    if item["spec"].get("suspend") is True:
        store.note(f"{subject} is suspended: it makes no Pods")
        return
    parallelism = _number(item, subject, "parallelism", 1)
    completions = _number(item, subject, "completions", parallelism)
    if completions > parallelism:
        store.note(f"{subject}: {parallelism} of its {completions} Pods run at the same time")
    uid, name = store.new_uid(), item["metadata"]["name"]
    indexed = item["spec"].get("completionMode") == "Indexed"
    for index in range(min(parallelism, completions)):
        labels = {"batch.kubernetes.io/job-name": name, "job-name": name, "batch.kubernetes.io/controller-uid": uid}
        if indexed:
            labels["batch.kubernetes.io/job-completion-index"] = str(index)
        yield _pod_of(item, uid, f"{name}-{index}", labels)


def _replicas(store: Store, item: Json, subject: str) -> Iterator[Json]:
    """A ReplicaSet or ReplicationController, and its Pods."""
    uid, name = store.new_uid(), item["metadata"]["name"]
    yield {**item, "metadata": {**item["metadata"], "uid": uid}}
    for index in range(_number(item, subject, "replicas", 1)):
        yield _pod_of(item, uid, f"{name}-{index}")


def _deployment(store: Store, item: Json, subject: str) -> Iterator[Json]:
    """A Deployment makes a ReplicaSet."""
    name = f"{item['metadata']['name']}-new"
    metadata = {"name": name, "namespace": item["metadata"]["namespace"]}
    yield from _replicas(store, {**item, "kind": "ReplicaSet", "metadata": metadata}, subject)


def _stateful_set(store: Store, item: Json, subject: str) -> Iterator[Json]:
    """A StatefulSet, its Pods by number, and the volume claims that each of them has of its own."""
    uid, name = store.new_uid(), item["metadata"]["name"]
    yield {**item, "metadata": {**item["metadata"], "uid": uid}}
    templates = [entry for entry in item["spec"].get("volumeClaimTemplates") or () if isinstance(entry, dict)]
    for index in range(_number(item, subject, "replicas", 1)):
        pod_name = f"{name}-{index}"
        volumes = list(item["spec"]["template"]["spec"].get("volumes") or ())
        for entry in templates:
            volume = str((entry.get("metadata") or {}).get("name"))
            claim = {"name": f"{volume}-{pod_name}", "namespace": item["metadata"]["namespace"]}
            yield {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": claim, "spec": entry.get("spec")}
            volumes.append({"name": volume, "persistentVolumeClaim": {"claimName": claim["name"]}})
        yield _pod_of(item, uid, pod_name, {"apps.kubernetes.io/pod-index": str(index)}, volumes=volumes)


def _refused(store: Store, item: Json, subject: str) -> Iterator[Json]:
    raise UserError(subject, "kind", f"a {item['kind']} is not taken apart into Pods here; give its Pods")


_EXPANDED: dict[str, Callable[[Store, Json, str], Iterator[Json]]] = {
    "Job": _job,
    "ReplicaSet": _replicas,
    "ReplicationController": _replicas,
    "Deployment": _deployment,
    "StatefulSet": _stateful_set,
    "CronJob": _job,
    "DaemonSet": _refused,
}
