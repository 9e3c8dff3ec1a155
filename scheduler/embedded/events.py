"""One Event, two served forms: core/v1 (stored) and events.k8s.io/v1. Conversions move fields and lose none."""

from __future__ import annotations

from scheduler.embedded.status import Json

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


def to_core(event: Json) -> Json:
    return {_NAMES.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    return {_BACK.get(name, name): value for name, value in event.items()}
