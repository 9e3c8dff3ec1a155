"""Claims that fit, but only late in the search: the first requests take what the last one needs.

Such cases reach the shortcuts of a long search: alike devices, remembered failures, claims tried alone.
"""

from __future__ import annotations

from e2e.conformity.draw import Draw, Json

ATTRIBUTES = ("numa", "kind")


def late_claims(draw: Draw, slices: list[Json]) -> list[Json]:
    """One or two greedy claims and a choosy one for the devices of ``slices``; now and then one device too many."""
    devices = [(slice_["spec"]["driver"], device) for slice_ in slices for device in slice_["spec"].get("devices", ())]
    constraint, wanted = _choosy(draw, devices)
    spare = len(devices) - wanted - draw.of(0, 0, 0, 1, 2) + draw.of(0, 0, 0, 0, 1)
    greedy: list[Json] = []
    while spare > 0 and len(greedy) < 3:
        count = min(spare, draw.of(2, 3, 4, 5))
        greedy.append(_request(f"req-{len(greedy)}", count))
        spare -= count
    choosy = _request("choosy", wanted)
    if draw.chance(25):
        # An alternative that cannot be had comes first.
        subs = [choosy["exactly"] | {"name": "more", "count": wanted + 2}, choosy["exactly"] | {"name": "enough"}]
        choosy = {"name": "choosy", "firstAvailable": subs}
    if greedy and draw.chance(40):
        return [_claim("claim-0", [*greedy, choosy], [constraint | {"requests": ["choosy"]}])]
    first = [_claim(f"claim-{place}", [request], []) for place, request in enumerate(greedy)]
    return [*first, _claim(f"claim-{len(greedy)}", [choosy], [constraint])]


def _choosy(draw: Draw, devices: list[tuple[str, Json]]) -> tuple[Json, int]:
    """A constraint, and a number of devices that can keep it."""
    name = draw.choice(ATTRIBUTES)
    values: dict[str, int] = {}
    for _, device in devices:
        value = device.get("attributes", {}).get(name)
        if value is not None:
            values[str(value)] = values.get(str(value), 0) + 1
    attribute = f"{devices[0][0]}/{name}"
    if values and draw.chance(50):
        return {"matchAttribute": attribute}, max(1, max(values.values()) - draw.of(0, 0, 1))
    return {"distinctAttribute": attribute}, max(1, len(values))


def _request(name: str, count: int) -> Json:
    return {"name": name, "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": count}}


def _claim(name: str, requests: list[Json], constraints: list[Json]) -> Json:
    devices: Json = {"requests": requests}
    if constraints:
        devices["constraints"] = constraints
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}
