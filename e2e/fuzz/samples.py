"""A small cluster with one full object of each kind that the scheduler reads: what is mutated, and what surrounds it.

The Pods that wait ask about everything, so a spoilt object of any kind is read by some decision.
"""

from __future__ import annotations

from typing import Any

from scheduler.api.kinds import (
    DEVICE_CLASS,
    DEVICE_TAINT_RULE,
    NAMESPACE,
    NODE,
    POD,
    RESOURCE_CLAIM,
    RESOURCE_SLICE,
    Kind,
)
from scheduler.api.podgroups import POD_GROUP
from scheduler.api.policy import POD_DISRUPTION_BUDGET
from scheduler.api.storage import (
    CSI_DRIVER,
    CSI_NODE,
    CSI_STORAGE_CAPACITY,
    PERSISTENT_VOLUME,
    PERSISTENT_VOLUME_CLAIM,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
)
from scheduler.api.versions import ResourceKinds, choose_kinds
from scheduler.api.workloads import REPLICA_SET, REPLICATION_CONTROLLER, SERVICE, STATEFUL_SET

Object = dict[str, Any]
DRIVER, CSI, NS = "gpu.example.com", "csi.example.com", "default"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
PODS_THAT_WAIT = ("plain", "affine", "devices", "volumes", "gang-1", "important")


def _meta(name: str, namespace: str = "", **more: Any) -> Object:
    meta: Object = {"name": name, "uid": f"uid-{namespace}-{name}", "generation": 1, **more}
    meta |= {"creationTimestamp": "2026-01-01T00:00:00Z", "annotations": {"example.com/note": "x"}}
    return meta | ({"namespace": namespace} if namespace else {})


def _node(name: str) -> Object:
    amounts = {"cpu": "8", "memory": "16Gi", "pods": "110", "ephemeral-storage": "100Gi", "example.com/fpga": "2"}
    return {
        "metadata": _meta(name, labels={HOST: name, ZONE: f"zone-{name[-1]}", "example.com/size": "7"}),
        "spec": {
            "unschedulable": False,
            "taints": [
                {"key": "soft", "value": "x", "effect": "PreferNoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
            ],
        },
        "status": {
            "allocatable": amounts,
            "capacity": amounts,
            "conditions": [{"type": "Ready", "status": "True", "reason": "r", "message": "m"}],
            "images": [{"names": ["registry.example.com/main:1"], "sizeBytes": 50_000_000}],
            "declaredFeatures": ["GuaranteedQoSPodCPUResize"],
        },
    }


def _pod(name: str, node: str = "", priority: int = 0, **spec: Any) -> Object:
    container = {
        "name": "main",
        "image": "registry.example.com/main:1",
        "ports": [{"containerPort": 80, "hostPort": 0, "protocol": "TCP", "hostIP": "127.0.0.1"}],
        "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}},
    }
    return {
        "metadata": _meta(name, NS, labels={"app": "a"}),
        "spec": {
            "schedulerName": "dra-scheduler",
            "priority": priority,
            "containers": [container],
            "initContainers": [container | {"name": "first", "restartPolicy": "Always"}],
            "overhead": {"cpu": "1m"},
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending"},
    }


def _term(key: str = HOST) -> Object:
    selector = {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "In", "values": ["a"]}]}
    return {"labelSelector": selector, "topologyKey": key, "namespaces": [NS], "namespaceSelector": {}}


def _affine() -> Object:
    in_zone = {"key": ZONE, "operator": "In", "values": ["zone-1", "zone-2"]}
    large = {"key": "example.com/size", "operator": "Gt", "values": ["3"]}
    name = {"key": "metadata.name", "operator": "NotIn", "values": ["n9"]}
    node_affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [in_zone, large], "matchFields": [name]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 10, "preference": {"matchExpressions": [in_zone]}}
        ],
    }
    preferred = [{"weight": 50, "podAffinityTerm": _term(ZONE)}]
    spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 1}
    spread |= {"labelSelector": {"matchLabels": {"app": "a"}}, "matchLabelKeys": ["app"]}
    spread |= {"nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore"}
    return _pod(
        "affine",
        nodeSelector={"kubernetes.io/hostname": "n1"},
        affinity={
            "nodeAffinity": node_affinity,
            "podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred},
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [_term() | {"labelSelector": {}}],
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
            },
        },
        tolerations=[{"key": "soft", "operator": "Equal", "value": "x", "effect": "NoExecute", "tolerationSeconds": 9}],
        topologySpreadConstraints=[spread, spread | {"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": HOST}],
    )


def _request(**more: Any) -> Object:
    text = f'device.attributes["{DRIVER}"].model == "m" && device.capacity["{DRIVER}"].memory >= quantity("1Gi")'
    exactly = {
        "deviceClassName": "gpu",
        "allocationMode": "ExactCount",
        "count": 1,
        "selectors": [{"cel": {"expression": text}}],
        "tolerations": [{"key": "hot", "operator": "Exists", "effect": "NoSchedule"}],
    }
    return exactly | more


