"""Copies of Pods, claims, nodes and slices with one thing changed. Objects are never changed in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from scheduler.api.core import Container, Node, Pod
from scheduler.api.resource import (
    EXACT_COUNT,
    CapacityRequirements,
    CELSelector,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceSlice,
)
from scheduler.api.selectors import PodAffinity
from scheduler.api.taints import Toleration

HOSTNAME = "kubernetes.io/hostname"
HARD = "DoNotSchedule"
Asked = ExactDeviceRequest | DeviceSubRequest
change = msgspec.structs.replace


def with_request(claim: ResourceClaim, name: str, edit: Callable[[Asked], Any]) -> ResourceClaim:
    """The claim with one request (``name`` or ``name/alternative``) changed."""
    first, _, second = name.partition("/")
    requests = []
    for request in claim.spec.devices.requests:
        if request.name == first and second:
            alternatives = tuple(edit(sub) if sub.name == second else sub for sub in request.firstAvailable)
            request = change(request, firstAvailable=alternatives)  # noqa: PLW2901  # the changed one goes on
        elif request.name == first and request.exactly is not None:
            request = change(request, exactly=edit(request.exactly))  # noqa: PLW2901
        requests.append(request)
    return _with_devices(claim, requests=tuple(requests))


def without_selector(claim: ResourceClaim, name: str, number: int) -> ResourceClaim:
    """Without selector ``number`` of a request."""
    return with_request(
        claim, name, lambda asked: change(asked, selectors=asked.selectors[:number] + asked.selectors[number + 1 :])
    )


def with_guard(claim: ResourceClaim, name: str, number: int, guard: str) -> ResourceClaim:
    """``guard &&`` before selector ``number`` of a request."""

    def edit(asked: Asked) -> Any:
        selectors = list(asked.selectors)
        old = selectors[number].cel
        text = f"{guard} && ({old.expression})" if old is not None else guard
        selectors[number] = DeviceSelector(CELSelector(text))
        return change(asked, selectors=tuple(selectors))

    return with_request(claim, name, edit)


def with_count(claim: ResourceClaim, name: str, count: int) -> ResourceClaim:
    """A request for ``count`` devices."""
    return with_request(claim, name, lambda asked: change(asked, count=count))


def with_class(claim: ResourceClaim, name: str, class_name: str) -> ResourceClaim:
    """A request for another class."""
    return with_request(claim, name, lambda asked: change(asked, deviceClassName=class_name))


def with_device_toleration(claim: ResourceClaim, name: str, toleration: Toleration) -> ResourceClaim:
    """One more toleration of device taints."""
    return with_request(claim, name, lambda asked: change(asked, tolerations=(*asked.tolerations, toleration)))


def without_constraint(claim: ResourceClaim, number: int) -> ResourceClaim:
    """Without one of the claim's constraints."""
    constraints = claim.spec.devices.constraints
    return _with_devices(claim, constraints=constraints[:number] + constraints[number + 1 :])


def _with_devices(claim: ResourceClaim, **fields: Any) -> ResourceClaim:
    return change(claim, spec=change(claim.spec, devices=change(claim.spec.devices, **fields)))


def with_pod_toleration(pod: Pod, toleration: Toleration) -> Pod:
    """One more toleration of node taints."""
    return change(pod, spec=change(pod.spec, tolerations=(*pod.spec.tolerations, toleration)))


def without_node_label(pod: Pod, key: str) -> Pod:
    """Without one key of spec.nodeSelector."""
    rest = {name: value for name, value in (pod.spec.nodeSelector or {}).items() if name != key}
    return change(pod, spec=change(pod.spec, nodeSelector=rest))


def node_like(node: Node, name: str) -> Node:
    """A node of another name with the same labels (but for its host name), taints and amounts."""
    labels = dict(node.metadata.labels)
    if labels.get(HOSTNAME) == node.name:
        labels[HOSTNAME] = name
    return change(node, metadata=change(node.metadata, name=name, uid=f"node/{name}", labels=labels))


def slice_like(given: ResourceSlice, node: str, name: str) -> ResourceSlice:
    """A node's slice for a node of another name, in a pool of its own."""
    pool = given.spec.pool.name
    renamed = pool.replace(node, name) if node in pool else f"{pool}-{name}"
    metadata = change(given.metadata, name=f"{given.name}-{name}", uid=f"resourceslice/{given.name}-{name}")
    spec = change(given.spec, nodeName=name, pool=change(given.spec.pool, name=renamed))
    return change(given, metadata=metadata, spec=spec)


