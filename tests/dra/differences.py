"""The accepted differences to upstream, each as a rule on the input: docs/conformity.md says why."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def changed_to_exclusive(case: Json) -> bool:
    """A device that is not shareable (any more) has shares without capacity: upstream does not see it in use."""
    exclusive = {
        (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
        for slice_ in case.get("slices") or ()
        for device in slice_["spec"].get("devices") or ()
        if not device.get("allowMultipleAllocations")
    }
    return any(
        result.get("shareID")
        and not result.get("adminAccess")
        and (result["driver"], result["pool"], result["device"]) in exclusive
        for claim in case.get("allocated") or ()
        for result in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results") or ()
    )


def terms_of_device_selectors(case: Json) -> bool:
    """A device's own node selector has several terms: upstream ends the attempt, we pin the allocation to the node."""
    return any(
        len((device.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()) > 1
        for slice_ in case.get("slices") or ()
        for device in slice_["spec"].get("devices") or ()
    )


RULES = {
    "24 shared device changed to exclusive": changed_to_exclusive,
    "19 device node selector with several terms": terms_of_device_selectors,
}


def accepted(case: Json) -> str | None:
    """The name of the rule that allows our answer to differ on ``case``, None when it must agree."""
    return next((name for name, rule in RULES.items() if rule(case)), None)
