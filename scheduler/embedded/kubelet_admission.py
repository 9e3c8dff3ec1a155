"""What a kubelet checks before it runs a Pod, over raw API objects; pure.

Source of the rules and texts: kubelet 1.37 (predicate admission handler, DRA manager).
This is the judge of the scheduler, so it shares no arithmetic and no selectors with it on purpose: a mistake
there must not hide itself here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

Object = dict[str, Any]

_QUANTITY = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:[eE]([+-]?[0-9]+)|([numkMGTPE]|[KMGTPE]i))?")
_SUFFIXES: Mapping[str | None, Fraction] = {
    None: Fraction(1),
    **{letter: Fraction(1, 1000 ** (3 - i)) for i, letter in enumerate("num")},
    **{letter: Fraction(1000**i) for i, letter in enumerate("kMGTPE", start=1)},
    **{f"{letter}i": Fraction(1024**i) for i, letter in enumerate("KMGTPE", start=1)},
}
_POD_LEVEL = re.compile(r"cpu|memory|hugepages-.*")
_REASONS = {"cpu": "OutOfcpu", "memory": "OutOfmemory", "pods": "OutOfpods"}


@dataclass(frozen=True)
class Rejection:
    """Why a node does not admit a Pod: the Pod's final status reason and message."""

    reason: str
    message: str


@dataclass(frozen=True, order=True)
class DeviceKey:
    """One device (or one share of it) as results of an allocation name it."""

    driver: str
    pool: str
    device: str
    share: str = ""


def quantity(text: str | int) -> Fraction:
    """The exact value of a resource quantity; ValueError when it is none."""
    match = _QUANTITY.fullmatch(str(text))
    if match is None or not match[1]:
        raise ValueError(f"not a quantity: {text!r}")
    exponent = Fraction(10) ** int(match[2]) if match[2] else Fraction(1)
    return Fraction(match[1]) * exponent * _SUFFIXES[match[3]]


def amounts(resources: Mapping[str, Any] | None) -> dict[str, int]:
    """Resource name -> whole units, rounded up: cpu in milli, everything else in its own unit."""
    return {
        name: math.ceil(quantity(value) * (1000 if name == "cpu" else 1)) for name, value in (resources or {}).items()
    }


def _plus(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _largest(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}


def _backed_by_claim(pod: Object) -> set[tuple[str, str]]:
    """(container, resource) pairs whose extended resource a claim pays for."""
    mappings = (pod.get("status", {}).get("extendedResourceClaimStatus") or {}).get("requestMappings") or []
    return {(mapping["containerName"], mapping["resourceName"]) for mapping in mappings}


def pod_requests(pod: Object) -> dict[str, int]:
    """What the Pod takes from its node, in the units of amounts().

    Containers add up; an ordinary init container runs alone beside the sidecars started before it, so the
    largest moment counts; Pod-level requests replace cpu, memory and huge pages; overhead comes on top.
    """
    spec = pod["spec"]
    backed = _backed_by_claim(pod)

    def own(container: Object) -> dict[str, int]:
        requests = amounts((container.get("resources") or {}).get("requests"))
        return {name: n for name, n in requests.items() if (container["name"], name) not in backed}

    total: dict[str, int] = {}
    for container in spec["containers"]:
        total = _plus(total, own(container))
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars = _plus(sidecars, own(container))
            peak = _largest(peak, sidecars)
        else:
            peak = _largest(peak, _plus(sidecars, own(container)))
    total = _largest(_plus(total, sidecars), peak)
    pod_level = amounts((spec.get("resources") or {}).get("requests"))
    total.update({name: n for name, n in pod_level.items() if _POD_LEVEL.fullmatch(name)})
    return _plus(total, amounts(spec.get("overhead")))


def host_ports(pod: Object) -> set[tuple[str, int]]:
    """The (protocol, port) pairs that the Pod takes on its node; host addresses are not told apart."""
    containers = [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])]
    return {
        (port.get("protocol", "TCP"), port["hostPort"])
        for container in containers
        for port in container.get("ports") or []
        if port.get("hostPort")
    }


@dataclass
class NodeAccount:
    """What one node has admitted. Changes only through admit, adopt and release; each is O(admitted Pods)."""

    node: Object
    pods: dict[str, Object] = field(default_factory=dict)

    def admit(self, pod: Object) -> Rejection | None:
        """Take the Pod in, or say why not (then nothing changes). A Pod already in is admitted again."""
        if pod["metadata"]["uid"] in self.pods:
            return None
        rejection = self._check(pod)
        if rejection is None:
            self.adopt(pod)
        return rejection

    def adopt(self, pod: Object) -> None:
        """Count a Pod without a check: it ran before we looked."""
        self.pods[pod["metadata"]["uid"]] = pod

    def release(self, uid: str) -> None:
        """The Pod ended or is gone."""
        self.pods.pop(uid, None)

    def _check(self, pod: Object) -> Rejection | None:
        """The first failing rule in the kubelet's order: pods, cpu, memory, others, affinity, ports."""
        capacity = amounts(self.node.get("status", {}).get("allocatable"))
        used: dict[str, int] = {"pods": len(self.pods)}
        for other in self.pods.values():
            used = _plus(used, pod_requests(other))
        requests = {"pods": 1, **pod_requests(pod)}
        first = [name for name in ("pods", "cpu", "memory", "ephemeral-storage") if name in requests]
        for name in [*first, *sorted(requests.keys() - set(first))]:
            extended = "/" in name
            if extended and name not in capacity:
                continue  # not a resource of this node: paid for elsewhere
            if requests[name] > 0 and requests[name] > capacity.get(name, 0) - used.get(name, 0):
                return Rejection(
                    _REASONS.get(name, f"OutOf{name}"),
                    f"Node didn't have enough resource: {name}, requested: {requests[name]}, "
                    f"used: {used.get(name, 0)}, capacity: {capacity.get(name, 0)}",
                )
        if not _affinity_matches(pod, self.node):
            return _predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector")
        if host_ports(pod) & {port for other in self.pods.values() for port in host_ports(other)}:
            return _predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports")
        return None


