"""Generated classes and claims to allocate, as an API server would return them."""

from __future__ import annotations

from e2e.conformity.draw import DRIVERS, KINDS, ROOT, Draw, Json

CLASSES = ("gpu", "any")


def classes(draw: Draw) -> list[Json]:
    """The classes ``gpu`` (one driver) and ``any``."""
    result = []
    for name in CLASSES:
        spec: Json = {}
        selectors = []
        if name == "gpu":
            selectors.append(f'device.driver == "{DRIVERS[0]}"')
        if draw.chance(12):
            selectors.append(_guarded(draw))
        if draw.has("cel_errors") and draw.chance(10):
            selectors.append(_failing(draw))
        if selectors:
            spec["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
        if draw.chance(30):
            spec["config"] = [
                {"opaque": {"driver": draw.choice(DRIVERS), "parameters": {"of": name, "n": number}}}
                for number in range(draw.of(1, 2))
            ]
        result.append({"metadata": {"name": name}, "spec": spec})
    return result


def claim(draw: Draw, name: str) -> Json:
    """One claim of one to three requests."""
    requests = [_request(draw, f"req-{number}") for number in range(draw.of(1, 1, 1, 1, 1, 2, 3))]
    devices: Json = {"requests": requests}
    constrained = draw.chance(60 if draw.has("list_attributes") else 30)
    constraints = [_constraint(draw, requests) for _ in range(draw.of(1, 1, 1, 2))] if constrained else []
    if draw.has("derived"):
        constraints += _derive(draw, requests)
    if constraints:
        devices["constraints"] = constraints
    if draw.chance(25):
        devices["config"] = [_config(draw, requests, number) for number in range(draw.of(1, 1, 2))]
    if draw.chance(1):
        devices = {}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}


def _request(draw: Draw, name: str) -> Json:
    if draw.chance(24):
        subs = [_asked(draw, choice=True) | {"name": f"sub-{number}"} for number in range(draw.of(2, 2, 3))]
        return {"name": name, "firstAvailable": subs}
    exactly = _asked(draw)
    if draw.chance(9):
        exactly["adminAccess"] = True
    elif draw.chance(20 if draw.gate_off == "AdminAccess" else 1):
        exactly["adminAccess"] = False
    return {"name": name, "exactly": exactly}


def _asked(draw: Draw, choice: bool = False) -> Json:
    """What ``exactly`` and an alternative have in common."""
    asked: Json = {"deviceClassName": draw.choice(CLASSES), "allocationMode": "ExactCount"}
    if draw.chance(1):
        asked["deviceClassName"] = "missing" if draw.chance(50) else "any"
    if draw.chance(8):
        asked["allocationMode"] = "All"
    elif draw.has("many"):
        asked["count"] = draw.of(1, 2, 4, 8, 12, 16, 20, 31, 32, 33) if draw.chance(70) else 1
    elif draw.has("list_attributes") and not choice:
        # Three lists that overlap in pairs only need three devices.
        asked["count"] = draw.of(1, 2, 3, 3)
    else:
        asked["count"] = draw.of(1, 1, 1, 1, 1, 1, 2, 2, 3, 3) if not choice else draw.of(1, 1, 1, 2, 3, 5, 33)
    if draw.chance(45 if draw.has("cel_errors") else 22):
        asked["selectors"] = [{"cel": {"expression": _expression(draw)}} for _ in range(draw.of(1, 1, 1, 2))]
    if draw.has("taints") and draw.chance(60):
        asked["tolerations"] = [_toleration(draw) for _ in range(draw.of(1, 1, 2))]
    # Without the gate a capacity request ends everything at once; few of those are enough.
    if draw.has("capacity") and draw.chance(8 if draw.gate_off == "ConsumableCapacity" else 38):
        names = draw.of(("mem",), ("mem",), ("cores",), ("mem", "cores"))
        asked["capacity"] = {"requests": {name: _amount(draw) for name in names}}
    return asked


def _amount(draw: Draw) -> str:
    if draw.has("fraction") and draw.chance(50):
        return draw.of("500m", "750m", "1500m", "1250m", "1u", "10Pi")
    return draw.of(
        "1", "1", "1", "1", "2", "2", "3", "4", "4", "0", "1500m", "1500m", "1Gi", "1Gi", "3Gi", "9", "10E", "10E"
    )


def _domain(draw: Draw) -> str:
    return f'device.attributes["{draw.driver()}"]'


def _guarded(draw: Draw) -> str:
    """An expression that cannot fail."""
    domain = _domain(draw)
    if draw.has("list_attributes"):
        return draw.of(
            f"{domain}.?numa.orValue([0]) != [3]",
            f'"kind" in {domain}',
            f'{domain}.?release.hasValue() || device.driver != ""',
        )
    return draw.of(
        f'"kind" in {domain} && {domain}.kind == "{draw.choice(KINDS)}"',
        f"{domain}.?numa.orValue(5) <= {draw.randrange(3)}",
        f"has({domain}.release) ? {domain}.release.isLessThan(semver('1.1.0')) : true",
        f"!has({domain}.ready) || {domain}.ready",
        'device.attributes["c.example.com"].?root.orValue("r0") in ["r0", "r1"]',
    )


