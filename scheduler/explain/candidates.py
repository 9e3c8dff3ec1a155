"""Changes worth trying for a waiting Pod, from what was found to refuse it; the smallest and likeliest first."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec

from scheduler.api.core import Pod
from scheduler.api.resource import ALL, ResourceClaim, ResourceClaimStatus
from scheduler.explain import edits
from scheduler.explain.candidate import Candidate
from scheduler.explain.candidates_pod import (
    ended_pods,
    held_back_changes,
    opened_nodes,
    parse_taint,
    pod_changes,
    toleration,
)
from scheduler.explain.facts import DeviceGroup, Explanation
from scheduler.explain.holders import use_words
from scheduler.explain.trees import find_request
from scheduler.state.cluster import ClusterState

_FEWER_MAX, _HOLDERS_MAX, _NODES_MAX = 8, 12, 4
_SELECTOR = re.compile(r"^request selector #(\d+): ")
_FAILED = re.compile(r"claim \S+: selector #(\d+)")


def candidates(pod: Pod, state: ClusterState, found: Explanation) -> Iterator[Candidate]:
    """In the order they should be tried. The state may change and change back between two of them."""
    if found.phase == "held back":
        yield from held_back_changes(pod, state)
        return
    open_claims = {claim.key: claim for claim in state.devices.claims_of(pod) if claim.status.allocation is None}
    refused = list(_refused(found, open_claims))
    for claim in open_claims.values():
        yield from _classes(claim, state)
    for claim, request, group in refused:
        yield from _request_changes(claim, request, group)
    for claim in open_claims.values():
        yield from _fewer(claim, found)
    yield from _constraints(refused)
    yield from pod_changes(pod, found)
    yield from opened_nodes(state, found)
    yield from _ended_claims(found, state, open_claims)
    yield from ended_pods(pod, state, found)
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
        taint = parse_taint(group.detail.get("taint", ""))
        text = f"tolerate device taint {group.detail.get('taint', '')} in {where}"
        subject = f"{claim.key} {request} {group.detail.get('taint', '')}"
        tolerating = edits.with_device_toleration(claim, request, toleration(taint))
        yield _one("tolerate device taint", subject, text, claim, tolerating)

    if group.reason == "capacity short by":
        yield from _less_capacity(claim, request, group, where)


def _less_capacity(claim: ResourceClaim, request: str, group: DeviceGroup, where: str) -> Iterator[Candidate]:
    """As much as this device has left."""
    name, there = group.detail.get("capacity", ""), group.detail.get("free", group.detail.get("total", ""))
    if "asked" in group.detail and there not in ("", "0"):
        text = f"ask for {there} instead of {group.detail['asked']} of capacity {name} in {where}"
        less = edits.with_capacity(claim, request, name, there)
        family = ("less capacity", f"{claim.key} {request} {name}")
        yield Candidate("less capacity", f"{family[1]} {there}", text, family, claims=((claim, less),))


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


def _fewer(claim: ResourceClaim, found: Explanation) -> Iterator[Candidate]:
    for request in claim.spec.devices.requests:
        asked = request.exactly
        if asked is None:
            continue
        subject = f"{claim.key} {request.name}"
        where = f"in request {request.name} of claim {claim.key}"
        if asked.allocationMode == ALL:
            for count in range(_would_do(found, claim.key, request.name), 0, -1)[:_FEWER_MAX]:
                text = f"ask for {count} instead of all devices {where}"
                fewer = edits.with_exact_count(claim, request.name, count)
                change = ((claim, fewer),)
                yield Candidate("fewer devices", f"{subject} {count}", text, ("fewer", subject), claims=change)
            continue
        for count in range(asked.count - 1, max(0, asked.count - 1 - _FEWER_MAX), -1):
            text = f"ask for {count} instead of {asked.count} devices {where}"
            fewer = edits.with_count(claim, request.name, count)
            yield Candidate("fewer devices", f"{subject} {count}", text, ("fewer", subject), claims=((claim, fewer),))


def _would_do(found: Explanation, claim: str, request: str) -> int:
    """The most devices of one node that nothing refuses."""
    reports = (report for group in found.nodes for report in group.claims if report.claim == claim)
    return max((one.left for report in reports for one in report.requests if one.request == request), default=0)


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
        use = found.users.get(key)
        # No age: the same cluster a second later gives the same answer.
        words = [] if use is None else [use_words(use, 0.0), *([f"since {use.since}"] if use.since else [])]
        shown = f" ({', '.join(words)})" if words else ""
        freed = msgspec.structs.replace(claim, status=ResourceClaimStatus())
        text = f"it fits when claim {key}{shown} ends"
        gone = tuple(user.uid for user in users)
        yield Candidate("claim ends", key, text, ("claim ends", key), claims=((claim, freed),), gone=gone)


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
