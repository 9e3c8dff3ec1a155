"""Rules for Pods: what creation fills in and admits, what an update may change, what a Binding does.

Source: k8s.io/kubernetes 1.37 pkg/registry/core/pod, pkg/apis/core/validation, admission plugins Priority,
DefaultTolerationSeconds and PodTopologyLabels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from scheduler.api.quantity import parse_quantity
from scheduler.embedded.names import SUBDOMAIN_TEXT, is_subdomain
from scheduler.embedded.status import (
    FieldError,
    Json,
    bad_request,
    conflict,
    field_duplicate,
    field_forbidden,
    field_invalid,
    field_required,
    forbidden,
    plain_internal,
)

GATES_MESSAGE = "Scheduling is blocked due to non-empty scheduling gates"
_ZONE_LABELS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


def prepare_create(pod: Json, priority_classes: Mapping[str, Json]) -> None:
    """Admission and creation: priority, default tolerations, a fresh status (phase, QoS class, gate condition)."""
    spec = pod["spec"]
    _admit_priority(pod, spec, priority_classes)
    add_default_tolerations(spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        pod["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": GATES_MESSAGE,
                "lastProbeTime": None,
                "lastTransitionTime": pod["metadata"]["creationTimestamp"],
            }
        ]


def _admit_priority(pod: Json, spec: Json, classes: Mapping[str, Json]) -> None:
    name = spec.get("priorityClassName", "")
    chosen: Json | None = None
    if name:
        chosen = classes.get(name)
        if chosen is None:
            text = f"no PriorityClass with name {name} was found"
            raise forbidden("pods", "", pod["metadata"].get("name", ""), text)
    else:
        defaults = [found for found in classes.values() if found.get("globalDefault")]
        chosen = min(defaults, key=lambda found: int(found.get("value", 0))) if defaults else None
        if chosen is not None:
            spec["priorityClassName"] = chosen["metadata"]["name"]
    priority = int(chosen.get("value", 0)) if chosen else 0
    if spec.get("priority") not in (None, priority):
        text = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {priority} from the given PriorityClass name"
        )
        raise forbidden("pods", "", pod["metadata"].get("name", ""), text)
    spec["priority"] = priority
    spec.setdefault("preemptionPolicy", (chosen or {}).get("preemptionPolicy") or "PreemptLowerPriority")


def add_default_tolerations(spec: Json) -> None:
    tolerations = spec.setdefault("tolerations", [])
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_covers(toleration, key) for toleration in tolerations):
            tolerations.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})


def _covers(toleration: Json, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")


def qos_class(spec: Json) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    seen = False
    guaranteed = True
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        resources = container.get("resources") or {}
        requests, limits = _compute(resources.get("requests")), _compute(resources.get("limits"))
        seen = seen or bool(requests) or bool(limits)
        guaranteed = guaranteed and set(limits) == {"cpu", "memory"} and requests == limits
    if not seen:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _compute(amounts: Json | None) -> dict[str, Any]:
    found = {name: parse_quantity(text) for name, text in (amounts or {}).items() if name in ("cpu", "memory")}
    return {name: quantity for name, quantity in found.items() if quantity}


def validate_create(pod: Json) -> list[FieldError]:
    spec = pod["spec"]
    errors = []
    containers = spec.get("containers") or []
    if not containers:
        errors.append(field_required("spec.containers"))
    names = [claim.get("name") for claim in spec.get("resourceClaims") or ()]
    errors += _claim_entries(spec.get("resourceClaims") or ())
    seen: set[str] = set()
    for index, container in enumerate(containers):
        errors += _container(container, f"spec.containers[{index}]", names, seen)
    for index, toleration in enumerate(spec.get("tolerations") or ()):
        if not toleration.get("key") and toleration.get("operator") != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            where = f"spec.tolerations[{index}].operator"
            errors.append(field_invalid(where, toleration.get("operator", ""), text))
        if toleration.get("operator") == "Exists" and toleration.get("value"):
            text = "value must be empty when `operator` is 'Exists'"
            errors.append(field_invalid(f"spec.tolerations[{index}].operator", toleration["value"], text))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        errors.append(field_forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return errors


def _claim_entries(entries: Sequence[Json]) -> list[FieldError]:
    errors = []
    seen: set[str] = set()
    for index, claim in enumerate(entries):
        path = f"spec.resourceClaims[{index}]"
        if claim.get("name") in seen:
            errors.append(field_duplicate(f"{path}.name", claim["name"]))
        seen.add(str(claim.get("name")))
        sources = [name for name in ("resourceClaimName", "resourceClaimTemplateName") if claim.get(name)]
        if len(sources) != 1:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            if sources:
                text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            shown = {"Name": claim.get("name", "")}
            for name in ("resourceClaimName", "resourceClaimTemplateName"):
                shown[name[0].upper() + name[1:]] = claim.get(name)
            errors.append(field_invalid(path, shown, text))
    return errors


def _container(container: Json, path: str, claims: Sequence[Any], seen: set[str]) -> list[FieldError]:
    errors = [field_required(f"{path}.{name}") for name in ("name", "image") if not container.get(name)]
    if container.get("name") in seen:
        errors.append(field_duplicate(f"{path}.name", container["name"]))
    seen.add(str(container.get("name")))
    resources = container.get("resources") or {}
    errors += _amounts(resources, f"{path}.resources")
    for at, used in enumerate(resources.get("claims") or ()):
        if used.get("name") not in claims:
            text = "must be one of the names in pod.spec.resourceClaims" + ("" if claims else " which is empty")
            message = f'Not found: "{used.get("name")}": {text}'
            errors.append(FieldError(f"{path}.resources.claims[{at}]", "FieldValueNotFound", message))
    return errors


def _amounts(resources: Json, path: str) -> list[FieldError]:
    """No negative amounts, no request above its limit, limits for extended resources."""
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    errors = []
    for field, amounts in (("limits", limits), ("requests", requests)):
        for name, text in amounts.items():
            if parse_quantity(text).sign() < 0:
                where = f"{path}.{field}[{name}]"
                errors.append(field_invalid(where, str(text), "must be greater than or equal to 0"))
    for name, text in requests.items():
        limit = limits.get(name)
        if limit is None and _is_extended(name):
            errors.append(field_required(f"{path}.limits", "Limit must be set for non overcommitable resources"))
        elif limit is not None and parse_quantity(text).compare(parse_quantity(limit)) > 0:
            text_limit = f"must be less than or equal to {name} limit of {limit}"
            errors.append(field_invalid(f"{path}.requests", text, text_limit))
    return errors


def _is_extended(name: str) -> bool:
    return "/" in name and not name.split("/")[0].endswith("kubernetes.io")


_MUTABLE_SPEC = frozenset({"activeDeadlineSeconds", "terminationGracePeriodSeconds", "tolerations", "schedulingGates"})
_UPDATE_TEXT = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_update(new: Json, old: Json) -> list[FieldError]:
    """A Pod's spec is fixed but for images, deadlines, added tolerations, removed gates (and what gates allow)."""
    errors: list[FieldError] = []
    before, after = old["spec"], new["spec"]
    if before == after:
        return errors
    old_gates = [gate.get("name") for gate in before.get("schedulingGates") or ()]
    for index, gate in enumerate(after.get("schedulingGates") or ()):
        if gate.get("name") not in old_gates:
            text = "only deletion is allowed, but found new scheduling gate '" + str(gate.get("name")) + "'"
            errors.append(field_forbidden(f"spec.schedulingGates[{index}].name", text))
    if any(toleration not in (after.get("tolerations") or ()) for toleration in before.get("tolerations") or ()):
        text = "existing toleration can not be modified except its tolerationSeconds"
        errors.append(field_forbidden("spec.tolerations", text))
    mutable = _MUTABLE_SPEC | ({"nodeSelector", "affinity"} if old_gates else frozenset())
    if _fixed(before, mutable) != _fixed(after, mutable):
        errors.append(field_forbidden("spec", _UPDATE_TEXT))
    return errors


