"""Which features the cases of a run touch, and whether solvable and unsolvable ones do."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from e2e.conformity.allocate_cases import ALPHA

Json = dict[str, Any]
# Feature -> text that appears in the JSON of the part of a case that asks for it.
_IN_SLICES = {
    "device taints": '"taints"',
    "shared counters": '"consumesCounters"',
    "shareable devices": '"allowMultipleAllocations": true',
    "policy: default": '"requestPolicy"',
    "policy: range": '"validRange"',
    "policy: values": '"validValues"',
    "binding conditions": '"bindingConditions"',
    "binds to node": '"bindsToNode"',
    "slice for all nodes or by selector": '"allNodes"',
    "node selector": '"nodeSelector"',
    "per-device node selection": '"perDeviceNodeSelection"',
    "version attributes": '"version"',
    "list attributes": '"ints"',
    "compatibility groups": '"compatibilityGroups"',
    "skipNodeOperations": '"skipNodeOperations"',
}
_IN_CLAIMS = {
    "request selectors": '"selectors"',
    "mode All": '"All"',
    "firstAvailable": '"firstAvailable"',
    "admin access": '"adminAccess": true',
    "matchAttribute": '"matchAttribute"',
    "distinctAttribute": '"distinctAttribute"',
    "tolerations": '"tolerations"',
    "capacity requests": '"capacity"',
    "derived attributes": '"derivedAttributes"',
    "claim configs": '"opaque"',
}
_OTHERS = (
    "class configs",
    "devices in use",
    "shares in use",
    "admin access in use",
    "taint rules",
    "several claims",
    "two drivers",
    "equal pool names",
    "old generations",
    "incomplete pool",
    "invalid pool",
    "count > 1",
    "count > 4",
    "a default gate off",
)
_ERRORS = {
    "error: CEL": "CEL ",
    "error: derived attribute": "derived attribute",
    "error: pool updating or invalid": "currently",
    "error: invalid pools": "invalid resource pools",
    "error: claim limit": "exceeds the claim limit",
    "error: constraint with All": "constraint would not be satisfied",
    "error: capacity": "checking capacity",
    "error: feature disabled": "disabled",
    "error: class": "could not retrieve",
    "error: node selector": "create NodeSelector",
}


def features_of(case: Json) -> Iterator[str]:
    """The features a case uses."""
    slices, claims, held = (json.dumps(case.get(key) or ()) for key in ("slices", "claims", "allocated"))
    classes = json.dumps(case.get("classes") or ())
    yield from (name for name, text in _IN_SLICES.items() if text in slices)
    yield from (name for name, text in _IN_CLAIMS.items() if text in claims)
    if '"opaque"' in classes:
        yield "class configs"
    if '"results"' in held:
        yield "devices in use"
    if '"shareID"' in held:
        yield "shares in use"
    if '"adminAccess"' in held:
        yield "admin access in use"
    if case.get("taintRules"):
        yield "taint rules"
    if len(case["claims"]) > 1:
        yield "several claims"
    yield from _counts(case)
    yield from _pools(case)
    features = case.get("features") or {}
    if any(features.get(gate) is False for gate in features):
        yield "a default gate off"
    for gate in ALPHA.values():
        if features.get(gate):
            yield f"gate {gate}"


def _counts(case: Json) -> Iterator[str]:
    requests = [request for claim in case["claims"] for request in claim["spec"]["devices"].get("requests", ())]
    asked = [part for r in requests for part in r.get("firstAvailable") or [r.get("exactly") or {}]]
    if any(part.get("count", 1) > 1 for part in asked):
        yield "count > 1"
    if any(part.get("count", 1) > 4 for part in asked):
        yield "count > 4"


def _pools(case: Json) -> Iterator[str]:
    pools: dict[tuple[str, str], list[Json]] = {}
    for slice_ in case["slices"]:
        spec = slice_["spec"]
        pools.setdefault((spec["driver"], spec["pool"]["name"]), []).append(spec)
    if len({driver for driver, _ in pools}) > 1:
        yield "two drivers"
    if len({name for _, name in pools}) < len(pools):
        yield "equal pool names"
    if any(len({spec["pool"]["generation"] for spec in specs}) > 1 for specs in pools.values()):
        yield "old generations"
    for specs in pools.values():
        newest = max(spec["pool"]["generation"] for spec in specs)
        current = [spec for spec in specs if spec["pool"]["generation"] == newest]
        names = [device["name"] for spec in current for device in spec.get("devices", ())]
        if len(current) != current[0]["pool"]["resourceSliceCount"]:
            yield "incomplete pool"
            break
        if len(set(names)) < len(names) or '"set-9"' in json.dumps(current):
            yield "invalid pool"
            break


class Coverage:
    """Counts features over a run, apart for allocated, refused and failed cases."""

    def __init__(self) -> None:
        self.cases: Counter[str] = Counter()
        self.solved: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()

    def add(self, case: Json, upstream: Json) -> None:
        """Count one case with upstream's answer."""
        allocated = bool(upstream.get("allocated"))
        for feature in set(features_of(case)):
            self.cases[feature] += 1
            self.solved[feature] += allocated
        self.cases["(all)"] += 1
        self.solved["(all)"] += allocated
        error = upstream.get("error")
        if error:
            name = next((name for name, text in _ERRORS.items() if text in error), f"error: other: {error[:60]}")
            self.errors[name] += 1

    @property
    def allocatable(self) -> float:
        """The part of all cases that upstream could allocate."""
        return self.solved["(all)"] / max(1, self.cases["(all)"])

    def thin(self, least: int) -> list[str]:
        """Features that fewer than ``least`` cases have, or only solvable or only unsolvable ones."""
        features = [*_IN_SLICES, *_IN_CLAIMS, *_OTHERS, *(f"gate {gate}" for gate in ALPHA.values())]
        return [name for name in features if self.cases[name] < least or not 0 < self.solved[name] < self.cases[name]]

    def rows(self) -> list[tuple[str, int, int]]:
        """(feature, cases, allocatable ones), most frequent first."""
        return [(name, count, self.solved[name]) for name, count in self.cases.most_common()]


