"""Random scheduling cases without volumes, spread and inter-Pod affinity, for comparison with kube-scheduler.

``python tests/plugins/schedule_cases.py ORACLE COUNT SEED > tests/vectors/schedule_basic.jsonl`` asks the oracle
(e2e/oracle) and keeps each case with its answer; the tests replay the file without it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

LABELS = {"disk": ("ssd", "hdd", "nvme"), "rank": ("1", "2", "10", "x"), "topology.kubernetes.io/zone": ("a", "b")}
EFFECTS = ("NoSchedule", "NoExecute", "PreferNoSchedule")
CPU = ("0", "100m", "250m", "1", "1500m", "3", "900u", "2.5")
MEMORY = ("0", "64Mi", "1Gi", "3Gi", "500M", "1500m", "12Gi")
EXTENDED = ("example.com/gpu", "vendor.io/nic", "hugepages-2Mi", "attachable-volumes-x", "bananas")
IMAGES = ("app:1", "app", "registry:5000/app", "registry:5000/app:latest", "app:latest", "base@sha256:00", "big:1")


class Cases:
    """A source of cases; equal seeds give equal cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.easy = False
        self.selecting = False

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def case(self, name: str) -> Json:
        """One case: nodes, Pods on them, a waiting Pod, sometimes a configuration and a DeviceClass."""
        pick = self.random
        # Most random Pods fit nowhere; in an easy case they fit in several places, so that scores are compared.
        self.easy = self.chance(0.6)
        self.selecting = False
        nodes = [self.node(f"n{index}") for index in range(pick.randint(1, 8))]
        names = [node["metadata"]["name"] for node in nodes]
        pods = [self.pod(f"on{index}", pick.choice(names)) for index in range(pick.choice((0, 2, 5, 12)))]
        objects = [*nodes, *pods]
        if self.chance(0.15):
            spec = {"extendedResourceName": pick.choice(("example.com/gpu", "vendor.io/nic"))}
            objects.append(
                {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "c"}, "spec": spec}
            )
        case: Json = {"name": name, "objects": objects, "pod": self.pod("waiting", "")}
        if self.chance(0.15):
            objects += self.served_by_devices(case["pod"], nodes)
        if self.chance(0.5):
            case["config"] = self.config()
        return case

    def served_by_devices(self, pod: Json, nodes: list[Json]) -> list[Json]:
        """Devices that serve an extended resource of ``pod`` where nodes offer none; some are held by claims."""
        pick, version = self.random, "resource.k8s.io/v1"
        selectors = [{"cel": {"expression": "device.attributes['d.io'].size > 1"}}] if self.chance(0.6) else []
        self.selecting = bool(selectors)
        spec: Json = {"extendedResourceName": "served.io/dev", "selectors": selectors}
        objects: list[Json] = [
            {"apiVersion": version, "kind": "DeviceClass", "metadata": {"name": "served"}, "spec": spec}
        ]
        pod["spec"]["containers"][0]["resources"]["requests"]["served.io/dev"] = "1"
        for node in nodes:
            name = node["metadata"]["name"]
            if self.chance(0.2):
                node["status"]["allocatable"]["served.io/dev"] = pick.choice(("0", "8"))
            devices = [
                {"name": f"d{index}", "attributes": {"size": {"int": pick.randint(0, 4)}}}
                for index in range(pick.randint(1, 8))
            ]
            pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
            spec = {"driver": "d.io", "nodeName": name, "pool": pool, "devices": devices}
            objects.append(
                {"apiVersion": version, "kind": "ResourceSlice", "metadata": {"name": f"s-{name}"}, "spec": spec}
            )
            held = [
                {"request": "r", "driver": "d.io", "pool": name, "device": device["name"]}
                for device in devices
                if self.chance(0.3)
            ]
            if held:
                exactly = {"deviceClassName": "served", "allocationMode": "ExactCount", "count": len(held)}
                objects.append(
                    {
                        "apiVersion": version,
                        "kind": "ResourceClaim",
                        "metadata": {"name": f"c-{name}", "namespace": "default", "uid": f"c-{name}"},
                        "spec": {"devices": {"requests": [{"name": "r", "exactly": exactly}]}},
                        "status": {"allocation": {"devices": {"results": held}}},
                    }
                )
        return objects

    def node(self, name: str) -> Json:
        pick = self.random
        labels = {key: pick.choice(values) for key, values in LABELS.items() if self.chance(0.6)}
        allocatable = {"cpu": pick.choice(("1", "4", "3999m", "64")), "memory": pick.choice(("4Gi", "7G", "1Ti"))}
        allocatable["pods"] = pick.choice(("2", "10", "110"))
        if self.chance(0.1):
            del allocatable[pick.choice(("cpu", "memory", "pods"))]
        if self.chance(0.5):
            allocatable["ephemeral-storage"] = pick.choice(("10Gi", "100G"))
        for resource in EXTENDED:
            if self.chance(0.4):
                allocatable[resource] = pick.choice(("0", "1", "4", "4Mi"))
        if self.easy:
            allocatable |= {"cpu": pick.choice(("32", "47100m", "64")), "memory": pick.choice(("200Gi", "1Ti"))}
            allocatable |= {"pods": "110", "ephemeral-storage": pick.choice(("1Ti", "3T"))}
            allocatable |= {resource: pick.choice(("37", "4Mi")) for resource in EXTENDED}
        images = [
            {"names": pick.sample(IMAGES, pick.randint(1, 2)), "sizeBytes": pick.choice((0, 10**7, 10**8, 3 * 10**9))}
            for _ in range(pick.randint(0, 3))
        ]
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            "spec": {
                "unschedulable": not self.easy and self.chance(0.1),
                "taints": [self.taint() for _ in range(pick.choice((0, 0, 0, 0, 1, 2)))],
            },
            "status": {"allocatable": allocatable, "images": images},
        }

    def taint(self) -> Json:
        pick = self.random
        return {
            "key": pick.choice("kl"),
            "value": pick.choice(("", "v", "w")),
            "effect": pick.choice(EFFECTS[2:] if self.easy else EFFECTS),
        }

    def toleration(self) -> Json:
        pick = self.random
        toleration = {"key": pick.choice(("k", "l", "node.kubernetes.io/unschedulable"))}
        if self.chance(0.5):
            toleration["operator"] = "Exists"
            if self.chance(0.3):
                toleration["key"] = ""
        else:
            toleration |= {"operator": "Equal", "value": pick.choice(("", "v", "w"))}
        if self.chance(0.6):
            toleration["effect"] = pick.choice(EFFECTS)
        return toleration

    def requests(self) -> Json:
        pick = self.random
        requests = {}
        if self.chance(0.7):
            requests["cpu"] = pick.choice(CPU)
        if self.chance(0.7):
            requests["memory"] = pick.choice(MEMORY)
        if self.chance(0.15):
            requests["ephemeral-storage"] = pick.choice(("1Gi", "50Gi", "0"))
        for resource in EXTENDED:
            if self.chance(0.12):
                requests[resource] = pick.choice(("0", "1", "2", "5"))
        return requests

    def container(self, name: str) -> Json:
        pick = self.random
        container: Json = {"name": name, "image": pick.choice(IMAGES), "resources": {"requests": self.requests()}}
        if self.chance(0.25):
            port: Json = {"containerPort": 80, "hostPort": pick.choice((0, 80, 81)), "protocol": "TCP"}
            if self.chance(0.3):
                port["protocol"] = "UDP"
            if self.chance(0.4):
                port["hostIP"] = pick.choice(("0.0.0.0", "127.0.0.1", "10.0.0.1"))
            container["ports"] = [port]
        return container

    def pod(self, name: str, node: str) -> Json:
        pick = self.random
        spec: Json = {"containers": [self.container(f"c{index}") for index in range(pick.randint(1, 2))]}
        inits = [self.container(f"i{index}") for index in range(pick.choice((0, 0, 0, 1, 2)))]
        for init in inits:
            if self.chance(0.4):
                init["restartPolicy"] = "Always"
        if inits:
            spec["initContainers"] = inits
        if self.chance(0.1):
            spec["overhead"] = {"cpu": "10m", "memory": "1Mi"}
        if self.chance(0.15):
            whole = ({"cpu": "700m"}, {"memory": "2Gi"}, {"cpu": "2", "memory": "1Gi"})
            spec["resources"] = {"requests": pick.choice(whole)}
        if self.chance(0.5):
            spec["tolerations"] = [self.toleration() for _ in range(pick.randint(1, 3))]
        status: Json = {}
        if node:
            spec["nodeName"] = node
            if self.chance(0.3):
                status = self.status(spec)
        else:
            self.placement(spec)
        metadata = {"name": name, "namespace": "default", "uid": name}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def status(self, spec: Json) -> Json:
        """What a kubelet reports while a Pod is resized in place."""
        pick = self.random
        containers: list[Json] = []
        for container in spec["containers"]:
            entry: Json = {"name": container["name"], "image": "", "imageID": "", "ready": True, "restartCount": 0}
            if self.chance(0.6):
                entry["allocatedResources"] = self.requests()
            if self.chance(0.6):
                entry["resources"] = {"requests": self.requests()}
            containers.append(entry)
        status: Json = {"containerStatuses": containers}
        if self.chance(0.4):
            reason = pick.choice(("Infeasible", "Deferred"))
            status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
        if self.chance(0.3):
            status["resources"] = {"requests": {"cpu": "300m", "memory": "2Gi"}}
            if self.chance(0.6):
                status["allocatedResources"] = {"cpu": "350m", "memory": "1Gi"}
        return status

    def placement(self, spec: Json) -> None:
        pick = self.random
        if not self.easy and self.chance(0.15):
            spec["nodeSelector"] = {"disk": pick.choice(LABELS["disk"])} if self.chance(0.9) else {}
        affinity: Json = {}
        if not self.easy and self.chance(0.3):
            terms = [self.term() for _ in range(pick.choice((0, 1, 1, 2)))]
            affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
        if self.chance(0.4):
            affinity["preferredDuringSchedulingIgnoredDuringExecution"] = [
                {"weight": pick.choice((1, 7, 100)), "preference": self.term()} for _ in range(pick.randint(1, 3))
            ]
        if affinity:
            spec["affinity"] = {"nodeAffinity": affinity}
        if self.chance(0.2):
            spec["volumes"] = [{"name": "v", "image": {"reference": pick.choice(IMAGES)}}]
        if self.chance(0.05):
            spec["schedulingGates"] = [{"name": "a"}, {"name": "b"}]

    def term(self) -> Json:
        pick = self.random
        term: Json = {}
        if self.chance(0.85):
            term["matchExpressions"] = [self.expression() for _ in range(pick.randint(0, 2))]
        if self.chance(0.15):
            operator = pick.choice(("In", "In", "NotIn"))
            field = {"key": "metadata.name", "operator": operator, "values": [f"n{pick.randint(0, 4)}"]}
            term["matchFields"] = [field]
            if self.chance(0.2):
                term["matchFields"].append({**field, "values": [f"n{pick.randint(0, 4)}"]})
        return term

    def expression(self) -> Json:
        pick = self.random
        key = pick.choice((*LABELS, "absent"))
        operator = pick.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
        expression: Json = {"key": key, "operator": operator}
        values = LABELS.get(key, ("1",))
        if operator in ("In", "NotIn"):
            expression["values"] = pick.sample(values, pick.randint(1, len(values)))
        elif operator in ("Gt", "Lt"):
            expression["key"] = "rank"
            expression["values"] = [pick.choice(("0", "2", "5"))]
        return expression

    def config(self) -> Json:
        pick = self.random
        resources = [{"name": "cpu", "weight": pick.choice((1, 5))}, {"name": "memory", "weight": pick.choice((1, 3))}]
        if self.chance(0.6):
            resources += [{"name": name, "weight": 2} for name in pick.sample(EXTENDED[:3], 2)]
        if self.chance(0.7):
            resources.append({"name": "served.io/dev", "weight": 3})
        if self.chance(0.2):
            resources.append({"name": "ephemeral-storage", "weight": 1})
        kind = pick.choice(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
        strategy: Json = {"type": kind, "resources": resources}
        if kind == "RequestedToCapacityRatio":
            points = sorted(pick.sample(range(101), pick.randint(1, 4)))
            shape = [{"utilization": point, "score": pick.randint(0, 10)} for point in points]
            strategy["requestedToCapacityRatio"] = {"shape": shape}
        fit: Json = {"scoringStrategy": strategy}
        if self.chance(0.3):
            fit["ignoredResources"] = ["example.com/gpu"]
        if self.chance(0.3):
            fit["ignoredResourceGroups"] = ["vendor.io"]
        plugins = [{"name": "NodeResourcesFit", "args": fit}]
        balanced = [{"name": entry["name"], "weight": 1} for entry in resources]
        if self.selecting:
            # kube-scheduler 1.37.2 crashes there: its BalancedAllocation has no CEL cache.
            balanced = [entry for entry in balanced if entry["name"] != "served.io/dev"]
        plugins.append({"name": "NodeResourcesBalancedAllocation", "args": {"resources": balanced}})
        if self.chance(0.3):
            added: Json = {}
            if not self.easy and self.chance(0.6):
                terms = {"nodeSelectorTerms": [{"matchExpressions": [self.expression()]}]}
                added["requiredDuringSchedulingIgnoredDuringExecution"] = terms
            if self.chance(0.6):
                preferred = {"weight": 5, "preference": {"matchExpressions": [self.expression()]}}
                added["preferredDuringSchedulingIgnoredDuringExecution"] = [preferred]
            plugins.append({"name": "NodeAffinity", "args": {"addedAffinity": added}})
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": plugins}],
        }


def main(oracle: str, count: int, seed: int) -> None:
    """Write ``count`` answered cases, one JSON object per line."""
    source = Cases(seed)
    cases = [source.case(f"basic-{seed}-{index}") for index in range(count)]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([oracle, "schedule"], input=lines, capture_output=True, text=True, check=True).stdout
    for case, answer in zip(cases, answers.splitlines(), strict=True):
        kept = json.loads(answer)
        kept.pop("elapsed_ms", None)
        sys.stdout.write(json.dumps({**case, "answer": kept}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
