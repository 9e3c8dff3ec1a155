"""The accepted differences: where we answer otherwise than upstream on purpose, each known by a predicate.

docs/conformity.md explains each; tests/conformity holds a case of each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One accepted difference. ``applies(case, ours, theirs)`` sees the input and both answers as given."""

    name: str
    kind: str
    defect: str
    ours: str
    applies: Callable[[Json, Json, Json], bool]


def _terms_of_a_device(case: Json, ours: Json, theirs: Json) -> bool:
    several = any(
        len((device.get("nodeSelector") or {}).get("nodeSelectorTerms", ())) > 1
        for slice_ in case["slices"]
        for device in slice_["spec"].get("devices", ())
    )
    text = "unsupported ResourceSlice.NodeSelector with"
    return several and ours.get("allocated", False) and text in theirs.get("error", "")


def _share_of_a_dedicated_device(case: Json, ours: Json, theirs: Json) -> bool:
    """Upstream gave out, or failed on, a device of which a share is in use, and we passed it by."""
    allocated, given = case.get("allocated") or (), theirs.get("results") or ()
    names = ["/".join(device) for device in _shared(allocated) & _dedicated(case)]
    error = theirs.get("error", "")
    if any(f"{name}: " in error or f"cannot add device {name} because " in error for name in names):
        return bool(ours.get("error") != theirs["error"])
    return held_and_given(allocated, given) and not held_and_given(allocated, ours.get("results") or ())


def held_and_given(allocated: Sequence[Json], given: Sequence[Json]) -> bool:
    """Whether an allocation of ``given`` has a device whole of which a claim of ``allocated`` holds a share."""
    return bool(_shared(allocated) & _given_whole(given))


def _shared(allocated: Sequence[Json]) -> set[tuple[str, str, str]]:
    return {
        (held["driver"], held["pool"], held["device"])
        for claim in allocated
        for held in ((claim.get("status") or {}).get("allocation") or {}).get("devices", {}).get("results", ())
        if held.get("shareID") and not held.get("adminAccess")
    }


def _dedicated(case: Json) -> set[tuple[str, str, str]]:
    """The devices that nobody may share, as the slices have them now."""
    return {
        (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device["name"])
        for slice_ in case["slices"]
        for device in slice_["spec"].get("devices", ())
        if not device.get("allowMultipleAllocations")
    }


def _given_whole(given: Sequence[Json]) -> set[tuple[str, str, str]]:
    return {
        (result["driver"], result["pool"], result["device"])
        for allocation in given
        for result in allocation["devices"].get("results", ())
        if not result.get("shareID") and not result.get("adminAccess")
    }


_CAPACITY = re.compile(r'(.*: checking capacity for device [^:]+: )capacity "([^"]+)": ')


def _one_of_several_capacities(case: Json, ours: Json, theirs: Json) -> bool:
    """Both end the attempt at the same device, each because of another of its capacities."""
    one, other = (_CAPACITY.match(answer.get("error", "")) for answer in (ours, theirs))
    return bool(one and other and one[1] == other[1] and one[2] != other[2])


def _compiler_panics(case: Json, ours: Json, theirs: Json) -> bool:
    return "panic" in theirs and ours.get("error_kind") == "compile"


RULES: tuple[Rule, ...] = (
    Rule(
        "device node selector of several terms",
        "allocate",
        "such a selector passes the API server's validation, but allocating the device ends the attempt on all nodes",
        "the allocation is tied to the node it was made for",
        _terms_of_a_device,
    ),
    Rule(
        "share of a device that is dedicated now",
        "allocate",
        "a share without capacities is not seen once its device no longer allows multiple allocations: given out twice",
        "the device is in use until the share is gone",
        _share_of_a_dedicated_device,
    ),
    Rule(
        "which of several capacities an error names",
        "allocate",
        "of several capacities that cannot be represented a random one is named",
        "the first one of the device",
        _one_of_several_capacities,
    ),
    Rule(
        "upstream's CEL compiler panics",
        "cel",
        "[?<dyn>], {?'k': <dyn>} and a bytes map key crash the compiler, and the scheduler with it",
        "a compile error",
        _compiler_panics,
    ),
)


def explain(kind: str, case: Json, ours: Json, theirs: Json) -> Rule | None:
    """The first rule of ``kind`` that accepts the difference between two answers to ``case``."""
    for rule in RULES:
        if rule.kind == kind and rule.applies(case, ours, theirs):
            return rule
    return None
