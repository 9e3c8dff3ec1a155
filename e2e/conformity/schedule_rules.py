"""The accepted differences of whole scheduling cases, each known by a predicate; docs/conformity.md explains them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from e2e.conformity.rules import held_and_given
from e2e.conformity.schedule_compare import schedule_difference

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ScheduleRule:
    """One accepted difference. ``applies(case, ours, theirs)`` sees the input and both answers as given."""

    name: str
    applies: Callable[[Json, Json, Json], bool]


def _terms_of_a_device(case: Json, ours: Json, theirs: Json) -> bool:
    return "unsupported ResourceSlice.NodeSelector with" in json.dumps(theirs) and "unsupported" not in json.dumps(ours)


def _claim_in_the_way(case: Json, ours: Json, theirs: Json) -> bool:
    """We free an allocated claim of the Pod that upstream forgot, because its other claims find no devices there."""
    several = len(case["pod"]["spec"].get("resourceClaims") or ()) > 1 or _by_devices(case)
    return several and _freed(ours) and not _freed(theirs)


def _by_devices(case: Json) -> bool:
    """Whether devices serve an extended resource of the Pod: that is a claim more, which only the scheduler makes."""
    served = {item["spec"].get("extendedResourceName") for item in case["objects"] if item["kind"] == "DeviceClass"}
    containers = case["pod"]["spec"]["containers"]
    return any(served & set((one.get("resources") or {}).get("requests") or ()) for one in containers)


def _freed(answer: Json) -> bool:
    return bool((answer.get("preemption") or {}).get("deallocated_claims"))


def _share_of_a_dedicated_device(case: Json, ours: Json, theirs: Json) -> bool:
    """Upstream gives out a device whole although a share of it is in use, and we do not."""
    allocated = [item for item in case["objects"] if item["kind"] == "ResourceClaim" and "allocation" in _status(item)]
    return any(
        held_and_given(allocated, [one["allocation"] for one in claims])
        and not held_and_given(allocated, [one["allocation"] for one in (ours.get("allocations") or {}).get(node, ())])
        for node, claims in (theirs.get("allocations") or {}).items()
    )


def _users_on_nodes_that_do_not_exist(case: Json, ours: Json, theirs: Json) -> bool:
    """Without any node upstream counts who uses a claim on nodes that are gone; with one it does not."""
    skipped, theirs_skipped = _skipped(ours), _skipped(theirs)
    return (
        not any(item["kind"] == "Node" for item in case["objects"])
        and set(skipped) - set(theirs_skipped) == {"VolumeRestrictions"}
        and list(schedule_difference(ours, theirs)) == ["prefilter/skipped"]
        and _pod_of_a_claim_for_one(case)
    )


def _skipped(answer: Json) -> list[str]:
    return (answer.get("prefilter") or {}).get("skipped") or []


def _pod_of_a_claim_for_one(case: Json) -> bool:
    """Whether a placed Pod uses a claim for one Pod only that the Pod of the case wants, too."""
    exclusive = {
        (item["metadata"]["namespace"], item["metadata"]["name"])
        for item in case["objects"]
        if item["kind"] == "PersistentVolumeClaim" and "ReadWriteOncePod" in item["spec"].get("accessModes", ())
    }
    placed = [item for item in case["objects"] if item["kind"] == "Pod" and item["spec"].get("nodeName")]
    wanted = exclusive & _claims(case["pod"])
    return any(wanted & _claims(pod) for pod in placed)


def _claims(pod: Json) -> set[tuple[str, str]]:
    volumes = [
        one["persistentVolumeClaim"] for one in pod["spec"].get("volumes") or () if "persistentVolumeClaim" in one
    ]
    return {(pod["metadata"].get("namespace") or "default", volume["claimName"]) for volume in volumes}


def _status(item: Json) -> Json:
    status: Json = item.get("status") or {}
    return status


SCHEDULE_RULES: tuple[ScheduleRule, ...] = (
    ScheduleRule("device node selector of several terms", _terms_of_a_device),
    ScheduleRule("share of a device that is dedicated now", _share_of_a_dedicated_device),
    ScheduleRule("a claim in the way where other claims find nothing", _claim_in_the_way),
    ScheduleRule("users of a claim on nodes that do not exist", _users_on_nodes_that_do_not_exist),
)


def explain_schedule(case: Json, ours: Json, theirs: Json) -> ScheduleRule | None:
    """The first rule that accepts the difference between two answers to ``case``."""
    return next((rule for rule in SCHEDULE_RULES if rule.applies(case, ours, theirs)), None)


def upstream_gave_up(theirs: Json) -> bool:
    """Whether upstream ran into its deadline: such an answer depends on how fast the machine is."""
    text = json.dumps(theirs)
    return "timed out trying to allocate devices" in text or "context deadline exceeded" in text
