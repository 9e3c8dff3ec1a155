"""Clusters and edits whose outcome is imagined first and then made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from e2e import objects
from e2e.api import CLAIM_TEMPLATES, CLAIMS, DEVICE_CLASSES, NODES, PODS, PRIORITY_CLASSES, SLICES, Object, Resource
from e2e.objects import device, exactly
from e2e.provisioner import (
    PERSISTENT_VOLUMES,
    STORAGE_CLASSES,
    VOLUME_CLAIMS,
    claim_volume,
    late_class,
    volume,
    volume_claim,
)
from e2e.whatif.cluster import JOBS, POD_GROUPS, REPLICA_SETS

GPU = "gpu.example.com"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
PACK = {
    "name": "NodeResourcesFit",
    "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
}


def typed(resource: Resource, body: Object) -> Object:
    """``body`` as a manifest."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, **body}


def node(name: str, cpu: str = "8", *, zone: str | None = None, **more: Any) -> Object:
    """A Ready node."""
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110", **more.pop("extended", {})}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return typed(NODES, {**objects.node(name, zone=zone, **more), "status": status})


def pool(node_name: str, *devices: Object, **spec: Any) -> Object:
    """The only slice of a node's pool."""
    place = {"driver": GPU, "nodeName": node_name}
    numbers = {"name": node_name, "generation": 1, "resourceSliceCount": spec.pop("slices", 1)}
    return typed(SLICES, {"metadata": {"name": f"{node_name}-{spec.pop('part', 'gpu')}"},
                          "spec": {**place, "pool": numbers, "devices": list(devices), **spec}})  # fmt: skip


def gpus(node_name: str, count: int, **attributes: Any) -> Object:
    """``count`` equal devices."""
    return pool(node_name, *(device(f"gpu-{n}", attributes) for n in range(count)))


def device_class(**spec: Any) -> Object:
    """The class of every device here."""
    made = objects.device_class(GPU, f'device.driver == "{GPU}"')
    made["spec"].update(spec)
    return typed(DEVICE_CLASSES, made)


def template(name: str, *requests: Object, **more: Any) -> Object:
    """A claim template."""
    return typed(CLAIM_TEMPLATES, objects.claim_template(name, *requests, **more))


def claim(name: str, *requests: Object) -> Object:
    """A claim."""
    return typed(CLAIMS, objects.claim(name, *requests))


def pod(name: str, cpu: str = "100m", **more: Any) -> Object:
    """A Pod that goes at once when it is deleted."""
    more.setdefault("terminationGracePeriodSeconds", 0)
    return typed(PODS, objects.pod(name, requests={"cpu": cpu}, **more))


def priority(name: str, value: int) -> Object:
    """A PriorityClass."""
    return typed(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})


def workload(resource: Resource, name: str, spec: Object, member: Object) -> Object:
    """A workload whose Pods are like ``member``; Jobs have no selector."""
    policy = "Never" if resource is JOBS else "Always"
    inner = {"metadata": {"labels": {"app": name}}, "spec": {**member["spec"], "restartPolicy": policy}}
    selector = {} if resource is JOBS else {"selector": {"matchLabels": {"app": name}}}
    return typed(resource, {"metadata": {"name": name}, "spec": {**spec, **selector, "template": inner}})


def add(*items: Object, count: int = 1) -> Object:
    """The edit that creates these."""
    return {"add": {"objects": list(items), **({"count": count} if count > 1 else {})}}


def spread(app: str, key: str = ZONE) -> Object:
    """Fields of a Pod of ``app`` that spreads over ``key``."""
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    return {"labels": {"app": app}, "topologySpreadConstraints": [constraint]}


def near(app: str, key: str, *, anti: bool = False) -> Object:
    """Affinity to Pods of ``app``."""
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    kind = "podAntiAffinity" if anti else "podAffinity"
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@dataclass(frozen=True)
class Scenario:
    """``base``: what is there. ``edits``: a list as what-if takes it. ``waiting``: Pods that must wait in the end,
    without their numbers, so that no scenario passes for another reason than it was written for. ``moved``: how many
    Pods the edits must give a node, take one from, or remove. ``config``: fields of the profile that the edits change
    to. ``backoff_over``: Pods that were refused before compete with new ones: their back-off has to be over.
    """

    base: tuple[Object, ...]
    edits: tuple[Object, ...]
    waiting: tuple[str, ...] = ()
    moved: int = 1
    config: Mapping[str, Any] = field(default_factory=dict)
    backoff_over: bool = False


def _nodes(count: int, devices: int = 0, **more: Any) -> tuple[Object, ...]:
    made: list[Object] = [device_class()]
    for index in range(count):
        made.append(node(f"n{index}", **more))
        if devices:
            made.append(gpus(f"n{index}", devices))
    return tuple(made)