class CelCoverage:
    """Counts the functions expressions call, and the classes of errors they end in."""

    def __init__(self, functions: frozenset[str]) -> None:
        self.calls: Counter[str] = Counter(dict.fromkeys(functions, 0))
        self.errors: Counter[str] = Counter(dict.fromkeys(CEL_ERRORS, 0))
        self._functions = functions

    def add(self, case: Json, upstream: Json) -> None:
        """Count one case with upstream's answer."""
        for name in {match.group(1) for match in CALL.finditer(case["expression"])} & self._functions:
            self.calls[name] += 1
        kind = upstream.get("error_kind")
        if kind is not None:
            self.errors[error_class(kind, upstream["error"])] += 1


CALL = re.compile(r"((?:(?:optional|sets|lists|strings|format|cel|ip)\.)?[A-Za-z_]\w*)\(")


# Class of error -> pattern in its text; the first that fits counts.
CEL_ERRORS = {
    "cost: limit exceeded": r"^cost: ",
    "compile: undeclared name or field": r"^compile: .*(undeclared ref|undefined field|support field selection)",
    "compile: no matching overload": r"^compile: .*found no matching overload",
    "compile: syntax": r"^compile: .*Syntax error",
    "compile: element types": r"^compile: .*expected type",
    "compile: result type": r"^compile: must evaluate to",
    "compile: literal out of range or unreadable": r"^compile: .*(invalid \w+ (literal|argument))",
    "compile: format clause": r"^compile: .*(formatting|string\.format|index \d+ out of range)",
    "compile: not a range": r"^compile: .*cannot be range of a comprehension",
    "runtime: not a range": r"(expected iterable type|unsupported comprehension range)",
    "runtime: format clause": r"error during formatting",
    "compile: constant expression fails": r"^compile: program instantiation failed",
    "runtime: inside upstream": r"(internal error|runtime error|qualifier type|unknown type|unhashable)",
    "runtime: no such key": r"no such key",
    "runtime: no such overload": r"no such overload",
    "runtime: overflow": r"overflow",
    "runtime: division or modulus by zero": r"by zero",
    "runtime: index": r"(index out of|negative index|cannot slice|invalid substring|must be non-negative)",
    "runtime: result is no bool": r"could not be converted to bool",
    "runtime: empty optional": r"optional.none",
    "runtime: empty list": r"called on empty list",
    "runtime: regular expression": r"error parsing regexp",
    "runtime: semver text": r"(Version|Major|Minor|Patch|PreRelease|Prerelease|Invalid character)",
    "runtime: address text": r"(IP [Aa]ddress|IPv6 address|network address|CIDR)",
    "runtime: quantity text or value": r"(quantities must match|value to integer|unable to parse quantity)",
    "runtime: conversion": r"(strconv|type conversion|conversion error|parsing|unsupported|invalid UTF|URL parse)",
    "runtime: time zone or time": r"(time zone|timestamp|duration)",
    "runtime: values without order": r"(NaN values|must be comparable|same type)",
}


def error_class(kind: str, text: str) -> str:
    """The class of an error; ``other`` with its first words when there is none."""
    whole = f"{kind}: {text}"
    for name, pattern in CEL_ERRORS.items():
        if re.search(pattern, whole):
            return name
    return f"other: {whole.splitlines()[0][:70]}"
