"""Random scheduling cases of spread, inter-Pod affinity and declared features, for comparison with kube-scheduler.

``python tests/plugins/topology_cases.py ORACLE COUNT SEED`` asks the oracle (e2e/oracle) and prints each case with its
answer; tests/vectors/schedule_topology.jsonl keeps some, which the tests replay without it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

ZONE, REGION, HOST, RACK = "topology.kubernetes.io/zone", "topology.kubernetes.io/region", "kubernetes.io/hostname", "r"
KEYS = (ZONE, REGION, HOST, RACK)
LABELS = {"app": ("web", "db", "job"), "tier": ("front", "back"), "version": ("1", "2")}
TEAMS = {"default": {"team": "red"}, "green": {"team": "green", "env": "prod"}, "bare": {}}
NAMESPACES = (*TEAMS, "unknown")
FEATURES = ("UserNamespacesHostNetworkSupport", "VolumeBindMountOptions", "RestartAllContainersOnContainerExits", "X")
CONTROLLERS = {"ReplicationController": "v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}


class Cases:
    """A source of cases; equal seeds give equal cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def case(self, name: str) -> Json:
        """One case: namespaces, nodes, Pods on them, workloads, a waiting Pod, sometimes a configuration."""
        pick = self.random
        self.topic = pick.choice(("spread", "spread", "affinity", "affinity", "defaults", "all", "features"))
        # Some cases have every key on every node, so that "missing key" does not hide all else.
        self.complete = self.chance(0.6)
        # Selectors mostly speak of these labels, which the waiting Pod and many others have.
        self.common = {key: pick.choice(values) for key, values in LABELS.items()}
        nodes = [self.node(f"n{index}") for index in range(pick.randint(1, 9))]
        names = [node["metadata"]["name"] for node in nodes]
        if self.chance(0.1):
            names.append("gone")
        pods = [self.placed(f"on{index}", pick.choice(names)) for index in range(pick.choice((0, 2, 6, 14, 25)))]
        namespaces = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            for name, labels in TEAMS.items()
        ]
        waiting = self.waiting()
        case: Json = {"name": name, "objects": [*namespaces, *nodes, *pods, *self.workloads(waiting)], "pod": waiting}
        if self.chance(0.35):
            case["config"] = self.config()
        return case

    def node(self, name: str) -> Json:
        pick = self.random
        values = {
            ZONE: pick.choice((("a", "b", "c"), ("a", "b", ""))),
            REGION: ("east", "west"),
            HOST: (name,),
            RACK: ("1", "2", ""),
        }
        labels = {key: pick.choice(some) for key, some in values.items() if self.complete or self.chance(0.8)}
        if self.chance(0.5):
            labels["disk"] = pick.choice(("ssd", "hdd"))
        taints = []
        if self.chance(0.25):
            taints = [
                {"key": "k", "value": "v", "effect": pick.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))}
            ]
        status: Json = {"allocatable": {"cpu": "64", "memory": "1Ti", "pods": "110"}}
        if self.topic == "features":
            status["declaredFeatures"] = sorted(pick.sample(FEATURES, pick.randint(0, 4)))
        metadata = {"name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {"taints": taints}, "status": status}

    def labels(self) -> Json:
        if self.chance(0.6):
            return {key: value for key, value in self.common.items() if self.chance(0.9)}
        return {key: self.random.choice(values) for key, values in LABELS.items() if self.chance(0.75)}

    def pod(self, name: str) -> Json:
        metadata: Json = {"name": name, "namespace": "default", "uid": name, "labels": self.labels()}
        if self.chance(0.25):
            metadata["namespace"] = self.random.choice(NAMESPACES)
        spec: Json = {"containers": [{"name": "c", "image": "i"}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {}}

    def placed(self, name: str, node: str) -> Json:
        pod = self.pod(name)
        pod["spec"]["nodeName"] = node
        if self.topic in ("affinity", "all") and self.chance(0.4):
            self.affinity(pod["spec"])
        if self.chance(0.1):
            pod["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}
        return pod

    def waiting(self) -> Json:
        pick = self.random
        pod = self.pod("waiting")
        spec = pod["spec"]
        if self.topic in ("spread", "all"):
            spec["topologySpreadConstraints"] = [self.constraint() for _ in range(pick.randint(1, 3))]
        if self.topic in ("affinity", "all") and self.chance(0.85):
            self.affinity(spec)
        if self.topic == "features":
            self.features(spec)
        if self.chance(0.3):
            spec["tolerations"] = [{"key": "k", "operator": "Exists"}]
        if self.chance(0.2):
            spec["nodeSelector"] = {"disk": "ssd"}
        elif self.chance(0.2):
            expression = {"key": "disk", "operator": pick.choice(("Exists", "DoesNotExist"))}
            terms = [{"matchExpressions": [expression]}]
            rules = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
            spec.setdefault("affinity", {})["nodeAffinity"] = rules
        return pod

    def selector(self) -> Json | None:
        pick = self.random
        if self.chance(0.05):
            return None
        selector: Json = {}
        if self.chance(0.65):
            key = pick.choice(tuple(LABELS))
            selector["matchLabels"] = {key: self.common[key] if self.chance(0.7) else pick.choice(LABELS[key])}
        if self.chance(0.3):
            key = pick.choice((*LABELS, "absent"))
            operator = pick.choice(("In", "NotIn", "Exists", "DoesNotExist"))
            expression: Json = {"key": key, "operator": operator}
            if operator in ("In", "NotIn"):
                values = LABELS.get(key, ("1",))
                expression["values"] = pick.sample(values, pick.randint(1, len(values)))
            selector["matchExpressions"] = [expression]
        return selector

    def constraint(self) -> Json:
        pick = self.random
        action = pick.choice(("DoNotSchedule", "ScheduleAnyway"))
        constraint: Json = {
            "maxSkew": pick.choice((1, 1, 2, 3)),
            "topologyKey": pick.choice(KEYS),
            "whenUnsatisfiable": action,
        }
        selector = self.selector()
        if selector is not None:
            constraint["labelSelector"] = selector
        if self.chance(0.4):
            constraint["labelSelector"] = {"matchLabels": {"app": self.common["app"]}}
        if action == "DoNotSchedule" and self.chance(0.5):
            constraint["minDomains"] = pick.randint(1, 4)
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if self.chance(0.5):
                constraint[policy] = pick.choice(("Honor", "Ignore"))
        if self.chance(0.35):
            constraint["matchLabelKeys"] = pick.sample(("app", "version", "absent"), pick.randint(1, 2))
        return constraint

    def term(self) -> Json:
        pick = self.random
        term: Json = {"topologyKey": pick.choice(KEYS)}
        selector = self.selector()
        if selector is not None:
            term["labelSelector"] = selector
        if self.chance(0.3):
            term["namespaces"] = pick.sample(NAMESPACES, pick.randint(1, 2))
        if self.chance(0.25):
            expression = {"key": "env", "operator": pick.choice(("Exists", "DoesNotExist"))}
            term["namespaceSelector"] = pick.choice(
                ({}, {"matchLabels": {"team": "green"}}, {"matchExpressions": [expression]})
            )
        return term

    def affinity(self, spec: Json) -> None:
        pick = self.random
        for kind in ("podAffinity", "podAntiAffinity"):
            rules: Json = {}
            if self.chance(0.45):
                count = pick.choice((1, 1, 2))
                rules["requiredDuringSchedulingIgnoredDuringExecution"] = [self.term() for _ in range(count)]
            if self.chance(0.45):
                rules["preferredDuringSchedulingIgnoredDuringExecution"] = [
                    {"weight": pick.choice((1, 10, 50, 100)), "podAffinityTerm": self.term()}
                    for _ in range(pick.choice((1, 1, 2)))
                ]
            if rules:
                spec.setdefault("affinity", {})[kind] = rules

    def features(self, spec: Json) -> None:
        container = spec["containers"][0]
        if self.chance(0.4):
            spec |= {"hostNetwork": True, **self.random.choice(({}, {"hostUsers": True}, {"hostUsers": False}))}
        if self.chance(0.4):
            container["restartPolicyRules"] = [
                {"action": self.random.choice(("Restart", "RestartAllContainers")), "exitCodes": {"operator": "In"}}
            ]
        if self.chance(0.4):
            options = self.random.choice(([], ["noexec"], ["noexec", "nosuid"]))
            container["volumeMounts"] = [{"name": "v", "mountPath": "/v", "bindMountOptions": options}]
            spec["volumes"] = [{"name": "v", "emptyDir": {}}]

    def workloads(self, waiting: Json) -> list[Json]:
        """Services and controllers that may select the waiting Pod; its controller may be missing or another kind."""
        pick = self.random
        if self.topic not in ("defaults", "all"):
            return []
        metadata, found = waiting["metadata"], []
        for index in range(pick.randint(0, 3)):
            namespace = metadata["namespace"] if self.chance(0.8) else "green"
            spec: Json = {"selector": self.labels()} if self.chance(0.9) else {}
            found.append(self.workload("v1", "Service", f"s{index}", namespace, spec))
        if self.chance(0.7):
            kind = pick.choice(tuple(CONTROLLERS))
            version = CONTROLLERS[kind] if self.chance(0.9) else "apps/v1beta1"
            owner = {"apiVersion": version, "kind": kind, "name": "owner", "uid": "owner", "controller": True}
            metadata["ownerReferences"] = [owner | {"controller": False, "name": "other"}, owner]
            if self.chance(0.9):
                selector: Json | None = self.labels() if kind == "ReplicationController" else self.selector()
                spec = {} if selector is None else {"selector": selector}
                found.append(self.workload(CONTROLLERS[kind], kind, "owner", metadata["namespace"], spec))
        return found

    @staticmethod
    def workload(version: str, kind: str, name: str, namespace: str, spec: Json) -> Json:
        metadata = {"name": name, "namespace": namespace}
        return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}

    def config(self) -> Json:
        pick = self.random
        plugins: list[Json] = []
        if self.chance(0.6):
            ignore = self.chance(0.4)
            args = {"hardPodAffinityWeight": pick.choice((0, 1, 30)), "ignorePreferredTermsOfExistingPods": ignore}
            plugins.append({"name": "InterPodAffinity", "args": args})
        if self.chance(0.7):
            constraints = [
                {
                    "maxSkew": pick.choice((1, 2, 5)),
                    "topologyKey": key,
                    "whenUnsatisfiable": pick.choice(("DoNotSchedule", "ScheduleAnyway")),
                }
                for key in pick.sample(KEYS, pick.randint(0, 2))
            ]
            spread = {"defaultingType": "List", "defaultConstraints": constraints}
            plugins.append({"name": "PodTopologySpread", "args": spread})
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": plugins}],
        }


def main(oracle: str, count: int, seed: int) -> None:
    """Print ``count`` answered cases, one JSON object per line."""
    source = Cases(seed)
    cases = [source.case(f"topology-{seed}-{index}") for index in range(count)]
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([oracle, "schedule"], input=lines, capture_output=True, text=True, check=True).stdout
    for case, answer in zip(cases, answers.splitlines(), strict=True):
        kept = json.loads(answer)
        for unread in ("elapsed_ms", "preemption", "reserve", "allocations"):
            kept.pop(unread, None)
        sys.stdout.write(json.dumps({**case, "answer": kept}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
