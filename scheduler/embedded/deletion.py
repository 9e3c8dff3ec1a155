"""How objects go: grace for Pods on a node, finalizers, namespaces that wait for their content."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

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


def marked(kind: Kind, obj: Json, grace_period_s: int | None, now: datetime) -> Json | None:
    """The object as it waits for its end, or None when nothing holds it. `obj` is taken over."""
    metadata = obj["metadata"]
    grace_s = _grace_s(obj, grace_period_s) if kind.plural == "pods" else 0
    held = bool(metadata.get("finalizers")) or kind.plural == "namespaces"
    if metadata.get("deletionTimestamp"):
        return _shortened(metadata, obj, grace_s, held, now)
    if grace_s == 0 and not held:
        return None
    metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1
    if kind.plural == "namespaces":
        obj["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
        del metadata["deletionGracePeriodSeconds"]
    return obj


def _shortened(metadata: Json, obj: Json, grace_s: int, held: bool, now: datetime) -> Json | None:
    left_s = metadata.get("deletionGracePeriodSeconds") or 0
    if grace_s == 0 and not held:
        return None
    if grace_s < left_s:
        metadata["deletionGracePeriodSeconds"] = grace_s
        metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=grace_s))
    return obj


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
