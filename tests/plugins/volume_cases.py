"""Random scheduling cases with volumes, for comparison with kube-scheduler.

``python -m tests.plugins.volume_cases ORACLE COUNT SEED > file`` asks the oracle (e2e/oracle) and keeps each case with
its answer; the tests replay the file without it.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Any

Json = dict[str, Any]

ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
BETA_ZONE = "failure-domain.beta.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRIVERS = ("a.csi.io", "b.csi.io", "ebs.csi.aws.com")
MIGRATED = ("kubernetes.io/aws-ebs", "kubernetes.io/gce-pd", "kubernetes.io/cinder", "kubernetes.io/portworx-volume")
CLASSES = ("late", "late2", "static", "now", "zoned", "ebs")
SIZES = ("1Gi", "5Gi", "10Gi", "1500M")
MODES = ("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod")
SHAPES = (
    [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}],
    [{"utilization": 10, "score": 3}, {"utilization": 40, "score": 9}, {"utilization": 90, "score": 1}],
)


class VolumeCases:
    """A source of cases; equal seeds give equal cases."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.objects: list[Json] = []
        self.nodes: list[str] = []
        self.classes: list[str] = []
        self.claims = 0
        self.volumes = 0
        self.rough = False

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def pick(self, *options: Any) -> Any:
        return self.random.choice(options)

    def case(self, name: str) -> Json:
        """One case. In a rough one everything may be missing or strange; most others have several feasible nodes."""
        self.objects, self.claims, self.volumes = [], 0, 0
        self.rough = self.chance(0.3)
        self.nodes = [f"n{index}" for index in range(self.random.randint(1, 6))]
        for node in self.nodes:
            self.node(node)
        self.classes = [name for name in CLASSES if not self.rough or self.chance(0.85)]
        for storage_class in self.classes:
            self.storage_class(storage_class)
        # Of several drivers that are missing, upstream names a random one.
        needed = self.pick("", "", *DRIVERS)
        for driver in DRIVERS:
            if self.chance(0.6):
                self.driver(driver, needed == driver)
        self.capacities()
        for _ in range(self.pick(0, 1, 3, 6)):
            self.volume(self.pick(*CLASSES))
        for index in range(self.pick(0, 1, 2, 4)):
            self.pod(f"on{index}", self.pick(*self.nodes))
        waiting = self.pod("waiting", "")
        self.objects.remove(waiting)
        for index in range(self.pick(0, 0, 1, 3)):
            self.attachment(f"va{index}")
        case: Json = {"name": name, "objects": self.objects, "pod": waiting}
        if self.chance(0.3):
            args = {"shape": self.pick(*SHAPES)}
            case["config"] = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {
                        "schedulerName": "default-scheduler",
                        "pluginConfig": [{"name": "VolumeBinding", "args": args}],
                    }
                ],
            }
        return case

    def add(self, api_version: str, kind: str, metadata: Json, **fields: Any) -> Json:
        item = {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}
        self.objects.append(item)
        return item

    def node(self, name: str) -> None:
        labels = {HOST: name}
        if self.chance(0.8):
            labels[self.pick(ZONE, ZONE, BETA_ZONE)] = self.pick("eu-west1-a", "eu-west1-b")
        if self.chance(0.3):
            labels[REGION] = self.pick("r1", "r2")
        for key in ("topology.ebs.csi.aws.com/zone", "topology.gke.io/zone"):
            if self.chance(0.4):
                labels[key] = self.pick("eu-west1-a", "eu-west1-b")
        allocatable = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        self.add("v1", "Node", {"name": name, "labels": labels}, status={"allocatable": allocatable})
        if self.chance(0.8):
            drivers: list[Json] = []
            for driver in (*DRIVERS, "pd.csi.storage.gke.io"):
                if self.chance(0.75):
                    entry: Json = {"name": driver, "nodeID": name, "topologyKeys": []}
                    if self.chance(0.6):
                        entry["allocatable"] = {"count": self.pick(0, 1, 2, 5) if self.chance(0.4) else 8}
                    drivers.append(entry)
            metadata: Json = {"name": name}
            if self.chance(0.5):
                plugins = [plugin for plugin in MIGRATED if self.chance(0.7)]
                metadata["annotations"] = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(plugins)}
            self.add("storage.k8s.io/v1", "CSINode", metadata, spec={"drivers": drivers})

    def storage_class(self, name: str) -> None:
        provisioner = {
            "late": "a.csi.io",
            "late2": "b.csi.io",
            "static": "kubernetes.io/no-provisioner",
            "now": "a.csi.io",
            "zoned": "b.csi.io",
            "ebs": self.pick("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
        }[name]
        fields: Json = {"volumeBindingMode": "Immediate" if name == "now" else "WaitForFirstConsumer"}
        if name == "zoned":
            terms = [
                {
                    "matchLabelExpressions": [
                        {"key": ZONE, "values": self.random.sample(("eu-west1-a", "eu-west1-b", "eu-west1-c"), 2)}
                    ]
                }
            ]
            if self.chance(0.3):
                terms.append({"matchLabelExpressions": [{"key": HOST, "values": [self.pick(*self.nodes)]}]})
            fields["allowedTopologies"] = terms
        self.add("storage.k8s.io/v1", "StorageClass", {"name": name}, provisioner=provisioner, **fields)

    def driver(self, name: str, needed: bool) -> None:
        spec = {"storageCapacity": self.chance(0.6), "attachRequired": True}
        if needed:
            spec["preventPodSchedulingIfMissing"] = True
        self.add("storage.k8s.io/v1", "CSIDriver", {"name": name}, spec=spec)

    def capacities(self) -> None:
        """At most one per class and node: of several, upstream scores a random one."""
        for storage_class in ("late", "late2", "zoned"):
            for index, node in enumerate(self.nodes):
                if not self.chance(0.75):
                    continue
                fields: Json = {"capacity": self.pick("5Gi", "20Gi", "37Gi", "100G")}
                if self.chance(0.3):
                    fields["maximumVolumeSize"] = self.pick("1Gi", "6Gi", "50Gi")
                topology: Json | None = {"matchLabels": {HOST: node}}
                if self.chance(0.2):
                    topology = self.pick(
                        None, {"matchExpressions": [{"key": HOST, "operator": "In", "values": [node]}]}
                    )
                if topology is not None:
                    fields["nodeTopology"] = topology
                self.add(
                    "storage.k8s.io/v1",
                    "CSIStorageCapacity",
                    {"name": f"{storage_class}-{index}", "namespace": "default"},
                    storageClassName=storage_class,
                    **fields,
                )

    def source(self, name: str) -> Json:
        kind = self.random.random()
        if kind < 0.7:
            return {"csi": {"driver": self.pick(*DRIVERS), "volumeHandle": f"h-{name}"}}
        if kind < 0.8:
            return {"awsElasticBlockStore": {"volumeID": f"aws://z1/vol-{len(name):08x}"}}
        if kind < 0.87:
            return {"gcePersistentDisk": {"pdName": f"pd-{name}"}}
        return {"local": {"path": "/data"}}

    def volume(self, storage_class: str, claim: Json | None = None) -> str:
        name = f"pv{self.volumes}"
        self.volumes += 1
        source = self.source(name)
        spec: Json = {
            "capacity": {"storage": self.pick(*SIZES, "20Gi")},
            "accessModes": self.random.sample(MODES[:2], self.random.randint(1, 2)),
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": storage_class,
            "volumeMode": "Block" if self.chance(0.1) else "Filesystem",
            **source,
        }
        if self.chance(0.6) or "local" in source:
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": self.terms()}}
        if self.chance(0.1):
            spec["volumeAttributesClassName"] = "gold"
        metadata: Json = {"name": name, "labels": {}}
        if self.chance(0.35):
            key = self.pick(ZONE, BETA_ZONE, REGION)
            metadata["labels"][key] = (
                self.pick("r1", "r2")
                if key == REGION
                else self.pick("eu-west1-a", "eu-west1-b", "eu-west1-a__eu-west1-b", "eu-west1-c")
            )
        if self.chance(0.4):
            metadata["labels"]["kind"] = self.pick("x", "y")
        phase = self.pick("Available", "Available", "Available", "Released")
        if claim is not None:
            spec["claimRef"] = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": "default",
                "name": claim["metadata"]["name"],
                "uid": claim["metadata"]["uid"],
            }
            phase = "Bound"
        elif self.chance(0.15):
            reference: Json = {"namespace": "default", "name": f"claim{self.pick(0, 1, 2)}"}
            if self.chance(0.4):
                reference["uid"] = self.pick("uid-claim0", "other")
            spec["claimRef"] = reference
        self.add("v1", "PersistentVolume", metadata, spec=spec, status={"phase": phase})
        return name

    def terms(self) -> list[Json]:
        if self.chance(0.4):
            values = self.random.sample(self.nodes, self.random.randint(1, len(self.nodes)))
            return [{"matchExpressions": [{"key": HOST, "operator": "In", "values": values}]}]
        terms: list[Json] = []
        for _ in range(self.pick(1, 1, 2)):
            expression: Json = {
                "key": self.pick(ZONE, ZONE, "topology.gke.io/zone"),
                "operator": self.pick("In", "NotIn"),
            }
            expression["values"] = [self.pick("eu-west1-a", "eu-west1-b")]
            if self.chance(0.1):
                expression = {"key": REGION, "operator": self.pick("Exists", "DoesNotExist")}
            terms.append({"matchExpressions": [expression]})
        return terms

    def claim(self, name: str = "", owner: str = "") -> str:
        """A claim in some state of binding; its name. Sometimes it does not exist at all."""
        name = name or f"claim{self.claims}"
        self.claims += 1
        if self.rough and self.chance(0.12):
            return name
        storage_class = self.pick(*CLASSES, "late", "static") if self.rough or self.chance(0.9) else ""
        if not self.rough and storage_class == "now":
            storage_class = "late"
        spec: Json = {
            "accessModes": [self.pick("ReadWriteOnce", "ReadWriteOnce", *MODES)],
            "resources": {"requests": {"storage": self.pick(*SIZES)}},
            "volumeMode": "Block" if self.chance(0.07) else "Filesystem",
        }
        if storage_class or self.chance(0.5):
            spec["storageClassName"] = storage_class
        metadata: Json = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {}}
        if owner:
            uid = owner if not self.rough or self.chance(0.7) else "somebody"
            metadata["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": uid, "controller": True}
            ]
        claim: Json = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        self.objects.append(claim)
        state = self.random.random()
        if state < 0.4 or not storage_class or (storage_class == "now" and state < 0.8):
            self.bind(claim, storage_class)
        else:
            if self.chance(0.15):
                spec["selector"] = {"matchLabels": {"kind": self.pick("x", "y")}}
            if self.chance(0.1):
                spec["volumeAttributesClassName"] = "gold"
            if self.chance(0.15):
                metadata["annotations"]["volume.kubernetes.io/selected-node"] = self.pick(*self.nodes)
        return name

    def bind(self, claim: Json, storage_class: str) -> None:
        if self.rough and self.chance(0.15):
            claim["spec"]["volumeName"] = "gone"
            claim["status"]["phase"] = self.pick("Lost", "Bound")
        else:
            claim["spec"]["volumeName"] = self.volume(storage_class, claim)
            claim["status"]["phase"] = "Bound"
        if not self.rough or self.chance(0.85):
            claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        if self.rough and self.chance(0.1):
            claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            claim["metadata"]["finalizers"] = ["kubernetes.io/pvc-protection"]

    def disk(self) -> Json:
        read_only = self.chance(0.4)
        chosen: Json = self.pick(
            {"gcePersistentDisk": {"pdName": self.pick("d1", "d2"), "readOnly": read_only}},
            {"awsElasticBlockStore": {"volumeID": self.pick("vol-1", "aws://z1/vol-00000002"), "readOnly": read_only}},
            {
                "iscsi": {
                    "targetPortal": "1.2.3.4:3260",
                    "iqn": self.pick("iqn.2001-04.com.example:a", "iqn.2001-04.com.example:b"),
                    "lun": self.pick(0, 1),
                    "readOnly": read_only,
                }
            },
            {
                "rbd": {
                    "monitors": self.random.sample(("m1", "m2", "m3"), 2),
                    "image": self.pick("i", "j"),
                    "pool": "rbd",
                    "readOnly": read_only,
                }
            },
            {"cinder": {"volumeID": self.pick("c1", "c2")}},
            {"portworxVolume": {"volumeID": self.pick("p1", "p2")}},
        )
        return chosen

    def pod(self, name: str, node: str) -> Json:
        volumes: list[Json] = []
        for index in range(self.pick(0, 1, 1, 2, 3) if node else self.pick(1, 1, 2, 3)):
            volume: Json = {"name": f"v{index}"}
            kind = self.random.random()
            if kind < 0.6:
                reuse = self.claims and self.chance(0.35)
                claim = f"claim{self.random.randrange(self.claims)}" if reuse else self.claim()
                volume["persistentVolumeClaim"] = {"claimName": claim}
            elif kind < 0.72:
                template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
                volume["ephemeral"] = {"volumeClaimTemplate": template}
                self.claim(f"{name}-v{index}", name)
            elif kind < 0.95:
                volume |= self.disk()
            else:
                volume["csi"] = {"driver": self.pick(*DRIVERS)}
            volumes.append(volume)
        spec: Json = {"containers": [{"name": "c", "image": "i"}], "volumes": volumes}
        if node:
            spec["nodeName"] = node
        return self.add("v1", "Pod", {"name": name, "namespace": "default", "uid": name}, spec=spec)

    def attachment(self, name: str) -> None:
        if self.volumes:
            source = {"persistentVolumeName": f"pv{self.random.randrange(self.volumes)}"}
            spec = {"attacher": self.pick(*DRIVERS), "nodeName": self.pick(*self.nodes), "source": source}
            self.add("storage.k8s.io/v1", "VolumeAttachment", {"name": name}, spec=spec)


def answered(oracle: str, cases: list[Json]) -> list[Json]:
    """The cases, each with the oracle's answer."""
    lines = "".join(json.dumps(case) + "\n" for case in cases)
    answers = subprocess.run([oracle, "schedule"], input=lines, capture_output=True, text=True, check=True).stdout
    result = []
    for case, answer in zip(cases, answers.splitlines(), strict=True):
        kept = json.loads(answer)
        kept.pop("elapsed_ms", None)
        result.append({**case, "answer": kept})
    return result


def main(oracle: str, count: int, seed: int) -> None:
    """Write ``count`` answered cases, one JSON object per line."""
    source = VolumeCases(seed)
    for case in answered(oracle, [source.case(f"volumes-{seed}-{index}") for index in range(count)]):
        sys.stdout.write(json.dumps(case, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
