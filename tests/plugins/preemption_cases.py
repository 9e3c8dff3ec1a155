"""Random cases in which a Pod may have to preempt others, for comparison with kube-scheduler.

``python tests/plugins/preemption_cases.py ORACLE COUNT SEED > tests/vectors/schedule_preemption.jsonl`` asks the oracle
(e2e/oracle) and keeps each case with its answer; the tests replay the file without it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


class Cases:
    """A source of cases; equal seeds give equal cases. Start times are all different, so that order is no accident."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.started = 0
        self.topics: tuple[str, ...] = ()
        self.ports: set[tuple[str, int]] = set()

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def case(self, name: str) -> Json:
        """Nodes that are nearly full, Pods on them, budgets, nominated Pods, and a Pod of some importance."""
        pick = self.random
        self.started, self.ports = 0, set()
        topics = ("budgets", "nominated", "ports", "affinity", "spread", "extended", "static")
        self.topics = tuple(topic for topic in topics if self.chance(0.3))
        nodes = [self.node(f"n{index}") for index in range(pick.choice((1, 2, 3, 5, 8)))]
        names = [node["metadata"]["name"] for node in nodes]
        count = pick.choice((1, 2, 4, 6)) * len(nodes)
        pods = [self.pod(f"on{index}", pick.choice(names)) for index in range(count)]
        objects = [*nodes, *pods]
        if "budgets" in self.topics:
            objects += [self.budget(f"b{index}") for index in range(pick.randint(1, 3))]
        if "nominated" in self.topics:
            objects += [self.nominated(f"nom{index}", pick.choice(names)) for index in range(pick.randint(1, 3))]
        waiting = self.pod("waiting", "")
        waiting["spec"]["priority"] = pick.choice((5, 10, 10, 10, 100))
        if self.chance(0.05):
            waiting["spec"]["preemptionPolicy"] = "Never"
        if self.chance(0.15):
            waiting["status"]["nominatedNodeName"] = pick.choice((*names, "gone"))
        return {"name": name, "objects": objects, "pod": waiting}

    def node(self, name: str) -> Json:
        pick = self.random
        labels = {HOST: name}
        if self.chance(0.9):
            labels[ZONE] = pick.choice("ab")
        taints = []
        if "static" in self.topics and self.chance(0.3):
            taints.append({"key": "k", "effect": pick.choice(("NoSchedule", "PreferNoSchedule"))})
        allocatable = {"cpu": pick.choice(("2", "4")), "memory": "8Gi", "pods": pick.choice(("2", "4", "110"))}
        if "extended" in self.topics:
            allocatable["example.com/gpu"] = pick.choice(("0", "2", "4"))
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": taints, "unschedulable": "static" in self.topics and self.chance(0.15)},
            "status": {"allocatable": allocatable},
        }

    def pod(self, name: str, node: str) -> Json:
        pick = self.random
        requests = {"cpu": pick.choice(("500m", "1", "2", "3"))}
        if self.chance(0.5):
            requests["memory"] = pick.choice(("1Gi", "4Gi"))
        if "extended" in self.topics and self.chance(0.5):
            requests["example.com/gpu"] = pick.choice(("1", "2"))
        container: Json = {"name": "c", "image": "i", "resources": {"requests": requests}}
        port = (node, pick.choice((80, 81)))
        # Twice on one node is impossible, and upstream forgets a port when the first of two Pods goes.
        if "ports" in self.topics and self.chance(0.6) and (not node or port not in self.ports):
            self.ports.add(port)
            container["ports"] = [{"containerPort": 80, "hostPort": port[1], "protocol": "TCP"}]
        metadata: Json = {"name": name, "namespace": pick.choice(("default", "default", "other")), "uid": name}
        if self.chance(0.9):
            metadata["labels"] = {"app": pick.choice("ab")}
        spec: Json = {"containers": [container]}
        if not self.chance(0.1):
            spec["priority"] = pick.choice((-10, 0, 1, 5, 10))
        status: Json = {}
        if node:
            spec["nodeName"] = node
            self.started += 1
            minute, second = divmod(self.started * 7 % 3600, 60)
            status["startTime"] = f"2026-01-01T00:{minute:02}:{second:02}Z"
            if self.chance(0.08):
                metadata["deletionTimestamp"] = "2026-01-02T00:00:00Z"
                metadata["deletionGracePeriodSeconds"] = 30
                metadata["finalizers"] = ["example.com/held"]
                if self.chance(0.7):
                    status["conditions"] = [
                        {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
                    ]
        if "affinity" in self.topics and self.chance(0.5):
            spec["affinity"] = self.affinity()
        if "spread" in self.topics and (not node and self.chance(0.8)):
            spec["topologySpreadConstraints"] = [self.constraint() for _ in range(pick.randint(1, 2))]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}

    def nominated(self, name: str, node: str) -> Json:
        pod = self.pod(name, "")
        pod["spec"]["priority"] = self.random.choice((1, 10, 20))
        pod["status"]["nominatedNodeName"] = node
        return pod

    def affinity(self) -> Json:
        pick = self.random
        term = {"labelSelector": {"matchLabels": {"app": pick.choice("ab")}}, "topologyKey": pick.choice((ZONE, HOST))}
        kind = "podAntiAffinity" if self.chance(0.75) else "podAffinity"
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def constraint(self) -> Json:
        pick = self.random
        return {
            "maxSkew": pick.choice((1, 1, 2)),
            "topologyKey": pick.choice((ZONE, HOST)),
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": pick.choice("ab")}},
        }

    def budget(self, name: str) -> Json:
        pick = self.random
        selector = pick.choice(
            ({"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}, {}, {"matchExpressions": [_EXISTS]})
        )
        status: Json = {"disruptionsAllowed": pick.choice((0, 0, 1, 2))}
        if self.chance(0.3):
            status["disruptedPods"] = {f"on{pick.randint(0, 5)}": "2026-01-01T00:00:00Z"}
        return {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": pick.choice(("default", "default", "other"))},
            "spec": {"selector": selector},
            "status": status,
        }


_EXISTS = {"key": "app", "operator": "Exists"}


def answered(oracle: str, cases: list[Json]) -> list[Json]:
    """The cases, each with the oracle's ``answer``: what concerns a rejected Pod and preemption for it."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([oracle, "schedule"], input=lines, capture_output=True, text=True, check=True).stdout
    kept = ("input_error", "panic", "selected", "message", "unschedulable_plugins", "preemption")
    result = []
    for case, line in zip(cases, answers.splitlines(), strict=True):
        answer = json.loads(line)
        result.append({**case, "answer": {key: answer[key] for key in kept if key in answer}})
    return result


def main(oracle: str, count: int, seed: int) -> None:
    """Print ``count`` answered cases, one JSON object per line."""
    source = Cases(seed)
    for case in answered(oracle, [source.case(f"preemption-{seed}-{index}") for index in range(count)]):
        sys.stdout.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