def validate_status_update(new: Json) -> list[FieldError]:
    entries = {claim.get("name") for claim in new["spec"].get("resourceClaims") or ()}
    errors = []
    for index, status in enumerate((new.get("status") or {}).get("resourceClaimStatuses") or ()):
        if status.get("name") not in entries:
            path = f"status.resourceClaimStatuses[{index}].name"
            text = "must match the name of an entry in `spec.resourceClaims`"
            errors.append(field_invalid(path, status.get("name", ""), text))
    if new["spec"].get("nodeName") and (new.get("status") or {}).get("nominatedNodeName"):
        text = "may not be set on pods that are already bound to a node"
        errors.append(field_forbidden("status.nominatedNodeName", text))
    return errors


def _fixed(spec: Json, mutable: frozenset[str]) -> Json:
    out = {name: value for name, value in spec.items() if name not in mutable and value not in (None, [], {}, "")}
    for name in ("containers", "initContainers"):
        if name in out:
            out[name] = [{k: v for k, v in container.items() if k != "image"} for container in out[name]]
    return out


def check_binding(binding: Json, name: str) -> None:
    """The checks that need no Pod. Raises 400 for a wrong name and a bare 500 for a bad target."""
    if binding["metadata"].get("name", name) != name:
        raise bad_request("name in URL does not match name in Binding object")
    target = binding.get("target") or {}
    errors = []
    if target.get("kind", "") not in ("", "Node"):
        errors.append(f'target.kind: Unsupported value: "{target["kind"]}": supported values: "Node", "<empty>"')
    node = target.get("name", "")
    if not node:
        errors.append("target.name: Required value")
    elif not is_subdomain(node):
        errors.append(f'target.name: Invalid value: "{node}": {SUBDOMAIN_TEXT}')
    if errors:
        raise plain_internal(errors[0] if len(errors) == 1 else "[" + ", ".join(errors) + "]")


def bound(pod: Json, binding: Json, node_labels: Mapping[str, str], now: str) -> Json:
    """The Pod after the Binding, as a new object. Raises 409 when it may not be bound any more."""
    meta, spec = pod["metadata"], pod["spec"]
    name = meta["name"]
    wanted = binding["metadata"]
    if meta.get("deletionTimestamp"):
        raise conflict("pods/binding", "", name, f"pod {name} is being deleted, cannot be assigned to a host")
    if spec.get("nodeName"):
        text = f'pod {name} is already assigned to node "{spec["nodeName"]}"'
        raise conflict("pods/binding", "", name, text)
    if spec.get("schedulingGates"):
        raise conflict("pods/binding", "", name, f"pod {name} has non-empty .spec.schedulingGates")
    topology = {key: node_labels[key] for key in _ZONE_LABELS if key in node_labels}
    metadata = dict(meta)
    for field, extra in (("labels", topology), ("annotations", {})):
        merged = {**(meta.get(field) or {}), **(wanted.get(field) or {}), **extra}
        if merged:
            metadata[field] = merged
    status = dict(pod.get("status") or {})
    status.pop("nominatedNodeName", None)
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    others = [found for found in status.get("conditions") or () if found.get("type") != "PodScheduled"]
    status["conditions"] = [*others, scheduled]
    return {**pod, "metadata": metadata, "spec": {**spec, "nodeName": binding["target"]["name"]}, "status": status}
