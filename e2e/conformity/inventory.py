"""Generated slices, taint rules and claims that already hold something, as an API server would return them."""

from __future__ import annotations

from e2e.conformity.draw import DRIVERS, KINDS, NODE, OTHER_NODE, POOLS, ROOT, Draw, Json

SHARE = "00000000-0000-4000-8000-0000000000%02d"
TIME = "2026-01-02T03:04:05Z"
SETS_MAX = 2


def slices(draw: Draw) -> list[Json]:
    """All slices of a case: one to four pools, in any order."""
    result: list[Json] = []
    used: set[tuple[str, str]] = set()
    for _ in range(draw.of(1, 2, 2, 3, 3)):
        name = draw.driver(), draw.choice(POOLS)
        if name in used and not draw.has("broken_pools"):
            # Twice the announced number of slices would leave the pool incomplete.
            continue
        used.add(name)
        result += _pool(draw, *name)
    if draw.chance(30):
        draw.shuffle(result)
    for number, slice_ in enumerate(result):
        slice_["metadata"]["name"] = f"slice-{number}"
    return result


def _pool(draw: Draw, driver: str, pool: str) -> list[Json]:
    generation = draw.of(1, 1, 1, 1, 2) if draw.has("broken_pools") else 1
    count = 1 if draw.has("late") else draw.of(1, 1, 1, 2, 2, 3)
    counted = draw.has("counters") and draw.chance(75)
    announced = count + (1 if counted else 0)
    if draw.has("broken_pools") and draw.chance(12):
        announced = draw.of(1, 2, 3)
    result: list[Json] = []
    first = 0
    for _ in range(count):
        elsewhere = False
        size = draw.of(8, 12, 20) if draw.has("many") else draw.of(2, 3, 3, 4, 5, 6)
        if draw.has("late"):
            size = draw.of(3, 4, 5, 6)
        if draw.has("broken_pools") and draw.chance(38):
            first = max(0, first - 1)
        spec: Json = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": announced},
            "devices": [_device(draw, driver, f"dev-{first + place}", counted) for place in range(size)],
        }
        first += size
        if draw.has("broken_pools") and draw.chance(10):
            spec["pool"]["generation"] = draw.of(1, 2, 3)
            elsewhere = draw.chance(50)
        if draw.has("skips") and draw.chance(55):
            spec["skipNodeOperations"] = draw.of(
                ["*"], ["NodePrepareResources", "NodeUnprepareResources"], ["NodeUnprepareResources"]
            )
        if elsewhere:
            spec["nodeName"] = OTHER_NODE
        else:
            _place(draw, spec)
        result.append({"metadata": {}, "spec": spec})
    if counted:
        spec = {
            "driver": driver,
            "pool": {"name": pool, "generation": generation, "resourceSliceCount": announced},
            "sharedCounters": [_counter_set(draw, number) for number in range(SETS_MAX)],
        }
        _place(draw, spec)
        result.append({"metadata": {}, "spec": spec})
    return result


def _counter_set(draw: Draw, number: int) -> Json:
    counters: Json = {"mem": {"value": draw.of("2", "3", "4", "6", "6")}}
    if number == 0:
        counters["cores"] = {"value": draw.of("2", "3", "4000m")}
    return {"name": f"set-{number}", "counters": counters}


def _place(draw: Draw, spec: Json) -> None:
    """Give a slice its one kind of node data; a network device is reached by a selector."""
    kind = draw.randrange(100) if draw.has("placement") else 0
    if draw.has("network"):
        kind = draw.of(55, 99, 99)
    if kind < 40:
        spec["nodeName"] = OTHER_NODE if draw.has("placement") and draw.chance(10) else NODE
    elif kind < 55:
        spec["allNodes"] = True
    elif kind < 75 or "devices" not in spec:
        spec["nodeSelector"] = _selector(draw)
    else:
        spec["perDeviceNodeSelection"] = True
        for device in spec["devices"]:
            _place_device(draw, device)


def _place_device(draw: Draw, device: Json) -> None:
    kind = 3 if draw.has("network") else draw.randrange(4)
    if kind == 0:
        device["nodeName"] = NODE if draw.chance(80) else OTHER_NODE
    elif kind == 1:
        device["allNodes"] = True
    else:
        device["nodeSelector"] = _selector(draw)
        if draw.chance(12):
            # Allowed on a device, but never usable in an allocation's single-term selector.
            device["nodeSelector"]["nodeSelectorTerms"] += _selector(draw)["nodeSelectorTerms"]


