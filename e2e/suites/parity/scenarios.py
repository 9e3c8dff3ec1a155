"""The scenarios: one per plugin feature, small enough that the outcome is determined.

Every Pod of a scenario is limited to its nodes by a node label, so that all scenarios share one cluster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from e2e.api import CLAIMS, Resource
from e2e.objects import claim, exactly

Object = dict[str, Any]
LABEL = "parity"
NS = "parity"
ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
CLASS, DRIVER = "parity-gpu", "parity.example.com"
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
VOLUMES = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)
VOLUME_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
STORAGE_CLASSES = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
HIGH = "parity-high"


@dataclass(frozen=True)
class ParityNode:
    """A node; its whole name is ``<scenario>-<name>``. ``devices``: how many its pool has."""

    name: str
    cpu: str = "4"
    pods: int = 110
    zone: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    extended: Mapping[str, str] = field(default_factory=dict)
    images: Sequence[Mapping[str, Any]] = ()
    cordoned: bool = False
    devices: Sequence[str] = ()


@dataclass(frozen=True)
class Scenario:
    """``pods`` are created in order, each after the one before was bound or refused; names get the scenario's before.

    ``bound``: names of those that must be bound in the end, as a check on the scenario itself.
    """

    name: str
    nodes: Sequence[ParityNode]
    pods: Sequence[Object]
    bound: Sequence[str]
    objects: Sequence[tuple[Resource, Object]] = ()


def pod(name: str, cpu: str = "100m", labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A Pod with one container; further fields go into the spec, ``container`` into the container."""
    container = {"name": "c", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": cpu}}}
    container |= spec.pop("container", {})
    return {
        "metadata": {"name": name, "labels": dict(labels or {})},
        "spec": {"restartPolicy": "Never", "containers": [container], **spec},
    }


def _spread(**fields: Any) -> list[Object]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", **fields}
    constraint.setdefault("labelSelector", {"matchLabels": {"app": "x"}})
    return [constraint]


def _term(app: str, key: str = HOST, **more: Any) -> Object:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def _required(kind: str, *terms: Object) -> Object:
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def _node_terms(*expressions: Object, fields: Sequence[Object] = ()) -> Object:
    term: Object = {}
    if expressions:
        term["matchExpressions"] = list(expressions)
    if fields:
        term["matchFields"] = list(fields)
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _port(ip: str = "") -> Object:
    port: Object = {"containerPort": 80, "hostPort": 8080}
    return {"ports": [port | ({"hostIP": ip} if ip else {})]}


def _uses(name: str) -> list[Object]:
    return [{"name": "gpu", "resourceClaimName": name}]


def _taint(effect: str) -> Object:
    return {"key": "parity", "value": "x", "effect": effect}


_APP = {"app": "x"}
# So big because an image counts by the share of all nodes that have it.
_IMAGE = {"names": ["registry.k8s.io/big:1"], "sizeBytes": 60_000_000_000}
_ON_A: Object = {"nodeSelector": {"place": "a"}}
_PLACES = (ParityNode("a", zone="z1", labels={"place": "a"}), ParityNode("b", zone="z2", labels={"place": "b"}))

RESOURCES = (
    Scenario("fit-too-big", [ParityNode("a")], [pod("p", "5")], []),
    Scenario("fit-room-taken", [ParityNode("a")], [pod("first", "3"), pod("p", "2")], ["first"]),
    Scenario("fit-pods", [ParityNode("a", pods=1)], [pod("first"), pod("p")], ["first"]),
    Scenario(
        "fit-extended",
        [ParityNode("a", extended={"example.com/x": "1"}), ParityNode("b")],
        [pod("p", container={"resources": {"limits": {"example.com/x": "1"}}})],
        ["p"],
    ),
    Scenario(
        "fit-extended-none",
        [ParityNode("a")],
        [pod("p", container={"resources": {"limits": {"example.com/x": "1", "cpu": "9"}}})],
        [],
    ),
    Scenario(
        "fit-init",
        [ParityNode("a")],
        [pod("p", initContainers=[{"name": "i", "image": "i", "resources": {"requests": {"cpu": "6"}}}])],
        [],
    ),
    Scenario(
        "fit-sidecar",
        [ParityNode("a")],
        [
            pod(
                "p",
                "2",
                initContainers=[
                    {
                        "name": "i",
                        "image": "i",
                        "restartPolicy": "Always",
                        "resources": {"requests": {"cpu": "2500m"}},
                    }
                ],
            )
        ],
        [],
    ),
    Scenario("fit-pod-level", [ParityNode("a")], [pod("p", "1", resources={"requests": {"cpu": "5"}})], []),
    Scenario("score-least", _PLACES, [pod("first", "3", **_ON_A), pod("p", "500m")], ["first", "p"]),
    Scenario(
        "score-image",
        [ParityNode("a"), ParityNode("b", images=[_IMAGE])],
        [pod("p", container={"image": "registry.k8s.io/big:1"})],
        ["p"],
    ),
)

NODES = (
    Scenario("taint", [ParityNode("a", taints=[_taint("NoSchedule")])], [pod("p")], []),
    Scenario("taint-execute", [ParityNode("a", taints=[_taint("NoExecute")])], [pod("p")], []),
    Scenario(
        "taint-tolerated",
        [ParityNode("a", taints=[_taint("NoSchedule")])],
        [pod("p", tolerations=[{"key": "parity", "operator": "Exists"}])],
        ["p"],
    ),
    Scenario(
        "taint-prefer", [ParityNode("a", taints=[_taint("PreferNoSchedule")]), ParityNode("b")], [pod("p")], ["p"]
    ),
    Scenario("cordoned", [ParityNode("a", cordoned=True)], [pod("p")], []),
    Scenario(
        "cordoned-tolerated",
        [ParityNode("a", cordoned=True)],
        [pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])],
        ["p"],
    ),
    Scenario("selector", _PLACES, [pod("p", nodeSelector={"place": "c"})], []),
    Scenario(
        "affinity-gt",
        [ParityNode("a", labels={"rank": "2"}), ParityNode("b", labels={"rank": "7"})],
        [pod("p", affinity=_node_terms({"key": "rank", "operator": "Gt", "values": ["5"]}))],
        ["p"],
    ),
    Scenario(
        "affinity-preferred",
        _PLACES,
        [
            pod(
                "p",
                affinity={
                    "nodeAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "weight": 9,
                                "preference": {
                                    "matchExpressions": [{"key": "place", "operator": "In", "values": ["b"]}]
                                },
                            }
                        ]
                    }
                },
            )
        ],
        ["p"],
    ),
    Scenario(
        "affinity-name",
        [ParityNode("a")],
        [
            pod(
                "p",
                "9",
                affinity=_node_terms(
                    fields=[{"key": "metadata.name", "operator": "In", "values": ["affinity-name-a"]}]
                ),
            )
        ],
        [],
    ),
    Scenario(
        "affinity-gone",
        [ParityNode("a")],
        [pod("p", affinity=_node_terms(fields=[{"key": "metadata.name", "operator": "In", "values": ["gone"]}]))],
        [],
    ),
    Scenario("port", [ParityNode("a")], [pod("first", container=_port()), pod("p", container=_port())], ["first"]),
    Scenario(
        "port-other-ip",
        [ParityNode("a")],
        [pod("first", container=_port("127.0.0.1")), pod("p", container=_port("127.0.0.2"))],
        ["first", "p"],
    ),
)

