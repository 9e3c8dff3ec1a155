"""Whole scheduling cases in the conformity format (e2e/oracle/FORMAT.md): same seed, same cases.

Each topic has a generator of its own; a mixed case is one of each laid on top of the others, so that plugins meet.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from e2e.conformity.schedule_devices import DeviceCases, PoolCases
from tests.plugins import preemption_cases, schedule_cases, topology_cases
from tests.plugins.volume_cases import VolumeCases

Json = dict[str, Any]
_ADDRESSES = ("0.0.0.0", "127.0.0.1", "10.0.0.1")
# Topic -> how many of 100 cases.
SHARES = {
    "basic": 18,
    "topology": 33,
    "neighbours": 7,
    "preemption": 12,
    "twins": 10,
    "devices": 10,
    "pools": 32,
    "volumes": 42,
    "mixed": 6,
}
_SCARCE = ("ephemeral-storage", "example.com/gpu", "vendor.io/nic", "memory")


def schedule_case_stream(seed: int, count: int) -> Iterator[Json]:
    """``count`` cases; the first n of a longer run are the same."""
    source = Source(seed)
    for number in range(count):
        yield source.case(f"{seed}-{number}")


class Source:
    """The generators of one run. ``shares``: topic -> weight."""

    def __init__(self, seed: int, shares: dict[str, int] | None = None) -> None:
        self.random = random.Random(seed)
        self.shares = shares or SHARES
        self._basic = schedule_cases.Cases(seed + 1)
        self._topology = topology_cases.Cases(seed + 2)
        self._preemption = preemption_cases.Cases(seed + 3)
        self._devices = DeviceCases(seed + 4)
        self._topics: dict[str, Callable[[str], Json]] = {
            "basic": self._basic.case,
            "topology": self._topology.case,
            "preemption": self._preemption.case,
            "neighbours": self._neighbours,
            "twins": self._twins,
            "devices": self._devices.case,
            "pools": PoolCases(seed + 5).case,
            "volumes": VolumeCases(seed + 6).case,
            "mixed": self._mixed,
        }

    def case(self, name: str) -> Json:
        """One case; its topic is the beginning of its name."""
        pick = self.random
        topic = pick.choices(tuple(self.shares), tuple(self.shares.values()))[0]
        case = self._topics[topic](f"{topic}-{name}")
        if pick.random() < 0.65:
            self._touch(case)
        return case

    def _touch(self, case: Json) -> None:
        """What most topics lack: one thing more that a Pod, a node or the configuration says."""
        touches = (
            (self._name_a_node, 4),
            (self._weigh, 6),
            (self._no_nodes, 1),
            (self._scarce, 14),
            (self._gate, 5),
            (self._overhead, 4),
            (self._never, 3),
            (self._features, 5),
            (self._cordon, 5),
            (self._sidecar, 3),
            (self._port, 5),
            (self._nominate, 4),
            (self._whole, 3),
            (self._arguments, 8),
            (self._disk, 7),
            (self._mounted, 9),
            (self._stores, 8),
        )
        chosen = self.random.choices([touch for touch, _ in touches], [share for _, share in touches])[0]
        chosen(case)

    def _name_a_node(self, case: Json) -> None:
        names = [*(node["metadata"]["name"] for node in _nodes(case)), "gone"]
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.random.choice(names)]}]}
            for _ in range(self.random.randint(1, 3))
        ]
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        case["pod"]["spec"].setdefault("affinity", {})["nodeAffinity"] = rules

    def _weigh(self, case: Json) -> None:
        """Some score plugins off, or with other weights."""
        pick = self.random
        profile = case.setdefault("config", _config([]))["profiles"][0]
        names = [
            {"name": name} for name in ("NodeResourcesFit", "TaintToleration", "ImageLocality", "InterPodAffinity")
        ]
        chosen = pick.sample(names, pick.randint(1, 3))
        profile["plugins"] = {"score": {"disabled": chosen}}
        if pick.random() < 0.75:
            profile["plugins"]["score"]["enabled"] = [{**one, "weight": pick.randint(1, 9)} for one in chosen]

    def _no_nodes(self, case: Json) -> None:
        case["objects"] = [item for item in case["objects"] if item["kind"] != "Node"]

    def _scarce(self, case: Json) -> None:
        """The Pod asks for a resource that some nodes have little of."""
        pick = self.random
        name = pick.choice(_SCARCE)
        for node in _nodes(case):
            node["status"]["allocatable"][name] = pick.choice(("0", "1", "1000Gi", "1000Gi"))
        requests = case["pod"]["spec"]["containers"][0].setdefault("resources", {}).setdefault("requests", {})
        requests[name] = pick.choice(("1", "2", "3"))

    def _gate(self, case: Json) -> None:
        case["pod"]["spec"]["schedulingGates"] = [{"name": name} for name in self.random.sample("abc", 2)]

    def _overhead(self, case: Json) -> None:
        case["pod"]["spec"]["overhead"] = {"cpu": self.random.choice(("10m", "500m", "3")), "memory": "1Mi"}

    def _never(self, case: Json) -> None:
        case["pod"]["spec"]["preemptionPolicy"] = "Never"

    def _features(self, case: Json) -> None:
        """A feature that some nodes declare, and a Pod that needs it."""
        feature = "UserNamespacesHostNetworkSupport"
        for node in _nodes(case):
            node["status"]["declaredFeatures"] = self.random.choice(([], [feature]))
        case["pod"]["spec"] |= {"hostNetwork": True, "hostUsers": False}

    def _cordon(self, case: Json) -> None:
        for node in _nodes(case):
            if self.random.random() < 0.4:
                node.setdefault("spec", {})["unschedulable"] = True

    def _sidecar(self, case: Json) -> None:
        requests = {"cpu": self.random.choice(("100m", "2"))}
        sidecar = {"name": "side", "image": "i", "restartPolicy": "Always", "resources": {"requests": requests}}
        spec = case["pod"]["spec"]
        spec["initContainers"] = [*spec.get("initContainers", ()), sidecar]

    def _port(self, case: Json) -> None:
        """A port of the host that the Pod wants and some placed Pods have."""
        wanted = {"containerPort": 80, "hostPort": 8088, "protocol": "TCP", "hostIP": self.random.choice(_ADDRESSES)}
        case["pod"]["spec"]["containers"][0]["ports"] = [wanted]
        taken: set[str] = set()
        for pod in self._some_placed(case):
            if pod["spec"]["nodeName"] not in taken:
                taken.add(pod["spec"]["nodeName"])
                pod["spec"]["containers"][0]["ports"] = [{**wanted, "hostIP": self.random.choice(_ADDRESSES)}]

    def _nominate(self, case: Json) -> None:
        """A Pod that waits for room on one of the nodes."""
        if _nodes(case):
            node = self.random.choice(_nodes(case))["metadata"]["name"]
            pod = self._neighbour("awaited", "")
            pod["spec"]["priority"] = self.random.choice((0, 10))
            pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = self.random.choice(("1", "30"))
            case["objects"].append({**pod, "status": {"nominatedNodeName": node}})

    def _whole(self, case: Json) -> None:
        """Requests for the Pod as a whole."""
        amounts = self.random.choice(({"cpu": "700m"}, {"memory": "2Gi"}, {"cpu": "3", "memory": "1Gi"}))
        case["pod"]["spec"]["resources"] = {"requests": amounts}

    def _arguments(self, case: Json) -> None:
        """Arguments of the scoring plugins; not where devices serve what is scored, which crashes upstream."""
        if "config" not in case and not any(item["kind"] == "DeviceClass" for item in case["objects"]):
            case["config"] = self._basic.config()

    def _disk(self, case: Json) -> None:
        """A disk that the Pod wants and some placed Pods have."""
        disk = {"name": "disk", "gcePersistentDisk": {"pdName": "d"}}
        case["pod"]["spec"]["volumes"] = [*case["pod"]["spec"].get("volumes", ()), disk]
        for pod in self._some_placed(case):
            pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), disk]

    def _mounted(self, case: Json) -> None:
        """A bound claim: for one Pod at a time, or of a driver that some nodes have, or of one zone."""
        pick = self.random
        namespace = case["pod"]["metadata"].get("namespace", "default")
        mode = pick.choice(("ReadWriteOncePod", "ReadWriteOnce", "ReadWriteOnce"))
        claim = _persistent("PersistentVolumeClaim", "one", {"accessModes": [mode], "volumeName": "pv-one"})
        claim["metadata"] |= {"namespace": namespace, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
        claim["spec"]["resources"] = {"requests": {"storage": "1Gi"}}
        volume = _persistent("PersistentVolume", "pv-one", {"accessModes": [mode], "capacity": {"storage": "1Gi"}})
        volume["spec"]["claimRef"] = {"namespace": namespace, "name": "one", "uid": "one"}
        # Of several drivers that are missing, upstream names a random one.
        foreign = any(item["kind"] == "CSIDriver" for item in case["objects"])
        kind = "zone" if foreign else pick.choice(("driver", "zone"))
        if kind == "driver":
            volume["spec"]["csi"] = {"driver": "one.csi.io", "volumeHandle": "one"}
            case["objects"].append(_storage("CSIDriver", "one.csi.io", {"preventPodSchedulingIfMissing": True}))
            known = {item["metadata"]["name"] for item in case["objects"] if item["kind"] == "CSINode"}
            for name in sorted({node["metadata"]["name"] for node in _nodes(case)} - known):
                drivers = [{"name": "one.csi.io", "nodeID": name}] if pick.random() < 0.6 else []
                case["objects"].append(_storage("CSINode", name, {"drivers": drivers}))
        else:
            volume["spec"]["hostPath"] = {"path": "/x"}
            volume["metadata"]["labels"] = {topology_cases.ZONE: pick.choice("ab")}
        case["objects"] += [claim, volume]
        use = {"name": "one", "persistentVolumeClaim": {"claimName": "one"}}
        case["pod"]["spec"]["volumes"] = [*case["pod"]["spec"].get("volumes", ()), use]
        for pod in self._some_placed(case)[:1]:
            if mode == "ReadWriteOncePod" and pod["metadata"].get("namespace", "default") == namespace:
                pod["spec"]["volumes"] = [*pod["spec"].get("volumes", ()), use]

    def _stores(self, case: Json) -> None:
        """Local volumes of several sizes, or room for new ones, on some nodes; a claim that waits for its first Pod."""
        pick = self.random
        made = pick.random() < 0.4
        local = {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
        if made:
            local["provisioner"] = "made.csi.io"
        objects = [{**_storage("StorageClass", "local", {}), **local}]
        del objects[0]["spec"]
        if made:
            objects.append(_storage("CSIDriver", "made.csi.io", {"storageCapacity": True}))
        for node in _nodes(case):
            here = node["metadata"]["name"]
            if made:
                objects.append(_stock(here, pick.choice(("1Gi", "4Gi", "40Gi"))))
                continue
            host = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [here]}]
            for number in range(pick.choice((0, 1, 2, 3))):
                volume = _persistent("PersistentVolume", f"pv-{here}-{number}", {"storageClassName": "local"})
                volume["spec"] |= {
                    "accessModes": ["ReadWriteOnce"],
                    "capacity": {"storage": pick.choice(("1Gi", "4Gi", "10Gi", "40Gi"))},
                    "local": {"path": f"/{number}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": host}]}},
                }
                volume["status"] = {"phase": "Available"}
                objects.append(volume)
        namespace = case["pod"]["metadata"].get("namespace", "default")
        wanted = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
        claim = _persistent("PersistentVolumeClaim", "stored", wanted)
        claim["metadata"]["namespace"] = namespace
        claim["spec"]["resources"] = {"requests": {"storage": "3Gi"}}
        case["objects"] += [*objects, claim]
        use = {"name": "stored", "persistentVolumeClaim": {"claimName": "stored"}}
        case["pod"]["spec"]["volumes"] = [*case["pod"]["spec"].get("volumes", ()), use]

    def _some_placed(self, case: Json) -> list[Json]:
        placed = [item for item in case["objects"] if item["kind"] == "Pod" and item["spec"].get("nodeName")]
        return self.random.sample(placed, min(len(placed), self.random.randint(1, 3)))

    def _neighbours(self, name: str) -> Json:
        """A Pod with one or two terms, and placed Pods that some of its nodes have and others have not."""
        pick = self.random
        keys = (topology_cases.ZONE, topology_cases.HOST)
        nodes = [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{place}", "labels": {keys[0]: pick.choice("abc"), keys[1]: f"n{place}"}},
                "spec": {},
                "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
            }
            for place in range(pick.randint(2, 6))
        ]
        pods = [self._neighbour(f"on{place}", f"n{pick.randrange(len(nodes))}") for place in range(pick.randint(1, 6))]
        waiting = self._neighbour("waiting", "")
        for kind in pick.choice((("podAffinity",), ("podAntiAffinity",), ("podAffinity", "podAntiAffinity"))):
            selector = {"matchLabels": {"app": pick.choice("ab")}}
            term = {"topologyKey": pick.choice(keys), "labelSelector": selector}
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            waiting["spec"].setdefault("affinity", {})[kind] = rules
        return {"name": name, "objects": [*nodes, *pods], "pod": waiting}

    def _neighbour(self, name: str, node: str) -> Json:
        metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": self.random.choice("ab")}}
        spec: Json = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
        if node:
            spec["nodeName"] = node
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}

    def _twins(self, name: str) -> Json:
        """Nodes that are alike down to their Pods, so that preemption finds candidates of equal worth."""
        case = self._preemption.case(name)
        first = _nodes(case)[0]
        here = first["metadata"]["name"]
        pods = [item for item in case["objects"] if item["kind"] == "Pod" and item["spec"].get("nodeName") == here]
        others = [item for item in case["objects"] if item["kind"] not in ("Pod", "Node")]
        objects: list[Json] = []
        for number in range(self.random.randint(2, 4)):
            twin = f"n{number}"
            labels = {**first["metadata"]["labels"], "kubernetes.io/hostname": twin}
            objects.append({**first, "metadata": {"name": twin, "labels": labels}})
            # Its budget may speak of other Pods.
            label = {"app": self.random.choice("ab")} if self.random.random() < 0.4 else {}
            for pod in pods:
                own = {"name": f"{pod['metadata']['name']}-{number}", "uid": f"{pod['metadata']['uid']}-{number}"}
                metadata = {**pod["metadata"], **own, "labels": {**pod["metadata"].get("labels", {}), **label}}
                objects.append({**pod, "metadata": metadata, "spec": {**pod["spec"], "nodeName": twin}})
        if self.random.random() < 0.7:
            others = [self._preemption.budget("guard")]
        return {**case, "objects": [*objects, *others]}

    def _mixed(self, name: str) -> Json:
        """Two or three cases in one: nodes of equal place are one node, the waiting Pods are one Pod."""
        pick = self.random
        # What basic nodes offer would make most mixed Pods impossible; their easy half is enough.
        parts: list[Callable[[str], Json]] = [self._topology.case, self._preemption.case, self._devices.case]
        chosen = pick.sample(parts, 2)
        if pick.random() < 0.5:
            chosen[pick.randrange(2)] = self._basic.case
        return merge(name, [make(name) for make in chosen])


def _persistent(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": name}, "spec": dict(spec)}


def _storage(kind: str, name: str, spec: Json) -> Json:
    return {"apiVersion": "storage.k8s.io/v1", "kind": kind, "metadata": {"name": name, "uid": name}, "spec": spec}


def _stock(node: str, capacity: str) -> Json:
    stock = _storage("CSIStorageCapacity", f"room-{node}", {})
    del stock["spec"]
    stock["metadata"]["namespace"] = "default"
    topology = {"matchLabels": {"kubernetes.io/hostname": node}}
    return {**stock, "storageClassName": "local", "capacity": capacity, "nodeTopology": topology}


def _nodes(case: Json) -> list[Json]:
    return [item for item in case["objects"] if item["kind"] == "Node"]


def merge(name: str, cases: Sequence[Json]) -> Json:
    """One case of several. Later ones win where fields of a node or of the waiting Pod collide."""
    objects: dict[tuple[str, str], Json] = {}
    pod: Json = {}
    arguments: dict[str, Json] = {}
    for number, case in enumerate(cases):
        for item in case["objects"]:
            moved = _moved(item, number)
            key = moved["kind"], moved["metadata"].get("namespace", "") + "/" + moved["metadata"]["name"]
            objects[key] = _merged(objects[key], moved) if key in objects else moved
        pod = _merged(pod, case["pod"]) if pod else case["pod"]
        for profile in case.get("config", {}).get("profiles", ()):
            arguments |= {entry["name"]: entry for entry in profile.get("pluginConfig", ())}
    _one_user_per_port(list(objects.values()))
    merged: Json = {"name": name, "objects": list(objects.values()), "pod": pod}
    if arguments:
        merged["config"] = _config(list(arguments.values()))
    return merged


def _moved(item: Json, number: int) -> Json:
    """An object of case ``number`` under names of its own; nodes keep theirs."""
    if item["kind"] != "Pod":
        return item
    metadata, status = item["metadata"], item.get("status") or {}
    moved = {**metadata, "name": f"{metadata['name']}-{number}", "uid": f"{metadata['uid']}-{number}"}
    if item["spec"].get("nodeName") and "startTime" not in status:
        # Without one both sides take the present, which is another one for each of two comparisons.
        minute, second = divmod(sum(map(ord, metadata["name"])) * 61 + number * 7, 60)
        started = f"2026-02-{number + 1:02}T{minute // 60 % 24:02}:{minute % 60:02}:{second:02}Z"
        status = {**status, "startTime": started}
    return {**item, "metadata": moved, "status": status}


def _one_user_per_port(objects: list[Json]) -> None:
    """Pods of one node cannot share a host port, and upstream forgets the port when the first of them goes."""
    taken: set[tuple[str, int]] = set()
    for item in objects:
        if item["kind"] != "Pod" or not item["spec"].get("nodeName"):
            continue
        spec = item["spec"]
        for container in (*spec["containers"], *spec.get("initContainers", ())):
            ports = {(spec["nodeName"], port.get("hostPort", 0)) for port in container.get("ports", ())}
            if ports & taken:
                del container["ports"]
            else:
                taken |= {port for port in ports if port[1]}


def _merged(one: Json, other: Json) -> Json:
    """``other`` over ``one``: objects field by field; lists that name things of both; else the later."""
    result = dict(one)
    for key, value in other.items():
        old = result.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            result[key] = _merged(old, value)
        elif key == "containers" and old:
            result[key] = _containers(old, value)
        elif old and not value:
            result[key] = old
        else:
            result[key] = value
    return result


def _containers(one: list[Json], other: list[Json]) -> list[Json]:
    return [*one, *({**container, "name": f"m{place}"} for place, container in enumerate(other))]


def _config(arguments: list[Json]) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": arguments}],
    }
