"""Scheduling cases about devices: the allocator's inventories and claims, on several nodes, in a whole cluster."""

from __future__ import annotations

from e2e.conformity import asks, inventory
from e2e.conformity.allocate_cases import ALPHA
from e2e.conformity.draw import NODE, OTHER_NODE, Draw, Json

_VERSION = "resource.k8s.io/v1"
# Claims made from a template belong to their Pod; others may as well.
_POD = {"apiVersion": "v1", "kind": "Pod", "name": "waiting", "uid": "waiting", "controller": True}


class DeviceCases:
    """A source of cases; equal seeds give equal cases. Only gates that are on by default.

    Left out: searches that explode upstream, and what its answer depends on the order slices arrive in.
    """

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)

    def case(self, name: str) -> Json:
        """Nodes of two zones, slices, classes, claims in use, and a Pod with one to three claims."""
        draw = self.draw
        draw.new_themes()
        draw.themes, draw.gate_off = draw.themes - frozenset((*ALPHA, "many")), ""
        slices = inventory.slices(draw)
        while _disagree(slices):
            slices = inventory.slices(draw)
        holders = inventory.holders(draw, slices)
        claims = [asks.claim(draw, f"claim-{number}") for number in range(draw.of(1, 1, 1, 1, 1, 2, 2, 3))]
        names = [claim["metadata"]["name"] for claim in claims]
        # An allocated claim as one of the Pod's own, with or without a node it is tied to.
        if holders and draw.chance(25):
            held = draw.choice(holders)
            self._tie(held)
            names.append(held["metadata"]["name"])
        nodes = [self._node(NODE, "z1"), self._node(OTHER_NODE, draw.of("z1", "z2"))]
        nodes += [self._node(f"n{number}", draw.of("z1", "z2", "z3")) for number in range(draw.of(0, 0, 1, 2, 4))]
        objects = [
            *nodes,
            *(_typed("DeviceClass", one) for one in asks.classes(draw)),
            *(_typed("ResourceSlice", one) for one in slices),
            *(_typed("DeviceTaintRule", one) for one in inventory.taint_rules(draw)),
            *(_typed("ResourceClaim", self._spoilt(one)) for one in (*claims, *holders)),
        ]
        return {"name": name, "objects": objects, "pod": self._pod(names)}

    def _node(self, name: str, zone: str) -> Json:
        draw = self.draw
        labels = {"kubernetes.io/hostname": name, "zone": zone, "topology.kubernetes.io/zone": zone, "cores": "8"}
        status: Json = {"allocatable": {"cpu": draw.of("4", "64"), "memory": "64Gi", "pods": "110"}}
        if draw.chance(60):
            status["declaredFeatures"] = ["DRAOptionalNodeOperations"]
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {}, "status": status}

    def _tie(self, claim: Json) -> None:
        draw = self.draw
        if draw.chance(60):
            field = {"key": "metadata.name", "operator": "In", "values": [draw.of(NODE, OTHER_NODE, "gone")]}
            claim["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        if draw.chance(40):
            consumer = {"resource": "pods", "name": "other", "uid": draw.of("other", "waiting")}
            claim["status"]["reservedFor"] = [consumer]

    def _spoilt(self, claim: Json) -> Json:
        """Now and then a claim that is on its way out."""
        if not self.draw.chance(2):
            return claim
        metadata = {**claim["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
        return {**claim, "metadata": metadata}

    def _pod(self, names: list[str]) -> Json:
        draw = self.draw
        if draw.chance(2):
            names = [*names, "missing"]
        uses = [{"name": f"u-{place}", "resourceClaimName": name} for place, name in enumerate(names)]
        status: Json = {}
        if draw.chance(20):
            uses[0] = {"name": "u-0", "resourceClaimTemplateName": "template"}
            made = {"name": "u-0", "resourceClaimName": names[0]}
            status["resourceClaimStatuses"] = [made] if draw.chance(80) else []
            if draw.chance(10):
                status["resourceClaimStatuses"] = [{"name": "u-0"}]
        requests = {"cpu": draw.of("1", "1", "2", "8")}
        container = {"name": "c", "image": "i", "resources": {"requests": requests, "claims": []}}
        metadata = {"name": "waiting", "namespace": "default", "uid": "waiting", "labels": {"app": "a"}}
        spec: Json = {"containers": [container], "resourceClaims": uses}
        if draw.chance(15):
            spec["nodeSelector"] = {"zone": draw.of("z1", "z2")}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


class PoolCases:
    """Cases in which nodes differ in what their one pool offers: most have a node that fits and nodes that do not."""

    def __init__(self, seed: int) -> None:
        self.draw = Draw(seed)
        self.plain = False

    def case(self, name: str) -> Json:
        """Two to five nodes with a pool each, some broken, some used up; a Pod with one or two simple claims.

        Some are plainer: nothing in use, so that alternatives rank nodes or extended resources tell them apart.
        """
        draw = self.draw
        self.plain = draw.chance(35)
        nodes = [self._node(f"n{number}") for number in range(draw.randint(2, 5))]
        names = [node["metadata"]["name"] for node in nodes]
        slices = [slice_ for name in names for slice_ in self._pool(name)]
        bare = self.plain and draw.chance(40)
        asked = [] if bare else [self._claim(f"claim-{number}") for number in range(draw.of(1, 1, 1, 2))]
        held = [
            self._held(f"held-{place}", name) for place, name in enumerate(names) if draw.chance(40) and not self.plain
        ]
        own = [claim["metadata"]["name"] for claim in asked]
        if held and draw.chance(70):
            tied = draw.choice(held)
            if draw.chance(75):
                terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [draw.of("z1", "z2")]}]}]
                tied["status"]["allocation"]["nodeSelector"] = {"nodeSelectorTerms": terms}
            own = [tied["metadata"]["name"]] if draw.chance(50) else [*own, tied["metadata"]["name"]]
        classes: list[Json] = [
            {"metadata": {"name": "big"}, "spec": {"selectors": [_kind("big")]}},
            {"metadata": {"name": "any"}, "spec": {"extendedResourceName": "example.com/any"}},
        ]
        objects = [
            *nodes,
            *(_typed("DeviceClass", one) for one in classes),
            *(_typed("ResourceSlice", one) for one in slices),
            *(_typed("ResourceClaim", one) for one in (*asked, *held)),
        ]
        return {"name": name, "objects": objects, "pod": self._pod(own)}

    def _node(self, name: str) -> Json:
        allocatable = {"cpu": self.draw.of("4", "64"), "memory": "64Gi", "pods": "110"}
        if self.draw.chance(60):
            allocatable["plain.io/x"] = "1"
        metadata = {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": self.draw.of("z1", "z2")}}
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": metadata,
            "spec": {},
            "status": {"allocatable": allocatable},
        }

    def _pool(self, node: str) -> list[Json]:
        draw = self.draw
        kind = draw.of("big", "small")
        devices: list[Json] = [
            {"name": f"d{number}", "attributes": {"kind": {"string": kind}}} for number in range(draw.randint(0, 3))
        ]
        if draw.chance(35):
            for device in devices:
                device |= {"allowMultipleAllocations": True, "capacity": {"mem": {"value": draw.of("4", "8")}}}
        if devices and draw.chance(20):
            devices[0]["taints"] = [{"key": "k1", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]
        pool = {"name": node, "generation": 1, "resourceSliceCount": draw.of(1, 1, 1, 1, 2)}
        slices = [{"driver": "a.example.com", "pool": pool, "nodeName": node, "devices": devices}]
        if self.plain and draw.chance(40):
            pool["resourceSliceCount"] = 2
            counters = [{"name": "set", "counters": {"mem": {"value": "2"}}}]
            for device in devices:
                device["consumesCounters"] = [{"counterSet": "set", "counters": {"mem": {"value": "1"}}}]
            slices.append({**slices[0], "sharedCounters": counters})
            del slices[1]["devices"]
        elif devices and draw.chance(20):
            # Twice the same device: the pool is invalid.
            pool["resourceSliceCount"] = 2
            slices.append({**slices[0], "devices": devices[:1]})
        return [{"metadata": {"name": f"s-{node}-{number}"}, "spec": spec} for number, spec in enumerate(slices)]

    def _claim(self, name: str) -> Json:
        draw = self.draw
        exactly = {"deviceClassName": draw.of("big", "any"), "allocationMode": "ExactCount", "count": draw.of(1, 1, 2)}
        request: Json = {"name": "r", "exactly": exactly}
        if draw.chance(60) or self.plain:
            subs = [{**exactly, "deviceClassName": one, "name": one, "count": 1} for one in ("big", "any")]
            request = {"name": "r", "firstAvailable": subs}
        metadata = {"name": name, "namespace": "default", "uid": name, "ownerReferences": [_POD]}
        return {"metadata": metadata, "spec": {"devices": {"requests": [request]}}, "status": {}}

    def _held(self, name: str, node: str) -> Json:
        exactly = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        result = {"request": "r", "driver": "a.example.com", "pool": node, "device": f"d{self.draw.randrange(2)}"}
        status: Json = {"allocation": {"devices": {"results": [result]}}}
        if self.draw.chance(40):
            status["reservedFor"] = [{"resource": "pods", "name": "other", "uid": "other"}]
        metadata = {"name": name, "namespace": "default", "uid": name}
        return {
            "metadata": metadata,
            "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
            "status": status,
        }

    def _pod(self, names: list[str]) -> Json:
        draw = self.draw
        requests = {"cpu": draw.of("1", "2", "8")}
        if draw.chance(40) or not names:
            requests |= draw.of({"example.com/any": "1"}, {"example.com/any": "1", "plain.io/x": "1"})
        uses: list[Json] = [{"name": f"u-{place}", "resourceClaimName": name} for place, name in enumerate(names)]
        status: Json = {}
        if names and draw.chance(30):
            uses[0] = {"name": "u-0", "resourceClaimTemplateName": "template"}
            status["resourceClaimStatuses"] = [{"name": "u-0", "resourceClaimName": names[0]}]
        container = {"name": "c", "image": "i", "resources": {"requests": requests}}
        metadata = {"name": "waiting", "namespace": "default", "uid": "waiting", "labels": {"app": "a"}}
        spec: Json = {"containers": [container], "resourceClaims": uses}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _kind(kind: str) -> Json:
    return {"cel": {"expression": f"device.attributes['a.example.com'].kind == '{kind}'"}}


def _disagree(slices: list[Json]) -> bool:
    """Whether slices of one generation of a pool differ about their number: upstream believes the first it sees."""
    counts: dict[tuple[str, str, int], int] = {}
    for slice_ in slices:
        pool = slice_["spec"]["pool"]
        key = slice_["spec"]["driver"], pool["name"], pool["generation"]
        if counts.setdefault(key, pool["resourceSliceCount"]) != pool["resourceSliceCount"]:
            return True
    return False


def _typed(kind: str, item: Json) -> Json:
    return {"apiVersion": _VERSION, "kind": kind, **item}
