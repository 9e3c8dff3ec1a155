"""Small nasty allocator cases in the conformity format (e2e/oracle/FORMAT.md): same seed, same cases."""

from __future__ import annotations

from collections.abc import Iterator

from e2e.conformity import asks, inventory
from e2e.conformity.draw import NODE, Draw, Json
from e2e.conformity.late import late_claims

ALPHA = {
    "list_attributes": "ListTypeAttributes",
    "derived": "DerivedAttributes",
    "groups": "CompatibilityGroups",
    "skips": "OptionalNodeOperations",
    "fraction": "FractionalCapacityRange",
}


def allocate_cases(seed: int, count: int) -> Iterator[Json]:
    """``count`` cases; the first n of a longer run are the same."""
    draw = Draw(seed)
    for number in range(count):
        draw.new_themes()
        yield _case(draw, f"allocate-{seed}-{number}")


def _case(draw: Draw, name: str) -> Json:
    slices = inventory.slices(draw)
    case: Json = {
        "name": name,
        "node": _node(draw),
        "classes": asks.classes(draw),
        "slices": slices,
        "claims": _claims(draw, slices),
        "allocated": [] if draw.has("late") else inventory.holders(draw, slices),
    }
    rules = inventory.taint_rules(draw)
    if rules:
        case["taintRules"] = rules
    features = _features(draw)
    if features is not None:
        case["features"] = features
    return case


def _claims(draw: Draw, slices: list[Json]) -> list[Json]:
    if draw.has("late"):
        return late_claims(draw, slices)
    return [asks.claim(draw, f"claim-{number}") for number in range(draw.of(1, 1, 1, 1, 1, 1, 1, 2, 2, 3))]


def _node(draw: Draw) -> Json:
    labels = {"zone": "z1", "kubernetes.io/hostname": NODE, "cores": "8"}
    node: Json = {"metadata": {"name": NODE, "labels": labels}}
    if draw.chance(60):
        node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    return node


def _features(draw: Draw) -> Json | None:
    """The gates of a case: alpha ones are on in most cases that have their theme."""
    features: Json = {"default": True}
    for theme, gate in ALPHA.items():
        if draw.has(theme) and draw.chance(92):
            features[gate] = True
    if draw.gate_off:
        features[draw.gate_off] = False
        if features.get("ConsumableCapacity") is False or features.get("PartitionableDevices") is False:
            # The gate library refuses a gate whose requirement is off.
            features.pop("FractionalCapacityRange" if "ConsumableCapacity" in features else "CompatibilityGroups", None)
    return features if len(features) > 1 else None
