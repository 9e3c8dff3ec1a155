"""The types of the fields that our rules read, per kind: what the real server checks when it decodes JSON.

A shape is a type (str, int, bool), QUANTITY, a dict (object with these fields, others free), a list of one shape, or a
Map. A field that is null is taken away, a null element becomes the empty value of its type, as Go decodes them.
Quantities are rewritten in canonical form: 1024Mi as 1Gi, 1 as "1".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from scheduler.api.quantity import QuantityError, parse_quantity
from scheduler.embedded.status import Json

QUANTITY: Final = object()


@dataclass(frozen=True, slots=True)
class Map:
    """An object with free keys and values of one shape."""

    values: Any


class ShapeError(ValueError):
    """A value has another type than its field, or is no quantity."""


_NAMES: Final = {str: "string", int: "int", bool: "bool"}
_JSON_NAMES: Final = {str: "string", bool: "bool", int: "number", float: "number", list: "array", dict: "object"}


def check(kind: str, obj: Json, shape: Any) -> None:
    """Checks obj and canonicalises it in place. Raises ShapeError with the server's words."""
    _fields(obj, shape, kind)


def _fields(obj: Json, shape: dict[str, Any], path: str) -> None:
    for name, inner in shape.items():
        if name in obj:
            if obj[name] is None:
                del obj[name]
            else:
                _visit(obj, name, inner, path)


def _visit(owner: Any, key: Any, shape: Any, path: str) -> None:
    if owner[key] is None:
        owner[key] = _zero(shape)
    value = owner[key]
    if shape is QUANTITY:
        owner[key] = _quantity(value, path)
        return
    where = path if isinstance(owner, list) else f"{path}.{key}"
    if isinstance(shape, list):
        _expect(value, list, where)
        for index in range(len(value)):
            _visit(value, index, shape[0], where)
    elif isinstance(shape, Map):
        _expect(value, dict, where)
        for name in value:
            _visit(value, name, shape.values, where)
    elif isinstance(shape, dict):
        _expect(value, dict, where)
        _fields(value, shape, where)
    else:
        _expect(value, shape, where)


def _zero(shape: Any) -> Any:
    """What Go makes of a null element."""
    if shape is QUANTITY:
        return "0"
    if isinstance(shape, list):
        return []
    return {} if isinstance(shape, dict | Map) else shape()


def _quantity(value: Any, path: str) -> str:
    if isinstance(value, bool | dict | list):
        raise ShapeError(
            f"json: cannot unmarshal {_JSON_NAMES[type(value)]} into Go struct field {path} of type string"
        )
    try:
        return str(parse_quantity(value))
    except QuantityError as error:
        raise ShapeError(error.message) from error


def _expect(value: Any, wanted: type, path: str) -> None:
    if isinstance(value, wanted) and not (wanted is int and isinstance(value, bool)):
        return
    found = _JSON_NAMES[type(value)]
    raise ShapeError(
        f"json: cannot unmarshal {found} into Go struct field {path} of type {_NAMES.get(wanted, wanted.__name__)}"
    )


_TEXTS: Final = Map(str)
_AMOUNTS: Final = Map(QUANTITY)

