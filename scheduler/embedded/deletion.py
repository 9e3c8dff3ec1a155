"""How objects go: grace for Pods on a node, finalizers, namespaces that wait for their content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum

import msgspec

from scheduler.api.selectors import LabelSelector, label_selector_matches
from scheduler.embedded.kinds import Kind
from scheduler.embedded.objects import timestamp
from scheduler.embedded.status import Json


def complete(metadata: Json) -> bool:
    """A terminating object whose grace is spent and whose last finalizer is gone."""
    return (
        bool(metadata.get("deletionTimestamp"))
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
    )


class Fate(Enum):
    GOES = "goes"
    WAITS = "waits"


def decide(kind: Kind, obj: Json, grace_period_s: int | None, now: datetime) -> tuple[Fate, Json]:
    """Whether a deleted object goes at once, and how it looks then: marked, or as it was last. `obj` is taken over."""
    metadata = obj["metadata"]
    graceful = kind.plural == "pods"
    grace_s = _grace_s(obj, grace_period_s) if graceful else 0
    held = bool(metadata.get("finalizers")) or kind.plural == "namespaces"
    if grace_s == 0 and not held and not graceful:
        return Fate.GOES, obj
    _mark(kind, obj, metadata, grace_s, now)
    return (Fate.WAITS if grace_s or held else Fate.GOES), obj


def _mark(kind: Kind, obj: Json, metadata: Json, grace_s: int, now: datetime) -> None:
    """Sets deletionTimestamp and grace; a later deletion can only shorten the grace."""
    if metadata.get("deletionTimestamp"):
        if grace_s < (metadata.get("deletionGracePeriodSeconds") or 0):
            metadata["deletionGracePeriodSeconds"] = grace_s
            metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
        return
    metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1
    if kind.plural == "namespaces":
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        del metadata["deletionGracePeriodSeconds"]


def _grace_s(pod: Json, wanted_s: int | None) -> int:
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
        return 0
    if wanted_s is not None:
        return max(wanted_s, 0)
    if pod["metadata"].get("deletionTimestamp"):
        return int(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
    default_s = spec.get("terminationGracePeriodSeconds")
    return 30 if default_s is None else int(default_s)


def budget_exhausted(budget: Json, labels: Mapping[str, str]) -> bool:
    """Whether this PodDisruptionBudget covers a Pod with these labels and allows no disruption now."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None:
        return False
    covered = label_selector_matches(msgspec.convert(selector, LabelSelector), labels)
    return covered and int((budget.get("status") or {}).get("disruptionsAllowed") or 0) <= 0