def with_capacity(claim: ResourceClaim, name: str, capacity: str, amount: str) -> ResourceClaim:
    """A request for another amount of a capacity."""

    def edit(asked: Asked) -> Any:
        requests = dict(asked.capacity.requests) if asked.capacity is not None else {}
        return change(asked, capacity=CapacityRequirements({**requests, capacity: amount}))

    return with_request(claim, name, edit)


def with_exact_count(claim: ResourceClaim, name: str, count: int) -> ResourceClaim:
    """A request for ``count`` devices instead of all."""
    return with_request(claim, name, lambda asked: change(asked, allocationMode=EXACT_COUNT, count=count))


def _with_spec(pod: Pod, **fields: Any) -> Pod:
    return change(pod, spec=change(pod.spec, **fields))


def with_claim_name(pod: Pod, entry: str, claim: str) -> Pod:
    """With another claim for one entry of spec.resourceClaims."""
    entries = tuple(
        change(one, resourceClaimName=claim) if one.name == entry else one for one in pod.spec.resourceClaims
    )
    return _with_spec(pod, resourceClaims=entries)


def without_gates(pod: Pod) -> Pod:
    """Without scheduling gates."""
    return _with_spec(pod, schedulingGates=())


def with_container_request(pod: Pod, container: str, resource: str, amount: str) -> Pod:
    """One container asks for another amount of a node's resource."""

    def edit(one: Container) -> Container:
        if one.name != container:
            return one
        requests = {**(one.resources.requests or {}), resource: amount}
        return change(one, resources=change(one.resources, requests=requests))

    return _with_spec(pod, containers=tuple(map(edit, pod.spec.containers)))


def with_max_skew(pod: Pod, number: int, max_skew: int) -> Pod:
    """With another maxSkew in constraint ``number`` of those that must hold."""
    hard = [place for place, one in enumerate(pod.spec.topologySpreadConstraints) if one.whenUnsatisfiable == HARD]
    constraints = list(pod.spec.topologySpreadConstraints)
    constraints[hard[number]] = change(constraints[hard[number]], maxSkew=max_skew)
    return _with_spec(pod, topologySpreadConstraints=tuple(constraints))


def without_spread(pod: Pod, number: int) -> Pod:
    """Without constraint ``number`` of those that must hold."""
    hard = [place for place, one in enumerate(pod.spec.topologySpreadConstraints) if one.whenUnsatisfiable == HARD]
    constraints = list(pod.spec.topologySpreadConstraints)
    del constraints[hard[number]]
    return _with_spec(pod, topologySpreadConstraints=tuple(constraints))


def without_pod_term(pod: Pod, kind: str, number: int) -> Pod:
    """Without a required term of ``podAffinity`` or ``podAntiAffinity``."""
    affinity = pod.spec.affinity
    rules: PodAffinity | None = getattr(affinity, kind, None)
    if affinity is None or rules is None:
        return pod
    terms = list(rules.requiredDuringSchedulingIgnoredDuringExecution)
    del terms[number]
    changed = change(rules, requiredDuringSchedulingIgnoredDuringExecution=tuple(terms))
    return _with_spec(pod, affinity=change(affinity, **{kind: changed}))


def without_node_rule(pod: Pod, term: int, key: str) -> Pod:
    """Without the requirements on ``key`` of a required node affinity term; a term left empty goes, too."""
    affinity = pod.spec.affinity
    rules = affinity.nodeAffinity if affinity is not None else None
    required = rules.requiredDuringSchedulingIgnoredDuringExecution if rules is not None else None
    if affinity is None or rules is None or required is None:
        return pod
    terms = list(required.nodeSelectorTerms)
    kept = change(
        terms[term],
        matchExpressions=tuple(one for one in terms[term].matchExpressions if one.key != key),
        matchFields=tuple(one for one in terms[term].matchFields if one.key != key),
    )
    selector = None
    if kept.matchExpressions or kept.matchFields:
        terms[term] = kept
        selector = change(required, nodeSelectorTerms=tuple(terms))
    rules = change(rules, requiredDuringSchedulingIgnoredDuringExecution=selector)
    return _with_spec(pod, affinity=change(affinity, nodeAffinity=rules))


def uncordoned(node: Node) -> Node:
    """The node, open for all."""
    return change(node, spec=change(node.spec, unschedulable=False))