_METADATA: Final = {
    "name": str,
    "namespace": str,
    "generateName": str,
    "uid": str,
    "resourceVersion": str,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": _TEXTS,
    "annotations": _TEXTS,
    "finalizers": [str],
    "ownerReferences": [{"apiVersion": str, "kind": str, "name": str, "uid": str, "controller": bool}],
}
_CONDITIONS: Final = [{"type": str, "status": str, "reason": str, "message": str}]
_TOLERATIONS: Final = [
    {"key": str, "operator": str, "value": str, "effect": str, "tolerationSeconds": int},
]
_TAINT: Final = {"key": str, "value": str, "effect": str, "timeAdded": str}
_RESOURCES: Final = {"requests": _AMOUNTS, "limits": _AMOUNTS, "claims": [{"name": str}]}
_CONTAINER: Final = {
    "name": str,
    "image": str,
    "imagePullPolicy": str,
    "resources": _RESOURCES,
    "ports": [{"containerPort": int, "hostPort": int, "protocol": str}],
}
_POD_SPEC: Final = {
    "nodeName": str,
    "schedulerName": str,
    "priorityClassName": str,
    "priority": int,
    "preemptionPolicy": str,
    "hostNetwork": bool,
    "terminationGracePeriodSeconds": int,
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "overhead": _AMOUNTS,
    "resources": _RESOURCES,
    "nodeSelector": _TEXTS,
    "tolerations": _TOLERATIONS,
    "schedulingGates": [{"name": str}],
    "resourceClaims": [{"name": str, "resourceClaimName": str, "resourceClaimTemplateName": str}],
    "topologySpreadConstraints": [{"maxSkew": int, "topologyKey": str, "whenUnsatisfiable": str}],
}
_POD: Final = {
    "spec": _POD_SPEC,
    "status": {
        "phase": str,
        "reason": str,
        "message": str,
        "nominatedNodeName": str,
        "conditions": _CONDITIONS,
        "resourceClaimStatuses": [{"name": str, "resourceClaimName": str}],
    },
}
_NODE: Final = {
    "spec": {"unschedulable": bool, "taints": [_TAINT]},
    "status": {"capacity": _AMOUNTS, "allocatable": _AMOUNTS, "conditions": _CONDITIONS},
}
_DEVICE_REQUEST: Final = {
    "name": str,
    "deviceClassName": str,
    "allocationMode": str,
    "count": int,
    "adminAccess": bool,
    "selectors": [{"cel": {"expression": str}}],
    "tolerations": _TOLERATIONS,
    "capacity": {"requests": _AMOUNTS},
}
_CLAIM_SPEC: Final = {
    "devices": {
        "requests": [{"name": str, "exactly": _DEVICE_REQUEST, "firstAvailable": [_DEVICE_REQUEST]}],
        "constraints": [{"requests": [str], "matchAttribute": str, "distinctAttribute": str}],
        "config": [{"requests": [str]}],
    }
}
_RESULT: Final = {
    "request": str,
    "driver": str,
    "pool": str,
    "device": str,
    "shareID": str,
    "adminAccess": bool,
    "tolerations": _TOLERATIONS,
    "bindingConditions": [str],
    "bindingFailureConditions": [str],
    "consumedCapacity": _AMOUNTS,
}
_CLAIM: Final = {
    "spec": _CLAIM_SPEC,
    "status": {
        "allocation": {
            "devices": {"results": [_RESULT], "config": [{"requests": [str]}]},
            "nodeSelector": {"nodeSelectorTerms": [{}]},
            "allocationTimestamp": str,
        },
        "reservedFor": [{"apiGroup": str, "resource": str, "name": str, "uid": str}],
        "devices": [{"driver": str, "pool": str, "device": str, "shareID": str}],
    },
}
_COUNTERS: Final = Map({"value": QUANTITY})
_POLICY: Final = {"default": QUANTITY, "validRange": _AMOUNTS, "validValues": [QUANTITY]}
_DEVICE: Final = {
    "name": str,
    "attributes": Map({}),
    "capacity": Map({"value": QUANTITY, "requestPolicy": _POLICY}),
    "consumesCounters": [{"counterSet": str, "counters": _COUNTERS}],
    "taints": [_TAINT],
}
_SLICE: Final = {
    "spec": {
        "driver": str,
        "nodeName": str,
        "allNodes": bool,
        "perDeviceNodeSelection": bool,
        "pool": {"name": str, "generation": int, "resourceSliceCount": int},
        "devices": [_DEVICE],
        "sharedCounters": [{"name": str, "counters": _COUNTERS}],
    }
}
_EVENT_TEXTS: Final = ("message", "reason", "action", "type", "reportingComponent", "reportingInstance", "eventTime")
_EVENT: Final = {
    "involvedObject": {"kind": str, "namespace": str, "name": str, "uid": str},
    "series": {"count": int, "lastObservedTime": str},
    "count": int,
    **dict.fromkeys(
        ("message", "reason", "action", "type", "reportingComponent", "reportingInstance", "eventTime"), str
    ),
}

_BY_PLURAL: Final[dict[str, dict[str, Any]]] = {
    "pods": _POD,
    "nodes": _NODE,
    "resourceclaims": _CLAIM,
    "resourceclaimtemplates": {"spec": {"metadata": _METADATA, "spec": _CLAIM_SPEC}},
    "resourceslices": _SLICE,
    "deviceclasses": {"spec": {"selectors": [{"cel": {"expression": str}}], "extendedResourceName": str}},
    "devicetaintrules": {"spec": {"taint": _TAINT}},
    "events": _EVENT,
    "priorityclasses": {"value": int, "globalDefault": bool, "preemptionPolicy": str},
    "leases": {"spec": {"holderIdentity": str, "leaseDurationSeconds": int, "leaseTransitions": int}},
}
_ANY: Final = {"metadata": _METADATA, "spec": {}, "status": {}}


def shape(plural: str) -> dict[str, Any]:
    """The shape of a kind's objects, in stored form."""
    return _ANY | _BY_PLURAL.get(plural, {})
