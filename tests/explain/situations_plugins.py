"""Waiting situations of every plugin but DynamicResources: who is to blame, with numbers and names."""

from __future__ import annotations

from typing import Any

from tests.app.objects import gpu_class, node, pod
from tests.explain.clusters import Object, request, want
from tests.explain.situations import Situation, bound

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
PARTITION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: dra-scheduler
  plugins: {multiPoint: {enabled: [{name: Partition}]}}
  pluginConfig:
  - name: Partition
    args: {nodeSelector: {team: a}}
"""


def on(
    name: str, cpu: str = "8", unschedulable: bool = False, taints: list[Object] | None = None, **labels: str
) -> Object:
    """A node with labels (``__`` in a name stands for the zone key)."""
    item = node(name, cpu)
    item["metadata"]["labels"].update({ZONE if key == "zone" else key: value for key, value in labels.items()})
    item["spec"] = {"unschedulable": unschedulable, "taints": taints or []}
    return item


def offering(name: str, **amounts: str) -> Object:
    """A node with other allocatable amounts."""
    item = node(name)
    item["status"]["allocatable"] = {**item["status"]["allocatable"], **amounts}
    return item


def asking(name: str = "p", on: str = "", labels: dict[str, str] | None = None, **requests: str) -> Object:
    """A Pod that asks for amounts of a node's resources."""
    item = pod(name, **({"nodeName": on} if on else {}))
    item["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "100m", **requests}
    if labels:
        item["metadata"]["labels"] = labels
    return item


def labelled(item: Object, **labels: str) -> Object:
    """The Pod with labels."""
    item["metadata"]["labels"] = labels
    return item


def with_port(item: Object) -> Object:
    """The Pod with host port 8080."""
    item["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 8080, "protocol": "TCP"}]
    return item


def terms(kind: str, key: str = HOST) -> Object:
    """Required (anti-)affinity to Pods with app=x."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": "x"}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def node_rule(*rules: Object, part: str = "matchExpressions") -> Object:
    """Required node affinity of one term."""
    required = {"nodeSelectorTerms": [{part: list(rules)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def spread(key: str = ZONE, **more: Any) -> list[Object]:
    """One hard constraint over Pods with app=x."""
    selector = {"matchLabels": {"app": "x"}}
    return [{"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector, **more}]


def volumes(*claims: str) -> list[Object]:
    """spec.volumes of these claims."""
    return [{"name": claim, "persistentVolumeClaim": {"claimName": claim}} for claim in claims]


def storage_class(name: str = "late", mode: str = "WaitForFirstConsumer", provisioner: str = "none") -> Object:
    """A class; "none" makes no volumes."""
    maker = "kubernetes.io/no-provisioner" if provisioner == "none" else provisioner
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": maker, "volumeBindingMode": mode}  # fmt: skip


def volume_claim(name: str, volume: str = "", mode: str = "ReadWriteOnce", class_name: str = "late") -> Object:
    """A PersistentVolumeClaim, bound when ``volume`` is given."""
    spec: Object = {"accessModes": [mode], "storageClassName": class_name, "volumeName": volume,
                    "resources": {"requests": {"storage": "10Gi"}}}  # fmt: skip
    metadata: Object = {"name": name, "namespace": "default"}
    if volume:
        metadata["annotations"] = {"pv.kubernetes.io/bind-completed": "yes"}
    status = {"phase": "Bound" if volume else "Pending"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec, "status": status}


def volume(name: str, *, node_name: str = "", driver: str = "", labels: dict[str, str] | None = None) -> Object:
    """A PersistentVolume, on one node when given."""
    spec: Object = {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "late"}
    spec |= {"csi": {"driver": driver, "volumeHandle": name}} if driver else {"hostPath": {"path": "/x"}}
    if node_name:
        rule = {"key": HOST, "operator": "In", "values": [node_name]}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": spec,
    }


def csi_node(name: str, driver: str, count: int) -> Object:
    """How many volumes of a driver a node takes."""
    drivers = [{"name": driver, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}]
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": drivers},
    }


def gang(count: int) -> Object:
    """A PodGroup."""
    spec = {"schedulingPolicy": {"gang": {"minCount": count}}}
    metadata = {"name": "g", "namespace": "default"}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": metadata, "spec": spec}


DISK = [{"name": "disk", "gcePersistentDisk": {"pdName": "pd-1"}}]
GANGS = {"GenericWorkload": True}
ENQUEUE = [
    Situation(
        "scheduling gates",
        [node("n1"), pod("p", schedulingGates=[{"name": "wait"}])],
        "waiting for scheduling gates",
        plugin="SchedulingGates",
        phase="held back",
        said="waiting for scheduling gates: [wait]",
        hints=("remove gates",),
    ),
    Situation(
        "group with too few members",
        [node("n1"), gang(3), pod("p", schedulingGroup={"podGroupName": "g"})],
        "PodGroup default/g has 1 Pods and wants 3 together",
        plugin="GangScheduling",
        phase="held back",
        said="waiting for minCount pods from a gang",
        facts={"podGroup": "default/g", "members": "1", "minCount": "3"},
        gates=GANGS,
    ),
    Situation(
        "group that does not exist",
        [node("n1"), pod("p", schedulingGroup={"podGroupName": "g"})],
        'waiting for pods\'s pod group "g"',
        plugin="GangScheduling",
        phase="held back",
        said='pod group "g"',
        gates=GANGS,
    ),
]

ROOM = [
    Situation(
        "too little cpu for an empty node",
        [node("n1", cpu="1"), pod("p", cpu="2")],
        "cpu: 2 asked, 1 free of 1, which is more than the whole node has",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"resource": "cpu", "asked": "2", "free": "1", "total": "1", "short by": "1"},
        hints=("ask for less",),
    ),
    Situation(
        "too little cpu left",
        [node("n1", cpu="2"), bound("other", cpu="1500m"), pod("p", cpu="1")],
        "cpu: 1 asked, 500m free of 2",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"resource": "cpu", "asked": "1", "free": "500m", "total": "2", "short by": "500m"},
        hints=("ask for less", "pod ends"),
    ),
    Situation(
        "the nearest of several nodes first",
        [node("n1", cpu="1"), node("n2", cpu="3"), pod("p", cpu="4")],
        "cpu: 4 asked, 3 free of 3, which is more than the whole node has (n2)\n"
        "      cpu: 4 asked, 1 free of 1, which is more than the whole node has (n1)",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"resource": "cpu", "asked": "4", "free": "3", "total": "3", "short by": "1"},
    ),
    Situation(
        "too little memory",
        [offering("n1", memory="4Gi"), asking("other", on="n1", memory="3Gi"), asking(memory="2Gi")],
        "memory: 2Gi asked, 1Gi free of 4Gi",
        plugin="NodeResourcesFit",
        said="Insufficient memory",
        facts={"resource": "memory", "asked": "2Gi", "free": "1Gi", "total": "4Gi", "short by": "1Gi"},
        hints=("ask for less", "pod ends"),
    ),
    Situation(
        "too little disk",
        [offering("n1", **{"ephemeral-storage": "1Gi"}), asking(**{"ephemeral-storage": "2Gi"})],
        "ephemeral-storage: 2Gi asked, 1Gi free of 1Gi",
        plugin="NodeResourcesFit",
        said="Insufficient ephemeral-storage",
        facts={"resource": "ephemeral-storage", "asked": "2Gi", "free": "1Gi", "total": "1Gi", "short by": "1Gi"},
    ),
    Situation(
        "too few of a device plugin's devices",
        [
            offering("n1", **{"example.com/fpga": "2"}),
            asking("other", on="n1", **{"example.com/fpga": "1"}),
            asking(**{"example.com/fpga": "2"}),
        ],
        "example.com/fpga: 2 asked, 1 free of 2",
        plugin="NodeResourcesFit",
        said="Insufficient example.com/fpga",
        facts={"resource": "example.com/fpga", "asked": "2", "free": "1", "total": "2", "short by": "1"},
        hints=("ask for less", "pod ends"),
    ),
    Situation(
        "an extended resource nobody offers",
        [node("n1"), asking(**{"example.com/fpga": "1"})],
        "example.com/fpga: 1 asked, 0 free of 0",
        plugin="NodeResourcesFit",
        said="Insufficient example.com/fpga",
        facts={"resource": "example.com/fpga", "asked": "1", "free": "0", "total": "0", "short by": "1"},
    ),
    Situation(
        "too many Pods",
        [offering("n1", pods="1"), bound("other"), pod("p")],
        "pods: 1 of at most 1 are there",
        plugin="NodeResourcesFit",
        said="Too many pods",
        facts={"resource": "pods", "asked": "1", "free": "0", "total": "1"},
        hints=("pod ends",),
    ),
    Situation(
        "room that is kept for a nominated Pod",
        [
            node("n1", cpu="2"),
            pod("first", cpu="2", priority=10) | {"status": {"nominatedNodeName": "n1"}},
            pod("p", cpu="1"),
        ],
        "it would do, but its room is kept for the nominated pod default/first",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"nominated": "default/first"},
    ),
    Situation(
        "less important Pods in the way",
        [node("n1", cpu="2"), bound("low", cpu="2", priority=1), pod("p", cpu="2", priority=100)],
        "it may preempt less important Pods on node n1",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"resource": "cpu", "asked": "2", "free": "0", "total": "2", "short by": "2"},
        hints=("pod ends",),
    ),
    Situation(
        "host port taken",
        [node("n1"), with_port(bound("other")), with_port(pod("p"))],
        "host port 8080/TCP is taken by pod default/other",
        plugin="NodePorts",
        said="didn't have free ports",
        facts={"port": "8080", "protocol": "TCP", "address": "0.0.0.0", "pod": "default/other"},
        hints=("pod ends",),
    ),
]

PLACES = [
    Situation(
        "cordoned node",
        [on("n1", unschedulable=True), pod("p")],
        "the node is cordoned (spec.unschedulable)",
        plugin="NodeUnschedulable",
        said="were unschedulable",
        facts={"taint": "node.kubernetes.io/unschedulable"},
        hints=("uncordon",),
    ),
    Situation(
        "tainted node",
        [on("n1", taints=[{"key": "team", "value": "x", "effect": "NoSchedule"}]), pod("p")],
        "taint team=x:NoSchedule is not tolerated",
        plugin="TaintToleration",
        said="untolerated taint",
        facts={"taint": "team=x:NoSchedule"},
        hints=("tolerate node taint",),
    ),
    Situation(
        "node selector on a label nobody has",
        [node("n1"), pod("p", nodeSelector={"disk": "ssd"})],
        "nodeSelector disk=ssd; the node has no such label",
        plugin="NodeAffinity",
        said="didn't match Pod's node affinity/selector",
        facts={"key": "disk", "wanted": "ssd", "found": ""},
        hints=("drop node label",),
    ),
    Situation(
        "node selector on another value",
        [on("n1", disk="hdd"), pod("p", nodeSelector={"disk": "ssd"})],
        "nodeSelector disk=ssd; the node has hdd",
        plugin="NodeAffinity",
        said="didn't match Pod's node affinity/selector",
        facts={"key": "disk", "wanted": "ssd", "found": "hdd"},
        hints=("drop node label",),
    ),
    Situation(
        "required node affinity",
        [on("n1", zone="b"), pod("p", affinity=node_rule({"key": ZONE, "operator": "In", "values": ["a"]}))],
        f"affinity term 0: {ZONE} In a; the node has b",
        plugin="NodeAffinity",
        said="didn't match Pod's node affinity/selector",
        facts={"key": ZONE, "wanted": "a", "found": "b"},
        hints=("drop node rule",),
    ),
    Situation(
        "required node affinity that excludes",
        [on("n1", disk="hdd"), pod("p", affinity=node_rule({"key": "disk", "operator": "NotIn", "values": ["hdd"]}))],
        "affinity term 0: disk NotIn hdd; the node has hdd",
        plugin="NodeAffinity",
        said="didn't match Pod's node affinity/selector",
        facts={"key": "disk", "wanted": "hdd", "found": "hdd"},
    ),
    Situation(
        "required node affinity by number",
        [on("n1", gpus="2"), pod("p", affinity=node_rule({"key": "gpus", "operator": "Gt", "values": ["4"]}))],
        "affinity term 0: gpus Gt 4; the node has 2",
        plugin="NodeAffinity",
        said="didn't match Pod's node affinity/selector",
        facts={"key": "gpus", "wanted": "4", "found": "2"},
    ),
    Situation(
        "affinity to a node by name",
        [
            node("n1"),
            node("n2", cpu="1"),
            pod(
                "p",
                cpu="2",
                affinity=node_rule({"key": "metadata.name", "operator": "In", "values": ["n2"]}, part="matchFields"),
            ),
        ],
        "cpu: 2 asked, 1 free of 1",
        plugin="NodeAffinity",
        said="didn't satisfy plugin(s) [NodeAffinity]",
    ),
    Situation(
        "affinity to a node that is not there",
        [
            node("n1"),
            pod(
                "p",
                affinity=node_rule({"key": "metadata.name", "operator": "In", "values": ["gone"]}, part="matchFields"),
            ),
        ],
        "node(s) didn't satisfy plugin(s) [NodeAffinity]",
        plugin="NodeAffinity",
        said="didn't satisfy plugin(s) [NodeAffinity]",
    ),
    Situation(
        "outside the scheduler's partition",
        [on("n1", team="b"), pod("p")],
        "the partition wants team=a; the node has team=b",
        plugin="Partition",
        said="didn't belong to the scheduler's partition",
        facts={"key": "team", "wanted": "a", "found": "b"},
        config=PARTITION,
    ),
    Situation(
        "a kubelet without a feature",
        [node("n1"), pod("p", hostNetwork=True, hostUsers=False)],
        "the kubelet does not declare UserNamespacesHostNetworkSupport",
        plugin="NodeDeclaredFeatures",
        said="didn't match Pod's required features",
        facts={"feature": "UserNamespacesHostNetworkSupport"},
    ),
]

TOPOLOGY = [
    Situation(
        "anti-affinity",
        [node("n1"), labelled(bound("other"), app="x"), pod("p", affinity=terms("podAntiAffinity"))],
        f"anti-affinity term 0 on {HOST}: n1 has pod default/other with app=x",
        plugin="InterPodAffinity",
        said="anti-affinity rules",
        facts={"topologyKey": HOST, "selector": "app=x", "pods": "default/other"},
        hints=("drop pod term", "pod ends"),
    ),
    Situation(
        "anti-affinity of another Pod",
        [node("n1"), bound("other", affinity=terms("podAntiAffinity")), labelled(pod("p"), app="x")],
        f"anti-affinity of other Pods on {HOST}: n1 has pod default/other, which do not want this Pod near",
        plugin="InterPodAffinity",
        said="existing pods anti-affinity rules",
        facts={"topologyKey": HOST, "pods": "default/other"},
        hints=("pod ends",),
    ),
    Situation(
        "affinity to nobody",
        [node("n1"), pod("p", affinity=terms("podAffinity"))],
        f"affinity term 0 on {HOST}: no Pod with app=x in n1",
        plugin="InterPodAffinity",
        said="pod affinity rules",
        facts={"topologyKey": HOST, "selector": "app=x", "domain": "n1"},
        hints=("drop pod term",),
    ),
    Situation(
        "affinity where the node has no label",
        [node("n1"), labelled(bound("other"), app="x"), pod("p", affinity=terms("podAffinity", ZONE))],
        f"affinity term 0 on {ZONE}: the node has no such label",
        plugin="InterPodAffinity",
        said="pod affinity rules",
        facts={"topologyKey": ZONE, "selector": "app=x"},
        hints=("drop pod term",),
    ),
    Situation(
        "spread over a label that is missing",
        [node("n1"), pod("p", topologySpreadConstraints=spread())],
        f"constraint 0 on {ZONE}: the node has no such label",
        plugin="PodTopologySpread",
        said="missing required label",
        facts={"topologyKey": ZONE},
        hints=("drop spread",),
    ),
    Situation(
        "spread too uneven",
        [
            on("n1", zone="a"),
            on("n2", cpu="100m", zone="b"),
            labelled(bound("one"), app="x"),
            labelled(pod("p", cpu="1", topologySpreadConstraints=spread()), app="x"),
        ],
        f"constraint 0 on {ZONE}: a has 1 of these Pods, the emptiest domain 0: the skew would be 2 > 1",
        plugin="PodTopologySpread",
        said="topology spread constraints",
        facts={
            "topologyKey": ZONE,
            "domain": "a",
            "pods": "1",
            "fewest": "0",
            "skew": "2",
            "maxSkew": "1",
            "domains": "2",
        },
        hints=("allow skew",),
    ),
    Situation(
        "spread over too few domains",
        [
            on("n1", zone="a"),
            labelled(bound("one"), app="x"),
            labelled(pod("p", topologySpreadConstraints=spread(minDomains=2)), app="x"),
        ],
        f"constraint 0 on {ZONE}: only 1 of at least 2 domains are there",
        plugin="PodTopologySpread",
        said="topology spread constraints",
        facts={
            "topologyKey": ZONE,
            "domain": "a",
            "pods": "1",
            "fewest": "0",
            "skew": "2",
            "maxSkew": "1",
            "domains": "1",
            "minDomains": "2",
        },
        hints=("allow skew",),
    ),
]

CAPACITY: Object = {
    "apiVersion": "storage.k8s.io/v1", "kind": "CSIStorageCapacity", "metadata": {"name": "c", "namespace": "default"},
    "storageClassName": "late", "capacity": "5Gi", "nodeTopology": {},
}  # fmt: skip
CSI: Object = {"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "a.csi.io"},
               "spec": {"storageCapacity": True}}  # fmt: skip
VOLUMES = [
    Situation(
        "volume claim does not exist",
        [node("n1"), pod("p", volumes=volumes("data"))],
        'persistentvolumeclaim "data" not found',
        plugin="VolumeRestrictions",
        said='persistentvolumeclaim "data" not found',
    ),
    Situation(
        "volume claim that waits for its volume",
        [node("n1"), storage_class(mode="Immediate"), volume_claim("data"), pod("p", volumes=volumes("data"))],
        "pod has unbound immediate PersistentVolumeClaims",
        plugin="VolumeBinding",
        said="unbound immediate PersistentVolumeClaims",
    ),
    Situation(
        "volume on another node",
        [
            node("n1"),
            storage_class(),
            volume_claim("data", "pv"),
            volume("pv", node_name="n2"),
            pod("p", volumes=volumes("data")),
        ],
        f"claim default/data: volume pv cannot be used from here (it wants {HOST} In n2)",
        plugin="VolumeBinding",
        said="didn't match PersistentVolume's node affinity",
        facts={"claim": "default/data", "class": "late", "volume": "pv"},
    ),
    Situation(
        "volume that does not exist",
        [node("n1"), storage_class(), volume_claim("data", "pv"), pod("p", volumes=volumes("data"))],
        "refused by VolumeZone",
        plugin="VolumeZone",
        said='persistentvolume "pv" not found',
    ),
    Situation(
        "no volume of the class",
        [node("n1"), storage_class(), volume_claim("data"), pod("p", volumes=volumes("data"))],
        "claim default/data: none of 0 volumes of class late suits, and kubernetes.io/no-provisioner makes none here",
        plugin="VolumeBinding",
        said="didn't find available persistent volumes",
        facts={
            "claim": "default/data",
            "class": "late",
            "volume": "",
            "volumes": "0",
            "provisioner": "kubernetes.io/no-provisioner",
        },
    ),
    Situation(
        "no stock that is large enough",
        [
            node("n1"),
            CSI,
            storage_class(provisioner="a.csi.io"),
            CAPACITY,
            volume_claim("data"),
            pod("p", volumes=volumes("data")),
        ],
        "claim default/data: 10Gi of class late asked, and no stock within reach has that much",
        plugin="VolumeBinding",
        said="did not have enough free storage",
        facts={
            "claim": "default/data",
            "class": "late",
            "volume": "",
            "asked": "10Gi",
            "largest stock anywhere (bytes)": str(5 * 2**30),
        },
    ),
    Situation(
        "volume in another zone",
        [
            on("n1", zone="b"),
            storage_class(),
            volume_claim("data", "pv"),
            volume("pv", labels={ZONE: "a"}),
            pod("p", volumes=volumes("data")),
        ],
        f"volume pv in a ({ZONE}); the node is in b",
        plugin="VolumeZone",
        said="no available volume zone",
        facts={"volume": "pv", "key": ZONE, "wanted": "a", "found": "b"},
    ),
    Situation(
        "too many volumes on the node",
        [
            node("n1"),
            csi_node("n1", "a.csi.io", 1),
            storage_class(),
            volume_claim("old", "pv0"),
            volume("pv0", driver="a.csi.io"),
            bound("other", volumes=volumes("old")),
            volume_claim("data", "pv"),
            volume("pv", driver="a.csi.io"),
            pod("p", volumes=volumes("data")),
        ],
        "driver a.csi.io: 1 volumes there and 1 more asked, at most 1",
        plugin="NodeVolumeLimits",
        said="exceed max volume count",
        facts={"driver": "a.csi.io", "attached": "1", "asked": "1", "limit": "1"},
    ),
    Situation(
        "claim for one Pod only",
        [
            node("n1"),
            storage_class(),
            volume_claim("data", "pv", "ReadWriteOncePod"),
            volume("pv"),
            bound("other", volumes=volumes("data")),
            pod("p", volumes=volumes("data")),
        ],
        "claim default/data is for one Pod only (ReadWriteOncePod): pod default/other has it",
        plugin="VolumeRestrictions",
        said="ReadWriteOncePod access mode",
        facts={"claim": "default/data", "pod": "default/other"},
        hints=("pod ends",),
    ),
    Situation(
        "disk used on the node",
        [node("n1"), bound("other", volumes=DISK), pod("p", volumes=DISK)],
        "a disk of the Pod is used here by pod default/other (volume disk)",
        plugin="VolumeRestrictions",
        said="no available disk",
        facts={"pod": "default/other", "volume": "disk"},
        hints=("pod ends",),
    ),
]

SEVERAL = [
    Situation(
        "two plugins at once",
        [node("n1", cpu="1"), gpu_class(), want(request()), pod("p", claim="want", cpu="2")],
        "DynamicResources: cannot allocate all claims",
        plugin="NodeResourcesFit",
        said="Insufficient cpu",
        facts={"resource": "cpu", "asked": "2", "free": "1", "total": "1", "short by": "1"},
    ),
    Situation("no nodes", [pod("p")], "no nodes available to schedule pods", plugin="", said=""),
]

PLUGINS = [*ENQUEUE, *ROOM, *PLACES, *TOPOLOGY, *VOLUMES, *SEVERAL]
