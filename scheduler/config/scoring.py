"""Resource weights and utilization shapes, which several args kinds share."""

from __future__ import annotations

from typing import Any

from scheduler.config.fields import Fields
from scheduler.config.problems import Problems

_STRATEGIES = ("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")


def decode_resources(fields: Fields, problems: Problems) -> list[dict[str, Any]]:
    """``resources``: [{name, weight}]; cpu and memory of weight 1 when empty; weight 0 or absent becomes 1."""
    resources = []
    for entry in fields.objects("resources"):
        name, weight = entry.text("name"), entry.whole("weight", 0) or 1
        if not 0 < weight <= 100:
            text = f"resource weight of {name} not in valid range (0, 100]"
            problems.invalid(entry.at("weight"), weight, text)
        entry.finish()
        resources.append({"name": name, "weight": weight})
    return resources or [{"name": "cpu", "weight": 1}, {"name": "memory", "weight": 1}]


def decode_shape(fields: Fields, problems: Problems) -> list[dict[str, int]]:
    """``shape``: [{utilization 0..100, score 0..10}], utilization strictly increasing, at least one point."""
    points: list[dict[str, int]] = []
    path = fields.at("shape")
    for entry in fields.objects("shape"):
        utilization, score = entry.whole("utilization", 0), entry.whole("score", 0)
        if not 0 <= utilization <= 100:
            problems.invalid(entry.at("utilization"), utilization, "not in valid range [0, 100]")
        if not 0 <= score <= 10:
            problems.invalid(entry.at("score"), score, "not in valid range [0, 10]")
        if points and utilization <= points[-1]["utilization"]:
            problems.invalid(entry.at("utilization"), utilization, "values must be sorted in increasing order")
        entry.finish()
        points.append({"utilization": utilization, "score": score})
    if not points:
        problems.required(path, "at least one point must be specified")
    return points


def decode_scoring_strategy(fields: Fields, problems: Problems) -> dict[str, Any]:
    """scoringStrategy of NodeResourcesFit: type, resources, requestedToCapacityRatio (None unless of that type)."""
    kind = fields.text("type", "LeastAllocated") or "LeastAllocated"
    if kind not in _STRATEGIES:
        problems.unsupported(fields.at("type"), kind, _STRATEGIES)
    resources = decode_resources(fields, problems)
    ratio: dict[str, Any] | None = None
    ratio_path = fields.at("requestedToCapacityRatio")
    if fields.has("requestedToCapacityRatio"):
        parameters = fields.child("requestedToCapacityRatio")
        if kind != "RequestedToCapacityRatio":
            text = "must be nil when type is not RequestedToCapacityRatio"
            problems.invalid(ratio_path, "object", text)
        ratio = {"shape": decode_shape(parameters, problems)}
        parameters.finish()
    elif kind == "RequestedToCapacityRatio":
        problems.required(ratio_path, "must be specified when type is RequestedToCapacityRatio")
    fields.raw("requestedToCapacityRatio")
    fields.finish()
    return {"type": kind, "resources": resources, "requestedToCapacityRatio": ratio}