TOPOLOGY = (
    Scenario(
        "spread",
        (ParityNode("a", cpu="1", zone="z1"), ParityNode("b", cpu="1", zone="z2", taints=[_taint("NoSchedule")])),
        [
            pod("first", labels=_APP),
            pod("p", labels=_APP, topologySpreadConstraints=_spread()),
        ],
        ["first"],
    ),
    Scenario(
        "spread-taints-honored",
        (ParityNode("a", zone="z1"), ParityNode("b", zone="z2", taints=[_taint("NoSchedule")])),
        [
            pod("first", labels=_APP),
            pod("p", labels=_APP, topologySpreadConstraints=_spread(nodeTaintsPolicy="Honor")),
        ],
        ["first", "p"],
    ),
    Scenario(
        "spread-other-zone",
        _PLACES,
        [
            pod("first", labels=_APP, **_ON_A),
            pod("p", labels=_APP, topologySpreadConstraints=_spread()),
        ],
        ["first", "p"],
    ),
    Scenario(
        "spread-min-domains",
        (ParityNode("a", cpu="16", zone="z1"), ParityNode("b", zone="z2")),
        [
            pod("first", labels=_APP, topologySpreadConstraints=_spread(minDomains=3)),
            pod("second", labels=_APP, topologySpreadConstraints=_spread(minDomains=3)),
            pod("p", labels=_APP, topologySpreadConstraints=_spread(minDomains=3)),
        ],
        ["first", "second"],
    ),
    Scenario(
        "spread-no-label",
        [ParityNode("a")],
        [pod("p", labels=_APP, topologySpreadConstraints=_spread(topologyKey="rack"))],
        [],
    ),
    Scenario(
        "spread-anyway",
        _PLACES,
        [
            pod("first", labels=_APP, **_ON_A),
            pod("p", labels=_APP, topologySpreadConstraints=_spread(whenUnsatisfiable="ScheduleAnyway")),
        ],
        ["first", "p"],
    ),
    Scenario(
        "spread-label-keys",
        _PLACES,
        [
            pod("first", labels={**_APP, "v": "1"}, **_ON_A),
            pod(
                "p",
                labels={**_APP, "v": "2"},
                topologySpreadConstraints=_spread(matchLabelKeys=["v"]),
                **_ON_A,
            ),
        ],
        ["first", "p"],
    ),
    Scenario(
        "together",
        _PLACES,
        [pod("first", labels=_APP, **_ON_A), pod("p", affinity=_required("podAffinity", _term("x")))],
        ["first", "p"],
    ),
    Scenario(
        "together-with-itself",
        _PLACES[:1],
        [
            # Nobody else in the cluster may be meant: then the first of its kind is let in.
            pod("p", labels={"app": "alone"}, affinity=_required("podAffinity", _term("alone"))),
        ],
        ["p"],
    ),
    Scenario("together-with-nobody", _PLACES, [pod("p", affinity=_required("podAffinity", _term("y")))], []),
    Scenario(
        "apart",
        _PLACES[:1],
        [pod("first", labels=_APP), pod("p", affinity=_required("podAntiAffinity", _term("x")))],
        ["first"],
    ),
    Scenario(
        "apart-from-me",
        _PLACES[:1],
        [pod("first", affinity=_required("podAntiAffinity", _term("x"))), pod("p", labels=_APP)],
        ["first"],
    ),
    Scenario(
        "apart-preferred",
        _PLACES,
        [
            pod("first", labels=_APP, **_ON_A),
            pod(
                "p",
                affinity={
                    "podAntiAffinity": {
                        "preferredDuringSchedulingIgnoredDuringExecution": [
                            {"weight": 100, "podAffinityTerm": _term("x")}
                        ]
                    }
                },
            ),
        ],
        ["first", "p"],
    ),
    Scenario(
        "apart-namespaces",
        _PLACES[:1],
        [
            pod("first", labels=_APP),
            pod("p", affinity=_required("podAntiAffinity", _term("x", namespaces=["elsewhere"]))),
            pod("q", affinity=_required("podAntiAffinity", _term("x", namespaceSelector={}))),
        ],
        ["first", "p"],
    ),
)