def _selector(draw: Draw) -> Json:
    """A node selector of one term that often matches."""
    zones = [["z1", "z2"], ["z2", "z1"], ["z1"]]
    if not draw.has("network"):
        zones.append(["z2"])
    needs: list[Json] = [
        {"key": "zone", "operator": "In", "values": draw.choice(zones)},
        {"key": "zone", "operator": "Exists"},
        {"key": "arch", "operator": "NotIn", "values": ["arm64"]},
        {"key": "cores", "operator": "Gt", "values": [draw.of("4", "16")]},
        {"key": "gone", "operator": "DoesNotExist"},
    ]
    term: Json = {}
    if draw.chance(85):
        term["matchExpressions"] = needs[:1] if draw.chance(35) else draw.sample(needs, draw.of(1, 1, 2))
    if draw.chance(25) or not term:
        term["matchFields"] = [
            {"key": "metadata.name", "operator": "In", "values": [NODE if draw.chance(80) else OTHER_NODE]}
        ]
    return {"nodeSelectorTerms": [term]}


def _device(draw: Draw, driver: str, name: str, counted: bool) -> Json:
    device: Json = {"name": name}
    attributes = _attributes(draw, driver)
    if attributes:
        device["attributes"] = attributes
    if draw.has("capacity") and draw.chance(80):
        _add_capacity(draw, device)
    if counted and draw.chance(75):
        device["consumesCounters"] = _consumed(draw)
    if draw.has("taints") and draw.chance(25):
        device["taints"] = [_taint(draw) | {"timeAdded": TIME} for _ in range(draw.of(1, 1, 2))]
        if len(device["taints"]) == 2:
            # The API server refuses two taints of one key and effect.
            device["taints"][0]["key"], device["taints"][1]["key"] = "k1", "k2"
    if draw.has("binding") and draw.chance(40):
        if draw.chance(75):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
        if draw.chance(40):
            device["bindsToNode"] = True
    return device


def _attributes(draw: Draw, driver: str) -> Json:
    attributes: Json = {}
    if draw.has("late"):
        # Few devices have what the last request asks for.
        if draw.chance(50):
            attributes["numa"] = {"int": draw.of(0, 0, 1, 2)}
        if draw.chance(50):
            attributes["kind"] = {"string": draw.choice(KINDS)}
        return attributes
    if draw.chance(88):
        attributes["kind"] = {"string": draw.choice(KINDS)}
    if draw.chance(82):
        attributes["numa"] = {"int": draw.of(0, 0, 1, 2)}
    if draw.chance(12):
        attributes[f"{driver}/ready"] = {"bool": draw.chance(60)}
    if draw.chance(30):
        attributes["release"] = {"version": draw.of("1.0.0", "1.0.0", "1.0.0+b1", "1.2.0", "2.0.0-rc.1")}
    if draw.chance(40):
        # Values that are equal but for their kind.
        attributes[ROOT] = draw.of(
            {"string": "r0"}, {"string": "r0"}, {"int": 1}, {"bool": True}, {"string": "1.0.0"}, {"version": "1.0.0"}
        )
    if draw.has("list_attributes") and draw.chance(65):
        attributes["numa"] = {"ints": draw.of([0], [0, 1], [0, 1], [1, 2], [1, 2], [2, 0], [2, 0])}
        if draw.chance(30):
            attributes["kind"] = {"strings": draw.of(["big"], ["small", "big"], ["small"])}
        if draw.chance(15):
            attributes["release"] = {"versions": draw.of(["1.0.0"], ["1.2.0", "1.0.0"])}
    return attributes


def _add_capacity(draw: Draw, device: Json) -> None:
    if draw.chance(72):
        device["allowMultipleAllocations"] = True
    capacity: Json = {}
    for name in ("mem", "cores"):
        if draw.chance(75):
            capacity[name] = {"value": draw.of("4", "4", "8", "4Gi", "10", "1")}
            if device.get("allowMultipleAllocations") and draw.chance(60):
                capacity[name]["requestPolicy"] = _policy(draw, capacity[name]["value"])
    if capacity:
        device["capacity"] = capacity