def _predicate(name: str, description: str) -> Rejection:
    return Rejection(name, f"Predicate {name} failed: {description}")


def _affinity_matches(pod: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    wanted = pod["spec"].get("nodeSelector") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return required is None or node_selector_matches(required, node)


def node_selector_matches(selector: Object, node: Object) -> bool:
    """Whether any term of a NodeSelector matches; a term without requirements matches nothing."""
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    for term in selector.get("nodeSelectorTerms") or []:
        expressions = [(labels, item) for item in term.get("matchExpressions") or []]
        expressions += [(fields, item) for item in term.get("matchFields") or []]
        if expressions and all(_requirement_matches(values, item) for values, item in expressions):
            return True
    return False


def _requirement_matches(values: Mapping[str, str], requirement: Object) -> bool:
    value = values.get(requirement["key"])
    wanted: list[str] = requirement.get("values") or []
    match requirement["operator"]:
        case "In":
            return value in wanted
        case "NotIn":
            return value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt" as operator if value is not None and re.fullmatch(r"-?[0-9]+", value):
            return int(value) > int(wanted[0]) if operator == "Gt" else int(value) < int(wanted[0])
        case _:
            return False


# -- claims ---------------------------------------------------------------------------------------------------


def claim_names(pod: Object) -> tuple[list[tuple[str, bool]], str | None]:
    """The Pod's claims as (name, must be owned by the Pod), and what is wrong when one has no name yet."""
    statuses = {
        status["name"]: status.get("resourceClaimName")
        for status in pod.get("status", {}).get("resourceClaimStatuses") or []
    }
    names: list[tuple[str, bool]] = []
    for claim in pod["spec"].get("resourceClaims") or []:
        if claim.get("resourceClaimName"):
            names.append((claim["resourceClaimName"], False))
        elif claim["name"] not in statuses:
            return names, f"ResourceClaim of {claim['name']} not created yet"
        elif statuses[claim["name"]]:
            names.append((statuses[claim["name"]], True))
    extended = pod.get("status", {}).get("extendedResourceClaimStatus")
    if extended:
        names.append((extended["resourceClaimName"], False))
    return names, None


def claim_refusal(pod: Object, claim: Object, node: Object, *, must_own: bool) -> str | None:
    """Why the Pod may not use this claim on this node, None when it may.

    Beyond kubelet's own checks (owner, reserved, allocated) the node must be one that the allocation names:
    on a real node the driver would not know the devices.
    """
    uid, name = pod["metadata"]["uid"], claim["metadata"]["name"]
    owners = claim["metadata"].get("ownerReferences") or []
    group = (pod["spec"].get("schedulingGroup") or {}).get("podGroupName")
    group_owns = any((owner["kind"], owner["name"]) == ("PodGroup", group) for owner in owners)
    if must_own and not group_owns and not any(owner.get("controller") and owner["uid"] == uid for owner in owners):
        return f"ResourceClaim {name} was not created for pod {pod['metadata']['name']}"
    status = claim.get("status") or {}
    consumers = status.get("reservedFor") or []
    for_group = bool(group) and any((c["resource"], c["name"]) == ("podgroups", group) for c in consumers)
    if not for_group and uid not in [consumer["uid"] for consumer in consumers]:
        return (
            f"pod {pod['metadata']['name']} ({uid}) is not allowed to use ResourceClaim {name} "
            f"({claim['metadata']['uid']})"
        )
    allocation = status.get("allocation")
    if not allocation:
        return f"ResourceClaim {name}: not allocated"
    selector = allocation.get("nodeSelector")
    if selector is not None and not node_selector_matches(selector, node):
        return f"ResourceClaim {name}: its devices are not available on node {node['metadata']['name']}"
    return None


def devices_of(claim: Object) -> list[DeviceKey]:
    """The devices that the claim holds for itself; admin access takes nothing from anybody."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results: Iterable[Object] = (allocation.get("devices") or {}).get("results") or []
    return [
        DeviceKey(result["driver"], result["pool"], result["device"], result.get("shareID") or "")
        for result in results
        if not result.get("adminAccess")
    ]