DEVICES = (
    Scenario(
        "claim",
        [ParityNode("a"), ParityNode("b", devices=["big"])],
        [pod("p", resourceClaims=_uses("claim-c"))],
        ["p"],
        [(CLAIMS, claim("c", exactly(CLASS)))],
    ),
    Scenario(
        "claim-used-up",
        [ParityNode("a", devices=["big"])],
        [pod("first", resourceClaims=_uses("claim-used-up-c")), pod("p", resourceClaims=_uses("claim-used-up-d"))],
        ["first"],
        [(CLAIMS, claim("c", exactly(CLASS))), (CLAIMS, claim("d", exactly(CLASS)))],
    ),
    Scenario(
        "claim-shared",
        [ParityNode("a", devices=["big"]), ParityNode("b")],
        [pod("first", resourceClaims=_uses("claim-shared-c")), pod("p", resourceClaims=_uses("claim-shared-c"))],
        ["first", "p"],
        [(CLAIMS, claim("c", exactly(CLASS)))],
    ),
    Scenario(
        "claim-elsewhere",
        [ParityNode("a", cpu="1", devices=["big"]), ParityNode("b")],
        [
            pod("first", "800m", resourceClaims=_uses("claim-elsewhere-c")),
            pod("p", "800m", resourceClaims=_uses("claim-elsewhere-c")),
        ],
        ["first"],
        [(CLAIMS, claim("c", exactly(CLASS)))],
    ),
    Scenario(
        "claim-alternatives",
        [ParityNode("a", devices=["small"]), ParityNode("b", devices=["big"])],
        [pod("p", resourceClaims=_uses("claim-alternatives-c"))],
        ["p"],
        [
            (
                CLAIMS,
                claim(
                    "c",
                    {
                        "name": "gpu",
                        "firstAvailable": [
                            {
                                "name": kind,
                                "deviceClassName": CLASS,
                                "selectors": [
                                    {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == "{kind}"'}}
                                ],
                            }
                            for kind in ("big", "small")
                        ],
                    },
                ),
            )
        ],
    ),
    Scenario(
        "claim-no-class",
        [ParityNode("a")],
        [pod("p", resourceClaims=_uses("claim-no-class-c"))],
        [],
        [(CLAIMS, claim("c", exactly("no-such-class")))],
    ),
)

PREEMPTION = (
    Scenario("preempts", [ParityNode("a")], [pod("victim", "3"), pod("p", "2", priorityClassName=HIGH)], ["p"]),
    Scenario(
        "preempts-least-harm",
        _PLACES,
        [
            pod("one", "1500m", **_ON_A),
            pod("two", "1500m", **_ON_A),
            pod("three", "3", nodeSelector={"place": "b"}),
            pod("p", "3500m", priorityClassName=HIGH),
        ],
        ["one", "two", "p"],
    ),
    Scenario(
        "preempts-budget",
        _PLACES,
        [
            pod("guarded", "3", labels=_APP, **_ON_A),
            pod("one", "1500m", nodeSelector={"place": "b"}),
            pod("two", "1500m", nodeSelector={"place": "b"}),
            pod("p", "3500m", priorityClassName=HIGH),
        ],
        ["guarded", "p"],
        [
            (
                BUDGETS,
                {
                    "metadata": {"name": "b"},
                    "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x", LABEL: "preempts-budget"}}},
                },
            )
        ],
    ),
    Scenario(
        "preempts-never",
        [ParityNode("a")],
        [pod("first", "3"), pod("p", "2", priorityClassName=HIGH + "-never", preemptionPolicy="Never")],
        ["first"],
    ),
    Scenario(
        "preempts-in-vain",
        [ParityNode("a")],
        [pod("first", "1"), pod("p", "9", priorityClassName=HIGH)],
        ["first"],
    ),
    Scenario("gated", [ParityNode("a")], [pod("p", schedulingGates=[{"name": "example.com/wait"}])], []),
)