def _policy(draw: Draw, value: str) -> Json:
    unit = "Gi" if value.endswith("Gi") else ""
    kind = draw.randrange(4)
    if value == "1" or kind == 0:
        return {"default": f"1{unit}"}
    if kind == 1:
        return {"default": f"1{unit}", "validValues": [f"1{unit}", f"2{unit}", f"4{unit}"]}
    fraction = draw.has("fraction") and not unit and draw.chance(60)
    least = "500m" if fraction and draw.chance(50) else f"1{unit}"
    limits: Json = {"min": least}
    default = least if draw.chance(70) else f"2{unit}"
    if draw.chance(75):
        limits["step"] = "500m" if fraction else draw.of(f"1{unit}", f"2{unit}", f"2{unit}")
        if limits["step"] == f"2{unit}":
            default = least
    if draw.chance(70):
        limits["max"] = f"3{unit}"
    return {"default": default, "validRange": limits}


def _consumed(draw: Draw) -> list[Json]:
    result = []
    for number in draw.of([0], [0], [1], [0, 1]):
        counters: Json = {"mem": {"value": draw.of("1", "2", "2", "3")}}
        if number == 0 and draw.chance(35):
            counters["cores"] = {"value": draw.of("1", "500m", "2")}
        entry: Json = {"counterSet": f"set-{number}", "counters": counters}
        if draw.has("broken_pools") and draw.chance(12):
            entry["counterSet"] = "set-9"
        if draw.has("groups") and draw.chance(60):
            entry["compatibilityGroups"] = draw.of(["g1"], ["g1"], ["g2"], ["g1", "g2"])
        result.append(entry)
    return result


def _taint(draw: Draw) -> Json:
    return {
        "key": draw.of("k1", "k2"),
        "value": draw.of("v", "v", "w"),
        "effect": draw.of("NoSchedule", "NoSchedule", "NoExecute", "None"),
    }


def taint_rules(draw: Draw) -> list[Json]:
    """Zero to two DeviceTaintRules."""
    if not draw.has("taints") or draw.chance(45):
        return []
    result = []
    for number in range(draw.of(1, 1, 2)):
        selector: Json | None = draw.of(
            {"driver": DRIVERS[0], "device": "dev-1"},
            {"pool": POOLS[0]},
            {"device": "dev-0"},
            {"driver": DRIVERS[1]},
            {"driver": DRIVERS[0], "pool": POOLS[1]},
            {},
            None,
        )
        spec: Json = {"taint": _taint(draw) | {"timeAdded": TIME}}
        if selector is not None:
            spec["deviceSelector"] = selector
        result.append({"metadata": {"name": f"rule-{number}"}, "spec": spec})
    return result


def holders(draw: Draw, inventory: list[Json]) -> list[Json]:
    """Claims that hold devices of the slices, sometimes one that has left them."""
    known = [
        (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device)
        for slice_ in inventory
        for device in slice_["spec"].get("devices", ())
    ]
    result: list[Json] = []
    if not known or draw.chance(35 if draw.has("counters") else 50):
        return result
    shares = 0
    for number in range(draw.of(1, 2, 2, 3) if draw.has("capacity") else draw.of(1, 1, 2, 3)):
        held: list[Json] = []
        several = draw.of(1, 2, 3) if draw.has("counters") else draw.of(1, 1, 2)
        for driver, pool, device in _chosen(draw, known, several):
            entry: Json = {"request": "req-0", "driver": driver, "pool": pool, "device": device["name"]}
            if draw.chance(3):
                entry["device"] = "gone"
            if draw.chance(10):
                entry["adminAccess"] = True
            if device.get("allowMultipleAllocations") and draw.chance(88):
                shares += 1
                entry["shareID"] = SHARE % shares
                if device.get("capacity"):
                    entry["consumedCapacity"] = {name: draw.of("1", "2", "1Gi", "500m") for name in device["capacity"]}
            held.append(entry)
        result.append(
            {
                "metadata": {"name": f"other-{number}", "namespace": "default", "uid": f"other-{number}"},
                "spec": {"devices": {"requests": [_holder_request()]}},
                "status": {"allocation": {"devices": {"results": held}}},
            }
        )
    return result


def _chosen(draw: Draw, known: list[tuple[str, str, Json]], count: int) -> list[tuple[str, str, Json]]:
    """Devices one claim holds; several claims often share the first device that allows it."""
    shared = [entry for entry in known if entry[2].get("allowMultipleAllocations")]
    if shared and draw.chance(40):
        return shared[:1]
    counted = [entry for entry in known if entry[2].get("consumesCounters")]
    if counted and draw.chance(60):
        # Enough of them overdraw a counter: a device may have come into use before its partitions were counted.
        return draw.sample(counted, min(len(counted), count + 1))
    return draw.sample(known, min(len(known), count))


def _holder_request() -> Json:
    return {
        "name": "req-0",
        "exactly": {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1},
    }
