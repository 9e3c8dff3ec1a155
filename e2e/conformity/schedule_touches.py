"""One thing more for a case: what most topics lack, so that rules meet that are drawn apart."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from tests.plugins import topology_cases

Json = dict[str, Any]
_SCARCE = ("ephemeral-storage", "example.com/gpu", "vendor.io/nic", "memory")
_ADDRESSES = ("0.0.0.0", "127.0.0.1", "10.0.0.1")


class Touches:
    """Changes a case in place. ``config`` makes a configuration with arguments for scoring plugins."""

    def __init__(self, source: random.Random, config: Callable[[], Json]) -> None:
        self.random = source
        self._config = config

    def touch(self, case: Json) -> None:
        """What most topics lack: one thing more that a Pod, a node or the configuration says."""
        touches = (
            (self._name_a_node, 4),
            (self._weigh, 6),
            (self._no_nodes, 1),
            (self._scarce, 18),
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
        names = [*(node["metadata"]["name"] for node in nodes_of(case)), "gone"]
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [self.random.choice(names)]}]}
            for _ in range(self.random.randint(1, 3))
        ]
        rules = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        case["pod"]["spec"].setdefault("affinity", {})["nodeAffinity"] = rules

    def _weigh(self, case: Json) -> None:
        """Some score plugins off, or with other weights."""
        pick = self.random
        profile = case.setdefault("config", new_config([]))["profiles"][0]
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
        for node in nodes_of(case):
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
        for node in nodes_of(case):
            node["status"]["declaredFeatures"] = self.random.choice(([], [feature]))
        case["pod"]["spec"] |= {"hostNetwork": True, "hostUsers": False}

    def _cordon(self, case: Json) -> None:
        for node in nodes_of(case):
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
        if nodes_of(case):
            node = self.random.choice(nodes_of(case))["metadata"]["name"]
            pod = neighbour(self.random, "awaited", "")
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
            case["config"] = self._config()

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
            for name in sorted({node["metadata"]["name"] for node in nodes_of(case)} - known):
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
        for node in nodes_of(case):
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


def neighbour(source: random.Random, name: str, node: str) -> Json:
    """A small Pod with one of two labels, placed on ``node`` unless that is ""."""
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": source.choice("ab")}}
    spec: Json = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}
    if node:
        spec["nodeName"] = node
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}


def nodes_of(case: Json) -> list[Json]:
    """The nodes of a case."""
    return [item for item in case["objects"] if item["kind"] == "Node"]


def new_config(arguments: Sequence[Json]) -> Json:
    """A configuration of one profile with these plugin arguments."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": list(arguments)}],
    }


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