_HALVES = [{"name": "whole", "counters": {"memory": {"value": "80Gi"}}}]


def _partition(name: str, memory: str) -> Object:
    consumed = [{"counterSet": "whole", "counters": {"memory": {"value": memory}}}]
    return device(name, {"size": memory}, consumesCounters=consumed)


def _shared(memory: str) -> Object:
    shared = device("gpu", allowMultipleAllocations=True)
    shared["capacity"] = {
        "memory": {"value": memory, "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}
    }
    return shared


_BAD = {"key": "example.com/bad", "value": "true", "effect": "NoSchedule"}
_RULE = Resource("resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", namespaced=False)


def _rule(effect: str, **selector: str) -> Object:
    spec = {"deviceSelector": {"driver": GPU, **selector}, "taint": {**_BAD, "effect": effect}}
    return typed(_RULE, {"metadata": {"name": "maintenance"}, "spec": spec})


def _gang(name: str, count: int) -> Object:
    return typed(POD_GROUPS, {"metadata": {"name": name}, "spec": {"schedulingPolicy": {"gang": {"minCount": count}}}})


def _member(name: str, group: str, **more: Any) -> Object:
    return pod(name, schedulingGroup={"podGroupName": group}, **more)


ONE = template("one", exactly(GPU))
LATE = typed(STORAGE_CLASSES, late_class("local"))


SCENARIOS: dict[str, Scenario] = {
    "plain Pods on nodes of different size": Scenario(
        (node("n0", "2"), node("n1", "4"), node("n2", "8"), pod("there", "3", nodeSelector={HOSTNAME: "n2"})),
        (add(pod("p", "1500m"), count=5), add(pod("huge", "9"))),
        waiting=("huge",), moved=5,
    ),
    "devices from templates": Scenario(
        (*_nodes(2, 2), ONE, pod("there", templates={"gpu": "one"})),
        (add(pod("p", templates={"gpu": "one"}), count=4),),
        waiting=("p",), moved=3,
    ),
    "CEL selectors over attributes and capacity": Scenario(
        (device_class(), *(node(f"n{i}") for i in range(3)),
         pool("n0", device("a", {"model": "A100"}, {"memory": "40Gi"})),
         pool("n1", device("a", {"model": "H100"}, {"memory": "40Gi"}),
              device("b", {"model": "H100"}, {"memory": "80Gi"})),
         pool("n2", device("a", {"model": "H100"}, {"memory": "80Gi"})),
         template("big", exactly(GPU, f'device.attributes["{GPU}"].model == "H100"',
                                 f'device.capacity["{GPU}"].memory.compareTo(quantity("64Gi")) >= 0'))),
        (add(pod("p", templates={"gpu": "big"}), count=3),),
        waiting=("p",), moved=2,
    ),
    "matchAttribute over two requests": Scenario(
        (device_class(), node("n0"), node("n1"),
         pool("n0", device("a", {"numa": 0}), device("b", {"numa": 1})),
         pool("n1", device("a", {"numa": 0}), device("b", {"numa": 1}), device("c", {"numa": 1})),
         template("pair", exactly(GPU, name="left"), exactly(GPU, name="right"),
                  constraints=[{"matchAttribute": f"{GPU}/numa"}])),
        (add(pod("p", templates={"gpu": "pair"}), count=2),),
        waiting=("p",),
    ),
    "shared capacity": Scenario(
        (device_class(), node("n0"), node("n1"), pool("n0", _shared("10Gi")), pool("n1", _shared("6Gi")),
         template("share", exactly(GPU, capacity={"requests": {"memory": "5Gi"}}))),
        (add(pod("p", templates={"gpu": "share"}), count=4),),
        waiting=("p",), moved=3,
    ),
    "counters of partitions": Scenario(
        (device_class(), node("n0"),
         pool("n0", _partition("half-0", "40Gi"), _partition("half-1", "40Gi"), _partition("quarter", "20Gi"),
              slices=2),
         typed(SLICES, {"metadata": {"name": "n0-counters"}, "spec": {
             "driver": GPU, "nodeName": "n0", "pool": {"name": "n0", "generation": 1, "resourceSliceCount": 2},
             "sharedCounters": _HALVES}}),
         ONE),
        (add(pod("p", templates={"gpu": "one"}), count=3),),
        waiting=("p",), moved=2,
    ),
    "a device is tainted": Scenario(
        (*_nodes(1, 2), ONE,
         template("tolerant", exactly(GPU, tolerations=[{"key": "example.com/bad", "operator": "Exists"}]))),
        ({"taintDevice": {"device": f"{GPU}/n0/gpu-0", **_BAD}}, add(pod("p", templates={"gpu": "one"}), count=2),
         add(pod("tolerant", templates={"gpu": "tolerant"}))),
        waiting=("p",), moved=2,
    ),
    "a DeviceTaintRule keeps new Pods away": Scenario(
        (*_nodes(2, 2), ONE, pod("there", templates={"gpu": "one"})),
        (add(_rule("NoSchedule", pool="n1")), add(pod("p", templates={"gpu": "one"}), count=2)),
        waiting=("p",),
    ),
    "a DeviceTaintRule drives Pods out": Scenario(
        (*_nodes(2, 1), ONE, pod("bare", templates={"gpu": "one"}, nodeSelector={HOSTNAME: "n0"})),
        (add(_rule("NoExecute", pool="n0")), add(pod("p", templates={"gpu": "one"}))),
        moved=2,
    ),
    "prioritized lists": Scenario(
        (device_class(), node("n0"), node("n1"),
         pool("n0", device("a", {"model": "old"}), device("b", {"model": "old"})),
         pool("n1", device("a", {"model": "new"})),
         template("best", {"name": "gpu", "firstAvailable": [
             {"name": "new", "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 1,
              "selectors": [{"cel": {"expression": f'device.attributes["{GPU}"].model == "new"'}}]},
             {"name": "old", "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 2}]})),
        (add(pod("p", templates={"gpu": "best"}), count=3),),
        waiting=("p",), moved=2,
    ),
    "preemption for room": Scenario(
        (priority("high", 1000), node("n0", "2"), node("n1", "2"),
         pod("small", "1", nodeSelector={HOSTNAME: "n0"}), pod("other", "1", nodeSelector={HOSTNAME: "n0"}),
         pod("large", "2", nodeSelector={HOSTNAME: "n1"})),
        (add(pod("urgent", "2", priorityClassName="high")),),
        moved=2,
    ),
    "no preemption for a device": Scenario(
        (priority("high", 1000), priority("middle", 10), *_nodes(2, 1), ONE,
         pod("cheap", templates={"gpu": "one"}, nodeSelector={HOSTNAME: "n0"}),
         pod("dear", templates={"gpu": "one"}, nodeSelector={HOSTNAME: "n1"}, priorityClassName="middle")),
        (add(pod("urgent", templates={"gpu": "one"}, priorityClassName="high")),),
        waiting=("urgent",), moved=0,
    ),
    "the more important Pod first": Scenario(
        (priority("high", 1000), priority("low", 1), *_nodes(1, 1), ONE, pod("there", templates={"gpu": "one"}),
         pod("low", templates={"gpu": "one"}, priorityClassName="low", preemptionPolicy="PreemptLowerPriority",
             nodeSelector={HOSTNAME: "n0"}),
         pod("lower", templates={"gpu": "one"})),
        ({"delete": {"pod": "default/there"}},),
        moved=2, backoff_over=True,
    ),
    "spread over zones": Scenario(
        (*(node(f"n{i}", zone=f"z{i % 3}") for i in range(5)), pod("there", **spread("web"))),
        (add(pod("p", **spread("web")), count=6),),
        moved=6,
    ),
    "spread while a zone takes nothing": Scenario(
        (*(node(f"n{i}", zone=f"z{i}") for i in range(3)),
         pod("there", **spread("web"), nodeSelector={HOSTNAME: "n0"})),
        ({"cordon": {"node": "n1"}}, add(pod("p", **spread("web")), count=3)),
        waiting=("p",),
    ),
    "affinity and anti-affinity": Scenario(
        (*(node(f"n{i}", zone=f"z{i}") for i in range(3)),
         pod("db", labels={"app": "db"}, nodeSelector={HOSTNAME: "n1"})),
        (add(pod("near", labels={"app": "near"}, **near("db", ZONE))),
         add(pod("apart", labels={"app": "apart"}, **near("apart", HOSTNAME, anti=True)), count=4)),
        waiting=("apart",), moved=4,
    ),
    "volumes that wait for their Pod": Scenario(
        (node("n0"), node("n1"), node("n2"), LATE,
         *(typed(PERSISTENT_VOLUMES, volume(name, "local", node=at, size=size))
           for name, at, size in (("small", "n0", "1Gi"), ("large", "n1", "9Gi"), ("right", "n1", "5Gi"))),
         typed(VOLUME_CLAIMS, volume_claim("data", "local", "4Gi")),
         typed(VOLUME_CLAIMS, volume_claim("more", "local", "20Gi"))),
        (add(pod("p", volumes=[claim_volume("data")])), add(pod("q", volumes=[claim_volume("more")]))),
        waiting=("q",),
    ),
    "another weight": Scenario(
        (node("n0", labels={"tier": "preferred"}), node("n1"), pod("there", "4", nodeSelector={HOSTNAME: "n0"})),
        ({"weight": {"plugin": "NodeAffinity", "weight": 50, "profile": "dra-scheduler"}},
         add(pod("p", "1", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
             {"weight": 1, "preference": {"matchExpressions": [
                 {"key": "tier", "operator": "In", "values": ["preferred"]}]}}]}}))),
        config={"plugins": {"score": {"enabled": [{"name": "NodeAffinity", "weight": 50}]}}},
    ),
    "another configuration": Scenario(
        (node("n0"), node("n1"), node("n2"), pod("there", "2", nodeSelector={HOSTNAME: "n1"})),
        ({"config": {"file": "new.yaml"}}, add(pod("p", "2"), count=4)),
        moved=4, config={"pluginConfig": [PACK]},
    ),
    "two profiles": Scenario(
        (node("n0"), node("n1"), pod("there", "2", nodeSelector={HOSTNAME: "n1"})),
        (add(pod("packed", "1", scheduler="packing")), add(pod("spread", "1"))),
        moved=2,
    ),
    "a node is drained": Scenario(
        (*_nodes(3, 1), ONE,
         workload(REPLICA_SETS, "web", {"replicas": 2}, pod("x", templates={"gpu": "one"},
                                                           nodeSelector={"kubernetes.io/os": "linux"})),
         pod("bare", nodeSelector={HOSTNAME: "n0"})),
        ({"drain": {"node": "n0"}},),
        moved=1,
    ),
    "a claim that nobody uses is deleted": Scenario(
        (*_nodes(1, 1), ONE, claim("kept", exactly(GPU)), pod("first", claims={"gpu": "kept"})),
        ({"delete": {"pod": "default/first"}}, {"delete": {"claim": "default/kept"}},
         add(pod("next", templates={"gpu": "one"}))),
        moved=2,
    ),
    "a Pod goes and another takes its device": Scenario(
        (*_nodes(2, 1), ONE, *(pod(name, templates={"gpu": "one"}) for name in ("a", "b")),
         pod("waits", templates={"gpu": "one"})),
        ({"delete": {"pod": "default/b"}},),
        moved=2,
    ),
    "one claim for several Pods": Scenario(
        (*_nodes(2, 1), claim("shared", exactly(GPU)), pod("full", "6", nodeSelector={HOSTNAME: "n0"})),
        (add(pod("p", "3", claims={"gpu": "shared"}), count=3),),
        waiting=("p",), moved=2,
    ),
    "nodes like another": Scenario(
        (*_nodes(1, 2), template("two", exactly(GPU, count=2)), pod("there", templates={"gpu": "two"}),
         pod("waits", templates={"gpu": "two"})),
        ({"addNodes": {"like": "n0", "names": ["n1", "n2"]}},
         add(pod("p", templates={"gpu": "two"}), count=2)),
        waiting=("p",), moved=2, backoff_over=True,
    ),
    "a node is gone": Scenario(
        (*_nodes(2, 1), ONE, pod("a", templates={"gpu": "one"}), pod("b", templates={"gpu": "one"})),
        ({"delete": {"node": "n1"}}, add(pod("p", templates={"gpu": "one"}))),
        waiting=("p",),
    ),
    "a node takes Pods again": Scenario(
        (*_nodes(2, 1), ONE, pod("a", templates={"gpu": "one"}, nodeSelector={HOSTNAME: "n0"})),
        ({"cordon": {"node": "n1"}}, {"taintNode": {"node": "n0", "key": "dedicated", "value": "ml",
                                                    "effect": "NoSchedule"}},
         add(pod("p", templates={"gpu": "one"})), {"uncordon": {"node": "n1"}}),
    ),
    "a Job": Scenario(
        (*_nodes(2, 2), ONE),
        (add(workload(JOBS, "train", {"parallelism": 3, "completions": 3, "backoffLimit": 0},
                      pod("x", templates={"gpu": "one"}))),),
        moved=3,
    ),
    "extended resources served by devices": Scenario(
        (device_class(extendedResourceName="example.com/gpu"), node("n0"),
         node("n1", extended={"example.com/gpu": "0"}), gpus("n1", 1)),
        (add(typed(PODS, objects.pod("p", requests={"cpu": "100m", "example.com/gpu": "1"},
                                     limits={"example.com/gpu": "1"}, terminationGracePeriodSeconds=0)), count=2),),
        waiting=("p",),
    ),
    "gangs: all or nothing": Scenario(
        (*_nodes(2, 2), ONE),
        (add(_gang("a", 3), *(_member(f"a-{n}", "a", templates={"gpu": "one"}) for n in range(3))),
         add(_gang("b", 5), *(_member(f"b-{n}", "b", templates={"gpu": "one"}) for n in range(5)))),
        waiting=("b",), moved=3,
    ),
}  # fmt: skip
"""Name → scenario. Edits are made one after the other while the scheduler stands still, as what-if imagines them."""