def _failing(draw: Draw) -> str:
    """An expression that fails: always, or on devices without the attribute."""
    domain = _domain(draw)
    return draw.of(
        f'{domain}.kind == "{draw.choice(KINDS)}"',
        f"{domain}.numa == 0",
        f"{domain}.kind > 3",
        f"{domain}.absent",
        f"{domain}.kind",
        'device.capacity["a.example.com"].mem.compareTo(quantity("1")) > 0',
        "device.driver ==",
        "device.nothing",
        "1",
    )


def _expression(draw: Draw) -> str:
    kind = draw.randrange(100)
    if draw.has("cel_errors") and kind < 65:
        return _failing(draw)
    if kind < 70:
        return _guarded(draw)
    if kind < 80:
        return "device.allowMultipleAllocations" if draw.has("capacity") else "true"
    if kind < 86 and draw.has("capacity"):
        return f'"mem" in device.capacity["{draw.driver()}"]'
    return f'device.driver == "{draw.driver()}"'


def _toleration(draw: Draw) -> Json:
    toleration: Json = draw.of(
        {"operator": "Exists"},
        {"key": "k1", "operator": "Exists"},
        {"key": draw.of("k1", "k2"), "operator": "Equal", "value": draw.of("v", "w")},
        {"key": draw.of("k1", "k2"), "operator": "Equal", "value": "v"},
    )
    toleration = dict(toleration)
    if draw.chance(30):
        toleration["effect"] = draw.of("NoSchedule", "NoExecute")
        if toleration["effect"] == "NoExecute" and draw.chance(40):
            toleration["tolerationSeconds"] = 30
    return toleration


def _attribute(draw: Draw) -> str:
    domain = draw.driver()
    if draw.has("list_attributes") and draw.chance(60):
        return f"{domain}/numa"
    return draw.of(f"{domain}/numa", f"{domain}/numa", f"{domain}/kind", f"{domain}/release", ROOT, ROOT)


def _constraint(draw: Draw, requests: list[Json]) -> Json:
    constraint: Json = {draw.of("matchAttribute", "matchAttribute", "distinctAttribute"): _attribute(draw)}
    if draw.chance(45):
        constraint["requests"] = _names(draw, requests)
    return constraint


def _derive(draw: Draw, requests: list[Json]) -> list[Json]:
    """Add derived attributes to some requests; the constraints that use them, as validation wants."""
    name = draw.of(f"{draw.driver()}/numa", ROOT, "d.example.com/group")
    for request in requests:
        for asked in request.get("firstAvailable") or [request["exactly"]]:
            if draw.chance(75):
                asked["derivedAttributes"] = [{"name": name, "expression": _derived(draw)}]
    if not any("derivedAttributes" in asked for r in requests for asked in (r.get("firstAvailable") or [r["exactly"]])):
        return []
    return [{draw.of("matchAttribute", "matchAttribute", "distinctAttribute"): name}]


def _derived(draw: Draw) -> str:
    domain = f'device.attributes["{draw.choice(DRIVERS)}"]'
    lists = draw.has("list_attributes")
    return draw.of(
        f'{domain}.?kind.orValue("none")',
        f"{domain}.?numa.orValue(7)",
        f"{domain}.?numa.orValue(7)",
        f'{domain}.?kind.orValue("none") == "big"',
        f"{domain}.?release.orValue(semver('0.1.0'))",
        f"{domain}.numa" if draw.has("cel_errors") else "device.driver",
        "device.allowMultipleAllocations",
        "device.driver",
        f'["big"].filter(k, {domain}.?kind.orValue("none") == k)' if lists else "device.driver",
        f'["x"] + [string({domain}.?numa.orValue(7))]' if lists else "7",
        "1.5" if draw.has("cel_errors") else "true",
    )


def _names(draw: Draw, requests: list[Json]) -> list[str]:
    """Names of requests or alternatives, as constraints and configurations refer to them."""
    names: list[str] = []
    for request in draw.some(requests):
        subs = request.get("firstAvailable")
        if subs and draw.chance(60):
            names += [f"{request['name']}/{sub['name']}" for sub in subs if draw.chance(60)]
        else:
            names.append(request["name"])
    return names or [requests[0]["name"]]


def _config(draw: Draw, requests: list[Json], number: int) -> Json:
    config: Json = {"opaque": {"driver": draw.choice(DRIVERS), "parameters": {"n": number}}}
    if draw.chance(60):
        config["requests"] = _names(draw, requests)
    return config
