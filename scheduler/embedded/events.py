"""One Event, two served forms: core/v1 (stored) and events.k8s.io/v1. Conversions move fields and lose none.

Rules of creation: k8s.io/kubernetes 1.37 pkg/apis/core/validation/events.go. Errors name the fields of the stored form,
but for the reporting controller, as the real server does.
"""

from __future__ import annotations

from scheduler.embedded.names import NAME_PART_TEXT, qualified_name_problem
from scheduler.embedded.status import FieldError, Json, field_invalid, field_required

_MAX_NAME_LENGTH = 128
_MAX_NOTE_LENGTH = 1024
_CLUSTER_NAMESPACES = ("default", "kube-system")

# events.k8s.io name -> core name; everything else has one name in both.
_NAMES = {
    "regarding": "involvedObject",
    "note": "message",
    "deprecatedSource": "source",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedCount": "count",
    "reportingController": "reportingComponent",
}
_BACK = {core: name for name, core in _NAMES.items()}
_FIXED = ("involvedObject", "reason", "message", "action", "type", "related", "reportingComponent", "reportingInstance")


def to_core(event: Json) -> Json:
    return {_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    """The events.k8s.io form; an empty reporting controller or instance is left out there."""
    quiet = ("reportingComponent", "reportingInstance")
    return {_BACK.get(name, name): value for name, value in event.items() if value or name not in quiet}


def validate_core_create(event: Json) -> list[FieldError]:
    """What core/v1 asks: the namespace of what the Event is about, and the new fields once eventTime is set."""
    namespace = event["metadata"].get("namespace")
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    errors = _placed(event, namespace)
    if not errors and regarding and regarding != namespace:
        errors.append(field_invalid("involvedObject.namespace", regarding, "does not match event.namespace"))
    return errors + (_reported(event, "reportingComponent") if event.get("eventTime") else [])


def validate_create(event: Json) -> list[FieldError]:
    """What events.k8s.io/v1 asks on top: a time, a type, no deprecated counter, a series that counts."""
    errors = _placed(event, event["metadata"].get("namespace"))
    if event.get("eventTime"):
        errors += _reported(event, "reportingController")
    else:
        errors.append(field_required("eventTime"))
    if event.get("type") not in ("Normal", "Warning"):
        errors.append(field_invalid("type", "", f"has invalid value: {event.get('type', '')}"))
    if event.get("count"):
        errors.append(field_invalid("count", "", "needs to be unset"))
    series = event.get("series")
    if series is not None and int(series.get("count") or 0) < 2:
        errors.append(field_invalid("series.count", "", "should be at least 2"))
    if series is not None and not series.get("lastObservedTime"):
        errors.append(field_required("series.lastObservedTime"))
    return errors


def validate_update(new: Json, old: Json) -> list[FieldError]:
    """Only the series (and metadata) of an Event may change through events.k8s.io/v1."""
    return [
        field_invalid(name, new.get(name), "field is immutable") for name in _FIXED if new.get(name) != old.get(name)
    ]


def _placed(event: Json, namespace: str | None) -> list[FieldError]:
    regarding = (event.get("involvedObject") or {}).get("namespace") or ""
    if not regarding and namespace not in _CLUSTER_NAMESPACES:
        return [field_invalid("involvedObject.namespace", "", "does not match event.namespace")]
    return []


def _reported(event: Json, controller_field: str) -> list[FieldError]:
    controller = event.get("reportingComponent") or ""
    errors = []
    if not controller:
        errors.append(field_required(controller_field))
    if problem := qualified_name_problem(controller):
        errors.append(field_invalid(controller_field, controller, problem))
    if not controller:
        errors.append(field_invalid(controller_field, controller, NAME_PART_TEXT))
    for name in ("reportingInstance", "action", "reason"):
        text = event.get(name) or ""
        if not text:
            errors.append(field_required(name))
        elif len(text.encode()) > _MAX_NAME_LENGTH:
            errors.append(field_invalid(name, "", f"can have at most {_MAX_NAME_LENGTH} characters"))
    if len((event.get("message") or "").encode()) > _MAX_NOTE_LENGTH:
        errors.append(field_invalid("message", "", f"can have at most {_MAX_NOTE_LENGTH} characters"))
    return errors
