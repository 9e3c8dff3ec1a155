"""Small nasty cases for the allocator, in the conformity format: same seed, same cases.

Everything is drawn from few names and values, so that equal pool names of two drivers, old generations, incomplete
pools, devices in use, taints, shared counters and capacities meet each other often.
"""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]

DRIVERS = ("a.example.com", "b.example.com")
POOLS = ("node-1", "pool-2")
NODE = "node-1"
KINDS = ("big", "small")
SHARE = "00000000-0000-4000-8000-0000000000%02d"


class Generator:
    """Draws cases one after the other. ``alpha``: also the features that are off by default."""

    def __init__(self, seed: int, alpha: bool = False) -> None:
        self.random = random.Random(seed)
        self.alpha = alpha
        self.seed = seed
        self.number = 0

    def chance(self, percent: int) -> bool:
        """True in ``percent`` of 100 draws."""
        return self.random.randrange(100) < percent

    def driver(self) -> str:
        return DRIVERS[0] if self.chance(70) else DRIVERS[1]

    def case(self) -> Json:
        """The next case."""
        self.number += 1
        self.capacity = self.chance(40)
        self.counters = self.chance(35)
        self.taints = self.chance(30)
        self.binding = self.chance(12)
        self.groups = self.alpha and self.chance(40)
        self.lists = self.alpha and self.chance(40)
        self.skips = self.alpha and self.chance(25)
        self.fraction = self.chance(15)
        self.derived = self.alpha and self.chance(25)
        self.shares = 0
        slices = self.slices()
        classes = [self.device_class(name) for name in ("gpu", "any")]
        case: Json = {
            "name": f"random-{self.seed}-{self.number}",
            "node": self.node(),
            "classes": classes,
            "slices": slices,
            "claims": [self.claim(f"claim-{i}") for i in range(self.random.choice((1, 1, 1, 1, 2)))],
            "allocated": self.allocated(slices),
        }
        if self.taints and self.chance(50):
            case["taintRules"] = [self.rule(i) for i in range(self.random.choice((1, 1, 2)))]
        features = self.features()
        if features is not None:
            case["features"] = features
        return case

    def features(self) -> Json | None:
        features: Json = {"default": True}
        if self.alpha:
            features |= {"ListTypeAttributes": self.lists, "CompatibilityGroups": self.groups}
            features["DerivedAttributes"] = self.derived
            features["OptionalNodeOperations"] = self.chance(50) if self.skips else False
        if self.fraction:
            features["FractionalCapacityRange"] = True
        if self.chance(12):
            gate = self.random.choice(
                (
                    "AdminAccess",
                    "PrioritizedList",
                    "PartitionableDevices",
                    "DeviceTaints",
                    "DeviceBindingAndStatus",
                    "DeviceTaintRules",
                )
            )
            features[gate] = False
        return features if len(features) > 1 else None

    def node(self) -> Json:
        node: Json = {"metadata": {"name": NODE, "labels": {"zone": "z1", "kubernetes.io/hostname": NODE}}}
        if self.chance(50):
            node["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
        return node

    def device_class(self, name: str) -> Json:
        spec: Json = {"selectors": []}
        if name == "gpu":
            spec["selectors"].append({"cel": {"expression": f'device.driver == "{DRIVERS[0]}"'}})
        if self.chance(10):
            spec["selectors"].append({"cel": {"expression": 'device.attributes["a.example.com"].kind == "big"'}})
        if self.chance(30):
            spec["config"] = [{"opaque": {"driver": DRIVERS[0], "parameters": {"of": name}}}]
        return {"metadata": {"name": name}, "spec": spec}

    def slices(self) -> list[Json]:
        result: list[Json] = []
        for _ in range(self.random.choice((1, 2, 2, 3))):
            result += self.pool(self.driver(), self.random.choice(POOLS), len(result))
        if self.chance(30):
            self.random.shuffle(result)
        for number, slice_ in enumerate(result):
            slice_["metadata"]["name"] = f"slice-{number}"
        return result

    def pool(self, driver: str, pool: str, first: int) -> list[Json]:
        generation = self.random.choice((1, 1, 1, 1, 1, 2))
        count = self.random.choice((1, 1, 1, 2, 2, 3))
        announced = count if self.chance(94) else self.random.choice((1, 2, 3))
        counters = self.counters and self.chance(70)
        slices = []
        base = 0
        for _ in range(count):
            size = self.random.choice((2, 3, 4, 5))
            if self.chance(3):
                base = max(0, base - 1)
            spec: Json = {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": announced + counters},
                "devices": [self.device(f"dev-{base + i}", counters) for i in range(size)],
            }
            base += size
            if self.chance(4):
                spec["pool"]["generation"] = self.random.choice((1, 2, 3))
            self.place(spec)
            if self.skips and self.chance(50):
                spec["skipNodeOperations"] = ["*"]
            slices.append({"metadata": {}, "spec": spec})
        if counters:
            spec = {
                "driver": driver,
                "pool": {"name": pool, "generation": generation, "resourceSliceCount": announced + 1},
                "sharedCounters": [
                    {"name": f"set-{i}", "counters": {"mem": {"value": self.random.choice(("2", "4", "6"))}}}
                    for i in range(2)
                ],
            }
            self.place(spec, counters=True)
            slices.append({"metadata": {}, "spec": spec})
        return slices

    def place(self, spec: Json, counters: bool = False) -> None:
        draw = self.random.randrange(100)
        if draw < 68:
            spec["nodeName"] = NODE
        elif draw < 71:
            spec["nodeName"] = "node-2"
        elif draw < 81:
            spec["allNodes"] = True
        elif draw < 91 or counters:
            spec["nodeSelector"] = self.selector()
        else:
            spec["perDeviceNodeSelection"] = True
            for device in spec["devices"]:
                self.place_device(device)

    def place_device(self, device: Json) -> None:
        draw = self.random.randrange(4)
        if draw == 0:
            device["nodeName"] = NODE
        elif draw == 1:
            device["nodeName"] = "node-2"
        elif draw == 2:
            device["allNodes"] = True
        else:
            device["nodeSelector"] = self.selector()

    def selector(self) -> Json:
        values = self.random.choice((["z1"], ["z1", "z2"], ["z2"], ["z2", "z1"]))
        key = self.random.choice(("zone", "zone", "kubernetes.io/hostname"))
        if key != "zone":
            values = [NODE] if self.chance(70) else ["node-2"]
        return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}

    def device(self, name: str, counters: bool) -> Json:
        device: Json = {"name": name}
        attributes: Json = {}
        if self.chance(85):
            attributes["kind"] = {"string": self.random.choice(KINDS)}
        if self.chance(80):
            attributes["numa"] = {"int": self.random.choice((0, 0, 1, 2))}
        if self.chance(20):
            attributes["c.example.com/root"] = self.random.choice(
                ({"string": "r0"}, {"string": "r1"}, {"version": "1.0.0"}, {"bool": True}, {"int": 0})
            )
        if self.lists and self.chance(60):
            attributes["numa"] = {"ints": self.random.choice(([0], [0, 1], [1, 2], [2]))}
        if attributes:
            device["attributes"] = attributes
        if self.capacity and self.chance(75):
            self.add_capacity(device)
        if counters and self.chance(75):
            self.add_counters(device)
        if self.taints and self.chance(22):
            device["taints"] = [self.taint()]
        if self.binding and self.chance(40):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
            if self.chance(30):
                device["bindsToNode"] = True
        return device

    def add_capacity(self, device: Json) -> None:
        if self.chance(70):
            device["allowMultipleAllocations"] = True
        capacity: Json = {}
        for name in ("mem", "cores"):
            if self.chance(75):
                capacity[name] = {"value": self.random.choice(("4", "8", "4Gi", "10"))}
                if device.get("allowMultipleAllocations") and self.chance(60):
                    capacity[name]["requestPolicy"] = self.policy(capacity[name]["value"])
        if capacity:
            device["capacity"] = capacity

    def policy(self, value: str) -> Json:
        unit = "Gi" if value.endswith("Gi") else ""
        draw = self.random.randrange(4)
        if draw == 0:
            return {"default": f"1{unit}"}
        if draw == 1:
            return {"default": f"1{unit}", "validValues": [f"1{unit}", f"2{unit}", f"4{unit}"]}
        limits: Json = {"min": f"1{unit}"}
        if self.chance(60):
            limits["step"] = self.random.choice((f"1{unit}", f"2{unit}", "500m" if not unit else "512Mi"))
        if self.chance(50):
            limits["max"] = f"3{unit}"
        return {"default": f"1{unit}", "validRange": limits}

    def add_counters(self, device: Json) -> None:
        consumed = []
        for number in range(self.random.choice((1, 1, 1, 2))):
            entry: Json = {
                "counterSet": f"set-{number}" if not self.chance(2) else "set-9",
                "counters": {"mem": {"value": self.random.choice(("1", "2", "3"))}},
            }
            if self.groups and self.chance(60):
                entry["compatibilityGroups"] = self.random.choice((["g1"], ["g2"], ["g1", "g2"]))
            consumed.append(entry)
        device["consumesCounters"] = consumed

    def taint(self) -> Json:
        effect = self.random.choice(("NoSchedule", "NoSchedule", "NoExecute", "None"))
        return {"key": self.random.choice(("k1", "k2")), "value": "v", "effect": effect}

    def rule(self, number: int) -> Json:
        selector = self.random.choice(
            (
                {"driver": DRIVERS[0]},
                {"pool": POOLS[0]},
                {"device": "dev-0"},
                {},
                {"driver": DRIVERS[1], "device": "dev-1"},
            )
        )
        return {"metadata": {"name": f"rule-{number}"}, "spec": {"deviceSelector": selector, "taint": self.taint()}}

    def claim(self, name: str) -> Json:
        requests = [self.request(f"req-{number}") for number in range(self.random.choice((1, 1, 1, 2, 3)))]
        devices: Json = {"requests": requests}
        if self.chance(30):
            devices["constraints"] = [self.constraint(requests) for _ in range(self.random.choice((1, 1, 2)))]
        if self.chance(25):
            devices["config"] = [self.config(requests) for _ in range(self.random.choice((1, 2)))]
        return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"devices": devices}}

    def request(self, name: str) -> Json:
        if self.chance(25):
            subs = [self.asked() | {"name": f"sub-{i}"} for i in range(self.random.choice((2, 2, 3)))]
            return {"name": name, "firstAvailable": subs}
        exactly = self.asked()
        if self.chance(8):
            exactly["adminAccess"] = True
        return {"name": name, "exactly": exactly}

    def asked(self) -> Json:
        asked: Json = {"deviceClassName": self.random.choice(("gpu", "any")), "allocationMode": "ExactCount"}
        if self.chance(9):
            asked["allocationMode"] = "All"
        else:
            asked["count"] = self.random.choice((1, 1, 1, 1, 1, 2, 3))
        if self.chance(35):
            asked["selectors"] = [
                {"cel": {"expression": self.expression()}} for _ in range(self.random.choice((1, 1, 1, 2)))
            ]
        if self.derived and self.chance(50):
            asked["derivedAttributes"] = [self.derive()]
        if self.taints and self.chance(45):
            asked["tolerations"] = [self.toleration()]
        if self.capacity and self.chance(28):
            names = self.random.choice((("mem",), ("cores",), ("mem", "cores")))
            asked["capacity"] = {
                "requests": {
                    name: self.random.choice(("1", "1", "2", "2", "3", "1500m", "1Gi", "3Gi", "9")) for name in names
                }
            }
        return asked

    def expression(self) -> str:
        domain = f'device.attributes["{self.driver()}"]'
        draw = self.random.randrange(100)
        if draw < 40:
            return f'"kind" in {domain} && {domain}.kind == "{self.random.choice(KINDS)}"'
        if draw < 60:
            return (
                f"{domain}.?numa.orValue(5) == {self.random.randrange(3)}" if not self.lists else f'"numa" in {domain}'
            )
        if draw < 63:
            return f'{domain}.kind == "{self.random.choice(KINDS)}"'
        if draw < 80:
            return "device.allowMultipleAllocations"
        if draw < 97:
            return f'device.driver == "{self.driver()}"'
        return "device.driver =="

    def derive(self) -> Json:
        domain = f'device.attributes["{self.random.choice(DRIVERS)}"]'
        expression = self.random.choice(
            (
                f'{domain}.?kind.orValue("none")',
                f"{domain}.?numa.orValue(7)",
                f"{domain}.numa",
                "device.allowMultipleAllocations",
                "device.driver",
                "[1, 2]",
            )
        )
        name = self.random.choice((f"{self.random.choice(DRIVERS)}/numa", "c.example.com/root"))
        return {"name": name, "expression": expression}

    def toleration(self) -> Json:
        draw = self.random.randrange(4)
        if draw == 0:
            return {"operator": "Exists"}
        if draw == 1:
            return {"key": "k1", "operator": "Exists", "effect": "NoSchedule"}
        return {"key": self.random.choice(("k1", "k2")), "operator": "Equal", "value": self.random.choice(("v", "w"))}

    def constraint(self, requests: list[Json]) -> Json:
        domain = self.driver()
        names = (f"{domain}/numa", f"{domain}/kind", f"{domain}/kind", "c.example.com/root")
        attribute = self.random.choice(names if self.chance(40) else names[:3])
        constraint: Json = {self.random.choice(("matchAttribute", "matchAttribute", "distinctAttribute")): attribute}
        if self.chance(45):
            constraint["requests"] = self.names(requests)
        return constraint

    def names(self, requests: list[Json]) -> list[str]:
        names = []
        for request in self.random.sample(requests, self.random.randint(1, len(requests))):
            subs = request.get("firstAvailable")
            if subs and self.chance(60):
                names += [f"{request['name']}/{sub['name']}" for sub in subs if self.chance(60)]
            else:
                names.append(request["name"])
        return names or [requests[0]["name"]]

    def config(self, requests: list[Json]) -> Json:
        config: Json = {"opaque": {"driver": DRIVERS[0], "parameters": {"n": self.random.randrange(9)}}}
        if self.chance(60):
            config["requests"] = self.names(requests)
        return config

    def allocated(self, slices: list[Json]) -> list[Json]:
        known = [
            (slice_["spec"]["driver"], slice_["spec"]["pool"]["name"], device)
            for slice_ in slices
            for device in slice_["spec"].get("devices", ())
        ]
        result: list[Json] = []
        if not known or self.chance(45):
            return result
        for number in range(self.random.choice((1, 1, 2, 3))):
            driver, pool, device = self.random.choice(known)
            held: Json = {"request": "req-0", "driver": driver, "pool": pool, "device": device["name"]}
            if self.chance(8):
                held["adminAccess"] = True
            if device.get("allowMultipleAllocations") and self.chance(85):
                self.shares += 1
                held["shareID"] = SHARE % self.shares
                if device.get("capacity"):
                    held["consumedCapacity"] = {
                        name: self.random.choice(("1", "2", "1Gi")) for name in device["capacity"]
                    }
            result.append(
                {
                    "metadata": {"name": f"other-{number}", "namespace": "default", "uid": f"other-{number}"},
                    "spec": {"devices": {"requests": [{"name": "req-0", "exactly": {"deviceClassName": "any"}}]}},
                    "status": {"allocation": {"devices": {"results": [held]}}},
                }
            )
        return result