def _mounts(name: str) -> list[Object]:
    return [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]


def _stored(scenario: str, labels: Mapping[str, str], place: str = "") -> list[tuple[Resource, Object]]:
    """A claim and its volume, bound to each other; the volume of a zone, or only to be reached from ``place``."""
    size = {"storage": "1Gi"}
    volume: Object = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": size,
        "storageClassName": "parity-now",
        "hostPath": {"path": "/data"},
        "claimRef": {"namespace": NS, "name": f"{scenario}-c"},
    }
    if place:
        expression = {"key": "place", "operator": "In", "values": [place]}
        volume["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}}
    claimed = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": size},
        "storageClassName": "parity-now",
        "volumeName": f"{scenario}-v",
    }
    bound = {"pv.kubernetes.io/bind-completed": "yes"}
    return [
        (VOLUME_CLAIMS, {"metadata": {"name": "c", "annotations": bound}, "spec": claimed}),
        (VOLUMES, {"metadata": {"name": "v", "labels": dict(labels)}, "spec": volume}),
    ]


_UNBOUND = {
    "metadata": {"name": "c"},
    "spec": {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "parity-now",
    },
}

STORAGE = (
    Scenario("volume-missing", [ParityNode("a")], [pod("p", volumes=_mounts("nobody"))], []),
    Scenario(
        "volume-unbound",
        [ParityNode("a")],
        [pod("p", volumes=_mounts("volume-unbound-c"))],
        [],
        [(VOLUME_CLAIMS, _UNBOUND)],
    ),
    Scenario(
        "volume-zone",
        _PLACES,
        [pod("p", volumes=_mounts("volume-zone-c"))],
        ["p"],
        _stored("volume-zone", {ZONE: "z2"}),
    ),
    Scenario(
        "volume-elsewhere",
        _PLACES,
        [pod("p", volumes=_mounts("volume-elsewhere-c"), **_ON_A)],
        [],
        _stored("volume-elsewhere", {}, "b"),
    ),
)

SCENARIOS = (*RESOURCES, *NODES, *TOPOLOGY, *DEVICES, *PREEMPTION, *STORAGE)
