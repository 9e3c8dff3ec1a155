"""Make a failing case small: leave out one part after the other while our answer still differs from upstream's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

Json = dict[str, Any]
Path = tuple[str | int, ...]

# Fields an API object may lack; every element of a list may go as well.
OPTIONAL = frozenset(
    (
        "taintRules",
        "allocated",
        "features",
        "status",
        "tolerations",
        "selectors",
        "constraints",
        "config",
        "capacity",
        "requestPolicy",
        "attributes",
        "taints",
        "bindingConditions",
        "bindingFailureConditions",
        "bindsToNode",
        "allowMultipleAllocations",
        "consumesCounters",
        "compatibilityGroups",
        "skipNodeOperations",
        "derivedAttributes",
        "adminAccess",
        "nodeSelector",
        "matchFields",
        "matchExpressions",
        "requests",
        "validRange",
        "validValues",
        "step",
        "max",
        "consumedCapacity",
        "shareID",
        "labels",
        "tolerationSeconds",
    )
)
BATCH = 40


def shrink(case: Json, fails: Callable[[Sequence[Json]], list[bool]], rounds_max: int = 200) -> Json:
    """A smaller case that still fails. ``fails`` tells for each of a batch of cases whether it does."""
    for _ in range(rounds_max):
        smaller = _step(case, fails)
        if smaller is None:
            return case
        case = smaller
    return case


def _step(case: Json, fails: Callable[[Sequence[Json]], list[bool]]) -> Json | None:
    """The first smaller failing case; parts that hold more are tried first."""
    candidates = sorted(_smaller(case), key=lambda one: len(json.dumps(one)))
    for start in range(0, len(candidates), BATCH):
        batch = candidates[start : start + BATCH]
        for candidate, failing in zip(batch, fails(batch), strict=True):
            if failing:
                return candidate
    return None


def _smaller(case: Json) -> Iterator[Json]:
    for path in _paths(case, ()):
        yield _without(case, path)
        if path[0] == "slices" and len(path) == 2:
            yield _without_slice(case, int(path[1]))
    for number, slice_ in enumerate(case.get("slices") or ()):
        if slice_["spec"]["pool"]["generation"] > 1:
            copy = _copy(case)
            copy["slices"][number]["spec"]["pool"]["generation"] = 1
            yield copy


def _paths(value: Any, path: Path) -> Iterator[Path]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in OPTIONAL or (path and path[-1] in ("features", "attributes", "capacity", "counters", "labels")):
                yield (*path, key)
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield (*path, place)
            yield from _paths(item, (*path, place))


def _copy(case: Json) -> Json:
    copy: Json = json.loads(json.dumps(case))
    return copy


def _without(case: Json, path: Path) -> Json:
    copy = _copy(case)
    holder: Any = copy
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    return copy


def _without_slice(case: Json, number: int) -> Json:
    """Without one slice, its pool announcing one less."""
    copy = _copy(case)
    gone = copy["slices"].pop(number)["spec"]
    for slice_ in copy["slices"]:
        spec = slice_["spec"]
        same = spec["driver"] == gone["driver"] and spec["pool"]["name"] == gone["pool"]["name"]
        if same and spec["pool"]["generation"] == gone["pool"]["generation"]:
            spec["pool"]["resourceSliceCount"] = max(1, spec["pool"]["resourceSliceCount"] - 1)
    return copy
