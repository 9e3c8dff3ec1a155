"""Changes worth trying for a waiting Pod, from what was found to refuse it; the smallest and likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches

import msgspec

from scheduler.api.core import Node, Pod
from scheduler.api.resource import ALL, ResourceClaim, ResourceClaimStatus, ResourceSlice
from scheduler.api.taints import Taint, Toleration, first_untolerated
from scheduler.explain import edits
from scheduler.explain.facts import DeviceGroup, Explanation
from scheduler.explain.trees import find_request
from scheduler.state.cluster import ClusterState

_FEWER_MAX, _HOLDERS_MAX, _PODS_MAX, _NODES_MAX = 8, 12, 12, 4
_SELECTOR = re.compile(r"^request selector #(\d+): ")
_FAILED = re.compile(r"claim \S+: selector #(\d+)")
_FIT = {"NodeResourcesFit", "NodePorts", "DynamicResources"}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A change to try. ``family``: of changes with the same one only the first that helps is told.

    ``claims``: (claim, what takes its place); ``pod``: what takes the waiting Pod's place; ``gone``: uids of Pods that
    end; ``nodes`` and ``slices`` that come. ``only_node``: it counts only when the Pod goes there.
    """

    change: str
    subject: str
    text: str
    family: tuple[str, str]
    claims: tuple[tuple[ResourceClaim, ResourceClaim], ...] = ()
    pod: Pod | None = None
    gone: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    slices: tuple[ResourceSlice, ...] = ()
    only_node: str = ""