def _claim(name: str) -> Object:
    shared = _request(capacity={"requests": {"memory": "1Gi"}}, selectors=[])
    first = [{"name": "few", **_request()}, {"name": "all", **_request(allocationMode="All", count=0)}]
    devices = {
        "requests": [{"name": "one", "exactly": shared}, {"name": "any", "firstAvailable": first}],
        "constraints": [
            {"requests": ["one", "any"], "matchAttribute": f"{DRIVER}/model"},
            {"requests": [], "distinctAttribute": f"{DRIVER}/serial"},
        ],
        "config": [{"requests": ["one"], "opaque": {"driver": DRIVER, "parameters": {"a": 1}}}],
    }
    return {"metadata": _meta(name, NS, finalizers=["x.example/y"]), "spec": {"devices": devices}, "status": {}}


def _held_claim() -> Object:
    """A claim that another Pod holds a device with."""
    claim = _claim("held")
    selector = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    result: Object = {"request": "one", "driver": DRIVER, "pool": "n1", "device": "g0", "shareID": "s-1"}
    result |= {"consumedCapacity": {"memory": "8Gi"}, "tolerations": [{"key": "hot", "operator": "Exists"}]}
    claim["status"] = {
        "allocation": {
            "devices": {"results": [result], "config": []},
            "nodeSelector": {"nodeSelectorTerms": [selector]},
            "allocationTimestamp": "2026-01-01T00:00:00Z",
        },
        "reservedFor": [{"resource": "pods", "name": "bound", "uid": f"uid-{NS}-bound"}],
        "devices": [{"driver": DRIVER, "pool": "n1", "device": "g0", "conditions": [{"type": "Ready"}]}],
    }
    return claim


def _device(node: str, index: int) -> Object:
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"}}
    return {
        "name": f"g{index}",
        "attributes": {
            "model": {"string": "m"},
            "serial": {"string": f"{node}-{index}"},
            "numa": {"int": index % 2},
            "ready": {"bool": True},
            "driverVersion": {"version": "1.2.3"},
        },
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
        "consumesCounters": [{"counterSet": "slots", "counters": {"slot": {"value": "1"}}}],
        "taints": [{"key": "hot", "value": "x", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}],
        "allowMultipleAllocations": True,
        "bindingConditions": [],
    }


def _slices(node: str) -> list[Object]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 2}
    shared: Object = {"driver": DRIVER, "nodeName": node, "pool": pool}
    counters = [{"name": "slots", "counters": {"slot": {"value": "3"}}}]
    return [
        {"metadata": _meta(f"{node}-a"), "spec": shared | {"devices": [_device(node, i) for i in range(4)]}},
        {"metadata": _meta(f"{node}-b"), "spec": shared | {"sharedCounters": counters}},
    ]


def _storage() -> list[tuple[Kind, Object]]:
    on_n1 = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n1"]}]}
    volume = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "volumeMode": "Filesystem",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [on_n1]}},
        "csi": {"driver": CSI, "volumeHandle": "h-1"},
    }
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": "local",
        "selector": {"matchLabels": {}},
        "volumeMode": "Filesystem",
    }
    topology = [{"matchLabelExpressions": [{"key": HOST, "values": ["n1", "n2"]}]}]
    capacity = {"nodeTopology": {"matchLabels": {}}, "storageClassName": "made", "capacity": "9Gi"}
    return [
        (PERSISTENT_VOLUME, {"metadata": _meta("v1", labels={}), "spec": volume, "status": {"phase": "Available"}}),
        (PERSISTENT_VOLUME_CLAIM, {"metadata": _meta("data", NS), "spec": claim, "status": {"phase": "Pending"}}),
        (
            PERSISTENT_VOLUME_CLAIM,
            {"metadata": _meta("new", NS), "spec": claim | {"storageClassName": "made"}, "status": {}},
        ),
        (
            STORAGE_CLASS,
            {
                "metadata": _meta("local"),
                "provisioner": "kubernetes.io/no-provisioner",
                "volumeBindingMode": "WaitForFirstConsumer",
            },
        ),
        (
            STORAGE_CLASS,
            {
                "metadata": _meta("made"),
                "provisioner": CSI,
                "volumeBindingMode": "WaitForFirstConsumer",
                "allowedTopologies": topology,
            },
        ),
        (
            CSI_NODE,
            {
                "metadata": _meta("n1"),
                "spec": {"drivers": [{"name": CSI, "nodeID": "n1", "allocatable": {"count": 3}}]},
            },
        ),
        (CSI_DRIVER, {"metadata": _meta(CSI), "spec": {"storageCapacity": True}}),
        (CSI_STORAGE_CAPACITY, {"metadata": _meta("made-1", NS), "maximumVolumeSize": "8Gi", **capacity}),
        (
            VOLUME_ATTACHMENT,
            {
                "metadata": _meta("att"),
                "spec": {"attacher": CSI, "nodeName": "n1", "source": {"persistentVolumeName": "v1"}},
            },
        ),
    ]