def candidates(pod: Pod, state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """In the order they should be tried. The state may change and change back between two of them."""
    open_claims = {claim.key: claim for claim in state.devices.claims_of(pod) if claim.status.allocation is None}
    refused = list(_refused(found, open_claims))
    for claim in open_claims.values():
        yield from _classes(claim, state)
    for claim, request, group in refused:
        yield from _request_changes(claim, request, group)
    for claim in open_claims.values():
        yield from _fewer(claim)
    yield from _constraints(refused)
    yield from _pod_changes(pod, state, found)
    yield from _ended_claims(found, state, open_claims)
    yield from _ended_pods(pod, state, found)
    yield from _more_nodes(state, found)


_Refused = tuple[ResourceClaim, str, DeviceGroup]


def _refused(found: Explanation, open_claims: dict[str, ResourceClaim]) -> Iterator[_Refused]:
    for group in found.nodes:
        for report in group.claims:
            claim = open_claims.get(report.claim)
            if claim is None:
                continue
            for request in report.requests:
                for part in request.refused:
                    yield claim, request.request, part


def _one(change: str, subject: str, text: str, claim: ResourceClaim, replacement: ResourceClaim) -> Candidate:
    return Candidate(change, subject, text, (change, subject), claims=((claim, replacement),))


def _classes(claim: ResourceClaim, state: ClusterState) -> Iterator[Candidate]:
    """A class that does not exist may be a typing error."""
    classes = state.devices.classes
    for request in claim.spec.devices.requests:
        asked = request.exactly
        if asked is None or classes.get(asked.deviceClassName) is not None:
            continue
        for near in get_close_matches(asked.deviceClassName, classes.names(), 2, 0.6):
            text = f"ask for class {near} in request {request.name} of claim {claim.key} ({asked.deviceClassName} "
            text += "does not exist)"
            subject = f"{claim.key} {request.name} {near}"
            yield _one("use class", subject, text, claim, edits.with_class(claim, request.name, near))


def _request_changes(claim: ResourceClaim, request: str, group: DeviceGroup) -> Iterator[Candidate]:
    where = f"request {request} of claim {claim.key}"
    if group.reason == "selector error":
        yield from _guarded(claim, request, group, where)
    number = _selector_number(group)
    asked = find_request(claim, request)
    if number is not None and asked is not None and number < len(asked.selectors):
        text = f"drop selector {number} from {where}"
        subject = f"{claim.key} {request} #{number}"
        yield _one("drop selector", subject, text, claim, edits.without_selector(claim, request, number))
    if group.reason == "tainted":
        taint = _taint(group.detail.get("taint", ""))
        text = f"tolerate device taint {group.detail.get('taint', '')} in {where}"
        subject = f"{claim.key} {request} {group.detail.get('taint', '')}"
        tolerating = edits.with_device_toleration(claim, request, _toleration(taint))
        yield _one("tolerate device taint", subject, text, claim, tolerating)


def _guarded(claim: ResourceClaim, request: str, group: DeviceGroup, where: str) -> Iterator[Candidate]:
    guard, number = group.detail.get("guard", ""), _selector_number(group)
    asked = find_request(claim, request)
    if guard and number is not None and asked is not None and number < len(asked.selectors):
        text = f"write {guard} && before selector {number} of {where}"
        subject = f"{claim.key} {request} #{number}"
        yield _one("guard selector", subject, text, claim, edits.with_guard(claim, request, number, guard))


def _selector_number(group: DeviceGroup) -> int | None:
    """The number of the request's (not the class's) selector that refused."""
    text = group.detail.get("selector", "") or group.detail.get("error", "")
    match = _SELECTOR.match(text) or _FAILED.search(text)
    return int(match[1]) if match else None


def _fewer(claim: ResourceClaim) -> Iterator[Candidate]:
    for request in claim.spec.devices.requests:
        asked = request.exactly
        if asked is None or asked.allocationMode == ALL:
            continue
        for count in range(asked.count - 1, max(0, asked.count - 1 - _FEWER_MAX), -1):
            text = f"ask for {count} instead of {asked.count} devices in request {request.name} of claim {claim.key}"
            fewer = edits.with_count(claim, request.name, count)
            subject = f"{claim.key} {request.name}"
            yield Candidate("fewer devices", f"{subject} {count}", text, ("fewer", subject), claims=((claim, fewer),))


def _constraints(refused: list[_Refused]) -> Iterator[Candidate]:
    names = {(claim.key, part.detail.get("attribute", "")) for claim, _, part in refused if "attribute" in part.detail}
    for claim in {claim.key: claim for claim, _, _ in refused}.values():
        for number, constraint in enumerate(claim.spec.devices.constraints):
            attribute = constraint.matchAttribute or constraint.distinctAttribute or ""
            if (claim.key, attribute) in names:
                kind = "matchAttribute" if constraint.matchAttribute else "distinctAttribute"
                text = f"drop constraint {number} ({kind} {attribute}) from claim {claim.key}"
                subject = f"{claim.key} #{number}"
                yield _one("drop constraint", subject, text, claim, edits.without_constraint(claim, number))


def _pod_changes(pod: Pod, state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    plugins = {verdict.plugin for group in found.nodes for verdict in group.verdicts}
    if "TaintToleration" in plugins:
        for taint in _node_taints(pod, state, found):
            shown = f"{taint.key}={taint.value}:{taint.effect}"
            tolerant = edits.with_pod_toleration(pod, _toleration(taint))
            text = f"let the Pod tolerate node taint {shown}"
            yield Candidate("tolerate node taint", shown, text, ("tolerate node taint", shown), pod=tolerant)
    if "NodeAffinity" in plugins or "NodeAffinity" in found.culprit:
        for key, value in (pod.spec.nodeSelector or {}).items():
            text = f"drop {key}={value} from the Pod's nodeSelector"
            yield Candidate(
                "drop node label", key, text, ("drop node label", key), pod=edits.without_node_label(pod, key)
            )


def _node_taints(pod: Pod, state: ClusterState, found: Explanation) -> list[Taint]:
    """Taints that keep the Pod away, without those that the cluster itself sets on nodes in trouble."""
    taints: dict[tuple[str, str, str], Taint] = {}
    for group in found.nodes:
        row = state.nodes.row_of(group.nodes[0])
        if row is None or not any(verdict.plugin == "TaintToleration" for verdict in group.verdicts):
            continue
        taint = first_untolerated(state.nodes.node(row).spec.taints, pod.spec.tolerations)
        if taint is not None and not taint.key.startswith("node.kubernetes.io/"):
            taints.setdefault((taint.key, taint.value, taint.effect), taint)
    return list(taints.values())


def _taint(text: str) -> Taint:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return Taint(key=key, value=value, effect=effect)


def _toleration(taint: Taint) -> Toleration:
    return Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)


def _ended_claims(found: Explanation, state: ClusterState, own: dict[str, ResourceClaim]) -> Iterator[Candidate]:
    """The claims that hold what is wanted, those with the most devices first."""
    counts: dict[str, int] = {}
    for group in found.nodes:
        for part in (part for claim in group.claims for request in claim.requests for part in request.refused):
            for holder, count in part.holders.items():
                counts[holder] = max(counts.get(holder, 0), count)
    tried = 0
    for key in sorted(counts, key=lambda name: (-counts[name], name)):
        claim = state.devices.claims.get(key)
        if claim is None or key in own or tried >= _HOLDERS_MAX:
            continue
        tried += 1
        users = [state.pods[user.uid] for user in claim.consumers if user.uid in state.pods]
        shown = f" (pod {', '.join(user.key for user in users[:2])})" if users else ""
        freed = msgspec.structs.replace(claim, status=ResourceClaimStatus())
        text = f"it fits when claim {key}{shown} ends"
        gone = tuple(user.uid for user in users)
        yield Candidate("claim ends", key, text, ("claim ends", key), claims=((claim, freed),), gone=gone)


def _ended_pods(pod: Pod, state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """Pods on nodes that lack nothing but room."""
    tried = 0
    for group in found.nodes:
        plugins = {verdict.plugin for verdict in group.verdicts}
        if not plugins or plugins - _FIT or "NodeResourcesFit" not in plugins:
            continue
        for name in group.nodes:
            row = state.nodes.row_of(name)
            for info in () if row is None else tuple(state.nodes.pods(row)):
                if tried >= _PODS_MAX:
                    return
                if info.uid != pod.uid and info.pod.spec.nodeName:
                    tried += 1
                    text = f"it fits when pod {info.pod.key} on node {name} ends"
                    yield Candidate("pod ends", info.pod.key, text, ("pod ends", name), gone=(info.uid,))


def _more_nodes(state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """One more node like one that is there, with devices of its own and nothing on it."""
    groups = sorted(found.nodes, key=lambda group: -group.devices)
    for group in groups[:_NODES_MAX]:
        name = group.nodes[0]
        row = state.nodes.row_of(name)
        if row is None:
            continue
        more = f"{name}-more"
        slices = tuple(
            edits.slice_like(info.slice, name, more)
            for info in state.devices.slices.infos()
            if info.slice.spec.nodeName == name
        )
        node = edits.node_like(state.nodes.node(row), more)
        text = f"one more node like {name} would do"
        yield Candidate("add node", name, text, ("add node", ""), nodes=(node,), slices=slices, only_node=more)