def _workloads() -> list[tuple[Kind, Object]]:
    labels = {"selector": {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "app", "operator": "Exists"}]}}
    return [
        (SERVICE, {"metadata": _meta("s", NS), "spec": {"selector": {"app": "a"}}}),
        (REPLICATION_CONTROLLER, {"metadata": _meta("rc", NS), "spec": {"selector": {"app": "a"}}}),
        (REPLICA_SET, {"metadata": _meta("rs", NS), "spec": labels}),
        (STATEFUL_SET, {"metadata": _meta("ss", NS), "spec": labels}),
        (
            POD_DISRUPTION_BUDGET,
            {
                "metadata": _meta("pdb", NS),
                "spec": {"selector": {"matchLabels": {"app": "a"}}},
                "status": {"disruptionsAllowed": 0, "disruptedPods": {"x": "2026-01-01T00:00:00Z"}},
            },
        ),
        (
            POD_GROUP,
            {
                "metadata": _meta("gang", NS),
                "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": [], "priority": 1},
                "status": {"conditions": [{"type": "T", "status": "False", "reason": "r", "message": "m"}]},
            },
        ),
    ]


def _pods() -> list[tuple[Kind, Object]]:
    def entry(name: str) -> Object:
        return {"name": name, "resourceClaimName": name}

    bound = _pod("bound", "n1", resourceClaims=[entry("held")])
    bound["status"]["containerStatuses"] = [{"name": "main", "allocatedResources": {"cpu": "100m"}}]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("data", "new")]
    volumes += [{"name": "disk", "gcePersistentDisk": {"pdName": "p"}}, {"name": "i", "csi": {"driver": CSI}}]
    important = _pod("important", priority=1000, preemptionPolicy="PreemptLowerPriority")
    important["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "7900m"
    gang = _pod("gang-1", schedulingGroup={"podGroupName": "gang"})
    full = [_pod(f"full-{n}", f"n{n}", priority=-1) for n in (1, 2)]
    for item in full:
        item["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    found = [bound, *full, _pod("plain"), _affine(), _pod("devices", resourceClaims=[entry("wanted")])]
    return [(POD, item) for item in (*found, _pod("volumes", volumes=volumes), gang, important)]


def cluster() -> list[tuple[Kind, Object]]:
    """(kind, object) in an order in which nothing refers to what comes later."""
    rule = {"deviceSelector": {"driver": DRIVER, "pool": "n2"}, "taint": {"key": "r", "value": "v", "effect": "None"}}
    rule["taint"]["timeAdded"] = "2026-01-01T00:00:00Z"
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    opaque = {"opaque": {"driver": DRIVER, "parameters": {}}}
    nodes = ("n1", "n2")
    return [
        (NAMESPACE, {"metadata": _meta(NS, labels={"kubernetes.io/metadata.name": NS})}),
        *((NODE, _node(name)) for name in nodes),
        (
            DEVICE_CLASS,
            {"metadata": _meta("gpu"), "spec": {"selectors": [selector], "config": [opaque]}},
        ),
        *((RESOURCE_SLICE, item) for name in nodes for item in _slices(name)),
        (DEVICE_TAINT_RULE, {"metadata": _meta("rule"), "spec": rule}),
        (RESOURCE_CLAIM, _held_claim()),
        (RESOURCE_CLAIM, _claim("wanted")),
        *_storage(),
        *_workloads(),
        *_pods(),
    ]


def older_kinds() -> ResourceKinds:
    """The kinds of a server that speaks v1beta1 and v1alpha3: other shapes of claims, slices and rules."""
    plurals = frozenset({"resourceclaims", "resourceslices", "deviceclasses"})
    found = choose_kinds({"v1beta1": plurals, "v1alpha3": frozenset({"devicetaintrules"})})
    if found is None:
        raise LookupError("v1beta1 is not known any more")
    return found


def older_shape(kind: Kind, body: Object) -> Object:
    """A v1 object as v1beta1 has it: requests flat, devices under ``basic``."""
    body = {**body, "spec": {**body.get("spec", {})}}
    if kind.name == RESOURCE_CLAIM.name:
        devices = body["spec"]["devices"] = {**body["spec"]["devices"]}
        devices["requests"] = [{**entry, **entry.get("exactly", {})} for entry in devices["requests"]]
        for entry in devices["requests"]:
            entry.pop("exactly", None)
    if kind.name == RESOURCE_SLICE.name and "devices" in body["spec"]:
        body["spec"]["devices"] = [
            {"name": device["name"], "basic": {key: value for key, value in device.items() if key != "name"}}
            for device in body["spec"]["devices"]
        ]
    return body
